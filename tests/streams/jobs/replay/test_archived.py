"""Replay --unfinished of archives that are not whole: what is gone is found by the manifest, and costs only what it held."""

import json
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from streams.log import file_writer as log_writer
from streams.log.container import first_of, partitions_of, read_partition, read_segment, segments_of
from streams.log.file_writer import LogWriter, file_of
from streams.log.record import LogRecord
from streams.log.topics import AGENT_EVENTS, CLOSURES, EVIDENCE, FACTS, SFT, TOPICS, Topic
from tests.conftest import Braid

Change = Callable[[Topic, list[LogRecord]], list[LogRecord]]


@pytest.fixture(scope="module")
def log(ran: Path) -> Path:
    """The sample in one partition."""
    return ran


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many blocks in a file, though the sample is small."""
    monkeypatch.setattr(log_writer, "BLOCK_BYTES", 2000)


def _archived(log: Path, target: Path, change: Change = lambda _topic, records: records, *, everything: bool = False) -> Path:  # fmt: skip
    """An archive of a log as it is after `change`, in several segments."""
    inputs: dict[str, dict[str, list[int]]] = {}
    with LogWriter(target / "log", 3000) as writer:
        for topic in TOPICS if everything else FACTS:
            inputs[topic.name] = {"0": [0, 0]}
            for partition in partitions_of(log / "log", topic.name):
                before = list(read_partition(log / "log", topic.name, partition))
                for each in (records := change(topic, before)):
                    writer.append(topic.name, partition, each.key, each.value, each.at, each.headers, each.offset)
                inputs[topic.name][str(partition)] = [records[0].offset, before[-1].offset + 1]
    files = {
        str(path.relative_to(target)): {"sha256": sha256(path.read_bytes()).hexdigest(), "bytes": path.stat().st_size}
        for path in sorted(target.glob("log/*/*.avro"))
    }
    manifest = {"kind": "archive", "inputs": {"topics": inputs}, "schemas": {}, "files": files}
    (target / "log-manifest.json").write_text(json.dumps(manifest))
    return target


def _replay(braid: Braid, log: Path, *more: object) -> tuple[int, dict[str, Any], str]:
    words = ("--unfinished", "--dry-run", "--json", "--processes", 1)
    code, found, said = braid("replay", "--from-dir", log, *words, *more)
    return code, dict(found), said


def _rollouts(records: list[LogRecord]) -> set[str]:
    return {(record.key or b"").decode() for record in records}


def test_a_whole_archive_gives_what_the_log_gives(log: Path, braid: Braid, tmp_path: Path) -> None:
    whole = _archived(log, tmp_path / "whole", everything=True)
    assert len(segments_of(whole / "log", AGENT_EVENTS.name, 0)) > 4
    code, found, said = _replay(braid, whole, "--verify")
    assert code == 0, said
    assert found["digests"] == _replay(braid, log)[1]["digests"]


def test_an_archive_of_trimmed_topics_says_so(log: Path, braid: Braid, tmp_path: Path) -> None:
    """Settlings come first in this log: rollouts without one are named, and none is called open."""
    trimmed = _archived(log, tmp_path / "trimmed", lambda topic, all_: all_[4:] if topic is CLOSURES else all_)
    lost = _rollouts(list(read_partition(log / "log", CLOSURES.name, 0))[:4])
    code, found, said = _replay(braid, trimmed)
    assert (code, found["open"]) == (1, 0)
    assert {hole["rollout_id"] for hole in found["holes"]} == lost
    assert f"{CLOSURES.name}/0: begins at offset 4" in said


def test_what_lies_before_the_asked_span_is_not_lost(log: Path, braid: Braid, tmp_path: Path) -> None:
    """Nothing is missing within the bounds, so no loss is reported; asking for more is another thing."""
    trimmed = _archived(log, tmp_path / "trimmed", lambda topic, all_: all_[4:] if topic is CLOSURES else all_)
    for bounds in (("--from", f"{CLOSURES.name}/0@4"), ("--manifest", trimmed)):
        assert "begins at offset" not in _replay(braid, trimmed, *bounds)[2]
    for bounds in (("--from", f"{CLOSURES.name}/0@2"), ("--from", "0"), ("--from", f"{AGENT_EVENTS.name}/0@0")):
        assert f"{CLOSURES.name}/0: begins at offset 4" in _replay(braid, trimmed, *bounds)[2]
    segments = segments_of(_archived(log, tmp_path / "whole") / "log", CLOSURES.name, 0)
    start = first_of(segments[2])
    segments[0].unlink()
    assert "is missing" not in _replay(braid, tmp_path / "whole", "--from", f"{CLOSURES.name}/0@{start}")[2]
    assert "is missing" in _replay(braid, tmp_path / "whole", "--from", f"{CLOSURES.name}/0@0")[2]


@pytest.mark.parametrize("bounds", [(), ("--from", "0"), ("--manifest",), ("--reclose",)])
def test_what_is_lost_inside_the_asked_span_is_found(
    log: Path, braid: Braid, tmp_path: Path, bounds: tuple[str, ...]
) -> None:
    """The last closings are gone: the rollouts that they closed are named, however the span was asked for."""
    holed = _archived(log, tmp_path / "holed")
    path = segments_of(holed / "log", CLOSURES.name, 0)[-1]
    lost = _rollouts([record for block in read_segment(path) for record in block])
    path.unlink()
    code, found, said = _replay(braid, holed, *bounds, *([holed] if "--manifest" in bounds else []))
    assert code == 1
    assert f"{path.name} is missing" in said
    if "--reclose" not in bounds:  # which decides it again
        assert {hole["rollout_id"] for hole in found["holes"]} == lost
        assert found["open"] == 0


def test_a_file_that_ends_before_its_time_is_found(log: Path, braid: Braid, tmp_path: Path) -> None:
    """Whole blocks are missing at the end, so it is a fine file; the manifest knows where it ended."""
    cut = _archived(log, tmp_path / "cut", lambda topic, all_: all_[:-3] if topic is CLOSURES else all_)
    manifest = json.loads((cut / "log-manifest.json").read_text())
    (cut / "log-manifest.json").write_text(json.dumps(manifest | {"files": {}}))
    records = list(read_partition(log / "log", CLOSURES.name, 0))
    code, found, said = _replay(braid, cut)
    assert (code, found["open"]) == (1, 0)
    assert {hole["rollout_id"] for hole in found["holes"]} == _rollouts(records[-3:])
    assert f"{CLOSURES.name}/0: ends at offset {len(records) - 3}, log-manifest.json says {len(records)}" in said


def _flip(path: Path) -> None:
    """Change one bit where no reader looks: in the name of a field, which stands in the file's header."""
    before = list(read_segment(path))
    data = bytearray(path.read_bytes())
    data[data.index(b"timestamp_ms")] ^= 1
    path.write_bytes(bytes(data))
    assert list(read_segment(path)) == before


def test_a_file_that_was_changed_is_not_used(log: Path, braid: Braid, tmp_path: Path) -> None:
    """One bit, in a file that is still read without an error: only its rollouts are lost, and they are named."""
    changed = _archived(log, tmp_path / "changed")
    path = segments_of(changed / "log", AGENT_EVENTS.name, 0)[2]
    lost = _rollouts([record for block in read_segment(path) for record in block])
    _flip(path)
    assert len(lost) < 12
    code, found, said = _replay(braid, changed)
    assert code == 1
    assert {hole["rollout_id"] for hole in found["holes"]} == lost
    assert found["rollouts"] == 12 - len(lost)
    assert f"{path.name}: damaged: its digest is not the one in log-manifest.json" in said


def test_a_changed_sink_is_not_compared(log: Path, braid: Braid, tmp_path: Path) -> None:
    changed = _archived(log, tmp_path / "changed", everything=True)
    _flip(segments_of(changed / "log", EVIDENCE.name, 0)[-1])
    code, found, said = _replay(braid, changed, "--verify")
    assert (code, found["holes"], found["verified"]["unread"]) == (1, [], 1)
    assert f"unreadable: {EVIDENCE.name}/0: " in said


def test_a_sink_file_that_is_none_of_the_archives_is_said(log: Path, braid: Braid, tmp_path: Path) -> None:
    """An export reads it; a replay does not, and says so."""
    whole = _archived(log, tmp_path / "whole", everything=True)
    segments = segments_of(whole / "log", SFT.name, 0)
    for path in (file_of(whole / "log", SFT.name, 0, 10**6), file_of(whole / "log", SFT.name, 9)):
        shutil.copy(segments[0], path)
        code, found, said = _replay(braid, whole, "--verify")
        assert (code, found["verified"]["unread"]) == (1, 1)
        assert f"{path.name}: log-manifest.json does not name it" in said
        path.unlink()


def test_after_a_damaged_file_the_next_one_is_read(log: Path, braid: Braid, tmp_path: Path) -> None:
    """Without a manifest, too: what is before the damage counts, and what comes in later files."""
    damaged = _archived(log, tmp_path / "damaged")
    (damaged / "log-manifest.json").unlink()
    path = segments_of(damaged / "log", AGENT_EVENTS.name, 0)[2]
    lost = _rollouts([record for block in read_segment(path) for record in block])
    path.write_bytes(path.read_bytes()[:400])
    code, found, said = _replay(braid, damaged)
    assert code == 1
    assert {hole["rollout_id"] for hole in found["holes"]} == lost
    assert found["rollouts"] == 12 - len(lost) > 0
    assert f"{path.name}: damaged" in said


def test_a_damaged_file_beside_the_asked_span_is_none_of_its_losses(log: Path, braid: Braid, tmp_path: Path) -> None:
    damaged = _archived(log, tmp_path / "damaged")
    segments = segments_of(damaged / "log", CLOSURES.name, 0)
    _flip(segments[-1])
    code, found, said = _replay(braid, damaged, "--to", f"{CLOSURES.name}/0@{first_of(segments[-1])}")
    assert (code, found["holes"]) == (0, []), said


def test_offsets_without_records_at_the_end_are_no_loss(log: Path, braid: Braid, tmp_path: Path) -> None:
    """A topic may end with offsets that no reader sees; files with the right digests have all there was."""
    whole = _archived(log, tmp_path / "whole")
    manifest = json.loads((whole / "log-manifest.json").read_text())
    manifest["inputs"]["topics"][CLOSURES.name]["0"][1] += 1
    (whole / "log-manifest.json").write_text(json.dumps(manifest))
    code, _, said = _replay(braid, whole)
    assert code == 0, said
