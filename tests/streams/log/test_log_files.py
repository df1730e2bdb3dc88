"""The files of a log: Avro containers that any Avro library can read, whole or refused where they are damaged."""

from contextlib import suppress
from pathlib import Path

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.log import file_writer as log_writer
from streams.log.container import EmbeddedLogError, read_ends, read_partition, read_segment
from streams.log.file_writer import LogWriter, file_of
from streams.log.record import LogRecord

RECORDS = [
    LogRecord(0, 5, b"k", b"v" * 3000, (("h", b"1"), ("g", b""))),
    LogRecord(1, -7, None, None, ()),
    LogRecord(9, 2**52, b"", b"\xff\x00", (("ü", b"2"),)),
]


def written(folder: Path, records: list[LogRecord]) -> Path:
    """A partition of these records."""
    with LogWriter(folder) as writer:
        for offset, at, key, value, headers in records:
            writer.append("t", 0, key, value, at, headers, offset)
    return file_of(folder, "t", 0)


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    written(tmp_path, RECORDS)
    assert list(read_partition(tmp_path, "t", 0)) == RECORDS


def test_other_readers_of_avro_read_the_same(tmp_path: Path) -> None:
    """Offset, time, key, value and headers, by the names in the file's own schema."""
    with written(tmp_path, RECORDS).open("rb") as source:
        found = list(fastavro.reader(source))
    assert found == [
        {
            "offset": each.offset, "timestamp_ms": each.at, "key": each.key, "value": each.value,
            "headers": [{"name": name, "value": value} for name, value in each.headers],
        }
        for each in RECORDS
    ]  # fmt: skip


@pytest.mark.parametrize("headers", [(), (("h", b"x" * 500),)])
def test_a_block_ends_also_where_records_have_no_value(
    headers: tuple[tuple[str, bytes], ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records held before they are written are bounded, for any input."""
    monkeypatch.setattr(log_writer, "BLOCK_BYTES", 1000)
    path = written(tmp_path, [LogRecord(at, at, None, None, headers) for at in range(500)])
    assert max(map(len, read_segment(path))) <= 100


def test_the_same_records_give_the_same_file(tmp_path: Path) -> None:
    """Also those of a writer that has written others before: nothing is kept from one block to the next."""
    many = [LogRecord(at, at, b"k", bytes([at % 251]) * 2000, ()) for at in range(500)]
    first = written(tmp_path / "a", many).read_bytes()
    written(tmp_path / "b", RECORDS)
    assert written(tmp_path / "c", many).read_bytes() == first


@given(data=st.data())
def test_a_changed_or_cut_file_raises_nothing_but_our_error(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """And a cut one gives the beginning of what was written. (That a byte was changed is told by the manifest's digests.)"""
    folder = tmp_path_factory.mktemp("log")
    path = written(folder, RECORDS)
    whole = path.read_bytes()
    at, cut = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.booleans())
    other = bytes([whole[at] ^ data.draw(st.integers(1, 255))])
    path.write_bytes(whole[:at] if cut else whole[:at] + other + whole[at + 1 :])
    found = []
    with suppress(EmbeddedLogError):
        for record in read_partition(folder, "t", 0):
            found.append(record)  # noqa: PERF402 - what came before the error counts
    assert found == RECORDS[: len(found)] or not cut


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda raw: b"PK" + raw[2:], "does not begin as an Avro container"),
        (lambda raw: raw.replace(b"zstandard", b"deflate!!"), "not compressed with zstandard"),
        (lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]), "does not end with the marker"),
        (lambda raw: raw[:-20], "bytes, and"),
        (lambda raw: raw + b"\x02\xff\xff\xff\xff\x0f", "bytes, and"),
        (lambda raw: raw + b"\x80" * 30, "too early"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(change: object, said: str, tmp_path: Path) -> None:
    """Without reading what a damaged length claims."""
    path = written(tmp_path, RECORDS)
    path.write_bytes(change(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(EmbeddedLogError, match=said):
        list(read_partition(tmp_path, "t", 0))
    with pytest.raises(EmbeddedLogError, match=said):
        read_ends(path)


def test_the_ends_of_a_file_are_found_without_reading_what_lies_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damage between them does not show that way: every reader finds it."""
    monkeypatch.setattr(log_writer, "BLOCK_BYTES", 1000)
    many = [LogRecord(at, at, b"k", bytes([at % 251]) * 600, ()) for at in range(10)]
    path = written(tmp_path, many)
    assert read_ends(path) == (many[0], many[-1])
    raw = path.read_bytes()
    marker = raw[-log_writer.MARKER_BYTES :]
    parts = raw.split(marker)
    assert len(parts) == 7  # what stands first, five blocks, and nothing after the last marker
    parts[3] = parts[3][:4] + b"damage" + parts[3][10:]
    path.write_bytes(marker.join(parts))
    assert read_ends(path) == (many[0], many[-1])
    with pytest.raises(EmbeddedLogError, match="damaged after the records read so far"):
        list(read_segment(path))
    path.write_bytes(parts[0] + marker)
    assert read_ends(path) is None
