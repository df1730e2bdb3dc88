"""Rollouts closed anew: under another policy, under the caller's rules, and without holding them all."""

import json
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from schemas.closures import Closure
from schemas.emission import EmissionConfig
from schemas.lifecycle import Lifecycle
from streams.jobs.replay.lookahead import Ahead
from streams.jobs.replay.reclosed_fold import Reclosing
from streams.log.container import partitions_of, read_partition
from streams.log.file_writer import LogWriter, file_of
from streams.log.record import LogRecord
from streams.log.topics import AGENT_EVENTS, BUILD_VERDICTS, CLOSURES, FACTS, JUDGE_VOTES, LIFECYCLE, Topic
from streams.log.wire import Codec
from tests.conftest import Braid
from tests.sealed import sealed
from tests.streams.jobs.replay.replays import replay, rewritten


@pytest.fixture(scope="module")
def log(parted: Path) -> Path:
    """The sample in four partitions."""
    return parted


def test_reclose_decides_again_under_another_policy(log: Path, braid: Braid, tmp_path: Path) -> None:
    """A deadline that no rollout meets: everything settles by it, and what it misses is unknown."""

    def undate(record: Any) -> Any:  # an opening states a deadline of its own, which is a fact
        fact = Codec().decode(LIFECYCLE, record.value)
        assert isinstance(fact, Lifecycle)
        opened = None if fact.opened is None else fact.opened.model_copy(update={"deadline_ms": None})
        return record._replace(value=Codec().encode(fact.model_copy(update={"opened": opened})))

    undated = rewritten(log, tmp_path / "undated", LIFECYCLE, undate)
    again = replay(braid, undated, "--out", tmp_path / "a", "--reclose")
    assert again["rollouts"] == 12
    early = replay(braid, undated, "--out", tmp_path / "b", "--reclose", "--set", "closing.deadline_ms=1000")
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
    sealed(holed)
    _, plain, _ = braid("replay", "--from-dir", holed, "--dry-run", "--json", "--processes", 1)
    code, found, said = braid("replay", "--from-dir", holed, "--dry-run", "--reclose", "--json", "--processes", 1)
    assert code == 1
    assert found["holes"] == plain["holes"] != []
    assert found["rollouts"] == 12 - len(found["holes"])
    assert all(hole["rollout_id"] in said for hole in found["holes"])


def test_reclose_names_rollouts_whose_records_cannot_be_read(log: Path, braid: Braid, tmp_path: Path) -> None:
    """A decision, and a fact of a rollout that no decision says to be whole; a dead letter beside a whole one is none."""

    def reclosed(name: str, topic: Topic, *more: LogRecord) -> tuple[int, Any]:
        bad = rewritten(log, tmp_path / name, topic, lambda record: record)
        path = file_of(bad / "log", topic.name, 1, 10**6)
        with LogWriter(tmp_path / "more") as writer:
            for record in more:
                writer.append(topic.name, 1, record.key, record.value, record.at, offset=record.offset)
        file_of(tmp_path / "more", topic.name, 1).replace(path)
        words = ("replay", "--from-dir", sealed(bad), "--dry-run", "--reclose", "--json", "--processes", 1)
        code, found, _ = braid(*words)
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


def _facts(log: Path) -> dict[bytes | None, list[tuple[Topic, LogRecord]]]:
    """By key, the facts of a log."""
    found: dict[bytes | None, list[tuple[Topic, LogRecord]]] = {}
    for topic in FACTS:
        for partition in partitions_of(log / "log", topic.name):
            for record in read_partition(log / "log", topic.name, partition):
                found.setdefault(record.key, []).append((topic, record))
    return found


def _counted(facts: dict[bytes | None, list[tuple[Topic, LogRecord]]]) -> Counter[str]:
    ahead = Ahead(Codec())
    for topic, record in (each for records in facts.values() for each in records):
        if topic is CLOSURES:
            ahead.decide(record)
        else:
            ahead.count([record])
    return ahead.records


def test_a_rollout_leaves_with_its_last_record(ran: Path) -> None:
    """However many rollouts a partition has, only those are held that are under way."""
    facts = _facts(ran)
    fold = Reclosing(Codec(), 0, lambda _: True, _counted(facts), {})
    for key, records in facts.items():
        left = [rollout.rollout_id for topic, record in records for rollout in fold.take(topic, [record])]
        assert left == [(key or b"").decode()]
        assert fold.open() == 0
    assert fold.holes({}) == []


def test_records_that_went_while_the_log_was_read_are_missed(ran: Path) -> None:
    """They were counted, and have not come: nothing is decided without them."""
    facts = _facts(ran)
    fold = Reclosing(Codec(), 0, lambda _: True, _counted(facts), {})
    key, records = facts.popitem()
    left = [
        rollout
        for each in (*facts.values(), records[1:])
        for topic, record in each
        for rollout in fold.take(topic, [record])
    ]
    assert len(left) == len(facts)
    [hole] = fold.holes({})
    assert hole.rollout_id == (key or b"").decode()
    assert "changed while it was read" in hole.why[0]
    assert fold.open() == 0


@pytest.mark.parametrize("seed", range(6))
def test_leaving_early_changes_nothing(log: Path, braid: Braid, tmp_path: Path, seed: int) -> None:
    """A log in which every rollout is heard of again at the very end, so that all are held: the same records, the same holes.

    Some of its records are gone, cannot be read, or have the key of another rollout.
    """
    chance = random.Random(seed)
    for name in ("early", "held"):
        (tmp_path / name).mkdir()
    keys = sorted(key for key in _facts(log) if key)

    def spoilt(record: LogRecord) -> LogRecord | None:
        what = chance.random() / (seed or 1e-9)  # the first log is whole
        if what < 0.004:
            return None
        if what < 0.008:
            return record._replace(value=b"nonsense")
        return record._replace(key=chance.choice([b"\xff", b"", b"new", *keys])) if what < 0.012 else record

    with LogWriter(tmp_path / "early" / "log") as early, LogWriter(tmp_path / "held" / "log") as held:
        for topic in FACTS:
            for partition in partitions_of(log / "log", topic.name):
                records = [spoilt(record) for record in read_partition(log / "log", topic.name, partition)]
                there = [record for record in records if record is not None]
                for record in there:
                    for writer in (early, held):
                        writer.append(topic.name, partition, record.key, record.value, record.at, record.headers)
                for record in there:  # a repetition is ignored
                    held.append(topic.name, partition, record.key, record.value, record.at, record.headers)
    for more in ((), ("--set", "closing.deadline_ms=1000", "--set", "closing.idle_ms=10")):
        found = [
            braid(
                "replay",
                "--from-dir",
                sealed(tmp_path / name),
                "--dry-run",
                "--reclose",
                "--json",
                "--processes",
                1,
                *more,
            )
            for name in ("early", "held")
        ]
        (_, one, _), (_, other, _) = found
        assert one["digests"] == other["digests"]
        assert one["open"] == other["open"]
        assert [hole["rollout_id"] for hole in one["holes"]] == [hole["rollout_id"] for hole in other["holes"]]
        assert bool(one["holes"]) == bool(seed)


def _unsettled(log: Path, target: Path) -> str:
    """A copy of a log without the decisions about one rollout; says which."""
    name = list(read_partition(log / "log", CLOSURES.name, 1))[-1].key or b""
    rewritten(log, target, CLOSURES, lambda record: None if record.key == name else record)
    return name.decode()


def _pinned(out: Path) -> dict[str, EmissionConfig]:
    """By rollout, the configuration that its settling pins."""
    found = {}
    for partition in partitions_of(out / "log", CLOSURES.name):
        for record in read_partition(out / "log", CLOSURES.name, partition):
            fact = Codec().decode(CLOSURES, record.value)
            assert isinstance(fact, Closure)
            if fact.settled is not None:
                found[fact.settled.rollout_id] = EmissionConfig.model_validate_json(fact.settled.config)
    return found


def test_rollouts_that_never_settled_are_decided_under_the_configured_rules(
    log: Path, braid: Braid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others keep what was pinned; what was set holds for all; the manifest says what was configured."""
    unsettled = _unsettled(log, tmp_path / "log")
    monkeypatch.setenv("BRAID_EMISSION__PAIRS__MAX_PER_ROLLOUT", "1")
    monkeypatch.setenv("BRAID_EMISSION__REDACT", "false")
    more = ("--reclose", "--set", "admission.train_from=0.7", "--processes", 2)
    assert replay(braid, tmp_path / "log", "--out", tmp_path / "out", *more)["rollouts"] == 12
    found = _pinned(tmp_path / "out")
    own = found.pop(unsettled)
    assert (own.pairs.max_per_rollout, own.redact, own.admission.train_from) == (1, False, 0.7)
    assert {(each.pairs.max_per_rollout, each.redact, each.admission.train_from) for each in found.values()} == {
        (4, True, 0.7)
    }
    rules = json.loads((tmp_path / "out" / "log-manifest.json").read_text())["rules"]
    assert rules["configured"] == ["redact=false", "pairs.max_per_rollout=1"]
    monkeypatch.setenv("BRAID_EMISSION__PAIRS__MAX_PER_ROLLOUT", "2")
    code, _, said = braid("replay", "--from-dir", tmp_path / "log", "--out", tmp_path / "out", "--resume", *more)
    assert code == 1
    assert "configured redact=false, pairs.max_per_rollout=1, not redact=false, pairs.max_per_rollout=2" in said
