"""CloudEvents headers (binary mode) of our records: source, type, and id. No clock is read here."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache, lru_cache

from agents.redaction.redaction import RULES_VERSION
from schemas.base import Record
from schemas.branches import BranchRecord
from schemas.captures import Capture
from schemas.closures import Closure
from schemas.compliance import ComplianceEvalRecord
from schemas.events import AgentEvents
from schemas.evidence import AepRecord
from schemas.judging import JudgeRequest, JudgeVote
from schemas.lifecycle import Lifecycle
from schemas.rankings import Ranking
from schemas.training import DpoRecord, PpoRecord, RejectedRecord, SftRecord
from schemas.verdicts import BuildVerdict, CheckVerdict, VisualVerdict

Headers = list[tuple[str, bytes]]

SPEC_VERSION = ("ce_specversion", b"1.0")
CONTENT_TYPE = ("content-type", b"application/avro")
REDACTED = ("braid_redacted", RULES_VERSION.encode())
"""Marks a record as redacted, with the version of the rules: a caller with the same headers does not redact it again.
"""


def cloud_event(record: Record, source: str, *, traceparent: str | None = None, redacted: bool = False) -> Headers:
    """The headers of a record; `source` is the part of the product that wrote it."""
    kind, made_by = _constant(type(record), source)
    headers = [SPEC_VERSION, ("ce_id", identity(record).encode()), kind, made_by]
    time = domain_time(record)
    if time is not None:
        headers.append(_time_header(time))
    headers.append(CONTENT_TYPE)
    if traceparent:
        headers.append(("traceparent", traceparent.encode()))
    if redacted:
        headers.append(REDACTED)
    return headers


@cache
def _constant(record: type[Record], source: str) -> Headers:
    """The headers that all records of a kind from one source have."""
    return [
        ("ce_type", f"braidstream.{record.__name__}.v1".encode()),
        ("ce_source", f"/braidstream/{source}".encode()),
    ]


def is_redacted(headers: Sequence[tuple[str, bytes]]) -> bool:
    """Whether a record is marked as redacted by the current rules."""
    return REDACTED in headers


def redacted_otherwise(headers: Sequence[tuple[str, bytes]]) -> bool:
    """Whether a record is marked as redacted by other rules than the current ones."""
    return any(name == REDACTED[0] and rules != REDACTED[1] for name, rules in headers)


def identity(record: Record) -> str:
    """The id of a record: a function of its content, never random."""
    # Records have no classes below theirs, and a model's attribute takes five times as long as an entry of its dict.
    kind, values = type(record), vars(record)
    field = _ID_FIELDS.get(kind)
    if field is not None:
        found: str = values[field]
        return found
    if kind is AgentEvents:
        end = "/end" if values["ended"] and not values["events"] else ""
        return f"{values['rollout_id']}/b{values['branch_index']}/a{values['attempt']}/s{values['first_seq']}{end}"
    if isinstance(record, Capture):
        part = f"/p{record.part}" if record.parts > 1 else ""
        return f"{record.rollout_id}/b{record.branch_index}/a{record.attempt}/c/{record.capture_id}{part}"
    if isinstance(record, Lifecycle):
        said = "opened" if record.opened else "cancelled" if record.cancelled else "close"
        inner = record.opened or record.cancelled or record.close_requested
        return f"{inner.rollout_id if inner else ''}/{said}"
    if isinstance(record, Closure):
        return record.settled.settled_id if record.settled else record.closed.closed_id if record.closed else ""
    raise TypeError(f"{kind.__name__} has no identity")


_ID_FIELDS: dict[type[Record], str] = {
    BuildVerdict: "verdict_id", VisualVerdict: "verdict_id", CheckVerdict: "verdict_id", JudgeRequest: "request_id", JudgeVote: "vote_id",
    Ranking: "ranking_id", BranchRecord: "record_id", AepRecord: "record_id", SftRecord: "record_id", DpoRecord: "record_id",
    PpoRecord: "record_id", RejectedRecord: "record_id", ComplianceEvalRecord: "record_id",
}  # fmt: skip
"""Of the records that have one field for it."""


def domain_time(record: Record) -> int | None:
    """The record's own time, if it has one: of its events or of the decision."""
    kind, values = type(record), vars(record)
    field = _TIME_FIELDS.get(kind)
    if field is not None:
        found: int | None = values[field]
        return found
    if kind is AgentEvents:
        for event in reversed(values["events"]):
            time: int | None = event.timestamp_ms
            if time is not None:
                return time
    elif isinstance(record, Closure):
        inner = record.settled or record.closed
        return inner.decided_at_ms if inner else None
    return None


_TIME_FIELDS: dict[type[Record], str] = {
    BranchRecord: "last_event_ms", Capture: "received_ms", Ranking: "closed_at_ms", AepRecord: "created_at_ms",
}  # fmt: skip
"""Of the records that have one field for it."""


@lru_cache(maxsize=1024)  # all records of a rollout have the time of its closing
def _time_header(milliseconds: int) -> tuple[str, bytes]:
    return "ce_time", rfc3339(milliseconds).encode()


def rfc3339(milliseconds: int) -> str:
    """A time in the form of CloudEvents; clamped to the range of a calendar."""
    clamped = min(max(milliseconds, 0), 253_402_300_799_999)
    return datetime.fromtimestamp(clamped / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
