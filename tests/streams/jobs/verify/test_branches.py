"""`braid verify`: branch records are the ones that evidence lists; what it need not list is explained by the log, or found."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from agents.evidence.build import sign
from agents.evidence.keys import development_key
from agents.rollouts.branch_records import ended_branch
from agents.rollouts.rollout import Rollout
from schemas.branches import BranchRecord
from schemas.emission import EmissionConfig
from streams.cluster.config import Settings
from streams.jobs.run.run import run_files
from streams.log.container import read_partition
from streams.log.facts import read_fact
from streams.log.topics import AGENT_EVENTS, BRANCHES, DPO, EVIDENCE, LIFECYCLE, PPO, RANKINGS, REJECTED, SFT
from streams.log.wire import Codec
from tests.older import made_older
from tests.streams.jobs.verify.conftest import ROLLOUTS, Verify, edit, every_turned_bit_is_found, records_of, rewrite

FORGED = "f" * 32


def changed(record: Any, **more: Any) -> Any:
    return record.model_copy(update={"final_answer": "poison"} | more)


# -- files of a run ------------------------------------------------------------------------------------------------------


def test_a_changed_branch_record_is_found(verify: Verify, out: Path) -> None:
    """Another answer: its line is named, and the closing record that lists what it was."""

    def spoil(lines: list[bytes]) -> None:
        lines[1] = orjson.dumps(orjson.loads(lines[1]) | {"final_answer": "poison"})

    edit(out / "branches.jsonl", spoil)
    ran = verify(out)
    assert ran.code == 1
    assert ran.faults == {
        f"{out}/branches.jsonl:2": f"row: changed: its digest is not the one that was signed; see {out}/evidence.jsonl:5"
    }


def test_a_changed_byte_of_a_branch_record_is_found_wherever_it_is(home: Path, out: Path) -> None:
    """At many places of the file one bit is turned over; every time the line that has it is named."""
    every_turned_bit_is_found(out / "branches.jsonl", out)


def test_a_removed_branch_record_is_found(verify: Verify, out: Path) -> None:
    """The closing record that lists it is named, with its id."""
    record = records_of(out / "branches.jsonl")[0]
    edit(out / "branches.jsonl", lambda lines: lines.pop(0))
    ran = verify(out)
    assert ran.code == 1
    assert ran.faults == {
        f"{out}/evidence.jsonl:5": f"row: {record['record_id']} is listed here and missing in {BRANCHES.name}"
    }


def test_a_foreign_branch_record_is_found(verify: Verify, out: Path) -> None:
    """One of another rollout, one that claims to be of this one, and one that is there twice: files hold what is closed."""
    first = records_of(out / "branches.jsonl")[0]
    foreign = [first | {"rollout_id": "elsewhere"}, first | {"record_id": FORGED}, first]
    edit(out / "branches.jsonl", lambda lines: lines.extend(map(orjson.dumps, foreign)))
    count = len(records_of(out / "branches.jsonl"))
    ran = verify(out)
    assert ran.code == 1
    assert "no closing record of rollout 'elsewhere'" in ran.faults[f"{out}/branches.jsonl:{count - 2}"]
    assert "does not list it" in ran.faults[f"{out}/branches.jsonl:{count - 1}"]
    assert ran.faults[f"{out}/branches.jsonl:{count}"] == "row: the same row is there twice"


# -- a log ---------------------------------------------------------------------------------------------------------------


def test_a_changed_branch_record_of_a_log_is_found(verify: Verify, out: Path) -> None:
    """File and offset are named."""
    rewrite(out / "log", BRANCHES, lambda records: records.insert(0, changed(records.pop(0))))
    ran = verify(out / "log")
    assert ran.code == 1
    assert list(ran.faults) == [f"{out}/log/{BRANCHES.name}/00000.avro@0"]
    assert "changed: its digest is not the one that was signed" in ran.out


def test_a_changed_branch_record_with_an_id_of_its_own_is_missed(verify: Verify, out: Path) -> None:
    """The one that is listed is missing; that the events of the other are in the log does not help it."""
    was: list[str] = []

    def change(records: list[Any]) -> None:
        was.append(records[0].record_id)
        records[0] = changed(records[0], record_id=FORGED)

    rewrite(out / "log", BRANCHES, change)
    ran = verify(out / "log")
    assert ran.code == 1
    assert list(ran.faults.values()) == [f"row: {was[0]} is listed here and missing in {BRANCHES.name}"]
    assert ran.verdict["unlisted"] == 1


def test_nothing_is_unlisted_in_a_log_beside_the_files_of_a_run(verify: Verify, out: Path) -> None:
    """A run closes everything: a record with another text and an id of its own has no excuse, whatever its events."""
    rewrite(out / "log", BRANCHES, lambda records: records.append(changed(records[0], record_id=FORGED)))
    ran = verify(out)
    assert ran.code == 1
    assert [why.endswith("does not list it") for why in ran.faults.values()] == [True]
    assert verify(out / "log").code == 0


@pytest.mark.parametrize("more", [{"attempt": 7}, {"branch_index": 90}, {"raw_digest": "0" * 64}])
def test_a_branch_record_of_events_that_never_were_is_found(verify: Verify, out: Path, more: dict[str, Any]) -> None:
    """Evidence does not list it, and no branch in the log ended so."""
    rewrite(out / "log", BRANCHES, lambda records: records.append(changed(records[0], record_id=FORGED, **more)))
    ran = verify(out / "log")
    assert ran.code == 1
    assert [why.endswith("does not list it") for why in ran.faults.values()] == [True]


def test_a_branch_record_of_a_rollout_that_never_was_is_found(verify: Verify, out: Path) -> None:
    """No closing evidence, and no events."""
    rewrite(out / "log", BRANCHES, lambda records: records.append(changed(records[0], rollout_id="never-was")))
    ran = verify(out)
    assert ran.code == 1
    assert [why.startswith("row: no closing record of rollout 'never-was'") for why in ran.faults.values()] == [True]


def only_first(records: list[Any]) -> None:
    records[:] = [record for record in records if record.rollout_id == ROLLOUTS[0]]


def test_branches_of_an_open_rollout_are_ok_and_not_covered(verify: Verify, out: Path) -> None:
    """They have records when they end, and evidence when the rollout closes: the log has the events, and nothing is claimed."""
    for topic in (SFT, DPO, PPO, REJECTED, RANKINGS, EVIDENCE):
        rewrite(out / "log", topic, only_first)
    ran = verify(out / "log")
    assert (ran.code, ran.faults) == (0, {})
    assert (ran.verdict["rows"][BRANCHES.name], ran.verdict["unlisted"]) == (8, 4)
    assert "4 branch records are not listed by evidence" in ran.err


def event(seq: int, attempt: int, kind: str, **data: object) -> dict[str, object]:
    return {
        "type": "event", "rollout_id": "r", "branch_index": 0, "attempt": attempt, "seq": seq,
        "event": {"event": kind, "data": data, "timestamp_ms": 1 + seq},
    }  # fmt: skip


@pytest.fixture
def retried(home: Path, tmp_path: Path) -> Path:
    """A log with a branch whose first attempt ended, too."""
    lines = [
        {"type": "rollout", "rollout_id": "r", "task": "t", "branches": 1, "required": []},
        event(0, 0, "final_answer", answer="first"),
        event(0, 1, "final_answer", answer="second"),
    ]
    (tmp_path / "lines.ndjson").write_bytes(b"\n".join(map(orjson.dumps, lines)))
    run_files([tmp_path / "lines.ndjson"], tmp_path / "retried", Settings(), development_key())
    return tmp_path / "retried" / "log"


def announced(log: Path) -> BranchRecord:
    """The record of the attempt that was replaced, as a worker writes it when the attempt ends."""
    codec, rollout = Codec(), Rollout("r")
    for topic in (LIFECYCLE, AGENT_EVENTS):
        for stored in read_partition(log, topic.name, 0):
            rollout.add(read_fact(codec, topic, stored.value, "r"), stored.at, (topic.name, 0, stored.offset))
            if (0, 0) in rollout.newly_ended():
                return ended_branch(rollout, 0, 0, EmissionConfig()).record
    raise AssertionError("the first attempt did not end")


def test_an_attempt_that_was_replaced_is_ok_and_not_covered(verify: Verify, retried: Path) -> None:
    """A worker writes its record when it ends; evidence lists the one that counts, and the verdict says so."""
    rewrite(retried, BRANCHES, lambda records: records.insert(0, announced(retried)))
    ran = verify(retried)
    assert (ran.code, ran.faults) == (0, {})
    assert (ran.verdict["rows"][BRANCHES.name], ran.verdict["unlisted"]) == (2, 1)
    assert "1 branch records are not listed by evidence" in ran.err
    assert "not what this version makes" not in ran.err


def test_another_text_of_an_attempt_that_was_replaced_is_told(verify: Verify, retried: Path) -> None:
    """An earlier version may have written it so: no fault, and named on request."""
    rewrite(retried, BRANCHES, lambda records: records.insert(0, changed(announced(retried), record_id=FORGED)))
    ran = verify(retried, "--verbose", json=False)
    assert ran.code == 0
    assert "1 of those are not what this version makes of their events" in ran.err
    assert (
        f"{BRANCHES.name}/00000.avro@0  {FORGED}  row: not listed by evidence: not what this version makes" in ran.out
    )


def test_without_its_events_nothing_explains_a_replaced_attempt(verify: Verify, retried: Path) -> None:
    rewrite(retried, BRANCHES, lambda records: records.insert(0, announced(retried)))
    (retried / AGENT_EVENTS.name / "00000.avro").unlink()
    assert [why.endswith("does not list it") for why in verify(retried).faults.values()] == [True]


# -- evidence of before ----------------------------------------------------------------------------------------------------


def test_a_run_of_before_branches_were_listed_is_ok_with_a_note(verify: Verify, home: Path, out: Path) -> None:
    """Files and log; people and programs are told that no signature covers the branch records."""
    made_older(out, development_key())
    for path in (out, out / "log"):
        ran = verify(path)
        assert (ran.code, ran.faults) == (0, {})
        assert (ran.verdict["uncovered"], ran.verdict["unlisted"]) == (2, 0)
        assert "the evidence of 2 rollouts was made before it listed branch records" in ran.err
    assert verify(out, json=False).out.splitlines()[-1].split() == ["verdict", "ok"]


def test_a_changed_branch_record_of_before_is_not_claimed_to_be_covered(verify: Verify, home: Path, out: Path) -> None:
    """Nothing signed speaks of its text: it cannot be found, and the note says so. Rows are checked as ever."""
    made_older(out, development_key())
    rewrite(out / "log", BRANCHES, lambda records: records.insert(0, changed(records.pop(0))))
    ran = verify(out)
    assert (ran.code, ran.verdict["uncovered"]) == (0, 2)
    edit(out / "sft.jsonl", lambda lines: lines.pop(0))
    assert verify(out).code == 1


def test_what_lists_all_branches_has_no_note(verify: Verify, finished: Path) -> None:
    ran = verify(finished)
    assert (ran.code, ran.verdict["uncovered"], ran.verdict["unlisted"]) == (0, 0, 0)
    assert "branch records" not in ran.err


def cut(records: list[Any], kept: int) -> Any:
    """The closing record of the first rollout, with so many of its four branch records."""
    last = records[4]
    left = last.closing.emitted[4 - kept :]
    return last.model_copy(update={"closing": last.closing.model_copy(update={"emitted": left})})


def test_an_emptied_list_is_none_of_before(verify: Verify, out: Path) -> None:
    """An attacker who takes the branch records out of it breaks the signature; then its statements count for
    nothing."""

    def change(records: list[Any]) -> None:
        records[4] = cut(records, 0)

    rewrite(out / "log", EVIDENCE, change)
    ran = verify(out / "log")
    assert (ran.code, ran.verdict["uncovered"]) == (1, 0)
    assert "the signature does not match" in ran.faults[f"{out}/log/{EVIDENCE.name}/00000.avro@4"]
    assert "is not to be trusted" in ran.faults[f"{out}/log/{BRANCHES.name}/00000.avro@0"]


def test_a_signed_list_of_some_branches_is_a_fault(verify: Verify, home: Path, out: Path) -> None:
    """It is none of before, and does not cover what it states."""

    def change(records: list[Any]) -> None:
        records[4] = sign(cut(records, 3), development_key())

    rewrite(out / "log", EVIDENCE, change)
    ran = verify(out / "log")
    assert ran.code == 1
    assert "lists 3 branch records, the record states 4" in ran.faults[f"{out}/log/{EVIDENCE.name}/00000.avro@4"]
