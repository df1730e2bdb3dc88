"""The index of a log: the positions of the records of each rollout, and a row for each rollout. SQLite, in one file.

A cache, never authoritative: it has offsets, counts, and a redacted line of text; pages read the records themselves.
It is rebuilt from the log if it is missing, of another version, or of another log, and follows the log while it grows.
One process at a time keeps it; a second one makes its own.
"""

import asyncio
import sqlite3
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import aclosing, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Self, get_args

import orjson

from schemas.errors import DecodeError
from schemas.rankings import SignalClass
from streams.cluster.locks.file_lock import LockedError, locked
from streams.log.index_queries import NAMED, NUMBERS, IndexQueries
from streams.log.progress import Say, quiet
from streams.log.reader import LogReader
from streams.log.record import LogRecord, Span
from streams.log.terminal_text import WHOLE, line
from streams.log.topics import (
    AGENT_EVENTS,
    BUILD_VERDICTS,
    CHECK_VERDICTS,
    CLOSURES,
    DEAD_LETTERS,
    JUDGE_VOTES,
    LIFECYCLE,
    RANKINGS,
    TOPICS,
    VISUAL_VERDICTS,
    Topic,
)
from streams.log.view_rows import read_key, read_row

VERSION = "3 " + " ".join(NUMBERS)
"""Version of the tables below, and the topics in the order of their numbers: an index of another version is rebuilt."""

MINUTE_MS = 60_000
TASK = 300
"""Characters of a task."""
BEADS = 128
"""Outcomes of branches that are kept, best first."""

COUNTED = {
    AGENT_EVENTS.name: "slices", BUILD_VERDICTS.name: "verdicts", VISUAL_VERDICTS.name: "verdicts",
    CHECK_VERDICTS.name: "verdicts", JUDGE_VOTES.name: "votes", DEAD_LETTERS.name: "letters",
}  # fmt: skip
"""Topics whose records are counted as they are read."""

OUTCOMES = {"pass": "P", "fail": "F", "unknown": "U", "not_required": "N"}

_TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE reached (topic INTEGER, partition INTEGER, next INTEGER NOT NULL, at INTEGER NOT NULL,
    PRIMARY KEY (topic, partition)) WITHOUT ROWID;
CREATE TABLE rollouts (
    number INTEGER PRIMARY KEY, rollout_id TEXT NOT NULL UNIQUE, status TEXT NOT NULL DEFAULT 'open',
    task TEXT NOT NULL DEFAULT '', labels TEXT NOT NULL DEFAULT '{}', expected INTEGER, required TEXT, opened_at INTEGER,
    started_at INTEGER NOT NULL DEFAULT 0, latest_at INTEGER NOT NULL DEFAULT 0,
    slices INTEGER NOT NULL DEFAULT 0, verdicts INTEGER NOT NULL DEFAULT 0, votes INTEGER NOT NULL DEFAULT 0,
    letters INTEGER NOT NULL DEFAULT 0, branches INTEGER, events INTEGER, settled TEXT, settled_at INTEGER, closed TEXT,
    closed_at INTEGER, beads TEXT NOT NULL DEFAULT '', outcomes TEXT NOT NULL DEFAULT '{}',
    hacks TEXT NOT NULL DEFAULT '{}', best TEXT, powered INTEGER,
    why TEXT, changed INTEGER NOT NULL DEFAULT 0);
CREATE INDEX rollouts_by_time ON rollouts (started_at DESC, number DESC);
CREATE INDEX rollouts_by_status ON rollouts (status, started_at DESC, number DESC);
CREATE TABLE places (rollout INTEGER, topic INTEGER, partition INTEGER, offset INTEGER, name TEXT,
    PRIMARY KEY (rollout, topic, partition, offset)) WITHOUT ROWID;
CREATE INDEX places_by_name ON places (name) WHERE name IS NOT NULL;
CREATE INDEX letters_by_place ON places (topic, partition, offset) WHERE topic = %d;
CREATE TABLE activity (minute INTEGER PRIMARY KEY, slices INTEGER NOT NULL DEFAULT 0, closings INTEGER NOT NULL DEFAULT 0);
""" % NUMBERS[DEAD_LETTERS.name]  # noqa: UP031 - a number of ours


class RolloutIndex(IndexQueries):
    """The index of one log. `catch_up` reads to the end of the log; everything else only queries it."""

    def __init__(self, path: Path, identity: str) -> None:
        self.path = path
        self.share = 0.0
        """How much of the log it has read, while it is built."""
        self.ready = False
        """Whether it has reached the end of the log once."""
        self.tick = 0
        """Grows with every change of anything."""
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._own: tempfile.TemporaryDirectory[str] | None = None
        try:
            self._lock = locked(path.with_suffix(".lock"))
        except LockedError:  # another server updates the same index: two writers would count twice
            self._own = tempfile.TemporaryDirectory(prefix="braid-index-")
            self._lock = locked(Path(self._own.name) / "lock")
            self.path = path = Path(self._own.name) / path.name
        self._identity = identity
        self._rows: dict[str, int] = {}
        self._view_to: dict[int, int] = {}
        self._checked = False
        self._database = self._opened()

    def _opened(self) -> sqlite3.Connection:
        try:
            found = self._connected()
            names = dict(found.execute("SELECT name, value FROM meta"))
        except sqlite3.Error:
            names = {}
        if names.get("version") == VERSION and names.get("identity") == self._identity:
            self.tick = int(names.get("tick", 0))
            return found
        return self._created()

    def _connected(self) -> sqlite3.Connection:
        database = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=OFF")  # worthless after a crash of the machine, and rebuilt
        database.execute("PRAGMA cache_size=-16000")
        return database

    def _created(self) -> sqlite3.Connection:
        self._remove()
        database = self._connected()
        self.path.chmod(0o600)
        database.executescript(_TABLES)
        database.executemany(
            "INSERT INTO meta VALUES (?, ?)", [("version", VERSION), ("identity", self._identity), ("tick", "0")]
        )
        self.tick, self._checked = 0, True
        self._rows.clear()
        self._view_to.clear()
        return database

    def close(self) -> None:
        """Close the file."""
        self._database.close()
        self._lock.close()
        if self._own is not None:
            self._own.cleanup()

    def discard(self) -> None:
        """Remove the file: it cannot be used."""
        self._database.close()
        self._remove()

    def _remove(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                self.path.with_name(self.path.name + suffix).unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    # -- following the log -----------------------------------------------------------------------------------------------

    async def catch_up(self, log: LogReader, say: Say = quiet) -> set[str]:
        """Read the part of the log that is not in the index; return the rollouts that changed."""
        spans = await log.spans(TOPICS)
        if not self._checked and not await self._continues(log):
            self._database.close()
            self._database = self._created()
        self._checked = True
        behind = self._behind(spans)
        if behind is None:  # shorter than before: another log
            self._database.close()
            self._database = self._created()
            behind = self._behind(spans) or []
        changed: set[str] = set()
        total, done = sum(span.end - span.start for _, _, span in behind) or 1, 0
        for topic, partition, span in behind:
            async with aclosing(log.blocks(topic, partition, span)) as blocks:
                async for block in blocks:
                    if topic in (LIFECYCLE, CLOSURES, RANKINGS):
                        await log.learn(block)
                    changed |= self._take(log, topic, partition, block)
                    done += len(block)
                    await asyncio.sleep(0)  # files are read without waiting: pages are answered in between
                    if not self.ready:
                        self.share = done / total
                        say("indexing", self.share)
        changed |= await self._take_view(log)
        self.ready, self.share = True, 1.0
        return changed

    async def _continues(self, log: LogReader) -> bool:
        """Whether the last decisions and openings read are still at the same positions."""
        for topic in (LIFECYCLE, CLOSURES):
            rows = self._database.execute(
                "SELECT partition, next, at FROM reached WHERE topic = ?", (NUMBERS[topic.name],)
            )
            for partition, after, at in rows.fetchall():
                found = await log.at(topic, partition, [after - 1])
                if found and found[0].at != at:
                    return False
        return True

    def _behind(self, spans: Mapping[str, Mapping[int, Span]]) -> list[tuple[Topic, int, Span]] | None:
        """The unread parts of the log; None if some of the read ones no longer exist."""
        reached = {
            (topic, partition): after
            for topic, partition, after in self._database.execute("SELECT topic, partition, next FROM reached")
        }
        found = []
        for topic in TOPICS:
            for partition, span in spans.get(topic.name, {}).items():
                after = reached.get((NUMBERS[topic.name], partition), 0)
                if after > span.end:
                    return None
                if max(after, span.start) < span.end:
                    found.append((topic, partition, Span(max(after, span.start), span.end)))
        return found

    def _take(self, log: LogReader, topic: Topic, partition: int, block: Sequence[LogRecord]) -> set[str]:
        """Add a block completely or not at all."""
        database = self._database
        database.execute("BEGIN")
        try:
            self.tick += 1
            touched = self._note_places(topic, partition, block)
            if topic is LIFECYCLE or topic is CLOSURES or topic is RANKINGS:
                for record in block:
                    self._note_content(log, topic, record)
            self._note_activity(topic, block)
            database.execute(
                "INSERT OR REPLACE INTO reached VALUES (?, ?, ?, ?)",
                (NUMBERS[topic.name], partition, block[-1].offset + 1, block[-1].at),
            )
            database.execute("UPDATE meta SET value = ? WHERE name = 'tick'", (str(self.tick),))
            database.execute("COMMIT")
        except BaseException:
            database.execute("ROLLBACK")
            self._rows.clear()
            raise
        return touched

    def _note_places(self, topic: Topic, partition: int, block: Sequence[LogRecord]) -> set[str]:
        number = NUMBERS[topic.name]
        places: list[tuple[int, int, int, int, str | None]] = []
        times: dict[int, tuple[int, int, int]] = {}
        for record in block:
            rollout_id = (record.key or b"").decode(errors="replace")
            rollout = self._number(rollout_id)
            first, last, count = times.get(rollout, (record.at, record.at, 0))
            times[rollout] = (min(first, record.at), max(last, record.at), count + 1)
            name = _name_of(record) if topic.name in NAMED else None
            places.append((rollout, number, partition, record.offset, name))
        self._database.executemany("INSERT OR IGNORE INTO places VALUES (?, ?, ?, ?, ?)", places)
        counted = COUNTED.get(topic.name)
        more = f", {counted} = {counted} + ?4" if counted else ""
        self._database.executemany(
            "UPDATE rollouts SET started_at = CASE WHEN started_at = 0 THEN ?2 ELSE min(started_at, ?2) END, "  # noqa: S608 - names of ours
            f"latest_at = max(latest_at, ?3), changed = ?5{more} WHERE number = ?1",
            [(rollout, first, last, count, self.tick) for rollout, (first, last, count) in times.items()],
        )
        return {(record.key or b"").decode(errors="replace") for record in block}

    def _number(self, rollout_id: str) -> int:
        known = self._rows.get(rollout_id)
        if known is None:
            if len(self._rows) > 200_000:
                self._rows.clear()
            found = self._database.execute("SELECT number FROM rollouts WHERE rollout_id = ?", (rollout_id,)).fetchone()
            if found is None:
                known = self._database.execute("INSERT INTO rollouts (rollout_id) VALUES (?)", (rollout_id,)).lastrowid
            else:
                known = found[0]
            assert known is not None
            self._rows[rollout_id] = known
        return known

    def _note_content(self, log: LogReader, topic: Topic, record: LogRecord) -> None:
        """Note the few fields that the list of rollouts shows. A record that cannot be decoded shows on its own page."""
        rollout_id = (record.key or b"").decode(errors="replace")
        try:
            fields = log.codec.fields(topic, record.value)
        except DecodeError:
            return
        values = (
            _opening(fields, record.at)
            if topic is LIFECYCLE
            else _decision(fields)
            if topic is CLOSURES
            else _ranked(fields)
        )
        if values:
            # The first opening and the first decision of a kind count.
            sets = ", ".join(f"{name} = coalesce({name}, ?)" if name in FIRST else f"{name} = ?" for name in values)
            self._database.execute(
                f"UPDATE rollouts SET {sets} WHERE rollout_id = ?",  # noqa: S608 - names of ours
                (*values.values(), rollout_id),
            )
        self._database.execute(
            "UPDATE rollouts SET status = CASE WHEN why IS NOT NULL THEN 'broken' WHEN closed IS NOT NULL AND beads != '' "
            "THEN 'closed' WHEN closed IS NOT NULL THEN 'closing' WHEN settled IS NOT NULL THEN 'settled' ELSE 'open' END "
            "WHERE rollout_id = ?",
            (rollout_id,),
        )

    def _note_activity(self, topic: Topic, block: Sequence[LogRecord]) -> None:
        column = "slices" if topic is AGENT_EVENTS else "closings" if topic is RANKINGS else None
        if column is None:
            return
        counts: dict[int, int] = {}
        for record in block:
            counts[record.at // MINUTE_MS] = counts.get(record.at // MINUTE_MS, 0) + 1
        self._database.executemany(
            f"INSERT INTO activity (minute, {column}) VALUES (?1, ?2) "  # noqa: S608 - names of ours
            f"ON CONFLICT (minute) DO UPDATE SET {column} = {column} + ?2",
            list(counts.items()),
        )

    async def _take_view(self, log: LogReader) -> set[str]:
        """Copy from the worker's view what is not in the log: that a rollout is broken, and why."""
        changed: set[str] = set()
        async with aclosing(log.view_changes(self._view_to)) as changes:
            async for record in changes:
                row = read_row(record.value) if record.value and record.key else None
                if row is None or not row.why or record.key is None:
                    continue
                rollout_id = read_key(record.key)
                self.tick += 1
                self._database.execute(
                    "UPDATE rollouts SET why = ?, status = 'broken', changed = ? WHERE rollout_id = ? AND why IS NOT ?",
                    (line(row.why, WHOLE), self.tick, rollout_id, line(row.why, WHOLE)),
                )
                changed.add(rollout_id)
        return changed


SURENESS: tuple[str, ...] = get_args(SignalClass)

FIRST = frozenset(
    {"expected", "required", "opened_at", "settled", "settled_at", "branches", "events", "closed", "closed_at"}
)


def _name_of(record: LogRecord) -> str | None:
    return next((value.decode(errors="replace") for name, value in record.headers if name == "ce_id"), None)


def _opening(fields: Mapping[str, Any], at: int) -> dict[str, Any]:
    opened = fields.get("opened")
    if opened is None:
        return {}
    labels = {line(name): line(text) for name, text in opened["labels"].items()}
    return {
        "task": line(opened["task"], TASK), "labels": orjson.dumps(labels).decode(), "expected": opened["branches"],
        "required": orjson.dumps(opened["required"]).decode(), "opened_at": at,
    }  # fmt: skip


def _decision(fields: Mapping[str, Any]) -> dict[str, Any]:
    settled, closed = fields.get("settled"), fields.get("closed")
    if settled is not None:
        events = sum(branch["n_events"] for branch in settled["branches"])
        return {
            "settled": settled["cause"], "settled_at": settled["decided_at_ms"], "branches": len(settled["branches"]),
            "events": events,
        }  # fmt: skip
    return {} if closed is None else {"closed": closed["cause"], "closed_at": closed["decided_at_ms"]}


def _ranked(fields: Mapping[str, Any]) -> dict[str, Any]:
    branches = fields["branches"]
    outcomes: dict[str, int] = {}
    for branch in branches:
        outcomes[branch["objective_status"]] = outcomes.get(branch["objective_status"], 0) + 1
    first = next((branch for branch in branches if branch["rank"] == 1), None)
    best = None if first is None else {"branch": first["branch_index"], "total": first["total"]}
    return {
        "beads": "".join(OUTCOMES.get(branch["objective_status"], "U") for branch in branches[:BEADS]),
        "outcomes": orjson.dumps(dict(sorted(outcomes.items()))).decode(), "hacks": orjson.dumps(_hacks(branches)).decode(),
        "best": None if best is None else orjson.dumps(best).decode(), "powered": fields["stats"]["powered"],
        "task": line(fields["task"], TASK),
    }  # fmt: skip


def _hacks(branches: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Branches with a hack signal, by the surest one of each."""
    found = dict.fromkeys(SURENESS, 0)
    for branch in branches:
        sure = next(
            (sure for sure in SURENESS if any(flag.startswith(f"hack_{sure}") for flag in branch["flags"])), None
        )
        if sure is not None:
            found[sure] += 1
    return {sure: count for sure, count in found.items() if count}


def index_file(state: Path, identity: str) -> Path:
    """The file of the index of a log."""
    return state / "view" / f"{sha256(identity.encode()).hexdigest()[:24]}.sqlite"
