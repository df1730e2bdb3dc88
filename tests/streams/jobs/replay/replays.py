"""Helpers for tests of replays in files: the sample as a log, and a replay that has to end well."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streams.cluster.connections import partition_of
from streams.log.container import partitions_of, read_partition
from streams.log.file_writer import LogWriter, file_of
from streams.log.topics import TOPICS, Topic
from tests.conftest import Braid
from tests.sealed import sealed


def spread(source: Path, target: Path, partitions: int, order: Callable[[list[Any]], list[Any]] = list) -> Path:
    """The same records in another number of partitions, and other times."""
    with LogWriter(target / "log") as writer:
        for topic in TOPICS:
            for partition in partitions_of(source / "log", topic.name):
                for record in order(list(read_partition(source / "log", topic.name, partition))):
                    to = partition_of((record.key or b"").decode(), partitions)
                    writer.append(topic.name, to, record.key, record.value, record.at, record.headers)
    return sealed(target)


def rewritten(log: Path, target: Path, topic: Topic, change: Callable[[Any], Any]) -> Path:
    """A copy of a log in which every record of a topic went through `change`; None leaves it out."""
    shutil.copytree(log, target, dirs_exist_ok=True)
    for partition in partitions_of(log / "log", topic.name):
        file_of(target / "log", topic.name, partition).unlink()
        with LogWriter(target / "log") as writer:
            for record in read_partition(log / "log", topic.name, partition):
                new = change(record)
                if new is not None:
                    writer.append(topic.name, partition, new.key, new.value, new.at, new.headers, new.offset)
    return sealed(target)


def replay(braid: Braid, log: Path, *more: object) -> dict[str, Any]:
    """The output of `braid replay --json`."""
    parallel = () if "--processes" in more else ("--processes", 1)
    code, found, said = braid("replay", "--from-dir", log, "--json", *parallel, *more)
    assert code == 0, said
    return dict(found)
