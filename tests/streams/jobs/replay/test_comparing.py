"""`--verify` on logs in files: every sink record is compared, or something in the log explains why it is not."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from agents.redaction.redaction import RULES_VERSION
from agents.rollouts.branch_records import ended_branch
from agents.rollouts.rollout import Rollout
from schemas.base import Record
from schemas.branches import BranchRecord
from schemas.emission import EmissionConfig
from streams.log.container import read_partition
from streams.log.facts import read_fact
from streams.log.file_writer import LogWriter, file_of
from streams.log.headers import REDACTED
from streams.log.topics import (
    AGENT_EVENTS,
    BRANCHES,
    BY_RECORD,
    CLOSURES,
    EVIDENCE,
    LIFECYCLE,
    RANKINGS,
    SFT,
    TOPICS,
    Topic,
)  # fmt: skip
from streams.log.wire import Codec
from tests.conftest import Braid
from tests.older import made_older
from tests.sealed import sealed

codec = Codec()

Headers = tuple[tuple[str, bytes], ...]
OTHER_RULES: Headers = (("braid_redacted", b"1"),)


@pytest.fixture(scope="module")
def log(ran: Path) -> Path:
    """The sample in one partition."""
    return ran


def _records(log: Path, topic: Topic) -> list[Any]:
    return [codec.decode(topic, stored.value) for stored in read_partition(log / "log", topic.name, 0)]


def _with(log: Path, target: Path, *more: Record, partition: int = 0, headers: Headers = ()) -> Path:
    """A copy of a log with more records in its sinks."""
    shutil.copytree(log, target)
    with LogWriter(target / "more") as writer:
        for record in more:
            rollout_id: str = getattr(record, "rollout_id")  # noqa: B009 - all sink records have one
            topic = BY_RECORD[type(record)].name
            writer.append(topic, partition, rollout_id.encode(), codec.encode(record), 1, headers, offset=10**6)
    for record in more:
        topic = BY_RECORD[type(record)].name
        file_of(target / "more", topic, partition).replace(file_of(target / "log", topic, partition, 10**6))
    return sealed(target)


def _verify(braid: Braid, log: Path, *more: object) -> tuple[int, dict[str, Any], str]:
    code, found, said = braid("replay", "--from-dir", log, "--dry-run", "--verify", "--json", "--processes", 1, *more)
    assert found["verified"]["ok"] == (code == 0)
    return code, found["verified"], said


def test_without_decisions_nothing_is_proven(log: Path, braid: Braid, tmp_path: Path) -> None:
    """The file of closings is gone, and nothing says that it ever was: no record can be compared."""
    _, whole, _ = _verify(braid, log)
    sealed(shutil.copytree(log, tmp_path / "bad", ignore=shutil.ignore_patterns(CLOSURES.name)))
    code, found, said = _verify(braid, tmp_path / "bad")
    assert (code, found["identical"]) == (1, 0)
    assert found["extra"] + found["elsewhere"] == whole["identical"]
    assert found["extra"] > found["elsewhere"]  # branches that ended are announced before their rollout closes
    assert "has not closed in the log" in said


@pytest.mark.parametrize("partition", [0, 7])
def test_a_row_of_a_rollout_that_never_was_is_found(log: Path, braid: Braid, tmp_path: Path, partition: int) -> None:
    """In a partition that has facts, and in one that has none."""
    forged = _records(log, SFT)[0].model_copy(update={"rollout_id": "never-was", "record_id": "f" * 32})
    code, found, said = _verify(braid, _with(log, tmp_path / "bad", forged, partition=partition))
    assert (code, found["extra"], found["elsewhere"]) == (1, 1, 0)
    assert f"{SFT.name}/{partition}@1000000 {'f' * 32}: rollout never-was has not closed" in said


@pytest.mark.parametrize(
    "changes", [{"attempt": 7}, {"branch_index": 90}, {"final_answer": "other"}, {"rollout_id": "never-was"}]
)
def test_a_branch_that_was_never_announced_is_found(
    log: Path, braid: Braid, tmp_path: Path, changes: dict[str, Any]
) -> None:
    forged = _records(log, BRANCHES)[0].model_copy(update={"record_id": "f" * 32} | changes)
    code, found, said = _verify(braid, _with(log, tmp_path / "bad", forged))
    assert (code, found["extra"], found["superseded"], found["elsewhere"]) == (1, 1, 0, 0)
    assert f"not emitted now: {BRANCHES.name}/0@1000000" in said


def _replaced(log: Path) -> BranchRecord:
    """The record of an attempt that ended and was replaced, as a worker announces it."""
    emitted = {(record.rollout_id, record.branch_index): record for record in _records(log, BRANCHES)}
    rollouts: dict[str, Rollout] = {}
    for topic in (LIFECYCLE, AGENT_EVENTS):
        for stored in read_partition(log / "log", topic.name, 0):
            rollout_id = (stored.key or b"").decode()
            rollout = rollouts.setdefault(rollout_id, Rollout(rollout_id))
            rollout.add(read_fact(codec, topic, stored.value, rollout_id), stored.at, (topic.name, 0, stored.offset))
            for index, number in rollout.newly_ended():
                if emitted[rollout_id, index].attempt != number:
                    return ended_branch(rollout, index, number, EmissionConfig()).record
    raise AssertionError("no attempt of the sample is replaced")


def test_an_attempt_that_was_replaced_is_proven_byte_by_byte(log: Path, braid: Braid, tmp_path: Path) -> None:
    replaced = _replaced(log)
    code, found, said = _verify(braid, _with(log, tmp_path / "good", replaced))
    assert (code, found["superseded"], found["extra"]) == (0, 1, 0), said
    forged = replaced.model_copy(update={"final_answer": "other", "record_id": "f" * 32})
    code, found, _ = _verify(braid, _with(log, tmp_path / "bad", forged))
    assert (code, found["superseded"], found["extra"]) == (1, 0, 1)


def test_evidence_of_before_branches_were_listed_is_proven_in_everything_else(
    log: Path, braid: Braid, tmp_path: Path
) -> None:
    """The closing record of every rollout lists fewer records than it would now; where it says anything else, it is found."""
    _, whole, _ = _verify(braid, log)
    older = made_older(shutil.copytree(log, tmp_path / "older"), None)
    code, found, said = _verify(braid, older)
    count = len(_records(log, RANKINGS))
    assert (code, found["earlier"], found["identical"]) == (0, count, whole["identical"] - count), said
    stated = next(record for record in _records(older, EVIDENCE) if record.closing is not None)
    closing = stated.closing.model_copy(update={"ranking_digest": "0" * 64})
    forged = stated.model_copy(update={"closing": closing, "record_id": "f" * 64})
    code, found, _ = _verify(braid, _with(older, tmp_path / "bad", forged))
    assert (code, found["earlier"], found["extra"]) == (1, count, 1)


def test_what_closes_outside_of_the_bounds_is_counted_and_no_more(log: Path, braid: Braid) -> None:
    _, whole, _ = _verify(braid, log)
    half = len(list(read_partition(log / "log", CLOSURES.name, 0))) * 3 // 4
    code, found, said = _verify(braid, log, "--to", f"{CLOSURES.name}/0@{half}")
    assert code == 0, said
    assert found["identical"] > 0
    assert found["elsewhere"] > 0
    assert found["identical"] + found["elsewhere"] == whole["identical"]


def test_a_row_that_other_rules_redacted_may_differ_and_says_so(log: Path, braid: Braid, tmp_path: Path) -> None:
    """It is a difference like any other; what else differs does not get that reason."""
    row = _records(log, SFT)[0].model_copy(update={"task": "docker login -p hunter42", "record_id": "f" * 32})
    code, found, said = _verify(braid, _with(log, tmp_path / "old", row, headers=OTHER_RULES))
    assert (code, found["extra"], found["redacted_otherwise"]) == (1, 1, 1)
    assert f"{'f' * 32}: redacted by other rules than {RULES_VERSION}, which this code has" in said
    code, found, said = _verify(braid, _with(log, tmp_path / "bad", row, headers=(REDACTED,)))
    assert (code, found["extra"], found["redacted_otherwise"]) == (1, 1, 0)
    assert "other rules" not in said


def test_rows_of_older_rules_are_the_same_where_both_find_the_same(log: Path, braid: Braid, tmp_path: Path) -> None:
    """The version stands in a header, which is not compared: a log without such secrets verifies under any rules."""
    with LogWriter(tmp_path / "old" / "log") as writer:
        for topic in TOPICS:
            for stored in read_partition(log / "log", topic.name, 0):
                headers = tuple(OTHER_RULES[0] if each == REDACTED else each for each in stored.headers)
                writer.append(topic.name, 0, stored.key, stored.value, stored.at, headers)
    _, whole, _ = _verify(braid, log)
    code, found, said = _verify(braid, sealed(tmp_path / "old"))
    assert code == 0, said
    assert found == whole


def test_bounds_do_not_hide_what_is_not_in_the_log(log: Path, braid: Braid, tmp_path: Path) -> None:
    forged = _records(log, RANKINGS)[0].model_copy(update={"rollout_id": "never-was", "ranking_id": "f" * 32})
    bad = _with(log, tmp_path / "bad", forged)
    for bounds in (("--to", "0"), ("--from", "2200-01-01T00:00:00Z")):
        code, found, _ = _verify(braid, bad, *bounds)
        assert (code, found["identical"], found["extra"]) == (1, 0, 1)


def test_records_of_rollouts_that_cannot_be_made_again_are_not_compared(
    log: Path, braid: Braid, tmp_path: Path
) -> None:
    """They are counted; the rollout is named with the reason."""
    sealed(shutil.copytree(log, tmp_path / "bad", ignore=shutil.ignore_patterns(AGENT_EVENTS.name)))
    code, found, said = _verify(braid, tmp_path / "bad")
    assert (code, found["identical"], found["extra"]) == (1, 0, 0)
    assert found["holed"] > 0
    assert "cannot be made again" in said


def test_a_sink_that_cannot_be_read_to_its_end_is_said(log: Path, braid: Braid, tmp_path: Path) -> None:
    bad = _with(log, tmp_path / "bad", _records(log, SFT)[0])
    path = file_of(bad / "log", SFT.name, 0, 10**6)
    path.write_bytes(path.read_bytes()[:-20])
    code, found, said = _verify(braid, sealed(bad))
    assert (code, found["unread"], found["missing"]) == (1, 1, 0)
    assert f"unreadable: {SFT.name}/0: " in said
