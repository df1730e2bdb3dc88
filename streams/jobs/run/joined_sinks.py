"""The JSON lines of partitions joined into one file per sink, in the order of partitions, while later ones are still folded."""

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

from streams.log.durable_files import PARTIAL, open_output

COPIED = 1024 * 1024
"""Bytes that are copied and digested at once."""


class JoinedSinks:
    """Files that become visible when all partitions are joined. One thread joins; the caller continues."""

    def __init__(self, out: Path, names: Iterable[str], parts: Path) -> None:
        self._sinks = [_Sink(out / name) for name in names]
        self._parts = parts
        self._done: set[int] = set()
        self._next = 0
        self._thread = ThreadPoolExecutor(1)
        self._joins: list[Future[None]] = []

    def take(self, partition: int) -> None:
        """Join the files of a partition, as soon as those of all partitions before it are joined."""
        self._done.add(partition)
        while self._next in self._done:
            self._joins.append(self._thread.submit(self._join, self._parts / f"sinks-{self._next}"))
            self._next += 1

    def _join(self, folder: Path) -> None:
        for sink in self._sinks:
            sink.append(folder / sink.path.name)

    def finish(self) -> dict[Path, dict[str, Any]]:
        """Give the files their names; returns digest and size of each, as a manifest has them."""
        for each in self._joins:
            each.result()
        return {sink.path: sink.publish() for sink in self._sinks}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._thread.shutdown(cancel_futures=True)
        if kind is not None:
            for sink in self._sinks:
                sink.discard()


class _Sink:
    """One file that grows by partitions."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._partial = path.with_name(path.name + PARTIAL)
        self._file: BinaryIO = open_output(self._partial)
        self._digest = sha256()

    def append(self, part: Path) -> None:
        with part.open("rb", buffering=0) as source:
            while piece := source.read(COPIED):
                self._digest.update(piece)
                self._file.write(piece)
        part.unlink()

    def publish(self) -> dict[str, Any]:
        size = self._file.tell()
        self._file.close()
        self._partial.replace(self.path)
        return {"sha256": self._digest.hexdigest(), "bytes": size}

    def discard(self) -> None:
        with suppress(OSError):  # on a full disk the last flush fails, too
            self._file.close()
        self._partial.unlink(missing_ok=True)
