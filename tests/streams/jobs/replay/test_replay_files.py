"""Replay of a log in files: the same bytes whatever the interleaving and however many processes; holes are named."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from schemas.closures import Closure
from streams.log.container import partitions_of, read_partition
from streams.log.file_writer import LogWriter, file_of
from streams.log.topics import AGENT_EVENTS, BUILD_VERDICTS, CLOSURES, FACTS, JUDGE_VOTES, SFT, Topic
from streams.log.wire import Codec
from tests.conftest import Braid
from tests.sample.sample_lines import write_sample
from tests.sealed import sealed
from tests.streams.jobs.replay.replays import replay, rewritten


@pytest.fixture(scope="module")
def log(parted: Path) -> Path:
    """The sample in four partitions."""
    return parted


def test_the_same_bytes_with_one_two_and_four_processes(log: Path, braid: Braid, tmp_path: Path) -> None:
    results = [replay(braid, log, "--out", tmp_path / str(count), "--processes", count) for count in (1, 2, 4)]
    assert results[0]["rollouts"] == 12
    assert results[0]["digests"] == results[1]["digests"] == results[2]["digests"]
    manifests = [json.loads((tmp_path / str(count) / "log-manifest.json").read_text()) for count in (1, 2, 4)]
    assert manifests[0]["files"] == manifests[1]["files"] == manifests[2]["files"]


def test_verify_finds_every_sink_record_identical(log: Path, braid: Braid) -> None:
    found = replay(braid, log, "--dry-run", "--verify")
    verified = found["verified"]
    assert verified["ok"]
    assert verified["identical"] == sum(found["records"].values()) > 100
    assert (verified["different"], verified["missing"], verified["extra"]) == (0, 0, 0)


def test_shuffled_interleavings_give_the_same_digests(log: Path, braid: Braid, tmp_path: Path) -> None:
    """Times decide how topics interleave; other times, even senseless ones, change nothing that is emitted."""
    plain = replay(braid, log, "--dry-run")["digests"]
    for seed in range(3):
        chance = random.Random(seed)
        shuffled = tmp_path / f"shuffled-{seed}"
        with LogWriter(shuffled / "log") as writer:
            for topic in FACTS:
                for partition in partitions_of(log / "log", topic.name):
                    for record in read_partition(log / "log", topic.name, partition):
                        at = chance.randrange(10**12)
                        writer.append(topic.name, partition, record.key, record.value, at, record.headers)
        assert replay(braid, sealed(shuffled), "--dry-run", "--processes", 1)["digests"] == plain


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
        code, found, said = braid(
            "replay", "--from-dir", sealed(target), "--dry-run", "--verify", "--json", "--processes", 1
        )
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
    code, found, said = braid("replay", "--from-dir", sealed(holed), "--dry-run", "--json", "--processes", 1)
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
    code, found, said = braid("replay", "--from-dir", sealed(holed), "--dry-run", "--json", "--processes", 1)
    assert code == 1
    assert found["undecodable"] == 1
    assert f"{AGENT_EVENTS.name}/1@0: no schema has id 999" in said


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
    bad = rewritten(log, tmp_path / "bad", CLOSURES, change)
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
        ended, found, said = braid("replay", "--from-dir", sealed(bad), "--dry-run", "--json", "--processes", 1)
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

    bad = rewritten(log, tmp_path / "bad", CLOSURES, spoil)
    code, found, _ = braid("replay", "--from-dir", bad, "--dry-run", "--json", "--processes", 1, *more)
    assert (code, found["rollouts"]) == (1, 11)
    assert [hole["rollout_id"] for hole in found["holes"]] == spoilt


def test_other_rules_change_what_they_rule_and_diff_says_so(log: Path, braid: Braid, tmp_path: Path) -> None:
    replay(braid, log, "--out", tmp_path / "before")
    replay(
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
    """The configuration that a run was settled under stands in its log: the user need not remember it."""
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
    small = replay(braid, log, "--out", tmp_path / "a", "--set", "summarize.max_bytes=60")
    replay(braid, log, "--out", tmp_path / "b")
    assert small["rollouts"] == 12
    _, found, _ = braid("diff", tmp_path / "b", tmp_path / "a", "--json")
    assert found["rows"]["sft"]["changed"] > 0
    assert all("messages" in cause for cause in found["rows"]["sft"]["causes"])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("summarize.max_bytes=none", "summarize.max_bytes"),
        ("sumarize.max_bytes=3", "no section 'sumarize'"),
        ("summarize.max_lines=3", "max_lines"),
        ("required.build=1", "no section 'required'"),
        ("redact.tools=1", "no section 'redact'"),
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
    whole = replay(braid, log, "--out", tmp_path / "whole")
    ends = json.loads((tmp_path / "whole" / "log-manifest.json").read_text())["inputs"]["topics"]
    half = ends[CLOSURES.name]["0"][1] // 2 * 2 // 2
    cut = replay(braid, log, "--dry-run", "--to", f"{CLOSURES.name}/0@{half}")
    assert cut["rollouts"] < whole["rollouts"]
    assert cut["open"] > whole["open"]
    again = replay(braid, log, "--dry-run", "--manifest", tmp_path / "whole")
    assert again["digests"] == whole["digests"]
    assert replay(braid, log, "--dry-run", "--to", "0")["facts"] == 0
    assert replay(braid, log, "--dry-run", "--from", "2200-01-01T00:00:00Z")["facts"] == 0
    code, _, said = braid("replay", "--from-dir", log, "--dry-run", "--from", "yesterday")
    assert code == 1
    assert "neither a time" in said


def test_a_damaged_file_is_a_hole_and_the_rest_is_made(log: Path, braid: Braid, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(log, damaged)
    path = file_of(damaged / "log", AGENT_EVENTS.name, 2)
    path.write_bytes(path.read_bytes()[:-40])
    lost = {(record.key or b"").decode() for record in read_partition(log / "log", AGENT_EVENTS.name, 2)}
    code, found, said = braid("replay", "--from-dir", sealed(damaged), "--dry-run", "--json", "--processes", 1)
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
    code, _, said = braid("replay", "--from-dir", sealed(facts), "--dry-run", "--verify", "--processes", 1)
    assert code == 1
    assert "holds facts only" in said
