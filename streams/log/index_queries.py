"""Queries of the index of a log: which rollouts there are, and the positions of their records."""

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import orjson

from streams.log.letter_list import DeadLetter, dead_letter
from streams.log.reader import LogReader
from streams.log.record import Placed
from streams.log.topics import DEAD_LETTERS, EVIDENCE, TOPICS, Topic

NUMBERS = {topic.name: number for number, topic in enumerate(TOPICS)}

NAMED = frozenset(topic.name for topic in TOPICS if topic.kind in ("derived", "sink"))
"""Topics whose records are found, and counted, by their ids: a crash may have written one twice."""


class Place(NamedTuple):
    """The position of a record."""

    topic: Topic
    partition: int
    offset: int


class IndexRow(NamedTuple):
    """A rollout in the index: a summary of its page."""

    rollout_id: str
    status: str
    task: str
    labels: dict[str, str]
    expected: int | None
    started_at: int
    latest_at: int
    slices: int
    verdicts: int
    votes: int
    letters: int
    branches: int | None
    events: int | None
    settled: str | None
    settled_at: int | None
    closed: str | None
    closed_at: int | None
    beads: str
    """A letter for each branch, best first: P, F, U, N."""
    outcomes: dict[str, int]
    hacks: dict[str, int]
    """Branches with a hack signal, by the surest one: confirmed, suspected, judged."""
    best: dict[str, Any] | None
    powered: bool | None
    why: str | None
    changed: int
    """Grows with every change of the rollout."""
    rows: dict[str, int]
    """Records by the name of their sink."""


class Wanted(NamedTuple):
    """Filters for rollouts."""

    status: str | None = None
    text: str = ""
    """Part of an id, a task or a label."""
    rollout_id: str | None = None
    """Only this one: a token may be bound to it."""


class IndexQueries:
    """Queries the tables of an index; `rollout_index.py` fills them."""

    _database: sqlite3.Connection

    def changed(self, rollout_id: str) -> int | None:
        """The number of a rollout's last change; None if the log has nothing of it."""
        found = self._database.execute("SELECT changed FROM rollouts WHERE rollout_id = ?", (rollout_id,)).fetchone()
        return None if found is None else int(found[0])

    def places(self, rollout_id: str, topics: Iterable[Topic] = TOPICS) -> dict[tuple[Topic, int], list[int]]:
        """By topic and partition, the offsets of a rollout's records, ascending; topics in the given order."""
        numbers = {NUMBERS[topic.name]: topic for topic in topics}
        rows = self._database.execute(
            "SELECT topic, partition, offset FROM places JOIN rollouts ON rollout = number WHERE rollout_id = ? "
            "ORDER BY topic, partition, offset",
            (rollout_id,),
        )
        found: dict[tuple[Topic, int], list[int]] = {}
        for topic, partition, offset in rows:
            if topic in numbers:
                found.setdefault((numbers[topic], partition), []).append(offset)
        order = {number: at for at, number in enumerate(numbers)}
        return dict(sorted(found.items(), key=lambda each: (order[NUMBERS[each[0][0].name]], each[0][1])))

    def named(self, name: str) -> list[tuple[str, Place]]:
        """The rollouts and places of the derived records with an id."""
        rows = self._database.execute(
            "SELECT rollout_id, topic, partition, offset FROM places JOIN rollouts ON rollout = number WHERE name = ?",
            (name,),
        )
        return [(rollout_id, Place(TOPICS[topic], partition, offset)) for rollout_id, topic, partition, offset in rows]

    def letters(self, limit: int, skip: int = 0, rollout_id: str | None = None) -> tuple[int, list[Place]]:
        """How many dead letters there are, and the positions of some, the last ones first."""
        number = NUMBERS[DEAD_LETTERS.name]
        of = "" if rollout_id is None else " AND rollout = (SELECT number FROM rollouts WHERE rollout_id = ?3)"
        rest = () if rollout_id is None else (rollout_id,)
        asked = f"SELECT partition, offset FROM places WHERE topic = {number}{of.replace('?3', '?')}"  # noqa: S608 - a number of ours
        total = self._database.execute(f"SELECT count(*) FROM ({asked})", rest).fetchone()[0]  # noqa: S608
        rows = self._database.execute(f"{asked} ORDER BY offset DESC, partition LIMIT ? OFFSET ?", (*rest, limit, skip))
        return total, [Place(DEAD_LETTERS, partition, offset) for partition, offset in rows]

    def rollouts(self, wanted: Wanted, limit: int, skip: int = 0) -> tuple[int, list[IndexRow]]:
        """How many rollouts match, and some of them, newest first."""
        conditions, values = ["rollout_id != ''"], []
        if wanted.status:
            conditions.append("status = ?")
            values.append(wanted.status)
        if wanted.rollout_id is not None:
            conditions.append("rollout_id = ?")
            values.append(wanted.rollout_id)
        if wanted.text:
            conditions.append("(instr(lower(rollout_id), ?) OR instr(lower(task), ?) OR instr(lower(labels), ?))")
            values += [wanted.text.lower()] * 3
        where = " AND ".join(conditions)
        total = self._database.execute(f"SELECT count(*) FROM rollouts WHERE {where}", values).fetchone()[0]  # noqa: S608 - no value in it
        rows = self._database.execute(
            f"SELECT number, {', '.join(IndexRow._fields[:-1])} FROM rollouts WHERE {where} "  # noqa: S608 - no value in it
            "ORDER BY started_at DESC, number DESC LIMIT ? OFFSET ?",
            (*values, limit, skip),
        )
        return total, [self._row(row) for row in rows.fetchall()]

    def row(self, rollout_id: str) -> IndexRow | None:
        """One rollout."""
        _, rows = self.rollouts(Wanted(rollout_id=rollout_id), 1)
        return rows[0] if rows else None

    def _row(self, row: Sequence[Any]) -> IndexRow:
        number, *values = row
        sinks = self._database.execute(
            "SELECT topic, count(DISTINCT name) FROM places WHERE rollout = ? AND topic >= ? GROUP BY topic",
            (number, NUMBERS[EVIDENCE.name]),
        )
        counts = {TOPICS[topic].name.split(".")[1]: count for topic, count in sinks if TOPICS[topic].name in NAMED}
        plain = dict(zip(IndexRow._fields, [*values, counts], strict=True))
        for name in ("labels", "outcomes", "hacks", "best"):
            plain[name] = None if plain[name] is None else orjson.loads(plain[name])
        plain["powered"] = None if plain["powered"] is None else bool(plain["powered"])
        return IndexRow(**plain)

    def statuses(self) -> dict[str, int]:
        """How many rollouts there are of each status."""
        return dict(
            self._database.execute("SELECT status, count(*) FROM rollouts WHERE rollout_id != '' GROUP BY status")
        )

    def unfinished(self, limit: int) -> list[str]:
        """Rollouts that have not settled, the oldest first."""
        rows = self._database.execute(
            "SELECT rollout_id FROM rollouts WHERE status = 'open' AND rollout_id != '' ORDER BY started_at LIMIT ?",
            (limit,),
        )
        return [rollout_id for (rollout_id,) in rows]

    def activity(self, minutes: int) -> "Activity | None":
        """Slices and closings in the last minutes of the log, by its own time; None if it has none."""
        (last,) = self._database.execute("SELECT max(minute) FROM activity WHERE minute > 0").fetchone()
        if last is None:
            return None
        first = last - minutes + 1
        slices, closings = [0] * minutes, [0] * minutes
        for minute, read, closed in self._database.execute("SELECT * FROM activity WHERE minute >= ?", (first,)):
            slices[minute - first], closings[minute - first] = read, closed
        return Activity(last, slices, closings)


class Activity(NamedTuple):
    """How busy a log is, minute by minute."""

    last: int
    """The last minute, since 1970."""
    slices: list[int]
    closings: list[int]


async def letters_at(log: LogReader, places: Sequence[Place]) -> list[DeadLetter]:
    """The dead letters at places, in their order."""
    found = {}
    for place in places:
        for record in await log.at(place.topic, place.partition, [place.offset]):
            found[place] = dead_letter(Placed(place.topic, place.partition, record))
    return [found[place] for place in places if place in found]
