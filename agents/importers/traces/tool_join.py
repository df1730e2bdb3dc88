"""Which call of a response each tool run answers: by its id, else by turn, name and arguments."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from agents.importers.traces.spoken import Spoken, plain_arguments
from agents.importers.traces.tracker import TracedCall
from agents.importers.traces.transcript_writer import Called

Moment = tuple[int, str]
"""A start in nanoseconds and an id: the order of everything in a run."""


class RunCall(NamedTuple):
    """A model call of a run."""

    at: Moment
    call: TracedCall
    turn: str = ""
    """The span that it is part of: the tool runs of the turn have the same."""
    is_recorded: bool = True
    """Whether its messages are known."""
    choices: Sequence[Spoken] = ()
    """Further responses to the same request."""


class ToolRun(NamedTuple):
    """A tool that ran."""

    at: Moment
    name: str | None
    arguments: Any = None
    output: Any = None
    """None where it is not known, or there is none."""
    error: Mapping[str, Any] | None = None
    """code and message, where it failed."""
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
"""In place of an id: another run, or telling, of a call that has its result."""


class ToolJoin:
    """Pairs the tool runs of a run with the calls of its responses."""

    def __init__(self, calls: Sequence[RunCall]) -> None:
        self._by_id: dict[str, deque[_Asked]] = {}
        self._by_turn: dict[tuple[str, ...], deque[_Asked]] = {}
        self._by_name: dict[tuple[str, ...], deque[_Asked]] = {}
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
        """Ids for the calls of a response that have none."""
        return self._made.get(call.at, ())

    def take(self, tool: ToolRun) -> str | None:
        """The id of the call that a tool run answers, TOLD_TWICE, or None where no response asked for it."""
        if tool.call_id is not None:
            if tool.call_id not in self._by_id:
                return None
            return _next(self._by_id[tool.call_id]) or TOLD_TWICE
        key = (tool.name or "", plain_arguments(tool.arguments))
        found = _next(self._by_turn.get((tool.turn, *key)))
        return found if found is not None else _next(self._by_name.get(key))

    def _ask(self, call_id: str, turn: str, called: Called) -> None:
        asked = _Asked(call_id)
        key = (called.name, plain_arguments(called.arguments))
        self._by_id.setdefault(call_id, deque()).append(asked)
        self._by_turn.setdefault((turn, *key), deque()).append(asked)
        self._by_name.setdefault(key, deque()).append(asked)

    def _new_id(self) -> str:
        while (made := f"call_{self._number}") in self._given:
            self._number += 1
        self._number += 1
        return made


def _next(waiting: deque[_Asked] | None) -> str | None:
    """The id of the first call that has no result yet."""
    while waiting:
        asked = waiting.popleft()
        if not asked.is_answered:
            asked.is_answered = True
            return asked.call_id
    return None


def _said(call: RunCall) -> list[Spoken]:
    first = [] if call.call.response is None else [call.call.response]
    return [*first, *call.choices]
