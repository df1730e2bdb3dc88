"""Replay of a log in files: the same bytes whatever the interleaving and however many processes; holes are named."""

import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
import pytest

from schemas.closures import Closure
from schemas.lifecycle import Lifecycle
from streams.cluster import partition_of
from streams.codec import Codec
from streams.demo.sample import write_sample
from streams.embedded import LogRecord, LogWriter, file_of, partitions_of, read_partition
from streams.topics import (
    AGENT_EVENTS,
    BUILD_VERDICTS,
    CLOSURES,
    DPO,
    FACTS,
    JUDGE_VOTES,
    LIFECYCLE,
    SFT,
    TOPICS,
    Topic,
)
from tests.conftest import Braid


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory, braid: Braid) -> Path:
    """The sample as `braid run` leaves it, spread over four partitions."""
    folder = tmp_path_factory.mktemp("run")
    write_sample(folder / "sample.ndjson")
    code, _, said = braid("run", folder / "sample.ndjson", "--out", folder / "one", "--json")
    assert code == 0, said
    return _spread(folder / "one", folder / "log", 4)


def _spread(source: Path, target: Path, partitions: int, order: Callable[[list[Any]], list[Any]] = list) -> Path:
    """The same records in another number of partitions, and other times."""
    with LogWriter(target / "log") as writer:
        for topic in TOPICS:
            for partition in partitions_of(source / "log", topic.name):
                for record in order(list(read_partition(source / "log", topic.name, partition))):
                    to = partition_of((record.key or b"").decode(), partitions)
                    writer.append(topic.name, to, record.key, record.value, record.at, record.headers)
    return target


def _replay(braid: Braid, log: Path, *more: object) -> dict[str, Any]:
    parallel = () if "--processes" in more else ("--processes", 1)
    code, found, said = braid("replay", "--from-dir", log, "--json", *parallel, *more)
    assert code == 0, said
    return dict(found)


def test_the_same_bytes_with_one_two_and_four_processes(log: Path, braid: Braid, tmp_path: Path) -> None:
    results = [_replay(braid, log, "--out", tmp_path / str(count), "--processes", count) for count in (1, 2, 4)]
    assert results[0]["rollouts"] == 12
    assert results[0]["digests"] == results[1]["digests"] == results[2]["digests"]
    manifests = [json.loads((tmp_path / str(count) / "log-manifest.json").read_text()) for count in (1, 2, 4)]
    assert manifests[0]["files"] == manifests[1]["files"] == manifests[2]["files"]


def test_verify_finds_every_sink_record_identical(log: Path, braid: Braid) -> None:
    found = _replay(braid, log, "--dry-run", "--verify")
    verified = found["verified"]
    assert verified["ok"]
    assert verified["identical"] == sum(found["records"].values()) > 100
    assert (verified["different"], verified["missing"], verified["extra"]) == (0, 0, 0)


def test_shuffled_interleavings_give_the_same_digests(log: Path, braid: Braid, tmp_path: Path) -> None:
    """Times decide how topics interleave; other times, even senseless ones, change nothing that is emitted."""
    plain = _replay(braid, log, "--dry-run")["digests"]
    for seed in range(3):
        chance = random.Random(seed)
        shuffled = tmp_path / f"shuffled-{seed}"
        with LogWriter(shuffled / "log") as writer:
            for topic in FACTS:
                for partition in partitions_of(log / "log", topic.name):
                    for record in read_partition(log / "log", topic.name, partition):
                        at = chance.randrange(10**12)
                        writer.append(topic.name, partition, record.key, record.value, at, record.headers)
        assert _replay(braid, shuffled, "--dry-run", "--processes", 1)["digests"] == plain


def test_a_changed_removed_or_foreign_sink_record_is_found(log: Path, braid: Braid, tmp_path: Path) -> None:
    def damaged(change: Callable[[list[Any]], list[Any]]) -> Any:
        target = tmp_path / change.__name__
        shutil.copytree(log, target)
        partition = next(
            p for p in partitions_of(log / "log", SFT.name) if list(read_partition(log / "log", SFT.name, p))
        )
        records = change(list(read_partition(log / "log", SFT.name, partition)))
        file_of(target / "log", SFT.name, partition).unlink()
        with LogWriter(target / "log") as writer:
            for record in records:
                writer.append(SFT.name, partition, record.key, record.value, record.at)
        code, found, said = braid("replay", "--from-dir", target, "--dry-run", "--verify", "--json", "--processes", 1)
        assert code == 1
        assert SFT.name in said
        return found["verified"]

    def changed(records: list[Any]) -> list[Any]:
        value = records[0].value
        return [records[0]._replace(value=value.replace(b"assistant", b"assistent", 1)), *records[1:]]

    def removed(records: list[Any]) -> list[Any]:
        return records[1:]

    assert damaged(changed)["different"] == 1
    assert damaged(removed)["missing"] == 1


@pytest.mark.parametrize(
    ("topic", "why"),
    [(AGENT_EVENTS, "events"), (BUILD_VERDICTS, "verdicts"), (JUDGE_VOTES, "votes"), (CLOSURES, "settling")],
)
def test_holes_are_named_and_the_rest_is_made(log: Path, braid: Braid, tmp_path: Path, topic: Topic, why: str) -> None:
    """One fact is missing: its rollout is named with the reason, all others are there, and the exit code says so."""
    holed = tmp_path / "holed"
    shutil.copytree(log, holed)
    partition = next(
        p for p in partitions_of(log / "log", topic.name) if list(read_partition(log / "log", topic.name, p))
    )
    records = list(read_partition(log / "log", topic.name, partition))
    lost = records[0]
    file_of(holed / "log", topic.name, partition).unlink()
    with LogWriter(holed / "log") as writer:
        for record in records[1:]:
            writer.append(topic.name, partition, record.key, record.value, record.at, record.headers, record.offset)
    code, found, said = braid("replay", "--from-dir", holed, "--dry-run", "--json", "--processes", 1)
    assert code == 1
    [hole] = found["holes"]
    assert hole["rollout_id"] == (lost.key or b"").decode()
    assert any(why in reason for reason in hole["why"])
    assert hole["rollout_id"] in said
    assert found["rollouts"] == 11


def test_a_value_that_cannot_be_read_is_named(log: Path, braid: Braid, tmp_path: Path) -> None:
    holed = tmp_path / "holed"
    shutil.copytree(log, holed)
    records = list(read_partition(log / "log", AGENT_EVENTS.name, 1))
    file_of(holed / "log", AGENT_EVENTS.name, 1).unlink()
    with LogWriter(holed / "log") as writer:
        for number, record in enumerate(records):
            value = b"\x00\x00\x00\x03\xe7" + (record.value or b"")[10:] if number == 0 else record.value
            writer.append(AGENT_EVENTS.name, 1, record.key, value, record.at)
    code, found, said = braid("replay", "--from-dir", holed, "--dry-run", "--json", "--processes", 1)
    assert code == 1
    assert found["undecodable"] == 1
    assert f"{AGENT_EVENTS.name}/1@0: no schema has id 999" in said


def _rewritten(log: Path, target: Path, topic: Topic, change: Callable[[Any], Any]) -> Path:
    """A copy of a log in which every record of a topic went through `change`; None leaves it out."""
    shutil.copytree(log, target, dirs_exist_ok=True)
    for partition in partitions_of(log / "log", topic.name):
        file_of(target / "log", topic.name, partition).unlink()
        with LogWriter(target / "log") as writer:
            for record in read_partition(log / "log", topic.name, partition):
                new = change(record)
                if new is not None:
                    writer.append(topic.name, partition, new.key, new.value, new.at, new.headers, new.offset)
    return target


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda record: record._replace(value=b"\x00\x00\x00\x03\xe7" + record.value[10:]), "no schema has id 999"),
        (lambda record: record._replace(value=b"\xc3\x01" + b"\x07" * 8 + record.value[10:]), "0707070707070707"),
        (lambda record: record._replace(value=None), "the value is empty"),
        (lambda record: record._replace(value=record.value[:-20]), ""),
        (lambda record: record._replace(key=b"another"), "the key names rollout 'another', the record another one"),
        (lambda record: record._replace(key=b""), "the key is empty"),
    ],
)
def test_rollouts_whose_decisions_cannot_be_read_are_named(
    log: Path, braid: Braid, tmp_path: Path, change: Callable[[Any], Any], why: str
) -> None:
    """They may have closed: not one of them is merely open."""
    bad = _rewritten(log, tmp_path / "bad", CLOSURES, change)
    code, found, said = braid("replay", "--from-dir", bad, "--dry-run", "--json", "--processes", 1)
    assert code == 1
    assert (found["rollouts"], found["open"]) == (0, 0)
    rollouts = {
        (record.key or b"").decode()
        for partition in partitions_of(log / "log", CLOSURES.name)
        for record in read_partition(log / "log", CLOSURES.name, partition)
    }
    holes = {hole["rollout_id"]: hole["why"] for hole in found["holes"]}
    assert rollouts <= holes.keys()
    assert all(any(CLOSURES.name in reason and why in reason for reason in reasons) for reasons in holes.values())
    assert why in said


def test_a_decision_of_nobody_is_said_and_the_rest_is_made(log: Path, braid: Braid, tmp_path: Path) -> None:
    """Neither its key nor its value says of which rollout it is; a fact of that kind is counted, and no more."""
    bad = tmp_path / "bad"
    for topic, code in ((AGENT_EVENTS, 0), (CLOSURES, 1)):
        shutil.copytree(log, bad, dirs_exist_ok=True)
        with LogWriter(tmp_path / "more") as writer:
            more = writer.append(topic.name, 2, b"\xff", b"", 1, offset=10**6)
        file_of(tmp_path / "more", topic.name, 2).replace(file_of(bad / "log", topic.name, 2, more.offset))
        ended, found, said = braid("replay", "--from-dir", bad, "--dry-run", "--json", "--processes", 1)
        assert (ended, found["rollouts"]) == (code, 12)
        assert found["undecodable"] == 1 + code
        assert (f"{topic.name}/2@1000000: the key is not UTF-8" in said) == bool(code)


@pytest.mark.parametrize("more", [(), ("--reclose",)])
def test_a_configuration_that_is_none_is_a_hole(log: Path, braid: Braid, tmp_path: Path, more: tuple[str, ...]) -> None:
    """Its settling is read, and says nonsense: one rollout is named, all others are made."""
    spoilt: list[str] = []

    def spoil(record: Any) -> Any:
        fact = Codec().decode(CLOSURES, record.value)
        assert isinstance(fact, Closure)
        if spoilt or fact.settled is None:
            return record
        spoilt.append(fact.settled.rollout_id)
        settled = fact.settled.model_copy(update={"config": '{"redact":false,', "config_digest": "0" * 64})
        return record._replace(value=Codec().encode(Closure(settled=settled)))

    bad = _rewritten(log, tmp_path / "bad", CLOSURES, spoil)
    code, found, _ = braid("replay", "--from-dir", bad, "--dry-run", "--json", "--processes", 1, *more)
    assert (code, found["rollouts"]) == (1, 11)
    assert [hole["rollout_id"] for hole in found["holes"]] == spoilt


def test_other_rules_change_what_they_rule_and_diff_says_so(log: Path, braid: Braid, tmp_path: Path) -> None:
    _replay(braid, log, "--out", tmp_path / "before")
    _replay(
        braid, log, "--out", tmp_path / "after", "--set", "pairs.max_per_rollout=1", "--set", "rewards.judge_weight=0.9"
    )
    code, same, _ = braid("diff", tmp_path / "before", tmp_path / "before", "--json")
    assert (code, same["same"]) == (0, True)
    code, found, _ = braid("diff", tmp_path / "before", tmp_path / "after", "--json")
    assert code == 1
    assert found["rows"]["dpo"]["gone"] > 0
    assert found["rows"]["dpo"]["causes"]["gone: over_max_per_rollout"] == found["rows"]["dpo"]["gone"]
    assert found["rows"]["sft"]["gone"] == found["rows"]["sft"]["added"] == 0
    assert found["rules"] == ["set: nothing -> pairs.max_per_rollout=1, rewards.judge_weight=0.9"]
    code, table, _ = braid("diff", tmp_path / "before", tmp_path / "after")
    assert code == 1
    assert "over_max_per_rollout" in table


def test_two_runs_under_other_settings_differ_by_the_setting(
    braid: Braid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a run was settled under stands in its log: nobody has to remember it."""
    write_sample(tmp_path / "sample.ndjson")
    for name, most in (("one", "4"), ("other", "1")):
        monkeypatch.setenv("BRAID_EMISSION__PAIRS__MAX_PER_ROLLOUT", most)
        code, _, said = braid("run", tmp_path / "sample.ndjson", "--out", tmp_path / name, "--json")
        assert code == 0, said
    code, found, _ = braid("diff", tmp_path / "one", tmp_path / "other", "--json")
    assert code == 1
    assert found["rules"] == ["emission.pairs.max_per_rollout: 4 -> 1"]
    assert found["rows"]["dpo"]["gone"] == found["rows"]["dpo"]["causes"]["gone: over_max_per_rollout"] > 0
    assert found["rows"]["ranking"]["same"] == 12


def test_summaries_can_be_cut_again_from_the_log(log: Path, braid: Braid, tmp_path: Path) -> None:
    """Another limit is applied to the outputs themselves, not to what an earlier limit left of them."""
    small = _replay(braid, log, "--out", tmp_path / "a", "--set", "summarize.max_bytes=60")
    _replay(braid, log, "--out", tmp_path / "b")
    assert small["rollouts"] == 12
    _, found, _ = braid("diff", tmp_path / "b", tmp_path / "a", "--json")
    assert found["rows"]["sft"]["changed"] > 0
    assert all("messages" in cause for cause in found["rows"]["sft"]["causes"])


def test_reclose_decides_again_under_another_policy(log: Path, braid: Braid, tmp_path: Path) -> None:
    """A deadline that no rollout meets: everything settles by it, and what it misses is unknown."""

    def undate(record: Any) -> Any:  # an opening states a deadline of its own, which is a fact
        fact = Codec().decode(LIFECYCLE, record.value)
        assert isinstance(fact, Lifecycle)
        opened = None if fact.opened is None else fact.opened.model_copy(update={"deadline_ms": None})
        return record._replace(value=Codec().encode(fact.model_copy(update={"opened": opened})))

    undated = _rewritten(log, tmp_path / "undated", LIFECYCLE, undate)
    again = _replay(braid, undated, "--out", tmp_path / "a", "--reclose")
    assert again["rollouts"] == 12
    early = _replay(braid, undated, "--out", tmp_path / "b", "--reclose", "--set", "closing.deadline_ms=1000")
    assert early["rollouts"] == 12
    assert early["unknown"] > again["unknown"]
    code, _, said = braid("replay", "--from-dir", log, "--dry-run", "--set", "closing.deadline_ms=1")
    assert code == 1
    assert "--reclose" in said


@pytest.mark.parametrize("topic", [LIFECYCLE, AGENT_EVENTS, BUILD_VERDICTS, JUDGE_VOTES])
def test_reclose_names_rollouts_whose_facts_are_gone(log: Path, braid: Braid, tmp_path: Path, topic: Topic) -> None:
    """The decisions in the log say what there was: nothing is decided anew on less, and the others are."""
    holed = tmp_path / "holed"
    shutil.copytree(log, holed)
    partition = next(p for p in partitions_of(log / "log", topic.name) if p)
    file_of(holed / "log", topic.name, partition).unlink()
    _, plain, _ = braid("replay", "--from-dir", holed, "--dry-run", "--json", "--processes", 1)
    code, found, said = braid("replay", "--from-dir", holed, "--dry-run", "--reclose", "--json", "--processes", 1)
    assert code == 1
    assert found["holes"] == plain["holes"] != []
    assert found["rollouts"] == 12 - len(found["holes"])
    assert all(hole["rollout_id"] in said for hole in found["holes"])


def test_reclose_names_rollouts_whose_records_cannot_be_read(log: Path, braid: Braid, tmp_path: Path) -> None:
    """A decision, and a fact of a rollout that no decision says to be whole; a dead letter beside a whole one is none."""

    def reclosed(name: str, topic: Topic, *more: LogRecord) -> tuple[int, Any]:
        bad = _rewritten(log, tmp_path / name, topic, lambda record: record)
        path = file_of(bad / "log", topic.name, 1, 10**6)
        with LogWriter(tmp_path / "more") as writer:
            for record in more:
                writer.append(topic.name, 1, record.key, record.value, record.at, offset=record.offset)
        file_of(tmp_path / "more", topic.name, 1).replace(path)
        code, found, _ = braid("replay", "--from-dir", bad, "--dry-run", "--reclose", "--json", "--processes", 1)
        return code, found

    known = next(iter(read_partition(log / "log", AGENT_EVENTS.name, 1)))
    letter = LogRecord(10**6, known.at, known.key, b"nonsense", ())
    code, found = reclosed("letter", AGENT_EVENTS, letter)
    assert (code, found["rollouts"], found["undecodable"]) == (0, 12, 1)
    for name, topic in (("fact", AGENT_EVENTS), ("decision", CLOSURES)):
        code, found = reclosed(name, topic, letter._replace(key=b"open"))
        assert (code, found["rollouts"]) == (1, 12)
        [hole] = found["holes"]
        assert hole["rollout_id"] == "open"
        assert any(f"{topic.name}/1@1000000" in reason for reason in hole["why"])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("summarize.max_bytes=none", "summarize.max_bytes"),
        ("sumarize.max_bytes=3", "no section 'sumarize'"),
        ("summarize.max_lines=3", "max_lines"),
        ("rewards.taste_weight=1", "there are objective, judge"),
        ("nonsense", "NAME=VALUE"),
    ],
)
def test_a_rule_that_does_not_exist_is_refused_before_anything_is_read(
    log: Path, braid: Braid, given: str, said: str
) -> None:
    code, _, error = braid("replay", "--from-dir", log, "--dry-run", "--set", given)
    assert code == 1
    assert said in error


def test_bounds_cut_the_log(log: Path, braid: Braid, tmp_path: Path) -> None:
    whole = _replay(braid, log, "--out", tmp_path / "whole")
    ends = json.loads((tmp_path / "whole" / "log-manifest.json").read_text())["inputs"]["topics"]
    half = ends[CLOSURES.name]["0"][1] // 2 * 2 // 2
    cut = _replay(braid, log, "--dry-run", "--to", f"{CLOSURES.name}/0@{half}")
    assert cut["rollouts"] < whole["rollouts"]
    assert cut["open"] > whole["open"]
    again = _replay(braid, log, "--dry-run", "--manifest", tmp_path / "whole")
    assert again["digests"] == whole["digests"]
    assert _replay(braid, log, "--dry-run", "--to", "0")["facts"] == 0
    assert _replay(braid, log, "--dry-run", "--from", "2200-01-01T00:00:00Z")["facts"] == 0
    code, _, said = braid("replay", "--from-dir", log, "--dry-run", "--from", "yesterday")
    assert code == 1
    assert "neither a time" in said


def test_a_replay_that_was_killed_leaves_no_half_file_and_is_resumed(log: Path, braid: Braid, tmp_path: Path) -> None:
    expected = _replay(braid, log, "--out", tmp_path / "whole", "--processes", 1)
    out = tmp_path / "killed"
    command = [
        sys.executable,
        "-m",
        "streams.cli",
        "replay",
        "--from-dir",
        str(log),
        "--out",
        str(out),
        "--processes",
        "1",
    ]
    killed = 0
    for _ in range(40):
        process = subprocess.Popen(
            [*command, "--resume", "--json"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 20
        while (
            process.poll() is None and not list(out.glob(f".replay/{killed % 4}.json")) and time.monotonic() < deadline
        ):
            time.sleep(0.005)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            killed += 1
        process.wait()
        for path in out.glob("log/*/*.avro"):
            assert list(read_partition(out / "log", path.parent.name, int(path.stem))) is not None
        if process.returncode == 0 or killed >= 3:
            break
    with LogWriter(tmp_path / "more") as writer:  # meanwhile the log grows; what was set out for stays the same
        more = writer.append(LIFECYCLE.name, 0, b"new", b"not read", 1, offset=10**6)
    grown = file_of(log / "log", LIFECYCLE.name, 0, more.offset)
    file_of(tmp_path / "more", LIFECYCLE.name, 0).replace(grown)
    try:
        found = _replay(braid, log, "--out", out, "--processes", 1, "--resume")
    finally:
        grown.unlink()
    assert found["undecodable"] == 0
    assert found["digests"] == expected["digests"]
    assert killed
    assert found["resumed"] > 0
    assert not list(out.glob("log/*/*.part"))
    assert not (out / ".replay").exists()


def test_what_is_no_replay_is_never_cleared(log: Path, braid: Braid, tmp_path: Path) -> None:
    """Neither an archive, nor a bare log, nor somebody's files; an earlier replay is replaced."""
    bare, files = tmp_path / "bare", tmp_path / "files"
    shutil.copytree(log, bare)
    files.mkdir()
    (files / "thesis.txt").write_text("mine")
    archive = tmp_path / "archive"
    shutil.copytree(log, archive)
    (archive / "log-manifest.json").write_text('{"kind":"archive","files":{},"schemas":{}}')
    for place in (bare, files, archive):
        before = sorted(place.rglob("*"))
        code, _, said = braid("replay", "--from-dir", log, "--out", place, "--processes", 1)
        assert (code, sorted(place.rglob("*"))) == (1, before)
        assert "holds no replay" in said
    for _ in range(2):
        _replay(braid, log, "--out", tmp_path / "again")


def test_a_damaged_file_is_a_hole_and_the_rest_is_made(log: Path, braid: Braid, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(log, damaged)
    path = file_of(damaged / "log", AGENT_EVENTS.name, 2)
    path.write_bytes(path.read_bytes()[:-40])
    lost = {(record.key or b"").decode() for record in read_partition(log / "log", AGENT_EVENTS.name, 2)}
    code, found, said = braid("replay", "--from-dir", damaged, "--dry-run", "--json", "--processes", 1)
    assert code == 1
    assert {hole["rollout_id"] for hole in found["holes"]} == lost
    assert found["rollouts"] == 12 - len(lost)
    assert "damaged" in said


def test_facts_alone_cannot_be_verified(log: Path, braid: Braid, tmp_path: Path) -> None:
    """That is said, instead of calling every record missing."""
    facts = tmp_path / "facts"
    for topic in FACTS:
        if (log / "log" / topic.name).is_dir():
            shutil.copytree(log / "log" / topic.name, facts / "log" / topic.name)
    code, _, said = braid("replay", "--from-dir", facts, "--dry-run", "--verify", "--processes", 1)
    assert code == 1
    assert "holds facts only" in said


def test_formats_are_exported_from_what_was_replayed(log: Path, braid: Braid, tmp_path: Path) -> None:
    found = _replay(braid, log, "--out", tmp_path / "out", "--format", "trl-dpo")
    rows = (tmp_path / "out" / "trl-dpo" / "train-00000.jsonl").read_text().splitlines()
    assert len(rows) == found["dpo"] == found["records"][DPO.name]
    code, _, said = braid("verify", tmp_path / "out")
    assert code == 0, said


def _tree(folder: Path) -> dict[str, bytes]:
    """Every file under a directory, with its bytes."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_what_is_read_is_never_replaced(log: Path, braid: Braid, tmp_path: Path) -> None:
    """A replay onto the log that it reads is refused before anything is touched, links and parents or not."""
    shutil.copytree(log, tmp_path / "X")
    _replay(braid, log, "--out", tmp_path / "replay")
    shutil.copy(tmp_path / "replay" / "log-manifest.json", tmp_path / "X")  # what a replay made may be replaced
    (tmp_path / "link").symlink_to(tmp_path / "X")
    linked = tmp_path / "linked" / "log"
    linked.mkdir(parents=True)
    for topic in (tmp_path / "X" / "log").iterdir():
        (linked / topic.name).symlink_to(topic)
    before = _tree(tmp_path / "X")
    for source, out in (
        ("X", "X"), ("X", "link"), ("link", "X"), ("X/log", "X"), ("X", "X/log"), ("X", "X/log/deeper"), ("linked", "X"),
    ):  # fmt: skip
        code, _, said = braid("replay", "--from-dir", tmp_path / source, "--out", tmp_path / out, "--processes", 1)
        assert (code, _tree(tmp_path / "X")) == (1, before), (source, out)
        assert "share files" in said
    (tmp_path / "X" / "log-manifest.json").unlink()  # it states the digests of other files
    _replay(braid, tmp_path / "X", "--out", tmp_path / "X" / "again")  # beside its log: nothing is read there


def test_a_finished_replay_is_not_resumed(log: Path, braid: Braid, tmp_path: Path) -> None:
    """With the same options that is said and nothing is done; with others it is refused."""
    out, what_if = tmp_path / "out", ("--set", "pairs.max_per_rollout=1")
    first = _replay(braid, log, "--out", out, *what_if, "--format", "trl-dpo")
    before = _tree(out)
    code, again, said = braid(
        "replay", "--from-dir", log, "--out", out, *what_if, "--format", "trl-dpo", "--resume", "--json"
    )
    assert (code, _tree(out)) == (0, before)
    assert "finished replay with these options; nothing was done" in said
    assert again["finished"]
    for name in ("digests", "records", "rollouts", "dpo", "facts", "partitions"):
        assert again[name] == first[name]
    for others, named in (
        (("--format", "trl-dpo"), "set pairs.max_per_rollout=1, not nothing"),
        (what_if, "format trl-dpo, not nothing"),
        ((*what_if, "--format", "trl-dpo", "--no-sign"), "sign True, not False"),
        ((*what_if, "--format", "trl-dpo", "--to", "2200-01-01"), "--to nothing, not 2200-01-01"),
        ((*what_if, "--format", "trl-dpo", "--verify"), None),
    ):
        code, _, said = braid("replay", "--from-dir", log, "--out", out, "--resume", *others)
        assert (code, _tree(out)) == (1, before)
        assert named is None or named in said


def test_what_was_exported_from_an_earlier_replay_goes_with_it(log: Path, braid: Braid, tmp_path: Path) -> None:
    """A dataset never stands beside a log that it was not made of; one that the replay did not make is not removed."""
    out = tmp_path / "out"
    many = _replay(braid, log, "--out", out, "--format", "trl-dpo", "--format", "trl-sft")
    few = _replay(braid, log, "--out", out, "--format", "trl-dpo", "--set", "pairs.max_per_rollout=1")
    assert few["dpo"] < many["dpo"]
    assert len((out / "trl-dpo" / "train-00000.jsonl").read_text().splitlines()) == few["dpo"]
    assert not (out / "trl-sft").exists()
    code, _, said = braid("export", "--from-dir", out, "--out", out / "trl-kto", "--format", "trl-kto")
    assert code == 0, said
    before = _tree(out)
    code, _, said = braid("replay", "--from-dir", log, "--out", out, "--processes", 1)
    assert (code, _tree(out)) == (1, before)
    assert "trl-kto was not made by the replay" in said


def test_one_replay_at_a_time_writes_to_a_directory(log: Path, braid: Braid, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with (out / ".replay.lock").open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        code, _, said = braid("replay", "--from-dir", log, "--out", out, "--processes", 1)
    assert (code, sorted(path.name for path in out.iterdir())) == (1, [".replay.lock"])
    assert "another replay writes to it" in said
    _replay(braid, log, "--out", out)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--format", "trl-dop"), "there is no format 'trl-dop'; there are trl-sft, trl-dpo"),
        (("--format", "trl-dpo", "--no-evidence"), "leave --no-evidence out"),
        (("--format", "dsse", "--no-sign"), "leave --no-sign out"),
        (("--processes", 0), "at least one process"),
    ],
)
def test_options_that_cannot_be_are_refused_before_anything_is_written(
    log: Path, braid: Braid, tmp_path: Path, given: tuple[object, ...], said: str
) -> None:
    code, _, error = braid("replay", "--from-dir", log, "--out", tmp_path / "out", *given)
    assert (code, (tmp_path / "out").exists()) == (1, False)
    assert said in error


def test_a_key_that_cannot_be_read_is_said_before_anything_is_written(
    log: Path, braid: Braid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRAID_SIGNING_KEY", str(tmp_path / "no.key"))
    code, _, said = braid("replay", "--from-dir", log, "--out", tmp_path / "out", "--processes", 2)
    assert (code, (tmp_path / "out").exists()) == (1, False)
    assert "no.key" in said
    _replay(braid, log, "--out", tmp_path / "out", "--no-sign")


def test_other_options_that_cannot_be_are_refused(log: Path, braid: Braid, tmp_path: Path) -> None:
    for given, said in (
        (("--to-prefix", "a b"), "letters, digits, dots"),
        (("--to-prefix", ""), "where the facts are"),
        (("--dry-run", "--resume"), "--resume needs --out"),
    ):
        code, _, error = braid("replay", "--from-dir", log, *given)
        assert code == 1
        assert said in error


def test_signed_evidence_is_exported_with_envelopes(log: Path, braid: Braid, tmp_path: Path) -> None:
    found = _replay(braid, log, "--out", tmp_path / "out", "--format", "dsse")
    rows = (tmp_path / "out" / "dsse" / "train-00000.jsonl").read_text().splitlines()
    assert len(rows) == found["aep"] > 0


def test_a_replay_is_repeated_by_its_manifest(log: Path, braid: Braid, tmp_path: Path) -> None:
    """A manifest under any name: the same digests, or an error; under other rules, which ones."""
    _replay(braid, log, "--out", tmp_path / "first")
    named = tmp_path / "monday.json"
    shutil.copy(tmp_path / "first" / "log-manifest.json", named)
    code, found, said = braid(
        "replay", "--from-dir", log, "--dry-run", "--manifest", named, "--no-sign", "--json", "--processes", 1
    )
    assert (code, found["repeat"]) == (0, {"same": True, "sinks": [], "rules": []})
    assert f"the same digests as in {named}" in said
    other = _replay(braid, log, "--dry-run", "--manifest", named, "--set", "pairs.max_per_rollout=1")["repeat"]
    assert not other["same"]
    assert DPO.name in other["sinks"]
    assert other["rules"] == ["set nothing, not pairs.max_per_rollout=1"]
    plain = json.loads(named.read_text())
    plain["digests"][SFT.name] = "0" * 64
    named.write_text(json.dumps(plain))
    code, found, said = braid("replay", "--from-dir", log, "--dry-run", "--manifest", named, "--json", "--processes", 1)
    assert (code, found["repeat"]["sinks"]) == (1, [SFT.name])
    assert f"the rules are the same, the records of {SFT.name} are not those of {named}" in said


def test_the_policy_that_closed_again_is_a_rule(
    log: Path, braid: Braid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it was set, the manifest holds it, and `braid diff` names it."""
    _replay(braid, log, "--out", tmp_path / "a", "--reclose")
    monkeypatch.setenv("BRAID_CLOSING__IDLE_MS", "5000")
    _replay(braid, log, "--out", tmp_path / "b", "--reclose")
    _, found, _ = braid("diff", tmp_path / "a", tmp_path / "b", "--json")
    [rule] = found["rules"]
    assert rule.startswith("closing: deadline_ms=")
    assert rule.count("idle_ms=5000") == 1
    rules = json.loads((tmp_path / "b" / "log-manifest.json").read_text())["rules"]
    assert rules["code"] == version("braidstream")
    assert any(schema.startswith("AgentEvents ") for schema in rules["schemas"])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[]", "no manifest of a replay"),
        ('{"kind":"replay","inputs":[]}', "inputs"),
        ('{"kind":["replay"]}', "no manifest of a replay"),
        ('{"kind":"archive","inputs":{"topics":{"a":{"x":[0,1]}}},"files":{},"schemas":{}}', "inputs.topics.a.x"),
        ('{"kind":"archive","inputs":{"topics":{}},"files":{},"schemas":{}}', "names no fact topics"),
        ("{", "not JSON"),
        (None, "No such file"),
    ],
)
def test_what_is_no_manifest_is_said_to_be_none(
    log: Path, braid: Braid, tmp_path: Path, content: str | None, said: str
) -> None:
    path = tmp_path / "manifest.json"
    if content is not None:
        path.write_text(content)
    code, _, error = braid("replay", "--from-dir", log, "--dry-run", "--manifest", path)
    assert code == 1
    assert said in error


@pytest.fixture(scope="module")
def long_log(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample many times over, under other ids: a replay of it takes some seconds."""
    target = tmp_path_factory.mktemp("long")
    with LogWriter(target / "log") as writer:
        for topic in FACTS:
            records = [
                record
                for partition in partitions_of(log / "log", topic.name)
                for record in read_partition(log / "log", topic.name, partition)
            ]
            for copy in range(300):
                for record in records:
                    old = record.key or b""
                    name = b"%04d" % copy + old[4:]
                    value = (record.value or b"").replace(old, name)
                    writer.append(topic.name, partition_of(name.decode(), 4), name, value, record.at, record.headers)
    return target


def _at_work(log: Path, out: Path, processes: int) -> "subprocess.Popen[str]":
    """A replay that has begun to write."""
    command = [sys.executable, "-m", "streams.cli", "replay", "--from-dir", str(log), "--out", str(out)]
    process = subprocess.Popen(
        [*command, "--processes", str(processes)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 30
    while len(list(out.glob("log/*/*.part"))) < processes and time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    return process


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_replay_that_is_stopped_ends_at_once_and_leaves_no_half_file(
    long_log: Path, tmp_path: Path, processes: int, number: int, code: int
) -> None:
    out = tmp_path / "out"
    process = _at_work(long_log, out, processes)
    children = psutil.Process(process.pid).children()
    process.send_signal(number)
    _, said = process.communicate(timeout=5)
    assert said == ""
    assert process.returncode in (
        code,
        -number,
    )  # Python itself ends by the signal where it met `exec`; shells see the code
    assert not [child for child in children if child.is_running()]
    assert list(out.rglob("*.part")) == []
    assert (out / ".replay" / "job.json").is_file()


def test_processes_end_quietly_when_their_parent_is_killed(long_log: Path, tmp_path: Path) -> None:
    """In the middle of a partition, and what they left half goes with them."""
    out = tmp_path / "out"
    process = _at_work(long_log, out, 2)
    children = psutil.Process(process.pid).children()
    assert len(children) == 2
    process.kill()
    _, alive = psutil.wait_procs(children, timeout=5)
    assert alive == []
    assert process.communicate(timeout=5)[1] == ""
    assert list(out.rglob("*.part")) == []


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        (("--from", "²"), "neither a time"),
        (("--to", "99999999999999999999"), "neither a time"),
        (("--from", f"{CLOSURES.name}/²@1"), "write TOPIC/PARTITION@OFFSET"),
        (("--from", "2026-02-01", "--to", "2026-01-01"), "--from 2026-02-01 is later than --to 2026-01-01"),
        (("--from", f"{CLOSURES.name}/0@3", "--to", f"{CLOSURES.name}/0@2"), "--from is offset 3, --to is offset 2"),
        (("--from", "2200-01-01", "--to", f"{CLOSURES.name}/0@1"), "nothing lies between them"),
        (("--to", f"{CLOSURES.name}/7@2"), f"{CLOSURES.name} has 0, 1, 2, 3"),
        (("--from", f"{SFT.name}/0@2"), "no such partition of a fact topic"),
    ],
)
def test_bounds_that_cannot_be_are_refused(log: Path, braid: Braid, bounds: tuple[str, ...], said: str) -> None:
    code, _, error = braid("replay", "--from-dir", log, "--dry-run", "--processes", 1, *bounds)
    assert code == 1
    assert said in error


def test_a_file_where_a_directory_is_needed_is_said(log: Path, braid: Braid, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("mine")
    code, _, said = braid("replay", "--from-dir", log, "--out", path)
    assert (code, said) == (1, f"braid: --out {path} is a file; give a directory\n")
    code, _, said = braid("archive", "--out", path)
    assert (code, said) == (1, f"braid: --out {path} is a file; give a directory\n")
    code, _, said = braid("replay", "--from-dir", log, "--out", path / "deeper")
    assert code == 1
    assert "Not a directory" in said
    assert path.read_text() == "mine"


def test_an_archive_with_an_odd_manifest_is_said_to_have_one(log: Path, braid: Braid, tmp_path: Path) -> None:
    odd = tmp_path / "odd"
    shutil.copytree(log, odd)
    for content in (
        '{"kind":"archive"}',
        '{"kind":"archive","inputs":{"topics":{}},"schemas":[],"files":{}}',
        '{"kind":"archive","inputs":{"topics":{}},"schemas":{"x":{}},"files":{}}',
        '{"kind":"archive","inputs":{"topics":{}},"schemas":{},"files":{"a":"b"}}',
        '{"kind":"archive","inputs":{"topics":{"other":{}}},"schemas":{},"files":{}}',
    ):
        (odd / "log-manifest.json").write_text(content)
        for words in (
            ("archive", "check", odd),
            ("archive", "restore", odd, "--to-prefix", "x."),
            ("replay", "--dry-run", "--from-dir", odd),
        ):
            code, _, said = braid(*words)
            assert code == 1
            assert said.startswith(f"braid: {odd / 'log-manifest.json'}: ")
    code, _, said = braid("archive", "restore", odd, "--to-prefix", "a b")
    assert code == 1
    assert "letters, digits, dots" in said
