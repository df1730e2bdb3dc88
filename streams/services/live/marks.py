"""The mark of a closed rollout: small, and the same bytes from every writer.

It is made from RolloutSettled and RolloutClosed alone, so a worker that starts after its rollout was closed by another
writes the very same mark. It distinguishes records read again from late ones, and repetitions from new ones. A rollout
that was given up before it closed has a mark as well: later records do not open another one of its name.
"""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from io import BytesIO
from typing import Any, NamedTuple

import fastavro

from agents.rollouts.rollout import pinned_ids
from agents.verdicts.meaning import kind_of
from schemas.closures import Closure, RolloutClosed, RolloutSettled
from schemas.events import AgentEvents
from schemas.judging import JudgeVote
from schemas.lifecycle import Lifecycle
from schemas.verdicts import BuildVerdict, CheckVerdict, VisualVerdict
from streams.log.topics import FACTS

SHORT = 4
"""Bytes of an id's hash: two ids of one rollout share it once in a thousand million."""

_SCHEMA = fastavro.parse_schema(
    {
        "type": "record",
        "name": "braidstream.Mark",
        "fields": [
            {"name": "format", "type": "int"},
            {"name": "closed_at", "type": "long"},
            {"name": "read_to", "type": {"type": "array", "items": "long"}},
            {"name": "branches", "type": {"type": "array", "items": "long"}},
            {"name": "ids", "type": "bytes"},
        ],
    }
)

TOPIC_ORDER = sorted(topic.name for topic in FACTS)
"""Positions are stored in this order, without the names: there is a mark for every rollout of a month."""

FORMAT = 1
"""Of the row; a change of its meaning needs the next number."""
GIVEN_UP = 2
"""Of the row of a rollout that never closed."""


class Mark(NamedTuple):
    """The mark of a closed rollout."""

    closed_at: int
    """Time of the closing decision."""
    read_to: dict[str, int]
    """By topic (without prefix), the offset up to which the closing had read."""
    branches: dict[int, tuple[int, int]]
    """By branch, the attempt that counts and how many seqs it spans."""
    ids: frozenset[bytes]
    """Short hashes of the verdicts and votes that count."""
    given_up: bool
    """It could not be made; then nothing of it counts."""


def mark_of(settled: RolloutSettled, closed: RolloutClosed) -> bytes:
    """The row of a closed rollout."""
    spans: list[int] = []
    for pin in settled.branches:
        spans += [pin.branch_index, pin.attempt, 0 if pin.last_seq is None else pin.last_seq + 1]
    ids = sorted({_short(each) for each in _ids(settled, closed)})
    return _row(FORMAT, closed.decided_at_ms, closed.read_to, spans, ids)


def mark_of_given_up(at: int, read_to: Mapping[str, int]) -> bytes:
    """The row of a rollout that was given up before it closed; `at` is a time of the log."""
    return _row(GIVEN_UP, at, read_to, [], [])


def _row(format_: int, at: int, read_to: Mapping[str, int], spans: list[int], ids: list[bytes]) -> bytes:
    out = BytesIO()
    plain = {
        "format": format_, "closed_at": at, "read_to": [read_to.get(topic, 0) for topic in TOPIC_ORDER],
        "branches": spans, "ids": b"".join(ids),
    }  # fmt: skip
    fastavro.schemaless_writer(out, _SCHEMA, plain)
    return out.getvalue()


def read_mark(row: bytes) -> Mark:
    """The mark in a row."""
    plain: Any = fastavro.schemaless_reader(BytesIO(row), _SCHEMA, None)
    spans, ids = plain["branches"], plain["ids"]
    return Mark(
        closed_at=plain["closed_at"],
        read_to=dict(zip(TOPIC_ORDER, plain["read_to"], strict=True)),
        branches={spans[at]: (spans[at + 1], spans[at + 2]) for at in range(0, len(spans), 3)},
        ids=frozenset(ids[at : at + SHORT] for at in range(0, len(ids), SHORT)),
        given_up=plain["format"] == GIVEN_UP,
    )


def repeats(mark: Mark, fact: object) -> bool:
    """Whether a fact of a closed rollout only repeats one that counted."""
    match fact:
        case AgentEvents():
            attempt, span = mark.branches.get(fact.branch_index, (-1, 0))
            return fact.attempt == attempt and fact.first_seq + len(fact.events) <= span
        case BuildVerdict() | VisualVerdict() | CheckVerdict():
            named = _named(fact.branch_index, kind_of(fact), fact.verdict_id)
            return _short(named) in mark.ids or _short(fact.verdict_id) in mark.ids
        case JudgeVote():
            return _short(fact.vote_id) in mark.ids
        case Lifecycle():
            return fact.cancelled is None  # opened again, or asked to close: nothing new
        case Closure():
            return True  # a later decision has no effect
    return False


def _ids(settled: RolloutSettled, closed: RolloutClosed) -> Iterable[str]:
    for pin in settled.branches:
        for kind, verdict_id in pinned_ids(pin):
            yield verdict_id if kind is None else _named(pin.branch_index, kind, verdict_id)
    yield from closed.vote_ids


def _named(branch: int, kind: str, verdict_id: str) -> str:
    """A verdict of a rollout. Marks of settlings that pin no kinds have its id alone."""
    return f"{branch}/{kind}/{verdict_id}"


def _short(text: str) -> bytes:
    return sha256(text.encode()).digest()[:SHORT]
