"""Read input lines: one JSON object each, of a few types, in any mix and order (the contract of `braid ingest`).

`LineReader` turns them into facts. A bad line raises a `LineError` with the field and the reason. The next line is not
affected. The gateway reads the same objects with the same code.
"""

from collections.abc import Callable
from typing import Any

from agents.facts.fact import Fact
from agents.importers.line_error import LineError
from agents.importers.loose_events import read_event
from agents.importers.records import VerdictIds, content_id, make, read_build, read_visual
from agents.importers.wire_reader import is_wire, read_wire
from agents.verdicts.meaning import RESERVED
from schemas.events import AgentEvents, BranchInfo
from schemas.jsontext import as_array, as_object, compact, kind_of, parse, parse_unique
from schemas.judging import HIGHEST_SCORE, JudgeVote
from schemas.lifecycle import CloseRequested, Lifecycle, RolloutCancelled, RolloutOpened
from schemas.repeated_keys import RepeatedKeyError
from schemas.verdicts import CheckVerdict

Key = tuple[str, int, int]

VOTES_REMEMBERED = 100_000


class LineReader:
    """Reads the lines of one input.

    It counts the next seq of each branch whose events have none, and the repetitions of each verdict without an id. It
    keeps the last votes without an id. With `for_fold`, the events of a rollout-wire record are EventFields.
    """

    def __init__(self, *, for_fold: bool = False) -> None:
        self._for_fold = for_fold
        self._next_seq: dict[Key, int] = {}
        self._lost: dict[Key, int] = {}
        """The seq of the last bad event, by branch, if this reader numbers the lines."""
        self._votes: dict[str, tuple[object, object]] = {}
        self._verdict_ids = VerdictIds()

    def read(self, text: bytes | str) -> list[Fact]:
        """Return the facts of one line. Raises LineError."""
        return self.read_object(read_line(text))

    def read_object(self, value: dict[str, Any]) -> list[Fact]:
        """Return the facts of one object. Raises LineError."""
        kind = value.get("type")
        if kind is None and is_wire(value):
            return read_wire(value, self._verdict_ids, for_fold=self._for_fold)
        read = _TYPES.get(kind) if isinstance(kind, str) else None
        if read is None:
            known = ", ".join(_TYPES)
            raise LineError(
                "type",
                f"unknown: expected one of {known}, or a rollout-wire/v1 record"
                if kind is not None
                else f"missing: expected one of {known}",
            )
        return [read(self, {name: content for name, content in value.items() if name != "type"})]

    # -- types ---------------------------------------------------------------------------------------------------------

    def _rollout(self, value: dict[str, Any]) -> Fact:
        tools = value.get("tools")
        if tools is not None:
            value = value | {"tools": _array(tools)}
        return Lifecycle(
            opened=make(RolloutOpened, {name: content for name, content in value.items() if content is not None})
        )

    def _event(self, value: dict[str, Any]) -> Fact:
        for name in _NOT_HERE:
            if name in value:
                raise LineError(name, "does not belong on an event line")
        seq = self._seq(value)  # a bad line uses up its seq, so the gap is visible
        try:
            event = read_event(value.get("event"))
        except LineError:
            self._lost[_key(value)] = seq
            raise
        info = {name: value[name] for name in _INFO if value.get(name) is not None}
        rest = {name: content for name, content in value.items() if name not in _APART}
        branch = make(BranchInfo, info, "") if info else None
        whole = {"attempt": 0, **rest, "first_seq": seq, "events": (event,), "branch": branch}
        return make(AgentEvents, whole, renamed={"first_seq": "seq"})

    def _seq(self, value: dict[str, Any]) -> int:
        key = _key(value)
        if value.get("seq") is None:
            seq = self._next_seq.get(key, 0)
            self._next_seq[key] = seq + 1
            return seq
        seq = _index(value, "seq")
        if key in self._next_seq:
            self._next_seq[key] = max(self._next_seq[key], seq + 1)
        return seq

    def _end(self, value: dict[str, Any]) -> Fact:
        if self._lost and value.get("last_seq") is None:
            key = _key(value)
            lost = self._lost.get(key)
            # Without a later event no gap would be visible.
            if lost is not None and self._next_seq.get(key) == lost + 1:
                value = value | {"last_seq": lost}
        return make(AgentEvents, {"status": "answered", **value, "ended": True})

    def _build(self, value: dict[str, Any]) -> Fact:
        return read_build(value, self._verdict_ids)

    def _visual(self, value: dict[str, Any]) -> Fact:
        return read_visual(value, self._verdict_ids)

    def _check(self, value: dict[str, Any]) -> Fact:
        if value.get("name") in RESERVED:
            raise LineError("name", f"{value['name']} has lines of its own; give the check another name")
        return make(CheckVerdict, self._verdict_ids.fill("check", value))

    def _vote(self, value: dict[str, Any]) -> Fact:
        if value.get("vote_id") is None:
            value = value | {"vote_id": self._vote_id(value)}
        if value.get("preferred") is None and value.get("score") is None and value.get("cause") is None:
            value = value | {"cause": "unknown"}
        vote = make(JudgeVote, value)
        if vote.cause is not None and (vote.preferred is not None or vote.score is not None):
            raise LineError("cause", "says why there is no answer, and there is one")
        if vote.a == vote.b:
            raise LineError("b", "a branch is not compared with itself")
        if vote.b is None and vote.preferred is not None:
            raise LineError("b", "missing: a preference is between two branches; a vote about one of them has a score")
        if vote.score is not None and (vote.b is not None or not 0 <= vote.score <= HIGHEST_SCORE):
            raise LineError("score", f"expected 0 to {HIGHEST_SCORE}, for one branch (a, without b)")
        return vote

    def _vote_id(self, value: dict[str, Any]) -> str:
        """Return an id for the pair and the judge.

        A different answer to the same question must have another `sample`, because it would not count otherwise.
        """
        asked = ("rollout_id", "a", "b", "order", "sample", "judge", "rubric_hash", "a_digest", "b_digest")
        vote_id = content_id("vote", [value.get(name) for name in asked])
        answer = (value.get("preferred"), value.get("score"))
        if self._votes.setdefault(vote_id, answer) != answer:
            raise LineError(
                "sample", "another answer to this question came before; give each repetition a sample (0, 1, ...)"
            )
        if len(self._votes) > VOTES_REMEMBERED:
            del self._votes[next(iter(self._votes))]
        return vote_id

    def _cancel(self, value: dict[str, Any]) -> Fact:
        return Lifecycle(cancelled=make(RolloutCancelled, value))

    def _close(self, value: dict[str, Any]) -> Fact:
        return Lifecycle(close_requested=make(CloseRequested, value))


_NOT_HERE = ("events", "branch", "first_seq", "last_seq", "ended", "status")
"""Fields of a slice. In an event line they would be misread and lost."""

_INFO = ("temperature", "seed", "session_id", "agent", "task", "observed")
"""Fields of an event line that describe its branch."""

_APART = {*_INFO, "event", "seq"}
"""Members of an event line that do not go into the slice."""

_TYPES: dict[str, Callable[[LineReader, dict[str, Any]], Fact]] = {
    "rollout": LineReader._rollout,
    "event": LineReader._event,
    "end": LineReader._end,
    "build": LineReader._build,
    "visual": LineReader._visual,
    "check": LineReader._check,
    "vote": LineReader._vote,
    "cancel": LineReader._cancel,
    "close": LineReader._close,
}


def read_line(text: bytes | str) -> dict[str, Any]:
    """Parse the JSON object of one line. Raises LineError."""
    try:
        return as_object(parse_unique(text))
    except RepeatedKeyError as repeated:
        raise LineError(repeated.path, repeated.reason) from None
    except ValueError as error:
        raise LineError("", f"not a JSON object: {error}") from None


def _array(tools: Any) -> str:
    """Return tools as JSON text."""
    try:
        as_array(parse(tools) if isinstance(tools, str) else tools)
    except ValueError as error:
        raise LineError("tools", str(error)) from None
    return tools if isinstance(tools, str) else compact(tools)


def _key(value: dict[str, Any]) -> Key:
    """Return the attempt that a line belongs to."""
    return str(value.get("rollout_id")), _index(value, "branch_index"), _index(value, "attempt")


def _index(value: dict[str, Any], name: str) -> int:
    found = value.get(name, 0 if name == "attempt" else None)
    if isinstance(found, bool) or not isinstance(found, int):
        raise LineError(name, "missing" if found is None else f"expected a whole number, found {kind_of(found)}")
    return found
