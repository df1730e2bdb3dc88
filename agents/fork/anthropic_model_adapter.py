"""Models of the Messages API: one streamed call for a turn, with parallel tool calls and prompt caching.

The system prompt, the tools and the conversation up to its last message are marked for caching, so that a turn pays for
what is new. The SDK's own retries are off: the agent retries, where the log can see it. A stream that breaks off, in
whatever way, is trouble that may pass; half a turn is never taken for a whole one.
"""

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import anthropic
import httpx2
from anthropic import APIConnectionError, APIStatusError, APITimeoutError, AsyncAnthropic

from agents.fork.fork_error import ForkError
from agents.fork.model import Answers, Ask, Assistant, ModelTroubleError, Stop, Tokens, ToolUse, TroubleKind, Turn
from schemas.retry_after import seconds_until

CACHED = {"cache_control": {"type": "ephemeral"}}

STOPS: Mapping[str, Stop] = {
    "end_turn": "end_turn", "stop_sequence": "end_turn", "tool_use": "tool_use", "max_tokens": "max_tokens", "refusal": "refusal",
}  # fmt: skip

BUSY: Mapping[str, TroubleKind] = {
    "overloaded_error": "overloaded", "rate_limit_error": "rate_limited", "api_error": "http_5xx", "timeout_error": "timeout",
}  # fmt: skip
"""Errors that a stream reports after its headers said 200."""


class ModelOptions(NamedTuple):
    """How the model is asked."""

    model: str
    base_url: str = ""
    """Empty: ANTHROPIC_BASE_URL, else the API itself."""
    timeout_s: float = 300.0
    """For one turn, all of it."""
    max_tokens: int = 8192


class AnthropicModel:
    """A model that takes turns; branches share one, and its connections."""

    takes_seed = False

    def __init__(
        self, options: ModelOptions, api_key: str | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        if not options.model:
            raise ForkError("no model: set fork.model (BRAID_FORK__MODEL), for instance to a Claude model's name")
        if not (api_key or os.environ.get("ANTHROPIC_API_KEY") or os.environ.get("ANTHROPIC_AUTH_TOKEN")):
            raise ForkError("no key for the model: set ANTHROPIC_API_KEY, or use --model scripted")
        self.name = options.model
        self._options = options
        self._clock = clock
        self._takes_temperature = True
        self._client = AsyncAnthropic(
            api_key=api_key, base_url=options.base_url or None, max_retries=0, timeout=options.timeout_s
        )

    async def ask(self, ask: Ask) -> Turn:
        """Its next turn. Raises ModelTroubleError."""
        try:
            async with asyncio.timeout(self._options.timeout_s):
                return await self._stream(ask)
        except (TimeoutError, APITimeoutError, httpx2.TimeoutException):
            raise ModelTroubleError("timeout", f"no whole turn within {self._options.timeout_s:g} s") from None
        except APIStatusError as error:
            if error.status_code == 400 and self._takes_temperature and "temperature" in error.message:
                self._takes_temperature = False  # some models take none
                return await self.ask(ask)
            raise _trouble(error, self._clock()) from None
        except (APIConnectionError, httpx2.HTTPError, ValueError) as error:
            raise ModelTroubleError("connection", f"the stream was lost: {error}") from None
        except anthropic.AnthropicError as error:
            raise ModelTroubleError("setup", str(error)) from None

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _stream(self, ask: Ask) -> Turn:
        extra = {}
        if ask.temperature is not None and self._takes_temperature:
            extra["temperature"] = ask.temperature
        request: dict[str, Any] = {
            "model": self._options.model,
            "max_tokens": self._options.max_tokens,
            "system": [{"type": "text", "text": ask.system, **CACHED}] if ask.system else anthropic.omit,
            "messages": messages(ask),
            "tools": tools(ask),
        }
        async with self._client.messages.stream(**request, extra_body=extra or None) as stream:
            kinds = [event.type async for event in stream]
            if "message_stop" not in kinds:
                raise ModelTroubleError("connection", "the stream ended before the turn was complete")
            message = await stream.get_final_message()
        return read_message(message.model_dump(mode="json"))


def tools(ask: Ask) -> list[dict[str, Any]]:
    """The tools in the API's form."""
    made = [
        {"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]}
        for tool in ask.tools
    ]
    if made:
        made[-1] |= CACHED
    return made


def messages(ask: Ask) -> list[dict[str, Any]]:
    """The conversation in the API's form, its end marked for caching."""
    made: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "text", "text": ask.task}]}]
    for entry in ask.entries:
        if isinstance(entry, Assistant):
            said = [{"type": "text", "text": entry.text}] if entry.text else []
            calls = [
                {"type": "tool_use", "id": call.call_id, "name": call.name, "input": dict(call.arguments)}
                for call in entry.calls
            ]
            made.append({"role": "assistant", "content": [*said, *calls]})
        else:
            made.append({"role": "user", "content": _answers(entry)})
    made[-1]["content"][-1] |= CACHED
    return made


def _answers(entry: Answers) -> list[dict[str, Any]]:
    return [
        {"type": "tool_result", "tool_use_id": answer.call_id, "content": answer.content, "is_error": answer.failed}
        for answer in entry.answers
    ]


def read_message(message: dict[str, Any]) -> Turn:
    """A turn from a message of the API."""
    content = [part for part in message.get("content") or [] if isinstance(part, dict)]
    text = "".join(part["text"] for part in content if part.get("type") == "text" and isinstance(part.get("text"), str))
    calls = tuple(
        ToolUse(_clean(str(part["id"])), _clean(str(part["name"])), _clean_json(part.get("input") or {}))
        for part in content
        if part.get("type") == "tool_use"
    )
    usage = message.get("usage") or {}
    tokens = Tokens(
        input=_count(usage, "input_tokens") + _count(usage, "cache_creation_input_tokens"),
        output=_count(usage, "output_tokens"),
        cached=_count(usage, "cache_read_input_tokens"),
    )
    return Turn(_clean(text), calls, STOPS.get(str(message.get("stop_reason")), "other"), tokens)


def _trouble(error: APIStatusError, now: float) -> ModelTroubleError:
    """What a status means."""
    status, after = error.status_code, seconds_until(error.response.headers.get("retry-after"), now)
    body = error.body if isinstance(error.body, dict) else {}
    inner = body.get("error")
    said = str(inner.get("type")) if isinstance(inner, dict) else ""
    kind: TroubleKind
    if status == 429:
        kind = "rate_limited"
    elif status == 529 or said == "overloaded_error":
        kind = "overloaded"
    elif status >= 500:
        kind = "http_5xx"
    elif status == 408:
        kind = "timeout"
    elif status < 300:
        kind = BUSY.get(said, "connection")
    else:
        kind = "setup" if status in (401, 403, 404) else "refused"
    return ModelTroubleError(kind, f"HTTP {status}: {error.message}", after)


def _count(usage: dict[str, Any], name: str) -> int:
    value = usage.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def _clean(text: str) -> str:
    """Text that has a UTF-8 form: models have been seen to break surrogate pairs."""
    return text.encode("utf-8", "replace").decode()


def _clean_json(value: Any) -> Any:
    if isinstance(value, str):
        return _clean(value)
    if isinstance(value, list):
        return [_clean_json(item) for item in value]
    if isinstance(value, dict):
        return {_clean(str(key)): _clean_json(item) for key, item in value.items()}
    return value
