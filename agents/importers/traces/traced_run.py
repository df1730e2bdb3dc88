"""A run from spans: model calls, tool runs and notes, in any order, become the events of a branch.

If the calls have their messages, the tracker writes the exact events. Otherwise a transcript has the known facts (tool
calls, usage) and a note that the rest was not recorded, so that it is not exported as a row.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agents.importers.traces.call_facts import CallTrouble
from agents.importers.traces.content import Content, fitting_source
from agents.importers.traces.fields import as_text
from agents.importers.traces.spoken import Spoken, short
from agents.importers.traces.tool_join import TOLD_TWICE, Moment, RunCall, ToolJoin, ToolRun
from agents.importers.traces.tracker import GIVEN, ConversationTracker, Event, Outcome, TracedCall
from agents.importers.traces.transcript_writer import Called, TranscriptWriter, Turn, read_arguments
from agents.importers.traces.usage import NONE


class RunNote(NamedTuple):
    """Any other event."""

    at: Moment
    event: str
    data: Mapping[str, Any]
    time: int | None = None


@dataclass(frozen=True)
class TracedRun:
    """All known facts about a branch."""

    calls: Sequence[RunCall]
    tools: Sequence[ToolRun] = ()
    notes: Sequence[RunNote] = field(default_factory=tuple)
    task: str | None = None
    """The input of the run, if its calls were not recorded."""

    @property
    def first(self) -> TracedCall | None:
        """Return the first call with known messages."""
        known = [each for each in self.calls if each.call.messages]
        return min(known, key=lambda each: each.at).call if known else None

    @property
    def system(self) -> str | None:
        """Return the system prompt of the first call."""
        first = self.first.messages[0] if self.first is not None else None
        return first.text or None if first is not None and first.role in GIVEN else None

    @property
    def offered(self) -> Sequence[Any] | None:
        """Return the tools that the first call was offered."""
        return None if self.first is None else self.first.facts.tools

    @property
    def last_trouble(self) -> CallTrouble | None:
        """Return the trouble of the last call, if it has no response."""
        if not self.calls:
            return None
        last = max(self.calls, key=lambda each: each.at).call
        return last.facts.error if last.response is None else None

    def events(self, *, answered: bool) -> list[Event]:
        """Return the events of the run. If `answered` is false, its last text is not an answer."""
        if any(each.call.messages for each in self.calls):
            return list(_exact(self))
        return _transcript(self, answered=answered)


# -- exact -----------------------------------------------------------------------------------------------------------------


def _exact(run: TracedRun) -> Iterator[Event]:
    calls = sorted(_named(run.calls), key=lambda each: each.at)
    tracker = ConversationTracker()
    join = ToolJoin(calls)
    told: list[tuple[Moment, int, Any]] = [(each.at, 1, each) for each in calls]
    told += [(each.at, 0, each) for each in run.notes]
    for tool, call_id in join.pairs(run.tools):
        if call_id is None:
            told.append((tool.at, 2, tool))
        elif call_id == TOLD_TWICE:
            told.append((tool.at, 2, _again(tool)))
        else:
            tracker.outcome(call_id, _outcome(tool))
    for _at, _rank, each in sorted(told, key=lambda one: one[:2]):
        if isinstance(each, RunCall):
            yield from _take(tracker, each, join.made(each))
        elif isinstance(each, ToolRun):
            yield from _beside(each)
        else:
            yield _note(each)
    yield from tracker.leftovers()


def _named(calls: Sequence[RunCall]) -> list[RunCall]:
    """Return the calls, with agent names if the run has several agents."""
    if len({each.call.agent for each in calls}) > 1:
        return list(calls)
    return [each._replace(call=each.call._replace(agent=None)) for each in calls]


def _take(tracker: ConversationTracker, each: RunCall, made: Sequence[str]) -> Iterator[Event]:
    if not each.is_recorded:
        facts = each.call.facts
        source = {**(facts.source or {}), "recorded": False}
        yield from tracker.take(each.call._replace(response=None, facts=facts._replace(source=source)))
        return
    yield from tracker.take(each.call._replace(call_ids=made))
    for choice in each.choices:  # the request was sent once: its usage counts once
        facts = each.call.facts._replace(usage=NONE)
        yield from tracker.take(each.call._replace(response=choice, facts=facts, call_ids=()))


def _outcome(tool: ToolRun) -> Outcome:
    output = None if tool.output is None else as_text(tool.output)
    said = output if output is not None or tool.error is None else as_text(tool.error.get("message") or "")
    source = {**(tool.source or {}), **({"error": dict(tool.error)} if tool.error is not None else {})}
    spoken = Spoken(
        "tool", said or "", name=tool.name, is_error=tool.error is not None, source=fitting_source(source) or None
    )
    return Outcome(spoken, output, tool.ended_ms, tool.agent)


def _beside(tool: ToolRun) -> Iterator[Event]:
    """Yield the events of a tool that the program called without a request from a response."""
    call_id = short(tool.call_id or f"span-{tool.at[1]}")
    data: dict[str, Any] = {"toolName": tool.name or "unknown", **read_arguments(tool.arguments), "callId": call_id}
    yield _note(RunNote(tool.at, "tool_call", fitting_source(data), tool.at[0] // 1_000_000 or None))
    result: dict[str, Any] = {"callId": call_id, "toolName": tool.name, "output": tool.output}
    if tool.error is not None:
        result["error"] = dict(tool.error)
    if tool.source:
        result["source"] = dict(tool.source)
    yield _note(RunNote(tool.at, "tool_result", fitting_source(result), tool.ended_ms))


def _again(tool: ToolRun) -> RunNote:
    """Return a note for a repeated tool run of a call, or for a duplicate span of it."""
    fields = {"callId": tool.call_id, "output": tool.output, "error": tool.error, "source": tool.source}
    known = {name: value for name, value in fields.items() if value is not None}
    return RunNote(
        tool.at, "status", fitting_source({"message": f"tool {tool.name} told again", **known}), tool.ended_ms
    )


def _note(note: RunNote) -> Event:
    channel = "tool" if note.event.startswith("tool_") else "status"
    made: Event = {"channel": channel, "event": note.event, "data": dict(note.data)}
    return made if note.time is None else made | {"timestamp_ms": note.time}


# -- transcript ------------------------------------------------------------------------------------------------------------


def _transcript(run: TracedRun, *, answered: bool) -> list[Event]:
    writer = TranscriptWriter()
    for note in sorted(run.notes, key=lambda each: each.at):
        writer.note(note.event, note.data, note.time)
    if run.task is not None:
        writer.user(run.task)
    calls = sorted(run.calls, key=lambda each: each.at)
    tools = _by_call(calls, sorted(run.tools, key=lambda each: each.at))
    for tool in tools.get(None, ()):
        _tell_turn(writer, None, [tool])
    for each in calls:
        _tell_turn(writer, each, tools.get(each.at, []))
    writer.note("content_left_out", {"reason": "not_recorded", "count": max(1, len(calls))})
    return writer.finish(answers=answered)


def _by_call(calls: Sequence[RunCall], tools: Sequence[ToolRun]) -> dict[Moment | None, list[ToolRun]]:
    """Return tool runs by their call: the last call of the turn that began before them."""
    found: dict[Moment | None, list[ToolRun]] = {}
    last: dict[str, Moment] = {}
    told: list[tuple[Moment, int, Any]] = [
        *((each.at, 0, each) for each in calls),
        *((each.at, 1, each) for each in tools),
    ]
    for at, _rank, each in sorted(told, key=lambda one: one[:2]):
        if isinstance(each, RunCall):
            last[each.turn] = at
        else:
            found.setdefault(last.get(each.turn), []).append(each)
    return found


def _tell_turn(writer: TranscriptWriter, each: RunCall | None, tools: Sequence[ToolRun]) -> None:
    facts = None if each is None else each.call.facts
    if facts is not None and facts.error is not None and not tools:
        data = {"kind": facts.error.kind, "message": facts.error.message, "modelId": facts.model}
        writer.note("error_recovery", {name: value for name, value in data.items() if value}, facts.ended_ms)
        return
    response = None if each is None else each.call.response
    ids = [tool.call_id or f"span-{tool.at[1]}" for tool in tools]
    calls = [Called(tool.name or "unknown", tool.arguments, call_id) for call_id, tool in zip(ids, tools, strict=True)]
    turn = Turn(
        Content(None if response is None else response.text or None),
        calls if response is None or not response.calls else response.calls,
        each.call.id if each is not None else None,
    )
    if facts is not None:
        turn = turn._replace(model=facts.model, finish=facts.finish, usage=facts.usage, time=facts.ended_ms)
    writer.model(turn)
    for call_id, tool in zip(ids, tools, strict=True):
        writer.result(call_id, tool.name, tool.output, tool.error, tool.ended_ms, tool.source)
