"""Writes the conversation of a branch: every message once, and every call with the messages that it was made with.

The messages of a call are exactly those sent to the service. A call records them as a difference to the
call before, so a turn costs only its new messages.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from agents.evidence.canonical import canonical_bytes, digest
from agents.fork.recorder import Recorder
from agents.models.conversation import Message, ToolCall
from agents.models.model import ModelRequest, ModelResponse, TokenUsage
from agents.models.model_error import ModelError
from schemas.events import AgentEvent
from schemas.jsontext import parse_object

Clock = Callable[[], int]
"""Milliseconds since 1970."""


class _Told(NamedTuple):
    """A message on the log."""

    message_id: str
    message: Message


class SentCall(NamedTuple):
    """A running call."""

    data: dict[str, Any]
    """The fields of its event that are known before the response."""
    context: list[_Told]


class ChatLog:
    """The conversation of one attempt."""

    def __init__(self, recorder: Recorder, clock: Clock) -> None:
        self._recorder = recorder
        self._clock = clock
        self._n_messages = 0
        self._n_calls = 0
        self._call: str | None = None
        """The last call."""
        self._last: list[_Told] = []
        """Its context, and its response if it has one."""
        self._tools = ""
        """Digest of the tools that the last call was offered."""

    def begin(self, request: ModelRequest) -> SentCall:
        """Write the messages of a request that are new. `request` is the request as sent."""
        system = (Message("system", request.system),) if request.system else ()
        messages = (*system, *request.messages)
        pairs = zip(self._last, messages, strict=False)
        same = [told.message == message for told, message in pairs]
        keep = same.index(False) if False in same else len(same)
        context = [*self._last[:keep], *[self._tell(message) for message in messages[keep:]]]
        add = [told.message_id for told in context[keep:]]
        sampling = {name: value for name, value in request.sampling._asdict().items() if value not in (None, ())}
        data = {
            "call_id": f"c{self._n_calls}",
            "context": {"after": self._call, "keep": keep, "add": add} if self._call is not None else {"add": add},
            "model": request.model,
            "sampling": sampling,
            **self._offer(request),
            "started_ms": self._clock(),
        }
        self._n_calls += 1
        return SentCall(data, context)

    def end(self, call: SentCall, response: ModelResponse) -> None:
        """Write a call that has its response."""
        told = self._tell(response.message)
        data = {
            "response": told.message_id,
            "finish_reason": response.finish_reason,
            "usage": _usage(response.usage),
            "request_digest": response.request_digest or None,
            "latency_ms": response.latency_ms,
            "policy_version": response.policy_version,
            "tokens": response.tokens,
        }
        self._write(call, data, [told])

    def fail(self, call: SentCall, error: ModelError) -> None:
        """Write a call that failed."""
        data = {
            "error": {"kind": error.kind, "message": str(error)},
            "request_digest": error.request_digest or None,
            "latency_ms": error.latency_ms,
        }
        self._write(call, data, [])

    def _write(self, call: SentCall, data: dict[str, Any], response: list[_Told]) -> None:
        whole = {name: value for name, value in (call.data | data).items() if value is not None}
        self._recorder.event("model_call", whole)
        self._call, self._last = call.data["call_id"], [*call.context, *response]

    def _tell(self, message: Message) -> _Told:
        told = _Told(f"m{self._n_messages}", message)
        self._n_messages += 1
        self._recorder.event("message", {"id": told.message_id, **message_data(message)})
        return told

    def _offer(self, request: ModelRequest) -> dict[str, Any]:
        """The tools of a call: in full if they differ from those of the call before."""
        tools = [
            {
                "type": "function",
                "function": {"name": each.name, "description": each.description, "parameters": dict(each.parameters)},
            }
            for each in request.tools
        ]
        found = digest(canonical_bytes(tools))
        if found == self._tools:
            return {"tools_digest": found}
        self._tools = found
        return {"tools": tools}

    def resume(self, events: Sequence[AgentEvent]) -> None:
        """Go on after recorded events: their messages and calls are on the log already."""
        messages: dict[str, Message] = {}
        for event in events:
            data = parse_object(event.data)
            if event.event == "message":
                messages[str(data["id"])] = read_message(data)
                self._n_messages += 1
            elif event.event == "model_call":
                context = data["context"]
                kept = self._last[: context.get("keep", 0)]
                ids = [*context["add"], *([data["response"]] if data.get("response") else [])]
                self._last = [*kept, *[_Told(each, messages[each]) for each in ids]]
                self._call = str(data["call_id"])
                self._n_calls += 1


def message_data(message: Message) -> dict[str, Any]:
    """Return the data of a message's event, without its id."""
    data = {
        "role": message.role,
        "content": message.content
        if isinstance(message.content, str)
        else [part._asdict() for part in message.content],
        "reasoning": message.reasoning or None,
        "tool_calls": [call._asdict() for call in message.tool_calls] or None,
        "tool_call_id": message.tool_call_id or None,
        "name": message.name or None,
        "is_error": message.is_error or None,
        "extra": dict(message.extra) or None,
    }
    return {name: value for name, value in data.items() if value is not None}


def read_message(data: dict[str, Any]) -> Message:
    """Return the message of an event that a `ChatLog` wrote."""
    return Message(
        data["role"],
        data["content"],
        data.get("reasoning", ""),
        tuple(ToolCall(**call) for call in data.get("tool_calls", ())),
        data.get("tool_call_id", ""),
        data.get("name", ""),
        data.get("is_error", False),
        data.get("extra", {}),
    )


def _usage(usage: TokenUsage) -> dict[str, int]:
    """Tokens of a call; prompt tokens include those read from a cache."""
    prompt = None if usage.input is None else usage.input + (usage.cached or 0)
    found = {"input": prompt, "output": usage.output, "cached": usage.cached, "reasoning": usage.reasoning}
    return {name: count for name, count in found.items() if count is not None}
