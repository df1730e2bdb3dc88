"""Pieces that belong together but stand anywhere in the input (spans of a trace), brought together on disk.

Pieces are spread over partitions by the digest of their group; one partition is in memory at a time. A partition that grew too large
is spread again, so memory does not grow with the input, only with the largest group.
"""

import json
import tempfile
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

from orjson import dumps, loads

from schemas.jsontext import compact
from streams.log.durable_files import naming

PARTITION_BYTES = 16 * 1024 * 1024
"""The size of a partition that is aimed at."""

MAX_PARTITIONS = 256

BUFFERED = 4 * 1024 * 1024
"""Bytes of pieces that wait in memory before they are written."""

_EXACT = b"!"
"""Before a value with an integer beyond 64 bits, which orjson would round."""


class GroupSpool:
    """Pieces by group."""

    def __init__(self, expected_bytes: int, depth: int = 0) -> None:
        self._count = max(1, min(MAX_PARTITIONS, expected_bytes // PARTITION_BYTES + 1))
        self._depth = depth
        self._waiting: list[list[bytes]] = [[] for _ in range(self._count)]
        self._waiting_bytes = 0
        self._sizes = [0] * self._count
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def size(self) -> int:
        """Bytes of all pieces."""
        return sum(self._sizes)

    def add(self, group: str, value: Any) -> None:
        """Keep a piece."""
        self._add(group.encode(), _written(value))

    def groups(self) -> Iterator[tuple[str, list[Any]]]:
        """All groups with their pieces, in the order of the groups' digests; nothing is left afterwards."""
        for group, pieces in self._raw_groups():
            yield group.decode(), [_read(piece) for piece in pieces]
        self.close()

    def close(self) -> None:
        """Forget everything."""
        self._waiting = []
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _add(self, group: bytes, piece: bytes) -> None:
        number = self._partition(group)
        self._waiting[number].append(b"%d %d\n%b%b" % (len(group), len(piece), group, piece))
        size = len(group) + len(piece)
        self._sizes[number] += size
        self._waiting_bytes += size
        if self._waiting_bytes > BUFFERED:
            self._flush()

    def _partition(self, group: bytes) -> int:
        """The partition of a group: a range of digests, so that their number does not change the order of groups."""
        return int.from_bytes(_digest(group, self._depth)[:6], "big") * self._count >> 48

    def _flush(self) -> None:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="braid-import-")
        for number, waiting in enumerate(self._waiting):
            if waiting:
                place = Path(self._folder.name) / str(number)
                with naming(place), place.open("ab") as file:
                    file.writelines(waiting)
                waiting.clear()
        self._waiting_bytes = 0

    def _raw_groups(self) -> Iterator[tuple[bytes, list[bytes]]]:
        for number, size in enumerate(self._sizes):
            found: dict[bytes, list[bytes]] = {}
            if size > 4 * PARTITION_BYTES and self._depth < 3:
                yield from self._spread_again(number, size)
                continue
            for group, piece in self._pieces(number):
                found.setdefault(group, []).append(piece)
            for group in sorted(found, key=lambda each: _digest(each, self._depth)):
                yield group, found.pop(group)

    def _spread_again(self, number: int, size: int) -> Iterator[tuple[bytes, list[bytes]]]:
        again = GroupSpool(size, self._depth + 1)
        for group, piece in self._pieces(number):
            again._add(group, piece)
        yield from again._raw_groups()
        again.close()

    def _pieces(self, number: int) -> Iterator[tuple[bytes, bytes]]:
        place = None if self._folder is None else Path(self._folder.name) / str(number)
        if place is not None and place.exists():
            with place.open("rb") as file:
                while head := file.readline():
                    group, piece = map(int, head.split())
                    yield file.read(group), file.read(piece)
            place.unlink()
        for each in self._waiting[number]:
            head, _, rest = each.partition(b"\n")
            length = int(head.split()[0])
            yield rest[:length], rest[length:]
        self._waiting[number] = []


def _digest(group: bytes, depth: int) -> bytes:
    return blake2b(group, digest_size=8, salt=bytes([depth])).digest()


def _written(value: Any) -> bytes:
    try:
        return dumps(value)
    except TypeError:
        return _EXACT + compact(value).encode()


def _read(piece: bytes) -> Any:
    if piece.startswith(_EXACT):
        return json.loads(piece[1:])
    return loads(piece)
