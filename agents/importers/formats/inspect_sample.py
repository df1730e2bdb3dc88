"""The conversation of an Inspect sample: its messages, completed with data from its events."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from agents.importers.formats.inspect_calls import ModelCall, SampleCalls, read_calls, resolved
from agents.importers.traces.chat import Chat, tell
from agents.importers.traces.chat import read_calls as read_turn_calls
from agents.importers.traces.content import read_content
from agents.importers.traces.fields import array_in, as_text, number_in, object_in, text_in, whole_in
from agents.importers.traces.format import Item, SubAgent
from agents.importers.traces.transcript_writer import TranscriptWriter
from agents.importers.traces.usage import Usage, read_usage

Message = dict[str, Any]


class Conversation(NamedTuple):
    """A sample's conversation."""

    chat: Chat
    tools: list[dict[str, Any]] | None
    """The tools, if all calls had the same ones."""
    sampling: dict[str, Any]
    subagents: list[tuple[str, list[Message], int]]
    """Name, messages and number of preceding model turns of each sub-agent."""


def read_conversation(sample: Mapping[str, Any], item: Item, model: str | None) -> Conversation:
    """Read a sample."""
    calls = read_calls(sample)
    said = resolved(array_in(sample, "messages"), object_in(sample, "attachments"))
    known = calls.by_message()
    told, own = _Told(), list[ModelCall]()
    shown: list[Any] = []
    for message in said:
        call = known.get(text_in(message, "id") or "") if isinstance(message, dict) else None
        if call is not None:
            own.append(call)
            told.dropped[text_in(message, "id") or ""] = _dropped(shown, call)
        shown += list(_plain(message, call, calls))
    if not own:
        _spend(shown, sample, model)
    chat = tell(shown, item, _error, _usage, aside=told)
    first = own[0] if own else None
    return Conversation(
        chat, _tools(own), {} if first is None else _sampling(first.config), list(_subagents(calls, own)) if own else []
    )  # fmt: skip


class _Told:
    """Writes messages that were given to the model, and context that was dropped before a turn."""

    def __init__(self) -> None:
        self.dropped: dict[str, tuple[int, int]] = {}

    def __call__(self, writer: TranscriptWriter, message: Mapping[str, Any]) -> bool:
        if message.get("role") != "assistant":
            return False
        kept, dropped = self.dropped.get(text_in(message, "id") or "", (0, 0))
        if dropped:
            writer.note("context_rewritten", {"kept": kept, "dropped": dropped})
        if message.get("source") != "input":
            return False
        content = read_content(message.get("content"))
        writer.given(content, None, {"source": "input"}, read_turn_calls(message))
        return True


# -- messages ----------------------------------------------------------------------------------------------------------


def _plain(message: Any, call: ModelCall | None, calls: SampleCalls) -> Iterator[Any]:
    """Yield a message in chat form.

    Calls that a solver removed afterwards and tools of the provider get their results back.
    """
    role = message.get("role") if isinstance(message, dict) else None
    if role == "tool":
        error = object_in(message, "error")
        text = read_content(message.get("content")).text
        yield {
            **message,
            "name": message.get("function"),
            "content": text or text_in(error, "message") or message.get("content"),
        }
        return
    if role != "assistant":
        yield message
        return
    removed = _removed(message, call)
    if call is not None and removed:
        message = {**call.message, "content": _without_answer(call, message, removed, calls)}
    *before, last = list(_pieces(message))
    yield from before
    spent: Message = {} if call is None else {"usage": call.usage, "timestamp": call.time, "finish_reason": call.finish}
    yield {**last, **spent}
    yield from (_result(each, calls) for each in removed)


def _removed(message: Message, call: ModelCall | None) -> list[Message]:
    """Return the model's calls that are missing from its message."""
    kept = {each.get("id") for each in array_in(message, "tool_calls") if isinstance(each, dict)}
    made = array_in(call.message, "tool_calls") if call is not None else []
    return [each for each in made if isinstance(each, dict) and each.get("id") not in kept]


def _result(called: Message, calls: SampleCalls) -> Message:
    event = calls.results.get(text_in(called, "id") or "", {})
    error = object_in(event, "error")
    output = event.get("result")
    return {
        "role": "tool", "tool_call_id": called.get("id"), "name": called.get("function"), "error": error or None,
        "content": text_in(error, "message") if error and not output else output, "timestamp": event.get("completed"),
        "restored": True,
    }  # fmt: skip


def _without_answer(call: ModelCall, message: Message, removed: Sequence[Message], calls: SampleCalls) -> Any:
    """Return the model's text beside a removed call.

    The agent appends the call's answer to the call's text and to the message. The message contains the answer once more
    than the call, and this extra copy proves that the agent appended it.
    """
    wrote, left = call.message.get("content"), message.get("content")
    for each in removed:
        answer = as_text(calls.results.get(text_in(each, "id") or "", {}).get("result") or "")
        if answer and isinstance(wrote, str) and left == f"{wrote}\n\n{answer}":
            wrote = "" if wrote == answer else wrote.removesuffix(f"\n\n{answer}")
    return wrote


def _pieces(message: Message) -> Iterator[Message]:
    """Yield an assistant message in pieces, cut after each tool that the provider ran: the rest saw its result."""
    content = message.get("content")
    rest = {name: value for name, value in message.items() if name not in ("content", "tool_calls")}
    parts: list[Any] = []
    for part in content if isinstance(content, list) else []:
        if not isinstance(part, dict) or part.get("type") != "tool_use":
            parts.append(_reasoned(part))
            continue
        called = {"id": part.get("id"), "name": text_in(part, "name") or "unknown", "arguments": part.get("arguments")}
        yield {**rest, "content": parts, "tool_calls": [called]}
        error = {"message": part["error"]} if text_in(part, "error") else None
        yield {"role": "tool", "tool_call_id": part.get("id"), "content": part.get("result"), "error": error}
        parts = []
    calls = [_called(each) for each in array_in(message, "tool_calls")]
    yield {**rest, "content": parts if isinstance(content, list) else content, "tool_calls": calls}


def _reasoned(part: Any) -> Any:
    """Return a reasoning part. Reasoning that the provider encrypted becomes a signature, not a text."""
    if not isinstance(part, dict) or part.get("type") != "reasoning" or part.get("redacted") is not True:
        return part
    return {"type": "reasoning", "reasoning": part.get("summary") or "", "signature": part.get("reasoning")}


def _called(call: Any) -> Any:
    if not isinstance(call, dict):
        return call
    arguments = call.get("arguments")
    if call.get("parse_error") and isinstance(arguments, dict) and len(arguments) == 1:
        (arguments,) = arguments.values()  # the model's text is the value below the tool's name
    return {"id": call.get("id"), "name": text_in(call, "function"), "arguments": arguments}


def _error(message: Mapping[str, Any], _output: Any) -> dict[str, str] | None:
    error = object_in(message, "error")
    if not error:
        return None
    code = text_in(error, "type")
    return ({"code": code} if code else {}) | {"message": text_in(error, "message") or ""}


def _usage(message: Mapping[str, Any]) -> Usage:
    return read_usage(message.get("usage"))


def _spend(messages: Sequence[Any], sample: Mapping[str, Any], model: str | None) -> None:
    """Assign the sample's total tokens to its last turn if there are no events."""
    used = object_in(sample, "model_usage")
    turns = [each for each in messages if isinstance(each, dict) and each.get("role") == "assistant"]
    spent = used.get(model or "") or (next(iter(used.values())) if len(used) == 1 else None)
    if turns and spent:
        turns[-1]["usage"] = spent


# -- calls -------------------------------------------------------------------------------------------------------------


def _dropped(shown: Sequence[Any], call: ModelCall) -> tuple[int, int]:
    """Count the messages before a turn that its call included and those that it dropped.

    Providers join messages; joined ones are not dropped.
    """
    if not call.sent:
        return 0, 0
    sent = {each.get("id") for each in call.sent}
    texts: list[str] | None = None
    dropped = before = 0
    for message in shown:
        if not isinstance(message, dict) or text_in(message, "id") is None or message.get("restored"):
            continue
        before += 1
        if message["id"] in sent:
            continue
        texts = [read_content(each.get("content")).text or "" for each in call.sent] if texts is None else texts
        text = read_content(message.get("content")).text
        dropped += not text or not any(text in each for each in texts)
    return before - dropped, dropped


def _tools(calls: Sequence[ModelCall]) -> list[dict[str, Any]] | None:
    if not calls or any(call.tools != calls[0].tools for call in calls):
        return None
    names = ("name", "description", "parameters")
    return [
        {"type": "function", "function": {name: tool[name] for name in names if name in tool}}
        for tool in calls[0].tools
    ]


def _sampling(config: Mapping[str, Any]) -> dict[str, Any]:
    seed = whole_in(config, "seed")
    return {"temperature": number_in(config, "temperature"), "seed": seed if seed is None or seed < 2**63 else None}


def _subagents(calls: SampleCalls, own: Sequence[ModelCall]) -> Iterator[tuple[str, list[Message], int]]:
    """Yield the conversations of separate agents: the last call of each, because it repeats the earlier ones."""
    mine = {id(call) for call in own}
    turns = 0
    found: dict[str, tuple[ModelCall, int]] = {}
    for call in calls.models:
        if id(call) in mine:
            turns += 1
            continue
        agent = calls.agent_of(call.span)
        if agent is not None:
            found[agent] = (call, found[agent][1] if agent in found else turns)
    known = calls.by_message()
    for agent, (call, at) in found.items():
        sent = [piece for each in call.sent for piece in _plain(each, known.get(text_in(each, "id") or ""), calls)]
        last = list(_plain({**call.message, "source": "generate"}, call, calls))
        results = [_result(each, calls) for each in array_in(call.message, "tool_calls") if isinstance(each, dict)]
        name = calls.spans[agent].name if agent in calls.spans else ""
        yield name or "side", [*sent, *last, *results], at


def told_subagents(conversation: Conversation, item: Item, events: Sequence[Mapping[str, Any]]) -> list[SubAgent]:
    """Return the sub-agents with their events, each after the model turn that started it."""
    made = []
    for name, messages, turns in conversation.subagents:
        inner = tell(messages, item, _error, _usage).writer.finish()
        made.append(SubAgent(name, _place(events, turns - 1), inner))
    return made


def _place(events: Sequence[Mapping[str, Any]], step: int) -> int:
    """Return the position after the last event of a model turn and its calls."""
    steps = (object_in(event, "data") for event in events)
    places = [place for place, data in enumerate(steps) if step in (data.get("step"), data.get("stepIndex"))]
    return places[-1] + 1 if places else len(events)
