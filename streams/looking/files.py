"""The embedded log, looked into: the files that `braid run` leaves in `OUT/log`, read exactly as partitions are."""

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import orjson

from streams.codec import Codec
from streams.embedded import partitions_of, read_partition
from streams.log_writer import LogRecord
from streams.looking.log import Log, LookError, Stored
from streams.looking.view import ViewRow
from streams.topics import CLOSURES, LIFECYCLE, TOPICS, Topic

LOG_MANIFEST = "log-manifest.json"
"""Beside a log in files: what it holds and where that came from. An exported dataset has a manifest of its own."""


class EmbeddedLog(Log):
    """A directory of partitions. There is no worker, and so no view."""

    def __init__(self, directory: Path) -> None:
        self.folder = log_folder(directory)
        self.place = str(directory)
        self.codec = Codec(stored=stored_schemas(directory))

    async def records(
        self, topics: Sequence[Topic], *, rollout_id: str | None = None, since: int | None = None
    ) -> AsyncGenerator[Stored, None]:
        """What stands in the files."""
        key = None if rollout_id is None else rollout_id.encode()
        home = None if key is None else self._home(key)
        for topic in topics:
            for partition in partitions_of(self.folder, topic.name):
                if home is not None and partition != home:
                    continue
                for record in read_partition(self.folder, topic.name, partition):
                    if key in (None, record.key) and (since is None or record.at >= since):
                        yield _stored(topic, partition, record)

    async def view_row(self, rollout_id: str) -> ViewRow | None:
        """None: nobody keeps a view of files."""
        del rollout_id
        return None

    async def rollouts(self) -> list[str]:
        """The ids of the rollouts that were decided or opened."""
        keys = {stored.key async for stored in self.records([CLOSURES, LIFECYCLE]) if stored.key}
        return sorted(key.decode(errors="replace") for key in keys)

    def _home(self, key: bytes) -> int | None:
        """The partition of a rollout, by its decisions or its opening; None when neither is there.

        How many partitions a run had is not written down, so the small topics are looked through.
        """
        for topic in (CLOSURES, LIFECYCLE):
            for partition in partitions_of(self.folder, topic.name):
                if any(record.key == key for record in read_partition(self.folder, topic.name, partition)):
                    return partition
        return None


def stored_schemas(directory: Path) -> dict[int, dict[str, Any]]:
    """The schemas that an archive brings along, by the ids in its records; none where there is no manifest that can be read."""
    try:
        schemas = orjson.loads((directory / LOG_MANIFEST).read_bytes())["schemas"]
        return {int(schema_id): schema for schema_id, schema in schemas.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def log_folder(directory: Path) -> Path:
    """The log in a directory that `braid run --out` made, or that directory itself. Raises LookError when it holds none."""
    found = find_log(directory)
    if found is None:
        raise LookError(f"{directory} holds no embedded log; give the directory that `braid run --out` filled")
    return found


def find_log(directory: Path) -> Path | None:
    """The same; None when there is none."""
    for folder in (directory / "log", directory):
        if any((folder / topic.name).is_dir() for topic in TOPICS):
            return folder
    return None


def _stored(topic: Topic, partition: int, record: LogRecord) -> Stored:
    return Stored(topic, partition, record.offset, record.at, record.key, record.value, record.headers)
