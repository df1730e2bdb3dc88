"""Match tool runs to the calls of responses: by id, else by turn, name and arguments."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from agents.importers.traces.spoken import Spoken, plain_arguments
from agents.importers.traces.tracker import TracedCall
from agents.importers.traces.transcript_writer import Called

Moment = tuple[int, str]
"""A start in nanoseconds and an id. They define the order of all items in a run."""


class RunCall(NamedTuple):
    """A model call of a run."""

    at: Moment
    call: TracedCall
    turn: str = ""
    """The parent span, which the tool runs of the turn share."""
    is_recorded: bool = True
    """Whether the call's messages are known."""
    choices: Sequence[Spoken] = ()
    """Further responses to the same request."""


class ToolRun(NamedTuple):
    """A tool that ran."""

    at: Moment
    name: str | None
    arguments: Any = None
    output: Any = None
    """None if it is unknown or absent."""
    error: Mapping[str, Any] | None = None
    """code and message, if it failed."""
    call_id: str | None = None
    turn: str = ""
    ended_ms: int | None = None
    agent: str | None = None
    source: Mapping[str, Any] | None = None


class _Asked:
    """A tool call of a response."""

    __slots__ = ("call_id", "is_answered")

    def __init__(self, call_id: str) -> None:
        self.call_id = call_id
        self.is_answered = False


TOLD_TWICE = ""
"""Used instead of an id for a repeated run, or a duplicate span, of a call that already has its result."""


class ToolJoin:
    """Pairs the tool runs of a run with the calls of its responses."""

    def __init__(self, calls: Sequence[RunCall]) -> None:
        self._by_id: dict[str, deque[_Asked]] = {}
        self._by_turn: dict[tuple[str, ...], deque[_Asked]] = {}
        self._by_arguments: dict[tuple[str, ...], deque[_Asked]] = {}
        self._by_name: dict[str, deque[_Asked]] = {}
        self._made: dict[Moment, list[str]] = {}
        self._given = {asked.id for each in calls for spoken in _said(each) for asked in spoken.calls}
        self._number = 0
        for each in calls:
            for spoken in _said(each):
                for asked in spoken.calls:
                    call_id = asked.id or self._new_id()
                    if not asked.id and spoken is each.call.response:
                        self._made.setdefault(each.at, []).append(call_id)
                    self._ask(call_id, each.turn, asked)

    def made(self, call: RunCall) -> Sequence[str]:
        """Return ids for those calls of a response that have none."""
        return self._made.get(call.at, ())

    def pairs(self, tools: Iterable[ToolRun]) -> list[tuple[ToolRun, str | None]]:
        """Return each tool run with its call's id, with TOLD_TWICE, or with None if no response requested it.

        More certain matches come first: the id, then turn, name and arguments, then name and arguments, then the name
        alone.
        """
        ordered = sorted(tools, key=lambda each: each.at)
        found: dict[Moment, str | None] = {each.at: self._by(each) for each in ordered if each.call_id is not None}
        for waiting in (self._same_turn, self._same_arguments, self._same_name):
            for each in ordered:
                if found.get(each.at) is None and each.call_id is None:
                    found[each.at] = waiting(each)
        return [(each, found.get(each.at)) for each in ordered]

    def _by(self, tool: ToolRun) -> str | None:
        waiting = self._by_id.get(tool.call_id or "")
        return None if waiting is None else _next(waiting) or TOLD_TWICE

    def _same_turn(self, tool: ToolRun) -> str | None:
        return _next(self._by_turn.get((tool.turn, tool.name or "", plain_arguments(tool.arguments))))

    def _same_arguments(self, tool: ToolRun) -> str | None:
        return _next(self._by_arguments.get((tool.name or "", plain_arguments(tool.arguments))))

    def _same_name(self, tool: ToolRun) -> str | None:
        return _next(self._by_name.get(tool.name or ""))

    def _ask(self, call_id: str, turn: str, called: Called) -> None:
        asked = _Asked(call_id)
        key = (called.name, plain_arguments(called.arguments))
        self._by_id.setdefault(call_id, deque()).append(asked)
        self._by_turn.setdefault((turn, *key), deque()).append(asked)
        self._by_arguments.setdefault(key, deque()).append(asked)
        self._by_name.setdefault(called.name, deque()).append(asked)

    def _new_id(self) -> str:
        while (made := f"call_{self._number}") in self._given:
            self._number += 1
        self._number += 1
        return made


def _next(waiting: deque[_Asked] | None) -> str | None:
    """Return the id of the first call that has no result yet."""
    while waiting:
        asked = waiting.popleft()
        if not asked.is_answered:
            asked.is_answered = True
            return asked.call_id
    return None


def _said(call: RunCall) -> list[Spoken]:
    first = [] if call.call.response is None else [call.call.response]
    return [*first, *call.choices]
