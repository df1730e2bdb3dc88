"""Items of a request become facts: values of the path and the query are put in, then the reader of `braid ingest` reads the item.

Pure. A shape turns an item into an object as `braid ingest` reads it: one shape per route. A body may
repeat the rollout and branch of the path, never contradict them.
"""

from collections.abc import Callable
from typing import Any

from agents.facts.fact import Fact
from agents.importers.line_error import LineError
from agents.importers.lines import LineReader
from agents.redaction.redaction import redact_json
from schemas.events import AgentEvents
from streams.services.gateway.bodies import Item
from streams.services.gateway.captured_branches import CapturedBranches
from streams.services.gateway.problems import BAD_CONTENT, CAPTURED, FORBIDDEN, ItemError
from streams.services.gateway.voucher import Voucher
from streams.services.web.auth import Caller

Shape = Callable[[Item], dict[str, Any]]

LIFTED = ("rollout_id", "branch_index", "attempt", "seq")
"""The keys of a bare event in addition to its own fields."""

OF_SLICES = ("first_seq", "events", "branch")
"""Fields that slices have in the log, and that requests with single events express differently."""

FREE_TEXT = (
    "event", "task", "system_prompt", "tools", "error", "reason", "stdout", "stderr", "uncaught_errors", "console_errors",
    "dom_probes", "hint", "reasoning", "tool_call_sequence", "final_answer", "build_result",
)  # fmt: skip
"""Fields with texts of people and programs; ids are never redacted, because they must stay unchanged."""

_REASONS = {TypeError: "a value has a type that does not belong there", OverflowError: "a number is too large"}


class FactReader:
    """Reads the items of one request."""

    def __init__(
        self,
        shape: Shape,
        caller: Caller,
        voucher: Voucher,
        captured: CapturedBranches | None = None,
        *,
        redacting: bool,
    ) -> None:
        self._shape = shape
        self._captured = captured
        self._caller = caller
        self._voucher = voucher
        self._redacting = redacting
        self._lines = LineReader()

    def read(self, item: Item) -> list[Fact]:
        """The facts of an item. Raises LineError."""
        value = self._shape(item)
        if value.get("type") == "event":
            _check_event(value)
        if self._redacting:
            value = _redacted(value)
        try:
            facts = self._lines.read_object(value)
        except (TypeError, OverflowError) as error:  # integers beyond 64 bits, if an id is derived from the content
            raise ItemError(BAD_CONTENT, "", _REASONS[type(error)]) from None
        for fact in facts:
            refusal = self._caller.fact_refusal(fact)
            if refusal is not None:
                raise ItemError(FORBIDDEN, "", refusal)
            if self._is_captured(fact):
                raise ItemError(
                    CAPTURED, "", "this branch is captured, and its events come from its captures; send captures"
                )
        return [self._voucher.vouched(fact) for fact in facts]

    def _is_captured(self, fact: Fact) -> bool:
        if self._captured is None or not isinstance(fact, AgentEvents):
            return False
        return self._captured.has(fact.rollout_id, fact.branch_index)


class LineShape:
    """Lines of any type, as in files. Events without a seq are numbered in the order of the body, bad ones too: if a
    bad line is corrected and the body sent again, the others keep their seqs.
    """

    def __init__(self) -> None:
        self._next_seq: dict[tuple[Any, Any, Any], int] = {}

    def __call__(self, item: Item) -> dict[str, Any]:
        """The line itself, with its seq."""
        value = item.content()
        if value.get("type") != "event":
            return value
        key = (_plain(value.get("rollout_id")), _plain(value.get("branch_index")), _plain(value.get("attempt", 0)))
        seq = value.get("seq")
        if seq is None:
            seq = self._next_seq.get(key, 0)
            self._next_seq[key] = seq + 1
            return value | {"seq": seq}
        if key in self._next_seq and isinstance(seq, int):
            self._next_seq[key] = max(self._next_seq[key], seq + 1)
        return value


class EventShape:
    """Events of one branch: bare, or with their seq and facts about the branch."""

    def __init__(self, path: dict[str, Any], *, attempt: int | None, first_seq: int | None) -> None:
        self._path = path
        self._attempt = attempt
        self._first_seq = first_seq

    def __call__(self, item: Item) -> dict[str, Any]:
        """The event line, or the end line, that an item is."""
        value = item.content()
        said = _lifted(value) if _is_bare(value) else value
        kind = said.get("type") or ("end" if said.get("ended") is True and said.get("event") is None else "event")
        if kind not in ("event", "end"):
            raise LineError("type", "expected event or end; other lines have routes of their own, or go to /v1/lines")
        line = _in_place(said, kind, self._path)
        if line.get("attempt") is None:
            line["attempt"] = self._attempt or 0
        if kind == "event":
            line["seq"] = self._seq(line.get("seq"), item)
            event = line.get("event")
            if (
                item.time_ms is not None
                and isinstance(event, dict)
                and not ({"timestamp_ms", "timestampMs"} & event.keys())
            ):
                line["event"] = event | {"timestamp_ms": item.time_ms}
        return line

    def _seq(self, said: Any, item: Item) -> Any:
        if said is not None:
            return said
        if item.seq is not None:
            return item.seq
        if self._first_seq is None:
            raise LineError(
                "seq",
                "missing: only the sender knows the order across requests; give every event its seq, or the request "
                "?first_seq= with the seq of its first event",
            )
        return self._first_seq + item.at.number


class Ending:
    """The news that a branch ended with this request: written behind its events."""

    def __init__(
        self, path: dict[str, Any], *, attempt: int | None, first_seq: int | None, status: str | None, error: str | None
    ) -> None:
        self._path = path
        self._attempt = attempt
        self._first_seq = first_seq
        self._status = status or ("failed" if error is not None else "answered")
        self._error = error
        self._furthest: AgentEvents | None = None

    def saw(self, facts: list[Fact]) -> None:
        """Store the last seq of the events."""
        for fact in facts:
            if (
                isinstance(fact, AgentEvents)
                and fact.events
                and (not self._furthest or _reach(fact) >= _reach(self._furthest))
            ):
                self._furthest = fact

    def line(self) -> dict[str, Any]:
        """The line that ends a branch, with the last seq if it is known."""
        seen, attempt = self._furthest, self._attempt
        if attempt is None:
            attempt = seen.attempt if seen else 0
        last_seq: int | None = None
        if seen is not None and seen.attempt == attempt:
            last_seq = seen.first_seq + len(seen.events) - 1
        elif seen is None and self._first_seq:
            last_seq = self._first_seq - 1
        return {
            "type": "end", **self._path, "attempt": attempt, "last_seq": last_seq, "status": self._status, "error": self._error,
        }  # fmt: skip


def typed(kind: str, path: dict[str, Any]) -> Shape:
    """Objects of one type, about the rollout or branch in the path."""

    def shape(item: Item) -> dict[str, Any]:
        value = item.content()
        said = value.get("type")
        if said is not None and said != kind:
            raise LineError("type", f"expected {kind}, or nothing")
        return _in_place(value, kind, path)

    return shape


def _redacted(value: dict[str, Any]) -> dict[str, Any]:
    """The object without secrets. A signature covers the words that its signer sent: if redaction removes some, the
    signature is removed, too.
    """
    cleaned = value | {name: redact_json(value[name]).value for name in FREE_TEXT if name in value}
    return cleaned if cleaned == value else {name: part for name, part in cleaned.items() if name != "signature"}


def _check_event(line: dict[str, Any]) -> None:
    """Raises LineError for fields that the reader would not read in the sender's sense."""
    for name in OF_SLICES:
        if name in line:
            raise LineError(name, "belongs to slices in the log, not to an event; it would be lost")
    if isinstance(line.get("seq"), bool):
        raise LineError("seq", "expected a whole number, found a boolean")


def _in_place(value: dict[str, Any], kind: str, path: dict[str, Any]) -> dict[str, Any]:
    for name, expected in path.items():
        said = value.get(name)
        if said is not None and (said != expected or isinstance(said, bool)):
            raise LineError(name, "differs from the path")
    return {**value, "type": kind, **path}


def _is_bare(value: dict[str, Any]) -> bool:
    return isinstance(value.get("event"), str) or (value.get("event") is None and isinstance(value.get("kind"), str))


def _lifted(value: dict[str, Any]) -> dict[str, Any]:
    """A bare event as an event line."""
    event = {name: content for name, content in value.items() if name not in LIFTED}
    if event.get("type") == "event":
        del event["type"]
    return {name: value[name] for name in LIFTED if name in value} | {"event": event}


def _plain(value: Any) -> Any:
    """A key to find a branch by; an invalid name finds nothing, and the reader reports it."""
    return value if isinstance(value, str | int) else None


def _reach(fact: AgentEvents) -> tuple[int, int]:
    return fact.attempt, fact.first_seq + len(fact.events)
