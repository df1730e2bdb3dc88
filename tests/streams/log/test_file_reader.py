"""A log in files: damage is an error, or a loss that reading goes on behind, as the reader was asked to."""

from pathlib import Path

import pytest

from streams.log.container import EmbeddedLogError
from streams.log.cursor import Cursor
from streams.log.file_reader import FileReader
from streams.log.file_writer import LogWriter, file_of
from streams.log.manifest import described, seal
from streams.log.reader import LookError
from streams.log.record import LogRecord, Span
from streams.log.topics import AGENT_EVENTS, CLOSURES, LIFECYCLE


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Two topics; the second has two files, and one rollout in each of its partitions."""
    with LogWriter(tmp_path / "log", 1) as writer:
        for offset, key in enumerate((b"a", b"b")):
            writer.append(LIFECYCLE.name, offset, key, key, 1000)
        for offset in range(3):
            writer.append(AGENT_EVENTS.name, 0, b"a", b"%d" % offset, 2000 + offset)
    seal(tmp_path, "run", described(tmp_path, (tmp_path / "log").glob("*/*")), None, {})
    return tmp_path


def spoil(directory: Path) -> Path:
    """Change the first file of events without changing its size."""
    path = file_of(directory / "log", AGENT_EVENTS.name, 0)
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    return path


async def offsets(reader: FileReader) -> list[int]:
    return [placed.record.offset async for placed in reader.records([AGENT_EVENTS])]


async def test_damage_is_an_error(log: Path) -> None:
    path = spoil(log)
    with pytest.raises(EmbeddedLogError, match=rf"{path}: damaged: its digest is not"):
        await offsets(FileReader(log))


async def test_a_tolerant_reader_goes_on_behind_damage_and_names_it(log: Path) -> None:
    path, reader = spoil(log), FileReader(log, tolerant=True)
    assert await offsets(reader) == [1, 2]
    assert str(path) in reader.damaged[AGENT_EVENTS.name][0]
    assert reader.lost(await reader.spans([AGENT_EVENTS])) == {AGENT_EVENTS.name: {0: "begins at offset 1"}}


async def test_spans_hold_what_is_there_from_a_time_on_and_of_a_rollout(log: Path) -> None:
    reader = FileReader(log)
    assert await reader.spans([LIFECYCLE, AGENT_EVENTS, CLOSURES]) == {
        LIFECYCLE.name: {0: Span(0, 1), 1: Span(0, 1)},
        AGENT_EVENTS.name: {0: Span(0, 3)},
        CLOSURES.name: {},
    }
    assert await reader.spans([AGENT_EVENTS], since=2001) == {AGENT_EVENTS.name: {0: Span(1, 3)}}
    assert await reader.spans([LIFECYCLE], rollout_id="b") == {LIFECYCLE.name: {1: Span(0, 1)}}
    assert await reader.count([LIFECYCLE, AGENT_EVENTS]) == 5
    assert await reader.rollouts() == ["a", "b"]


async def test_a_cursor_says_where_it_stands(log: Path) -> None:
    cursor = Cursor(FileReader(log), AGENT_EVENTS, 0, Span(1, 4))
    assert (cursor.position, cursor.share) == (1, 0.0)
    assert await cursor.next() == LogRecord(1, 2001, b"a", b"1", ())
    assert (cursor.position, round(cursor.share, 2)) == (2, 0.33)
    assert [await cursor.next() is None for _ in range(3)] == [False, True, True]
    assert (cursor.start, cursor.position, cursor.share) == (1, 4, 1.0)


async def test_files_cannot_be_followed(log: Path) -> None:
    with pytest.raises(LookError, match=r"is files: nothing comes"):
        FileReader(log).follow(LIFECYCLE)
