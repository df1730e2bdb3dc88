"""Pieces that belong together but are anywhere in the input (spans of a trace, events of a session), grouped on disk.

They are in a temporary database that has no name, so memory does not grow with the input, only with the largest group.
"""

import json
import sqlite3
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from orjson import dumps, loads

from agents.importers.traces.json_elements import MAX_ELEMENT
from schemas.jsontext import compact

BUFFERED = 1024 * 1024
"""Bytes of pieces that wait in memory before they are written."""

CACHE_KIB = 8 * 1024
"""Pages of the database in memory."""

_EXACT = b"!"
"""Before a value with an integer beyond 64 bits, which orjson would round."""

_IN_ORDER = "SELECT name, value FROM piece ORDER BY name, number"
_AS_THEY_CAME = (
    "SELECT name, value FROM piece JOIN (SELECT name AS one, min(number) AS first FROM piece GROUP BY name) ON name = one"
    " ORDER BY first, number"
)


class Group(NamedTuple):
    """Pieces of one group."""

    name: str
    pieces: list[Any] | None
    """In the order in which they were added, without repetitions; None if they exceed the size limit of one element."""


class GroupSpool:
    """Pieces by group."""

    def __init__(self, most: int = MAX_ELEMENT) -> None:
        """`most` bytes of a group are read at once; a longer one is not read."""
        self._most = most
        self._opened: sqlite3.Connection | None = None
        self._waiting: list[tuple[str, bytes]] = []
        self._waiting_bytes = 0

    @property
    def _database(self) -> sqlite3.Connection:
        """The database, opened when something is put into it."""
        if self._opened is None:
            self._opened = sqlite3.connect("", isolation_level=None)
            self._opened.executescript(
                f"PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -{CACHE_KIB};"
                "CREATE TABLE piece (number INTEGER PRIMARY KEY, name TEXT, value BLOB); BEGIN"
            )
        return self._opened

    def add(self, name: str, value: Any) -> None:
        """Keep a piece."""
        written = _written(value)
        self._waiting.append((name, written))
        self._waiting_bytes += len(written)
        if self._waiting_bytes > BUFFERED:
            self._flush()

    def groups(self, *, sorted_by_name: bool) -> Iterator[Group]:
        """All groups: in the order of their names, or of their first pieces. The spool is empty afterwards."""
        if self._waiting:
            self._flush()
        if self._opened is not None:
            self._opened.execute("CREATE INDEX by_name ON piece (name)")
            rows = self._opened.execute(_IN_ORDER if sorted_by_name else _AS_THEY_CAME)
            for name, members in groupby(rows, itemgetter(0)):
                yield Group(name, _pieces((value for _, value in members), self._most))
        self.close()

    def close(self) -> None:
        """Forget everything."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _flush(self) -> None:
        self._database.executemany("INSERT INTO piece (name, value) VALUES (?, ?)", self._waiting)
        self._waiting.clear()
        self._waiting_bytes = 0


def _pieces(values: Iterator[bytes], most: int) -> list[Any] | None:
    """The pieces of a group. A repeated piece is skipped."""
    found: dict[bytes, None] = {}
    size = 0
    for value in values:
        if value not in found:
            found[value] = None
            size += len(value)
        if size > most:
            return None
    return [_read(value) for value in found]


def _written(value: Any) -> bytes:
    try:
        return dumps(value)
    except TypeError:
        return _EXACT + compact(value).encode()


def _read(piece: bytes) -> Any:
    if piece.startswith(_EXACT):
        return json.loads(piece[1:])
    return loads(piece)
