"""Models of the Messages API: streamed turns with parallel tool calls, thinking and prompt caching, or whole answers.

Thinking blocks go back unchanged, with their signatures and in their place among the other blocks (`extra["blocks"]`). A
structured answer is the input of a tool that the model must call.
"""

import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import anthropic

from agents.models.conversation import Message, Part, ToolCall
from agents.models.http_adapter import PLAIN, calling, clean, count_of, limited
from agents.models.model import FinishReason, ModelRequest, ModelResponse, TokenUsage, digest_of
from agents.models.model_error import ModelError
from agents.models.service import ServiceOptions, check_service
from schemas.jsontext import compact, parse_object

KEY = "ANTHROPIC_API_KEY"

CACHED = {"cache_control": {"type": "ephemeral"}}

FINISHED: Mapping[str, FinishReason] = {
    "end_turn": "end_turn", "stop_sequence": "end_turn", "tool_use": "tool_use", "max_tokens": "max_tokens", "refusal": "refusal",
}  # fmt: skip


class AnthropicModel:
    """A model behind the Messages API."""

    takes_seed = False
    takes_reasoning = True

    def __init__(
        self,
        name: str,
        service: ServiceOptions,
        api_key: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        check_service("anthropic", name, service, os.environ | ({KEY: api_key} if api_key else {}))
        self.name = name
        self._service = service
        self._clock = clock
        self._client = anthropic.AsyncAnthropic(
            api_key=api_key or os.environ.get(service.key_variable or KEY),
            base_url=service.base_url or None,
            max_retries=0,
            default_headers=PLAIN,
            http_client=anthropic.DefaultAsyncHttpxClient(event_hooks={"response": [limited]}),
        )

    async def call(self, request: ModelRequest) -> ModelResponse:
        """Make one call. Raises ModelError."""
        body = request_body(request) | dict(self._service.extra_body)
        async with calling(anthropic, digest_of(body), request.timeout_s, self._clock) as sent:
            message = await self._send(body, request.timeout_s)
            response = read_message(message, request)
        return response._replace(request_digest=sent.digest, latency_ms=sent.latency_ms)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _send(self, body: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Return the message; `input` of its calls is JSON text."""
        named = {name: body[name] for name in ("model", "max_tokens", "messages")}
        rest = {name: value for name, value in body.items() if name not in (*named, "stream")}
        try:
            if body.get("stream"):
                stream = await self._client.messages.create(**named, stream=True, extra_body=rest, timeout=timeout_s)
                async with stream:
                    return await _gathered(stream)
            whole = await self._client.messages.with_raw_response.create(**named, extra_body=rest, timeout=timeout_s)
            return _with_text_inputs(parse_object(await _text(whole)))
        except anthropic.APIError:
            raise
        except anthropic.AnthropicError as error:
            raise ModelError("setup", f"the model cannot be asked: {error}") from None


async def _text(answer: Any) -> str:
    text: str = await answer.text()
    return text


def _with_text_inputs(message: dict[str, Any]) -> dict[str, Any]:
    for block in _blocks(message):
        if block.get("type") == "tool_use":
            block["input"] = compact(block.get("input"))
    return message


# -- the request -----------------------------------------------------------------------------------------------------------


def request_body(request: ModelRequest) -> dict[str, Any]:
    """Return the body of the request. Raises ModelError for parts that the API cannot represent."""
    sampling = request.sampling
    if sampling.max_tokens is None:
        raise ModelError("bad_request", "the Messages API needs sampling.max_tokens")
    body: dict[str, Any] = {"model": request.model, "max_tokens": sampling.max_tokens}
    if request.system:
        body["system"] = [{"type": "text", "text": request.system, **CACHED}] if request.cache else request.system
    body["messages"] = _messages(request)
    tools = [
        {"name": tool.name, "description": tool.description, "input_schema": dict(tool.parameters)}
        for tool in request.tools
    ]
    if tools and request.cache:
        tools[-1] |= CACHED
    if request.response_schema is not None:
        name, description, schema = request.response_schema
        tools.append({"name": name, "description": description, "input_schema": dict(schema)})
        body["tool_choice"] = {"type": "tool", "name": name, "disable_parallel_tool_use": True}
    if tools:
        body["tools"] = tools
    given = {"temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": sampling.top_k}
    body |= {name: value for name, value in given.items() if value is not None}
    if sampling.stop:
        body["stop_sequences"] = list(sampling.stop)
    return body | ({"stream": True} if request.stream else {})


def _messages(request: ModelRequest) -> list[dict[str, Any]]:
    """The conversation; answers to the calls of one turn are one message."""
    made: list[dict[str, Any]] = []
    answering = False
    for message in request.messages:
        if message.role == "tool":
            if not answering:
                made.append({"role": "user", "content": []})
            made[-1]["content"].append(_tool_result(message))
        elif message.role in ("user", "assistant"):
            made.append({"role": message.role, "content": _content(message, plain=not request.cache)})
        else:
            raise ModelError(
                "bad_request", f"the Messages API has no {message.role} messages; use the request's system"
            )
        answering = message.role == "tool"
    if request.cache and made:
        made[-1]["content"][-1] |= CACHED
    return made


def _content(message: Message, *, plain: bool) -> str | list[dict[str, Any]]:
    if message.role == "assistant":
        return list(_assistant_blocks(message))
    if plain and isinstance(message.content, str):
        return message.content
    return [{"type": "text", "text": sent_text(message)}]


def _tool_result(message: Message) -> dict[str, Any]:
    return {
        "type": "tool_result",
        "tool_use_id": message.tool_call_id,
        "content": sent_text(message),
        "is_error": message.is_error,
    }


def _assistant_blocks(message: Message) -> Iterable[dict[str, Any]]:
    """The blocks in their order; without thinking, the text and then the calls."""
    text, calls = sent_text(message), iter(message.tool_calls)
    start = 0
    for block in message.extra.get("blocks", ()):
        match block["type"]:
            case "text":
                yield {"type": "text", "text": text[start : start + block["chars"]]}
                start += block["chars"]
            case "tool_use":
                yield _tool_use(next(calls))
            case _:
                yield dict(block)
    if text[start:]:
        yield {"type": "text", "text": text[start:]}
    yield from map(_tool_use, calls)


def _tool_use(call: ToolCall) -> dict[str, Any]:
    try:
        given = call.parsed()
    except ValueError as error:
        raise ModelError("bad_request", f"the arguments of call {call.id} are no JSON object: {error}") from None
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": given}


def sent_text(message: Message) -> str:
    """Return the text of a message. Raises ModelError if it contains media."""
    parts: tuple[Part, ...] = () if isinstance(message.content, str) else message.content
    if any(part.type != "text" for part in parts):
        raise ModelError("bad_request", "the message holds media, which this adapter does not send")
    return message.text


# -- the response ----------------------------------------------------------------------------------------------------------


async def _gathered(stream: Any) -> dict[str, Any]:
    """Put the events of a stream together. Raises ModelError for a stream without its end."""
    message: dict[str, Any] | None = None
    blocks: dict[int, dict[str, Any]] = {}
    ended = False
    async for event in stream:
        data = event.to_dict(warnings=False)
        match data.get("type"):
            case "message_start":
                message = dict(data["message"])
            case "content_block_start":
                blocks[data["index"]] = dict(data["content_block"]) | {"pieces": []}
            case "content_block_delta":
                _add(blocks.setdefault(data["index"], {"pieces": []}), data["delta"])
            case "message_delta" if message is not None:
                message |= data["delta"]
                message["usage"] = dict(message.get("usage") or {}) | dict(data.get("usage") or {})
            case "message_stop":
                ended = True
    if message is None:
        raise ModelError("empty_stream", "the stream ended before anything was said")
    if not ended:
        raise ModelError("cut_stream", "the stream ended before the turn was complete")
    return message | {"content": [_closed(blocks[index]) for index in sorted(blocks)]}


def _add(block: dict[str, Any], delta: dict[str, Any]) -> None:
    match delta.get("type"):
        case "text_delta":
            block["text"] = block.get("text", "") + delta["text"]
        case "thinking_delta":
            block["thinking"] = block.get("thinking", "") + delta["thinking"]
        case "signature_delta":
            block["signature"] = delta["signature"]
        case "input_json_delta":
            block["pieces"].append(delta["partial_json"])


def _closed(block: dict[str, Any]) -> dict[str, Any]:
    pieces = "".join(block.pop("pieces"))
    if block.get("type") == "tool_use":
        block["input"] = pieces or compact(block.get("input") or {})
    return block


def read_message(message: dict[str, Any], request: ModelRequest) -> ModelResponse:
    """Read a whole message of the API, whose calls have their input as JSON text."""
    blocks = _blocks(message)
    texts = [clean(str(block.get("text") or "")) for block in blocks if block.get("type") == "text"]
    thoughts = [clean(str(block.get("thinking") or "")) for block in blocks if block.get("type") == "thinking"]
    calls = tuple(
        ToolCall(clean(str(block.get("id"))), clean(str(block.get("name"))), clean(str(block.get("input"))))
        for block in blocks
        if block.get("type") == "tool_use"
    )
    known = all(block.get("type") in ("text", "tool_use") for block in blocks)
    said = Message(
        "assistant",
        "".join(texts),
        reasoning="".join(thoughts),
        tool_calls=calls,
        extra={} if known else {"blocks": [_kept(block) for block in blocks]},
    )
    wanted = request.response_schema
    answered = wanted is not None and len(calls) == 1 and calls[0].name == wanted.name
    return ModelResponse(
        said,
        str(message.get("model") or request.model),
        FINISHED.get(str(message.get("stop_reason")), "other"),
        _usage(message.get("usage")),
        structured=calls[0].arguments if answered else None,
    )


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _kept(block: dict[str, Any]) -> dict[str, Any]:
    """A block of `extra`: texts and calls are in the message itself, and only their positions are here."""
    if block.get("type") == "text":
        return {"type": "text", "chars": len(clean(str(block.get("text") or "")))}
    return {"type": "tool_use"} if block.get("type") == "tool_use" else block


def _usage(said: Any) -> TokenUsage:
    if not isinstance(said, dict):
        return TokenUsage()
    plain, cache_made = count_of(said.get("input_tokens")), count_of(said.get("cache_creation_input_tokens"))
    return TokenUsage(
        input=None if plain is None else plain + (cache_made or 0),
        output=count_of(said.get("output_tokens")),
        cached=count_of(said.get("cache_read_input_tokens")),
    )
