"""Models behind chat completions: OpenAI, and every server that speaks its protocol (vLLM, SGLang, llama.cpp).

Reasoning is read from `reasoning_content` or `reasoning`, and sent back under the same name unless `send_reasoning` is off: models that
reason between calls need it, and a few servers refuse it. Arguments of calls go back as the text they came as. A
structured answer is requested with a strict JSON schema.
"""

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import openai

from agents.models.conversation import Message, ToolCall
from agents.models.engine_tokens import tokens_of
from agents.models.http_adapter import PLAIN, calling, clean, count_of, limited
from agents.models.model import FinishReason, ModelRequest, ModelResponse, TokenUsage, digest_of
from agents.models.model_error import ModelError
from agents.models.service import ServiceOptions, check_service
from schemas.jsontext import parse_object

KEY = "OPENAI_API_KEY"

NO_KEY = "none"
"""Sent to servers that want no key: the SDK insists on one."""

REASONING = ("reasoning_content", "reasoning")
"""Fields that servers write reasoning to; vLLM renamed the first to the second."""

VERSIONS = ("policy_version", "weight_version")
"""Fields that training servers write the version of their weights to."""

FINISHED: Mapping[str, FinishReason] = {
    "stop": "end_turn", "tool_calls": "tool_use", "function_call": "tool_use", "length": "max_tokens",
    "content_filter": "content_filter",
}  # fmt: skip


class OpenAIModel:
    """A model behind chat completions."""

    takes_seed = True

    def __init__(
        self,
        name: str,
        service: ServiceOptions,
        api_key: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        check_service("openai", name, service, os.environ | ({KEY: api_key} if api_key else {}))
        url = service.base_url or os.environ.get("OPENAI_BASE_URL", "")
        self.name = name
        self.takes_reasoning = service.send_reasoning
        self._service = service
        self._clock = clock
        self._is_openai = not url
        self._client = openai.AsyncOpenAI(
            api_key=api_key or os.environ.get(service.key_variable or KEY) or NO_KEY,
            base_url=url or None,
            max_retries=0,
            default_headers=PLAIN,
            http_client=openai.DefaultAsyncHttpxClient(event_hooks={"response": [limited]}),
        )

    async def call(self, request: ModelRequest) -> ModelResponse:
        """Make one call. Raises ModelError."""
        # OpenAI's own models accept only the new name of the limit; other servers only the old one.
        limit = "max_completion_tokens" if self._is_openai else "max_tokens"
        body = request_body(request, limit, send_reasoning=self._service.send_reasoning) | dict(
            self._service.extra_body
        )
        async with calling(openai, digest_of(body), request.timeout_s, self._clock) as sent:
            answer = await self._send(body, request.timeout_s)
            response = read_completion(answer, request)
        return response._replace(request_digest=sent.digest, latency_ms=sent.latency_ms)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _send(self, body: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Return the completion, assembled if it was streamed."""
        named = {name: body[name] for name in ("model", "messages")}
        rest = {name: value for name, value in body.items() if name not in (*named, "stream")}
        create: Any = self._client.chat.completions
        try:
            if body.get("stream"):
                stream = await create.create(**named, stream=True, extra_body=rest, timeout=timeout_s)
                async with stream:
                    return await _gathered(stream)
            whole = await create.with_raw_response.create(**named, extra_body=rest, timeout=timeout_s)
            return parse_object(whole.text)
        except openai.APIError:
            raise
        except openai.OpenAIError as error:
            raise ModelError("setup", f"the model cannot be asked: {error}") from None


# -- the request -----------------------------------------------------------------------------------------------------------


def request_body(request: ModelRequest, limit: str, *, send_reasoning: bool) -> dict[str, Any]:
    """Return the body of the request; `limit` is the name of the limit of tokens."""
    sampling = request.sampling
    system = [{"role": "system", "content": request.system}] if request.system else []
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [*system, *(_message(message, send_reasoning) for message in request.messages)],
    }
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": each.name, "description": each.description, "parameters": dict(each.parameters)},
            }
            for each in request.tools
        ]
    given = {
        "temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": sampling.top_k, "seed": sampling.seed,
        limit: sampling.max_tokens, "stop": list(sampling.stop) or None,
    }  # fmt: skip
    body |= {name: value for name, value in given.items() if value is not None}
    if request.response_schema is not None:
        name, _, schema = request.response_schema
        form = {"name": name, "strict": True, "schema": dict(schema)}
        body["response_format"] = {"type": "json_schema", "json_schema": form}
    if request.stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body


def _message(message: Message, send_reasoning: bool) -> dict[str, Any]:
    made: dict[str, Any] = {"role": message.role, "content": _content(message)}
    if message.role == "tool":
        made["tool_call_id"] = message.tool_call_id
    if send_reasoning and message.reasoning:
        made[message.extra.get("reasoning_field", REASONING[0])] = message.reasoning
    if message.tool_calls:
        made["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    return made


def _content(message: Message) -> str:
    if not isinstance(message.content, str) and any(part.type != "text" for part in message.content):
        raise ModelError("bad_request", "the message holds media, which this adapter does not send")
    return message.text


# -- the response ----------------------------------------------------------------------------------------------------------


async def _gathered(stream: Any) -> dict[str, Any]:
    """Put the chunks of a stream together. Raises ModelError for a stream without its end."""
    whole: dict[str, Any] = {}
    message: dict[str, Any] = {"tool_calls": []}
    tokens: dict[str, Any] = {}
    finish = None
    async for chunk in stream:
        data = chunk.to_dict(warnings=False)
        whole |= {name: data[name] for name in ("model", "usage", "prompt_token_ids", *VERSIONS) if data.get(name)}
        whole["begun"] = True
        for choice in data.get("choices") or ():
            if choice.get("index", 0) == 0:
                _add(message, choice.get("delta") or {})
                _add_tokens(tokens, choice)
                finish = choice.get("finish_reason") or finish
    if not whole:
        raise ModelError("empty_stream", "the stream ended before anything was said")
    if finish is None:
        raise ModelError("cut_stream", "the stream ended before the turn was complete")
    return whole | {"choices": [{"message": message, "finish_reason": finish, **tokens}]}


def _add_tokens(tokens: dict[str, Any], choice: dict[str, Any]) -> None:
    """Add the ids and log-probabilities of a chunk."""
    logprobs = choice.get("logprobs")
    if isinstance(choice.get("prompt_token_ids"), list):
        tokens["prompt_token_ids"] = choice["prompt_token_ids"]
    if isinstance(choice.get("token_ids"), list):
        tokens.setdefault("token_ids", []).extend(choice["token_ids"])
    if isinstance(logprobs, dict) and isinstance(logprobs.get("content"), list):
        tokens.setdefault("logprobs", {"content": []})["content"].extend(logprobs["content"])


def _add(message: dict[str, Any], delta: dict[str, Any]) -> None:
    for name in ("content", "refusal", *REASONING):
        if isinstance(delta.get(name), str):
            message[name] = message.get(name, "") + delta[name]
    for piece in delta.get("tool_calls") or ():
        call = _call_of(message["tool_calls"], piece)
        given = piece.get("function") or {}
        call["id"] = call["id"] or piece.get("id") or ""
        call["function"]["name"] += given.get("name") or ""
        call["function"]["arguments"] += given.get("arguments") or ""


def _call_of(calls: list[dict[str, Any]], piece: dict[str, Any]) -> dict[str, Any]:
    """The call that a piece of a stream belongs to. Some servers give all calls the same index, or none: then a new id
    begins a new call.
    """
    index, call_id = piece.get("index"), piece.get("id")
    same = [call for call in calls if call["index"] == index]
    if same and not (call_id and same[-1]["id"] and call_id != same[-1]["id"]):
        return same[-1]
    calls.append({"index": index, "id": "", "function": {"name": "", "arguments": ""}})
    return calls[-1]


def read_completion(body: dict[str, Any], request: ModelRequest) -> ModelResponse:
    """Read a complete completion. Raises ModelError if there is none."""
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    given = choice.get("message")
    if not isinstance(given, dict):
        raise ModelError("unparseable", "the service's answer holds no message")
    message = _read_message(given, turn=sum(each.role == "assistant" for each in request.messages))
    finish = FINISHED.get(str(choice.get("finish_reason")), "other")
    return ModelResponse(
        message,
        str(body.get("model") or request.model),
        "refusal" if message.extra.get("refusal") else finish,
        _usage(body.get("usage")),
        structured=message.text if request.response_schema is not None and message.text.strip() else None,
        tokens=tokens_of(body),
        policy_version=next((str(body[name]) for name in VERSIONS if body.get(name)), None),
    )


def _read_message(given: dict[str, Any], turn: int) -> Message:
    field = next((name for name in REASONING if isinstance(given.get(name), str) and given[name]), "")
    extra: dict[str, Any] = {"reasoning_field": field} if field and field != REASONING[0] else {}
    if isinstance(given.get("refusal"), str) and given["refusal"]:
        extra["refusal"] = clean(given["refusal"])
    calls = given.get("tool_calls")
    return Message(
        "assistant",
        clean(given["content"]) if isinstance(given.get("content"), str) else "",
        reasoning=clean(given[field]) if field else "",
        tool_calls=tuple(
            _read_call(call, f"call_{turn}_{position}")
            for position, call in enumerate(calls if isinstance(calls, list) else [])
            if isinstance(call, dict)
        ),
        extra=extra,
    )


def _read_call(call: dict[str, Any], unnamed: str) -> ToolCall:
    """A call; one without an id, as some servers give them, is named by its place."""
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    return ToolCall(
        clean(str(call.get("id") or unnamed)), clean(str(function.get("name") or "")),
        clean(str(function.get("arguments") or "")),
    )  # fmt: skip


def _usage(said: Any) -> TokenUsage:
    if not isinstance(said, dict):
        return TokenUsage()
    cached = count_of((said.get("prompt_tokens_details") or {}).get("cached_tokens"))
    prompt = count_of(said.get("prompt_tokens"))
    return TokenUsage(
        input=None if prompt is None else max(0, prompt - (cached or 0)),
        output=count_of(said.get("completion_tokens")),
        cached=cached,
        reasoning=count_of((said.get("completion_tokens_details") or {}).get("reasoning_tokens")),
    )
