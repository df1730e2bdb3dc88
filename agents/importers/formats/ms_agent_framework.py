"""Microsoft Agent Framework: sessions (AgentSession.to_dict) and responses of agents (AgentResponse.to_dict)."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from agents.importers.line_error import LineError
from agents.importers.traces.chat import tell
from agents.importers.traces.episode_reader import each_alone, is_json, members, per_item
from agents.importers.traces.fields import an_array, an_object, array_in, object_in, rest_of, text_in
from agents.importers.traces.format import Bad, Episode, Format, Head, Item, Options
from agents.importers.traces.transcript_writer import TranscriptWriter

NAME = "ms-agent-framework"
Message = dict[str, Any]

_CALL, _RESULT = "_call", "_result"
_WORDS = ("text", "text_reasoning")
_RESPONSES = (b'"agent_response"', b'"agent_run_response"', b'"chat_response"', None)
_ASKS, _DECIDES = "function_approval_request", "function_approval_response"
_READ_CALL = ("type", "call_id", "name", "tool_name", "arguments", "additional_properties")


def recognise(names: Sequence[str], head: Head) -> bool:
    """Recognise {type: session, session_id, state} or {type: agent_response, messages}."""
    return any(is_json(name) and _is_ours(members(head(name))) for name in names)


def _is_ours(found: Mapping[str, bytes]) -> bool:
    kind, said = found.get("type"), found.get("messages", b"")
    if kind == b'"session"':
        return {"session_id", "state"} <= found.keys() and found["state"].startswith(b"{")
    return said.startswith(b"[") and b'"contents"' in said and kind in _RESPONSES


def _read(item: Item, _options: Options) -> Iterator[Episode | Bad]:
    value = an_object(item.value, "")
    is_session = value.get("type") == "session"
    place, messages = _stored(value) if is_session else ("messages", an_array(value.get("messages"), "messages"))
    called = _called(messages)
    told = [each for number, message in enumerate(messages) for each in _plain(message, number, called)]
    if told and not is_session:
        _spend(told, value)
    chat = tell(told, item, _error, where=place, aside=_aside)
    status, error = _end(told, chat.writer)
    key = text_in(value, "session_id") if is_session else text_in(value, "response_id")
    author = next(
        (name for each in messages if isinstance(each, dict) and (name := text_in(each, "author_name"))), None
    )
    yield Episode(
        file=item.file, position=item.position, run=item.run, task_key=key or f"{item.file} {item.position}", record=value,
        source=_left(value, place), system=chat.system, info={"session_id": key, "agent": {"name": author} if author else None},
        events=chat.writer.finish(answers=status == "answered"), unreadable=chat.unreadable, status=status, error=error,
    )  # fmt: skip


def _stored(session: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """Return the place and the messages of a session. One of its providers has them in its state."""
    state = an_object(session.get("state"), "state")
    found = [name for name, each in state.items() if isinstance(each, dict) and isinstance(each.get("messages"), list)]
    if not found:
        raise LineError("state", "an empty session: no messages; a run that failed leaves none")
    name = max(found, key=lambda each: len(state[each]["messages"]))
    return f"state.{name}.messages", state[name]["messages"]


def _left(value: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Return the fields of a session or response that have no other place."""
    rest = rest_of(value, "type", "messages", "state", "session_id", "response_id", "usage_details", "finish_reason")
    provider = place.partition(".")[2].removesuffix(".messages")
    states = {
        name: left
        for name, each in object_in(value, "state").items()
        if (left := rest_of(each, "messages") if name == provider and isinstance(each, dict) else each)
    }
    return rest | ({"state": states} if states else {})


# -- messages ----------------------------------------------------------------------------------------------------------


def _called(messages: Sequence[Any]) -> frozenset[str]:
    """Return the ids of calls inside messages. A request for approval repeats its call."""
    parts = (part for message in messages if isinstance(message, dict) for part in array_in(message, "contents"))
    calls = (
        text_in(part, "call_id") for part in parts if isinstance(part, dict) and part.get("type") == "function_call"
    )
    return frozenset(name for name in calls if name)


def _plain(message: Any, number: int, called: frozenset[str]) -> Iterator[Any]:
    """Yield a message in chat form: cut where a service ran a tool, with separate results."""
    if not isinstance(message, dict):
        yield message
        return
    said = {
        **rest_of(message, "contents", "type", "message_id", "additional_properties"),
        "id": message.get("message_id"),
        "role": _value(message.get("role")),
    }
    extra = object_in(message, "additional_properties")
    if extra:
        said["additional_properties"] = extra
    turn: Message = {**said, "content": [], "tool_calls": []}
    for part in an_array(message.get("contents", []), f"[{number}].contents"):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == _ASKS and text_in(object_in(part, "function_call"), "call_id") not in called:
            turn["tool_calls"].append(_call(object_in(part, "function_call")))
        if kind in (_ASKS, _DECIDES, "error"):
            yield from _said(turn)
            turn = {**said, "content": [], "tool_calls": []}
            yield {**part, "role": kind}
        elif kind == "usage":
            turn["usage"] = part.get("usage_details")
        elif isinstance(kind, str) and kind.endswith(_CALL):
            turn["tool_calls"].append(_call(part))
        elif isinstance(kind, str) and kind.endswith(_RESULT):
            yield from _said(turn)
            turn = {**said, "content": [], "tool_calls": []}
            yield _result(part)
        else:
            turn["content"].append(_content(part))
    yield from _said(turn)


def _value(role: Any) -> Any:
    """Return a role. Versions before 1.0 wrote {type: role, value}."""
    return role.get("value") if isinstance(role, dict) and role.get("type") == "role" else role


def _said(turn: Message) -> Iterator[Message]:
    if turn["content"] or turn["tool_calls"] or "usage" in turn:
        yield {name: value for name, value in turn.items() if name != "tool_calls" or value}


def _call(part: Mapping[str, Any]) -> Message:
    """Return a call. A tool that a service runs is named after its kind."""
    name = text_in(part, "name", "tool_name") or str(part.get("type") or "unknown").removesuffix("_tool_call")
    arguments = part["arguments"] if "arguments" in part else rest_of(part, *_READ_CALL, "id", "hosted") or None
    return {"id": text_in(part, "call_id"), "name": name, "arguments": arguments}


def _result(part: Mapping[str, Any]) -> Message:
    items = array_in(part, "items")
    media = any(isinstance(each, dict) and each.get("type") not in _WORDS for each in items)
    output = (
        [_content(each) for each in items] if media else part.get("result", part.get("output", part.get("outputs")))
    )
    rest = rest_of(part, "type", "call_id", "result", "output", "outputs", "items", "additional_properties")
    return {**rest, "role": "tool", "tool_call_id": text_in(part, "call_id"), "content": output}


def _content(part: Any) -> Any:
    if isinstance(part, dict) and isinstance(part.get("uri"), str):
        return {**part, "url": part["uri"]}
    return part


def _error(message: Mapping[str, Any], output: Any) -> dict[str, str] | None:
    raised = text_in(message, "exception")
    return {"code": raised, "message": output if isinstance(output, str) and output else raised} if raised else None


def _aside(writer: TranscriptWriter, message: Mapping[str, Any]) -> bool:
    """Write approvals, errors and omissions by a compaction as notes. Returns True for approvals and errors."""
    if object_in(message, "additional_properties").get("_excluded") is True:
        writer.note("context_rewritten", {"kept": 0, "dropped": 1})
    role = message.get("role")
    call = object_in(message, "function_call")
    if role == _ASKS:
        writer.note(
            "await_human_input", {"question": f"May {call.get('name')} be called?", "callId": call.get("call_id")}
        )
    elif role == _DECIDES:
        decision = "approved" if message.get("approved") is True else "rejected"
        writer.note("supervisor_decision", {"decision": decision, "callId": call.get("call_id")})
    elif role == "error":
        writer.note(
            "status", {"message": text_in(message, "message") or "an error", "source": rest_of(message, "role", "type")}
        )
    return role in (_ASKS, _DECIDES, "error")


def _spend(told: Sequence[Message], response: Mapping[str, Any]) -> None:
    """Assign the tokens of a response, which cover all its turns."""
    turns = [each for each in told if isinstance(each, dict) and each.get("role") == "assistant"]
    if turns and not any("usage" in each for each in turns):
        turns[-1]["usage"] = response.get("usage_details")
    if turns and (finish := text_in(response, "finish_reason")):
        turns[-1]["finish_reason"] = finish


def _end(told: Sequence[Any], writer: TranscriptWriter) -> tuple[str | None, str | None]:
    """Return the end of a conversation. It has ended if the last message is the model's and no tool call is open."""
    last = told[-1] if told and isinstance(told[-1], dict) else {}
    if last.get("role") == "error":
        return "infra_error", text_in(last, "message", "details") or "an error"
    answered = last.get("role") == "assistant" and not last.get("tool_calls") and not writer.waiting
    return ("answered", None) if answered else (None, None)


FORMAT = Format(
    name=NAME,
    about="sessions of the Microsoft Agent Framework: {type: session, session_id, state}; or its agent responses",
    rollout="session",
    verdict="none",
    unknown="runs that failed, which leave no message; the instructions; tokens and model of sessions",
    recognise=recognise,
    plan=partial(each_alone, fits=is_json),
    read=per_item(_read),
)
