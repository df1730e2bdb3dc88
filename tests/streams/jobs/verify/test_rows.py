"""`braid verify`: whatever is done to rows, in files or in a log, is found, at its place."""

import shutil
from pathlib import Path

import orjson
import pytest

from schemas.training import SftRecord
from streams.log.topics import EVIDENCE, RANKINGS, SFT
from tests.streams.jobs.verify.conftest import Verify, edit, every_turned_bit_is_found, records_of, rewrite

# -- what was done to rows -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sft.jsonl", "dpo.jsonl", "ppo.jsonl", "rejected.jsonl", "rankings.jsonl"])
def test_a_changed_row_is_found(verify: Verify, out: Path, name: str) -> None:
    """One letter of a row: its line is named, and the closing record that lists what it was."""

    def spoil(lines: list[bytes]) -> None:
        place = lines[1].index(b"settled_id") + 15
        lines[1] = lines[1][:place] + bytes([lines[1][place] ^ 1]) + lines[1][place + 1 :]

    edit(out / name, spoil)
    ran = verify(out)
    assert ran.code == 1
    assert "evidence.jsonl:" in ran.faults[f"{out}/{name}:2"]
    assert list(ran.faults) == [f"{out}/{name}:2"]


def test_a_changed_byte_of_a_row_is_found_wherever_it_is(home: Path, out: Path) -> None:
    """At many places of the file one bit is turned over; every time the line that has it is named."""
    shutil.rmtree(out / "log")
    every_turned_bit_is_found(out / "ppo.jsonl", out)


@pytest.mark.parametrize("value", [pytest.param("1", id="text"), pytest.param(True, id="truth")])
def test_a_value_of_another_type_is_found(verify: Verify, out: Path, value: object) -> None:
    """A number that became text or truth would be the same to a lenient reader, and another to a trainer."""
    line = next(number for number, row in enumerate(records_of(out / "sft.jsonl")) if row["rank"] == 1)

    def spoil(lines: list[bytes]) -> None:
        lines[line] = orjson.dumps(orjson.loads(lines[line]) | {"rank": value})

    edit(out / "sft.jsonl", spoil)
    ran = verify(out)
    assert ran.code == 1
    assert ran.faults[f"{out}/sft.jsonl:{line + 1}"] == "row: not a row: rank: Input should be a valid integer"


def test_a_removed_row_is_found(verify: Verify, out: Path) -> None:
    """The closing record that lists it is named, with the id of the row."""
    row = records_of(out / "sft.jsonl")[0]
    edit(out / "sft.jsonl", lambda lines: lines.pop(0))
    ran = verify(out)
    assert ran.code == 1
    assert ran.faults == {
        f"{out}/evidence.jsonl:5": f"row: {row['record_id']} is listed here and missing in training.sft.v1"
    }


@pytest.mark.parametrize("name", ["dpo.jsonl", "rankings.jsonl"])
def test_a_removed_file_of_rows_is_found(verify: Verify, out: Path, name: str) -> None:
    """Every row that was in it is missing, and every ranking."""
    rows = records_of(out / name)
    (out / name).unlink()
    ran = verify(out)
    assert (ran.code, ran.verdict["not_ok"]) == (1, len(rows))


def test_removed_evidence_leaves_no_row_ok(verify: Verify, out: Path) -> None:
    """Rows without the evidence beside them are not ok, although the log is."""
    (out / "evidence.jsonl").unlink()
    ran = verify(out)
    assert ran.code == 1
    assert ran.faults[f"{out}/evidence.jsonl"] == "the file is missing"
    assert f"{out}/sft.jsonl:1" in ran.faults


def test_a_foreign_row_is_found(verify: Verify, out: Path, tmp_path: Path) -> None:
    """A row of another rollout, and one that claims to be of this rollout."""
    row = SftRecord.model_validate_json((out / "sft.jsonl").read_bytes().splitlines()[0])
    foreign = [row.model_copy(update={"rollout_id": "elsewhere"}), row.model_copy(update={"record_id": "0" * 32})]
    edit(out / "sft.jsonl", lambda lines: lines.extend(orjson.dumps(each.plain()) for each in foreign))
    count = len(records_of(out / "sft.jsonl"))
    ran = verify(out)
    assert ran.code == 1
    assert "no closing record of rollout 'elsewhere'" in ran.faults[f"{out}/sft.jsonl:{count - 1}"]
    assert f"({out}/evidence.jsonl:5) does not list it" in ran.faults[f"{out}/sft.jsonl:{count}"]


def test_a_row_that_is_there_twice_is_found(verify: Verify, out: Path) -> None:
    """In a dataset a repetition doubles what is learnt from it."""
    edit(out / "ppo.jsonl", lambda lines: lines.append(lines[0]))
    ran = verify(out)
    assert ran.code == 1
    assert list(ran.faults.values()) == ["row: the same row is there twice"]


def test_a_line_that_is_no_row_is_named(verify: Verify, out: Path) -> None:
    """Field and reason, without the content."""
    edit(out / "sft.jsonl", lambda lines: lines.insert(0, b'{"record_id":"x"}'))
    ran = verify(out)
    assert ran.code == 1
    assert ran.faults == {f"{out}/sft.jsonl:1": "row: not a row: rollout_id: Field required"}


def test_many_faults_are_cut_for_people(verify: Verify, out: Path) -> None:
    """The first fifty are shown, the others counted."""
    edit(out / "sft.jsonl", lambda lines: lines.extend([b"{}"] * 60))
    ran = verify(out, json=False)
    assert ran.code == 1
    assert "and 10 more that are not ok" in ran.out
    assert ran.out.splitlines()[-1].split() == ["verdict", "NOT", "OK"]


# -- logs ----------------------------------------------------------------------------------------------------------------


def test_a_changed_row_of_a_log_is_found(verify: Verify, out: Path) -> None:
    """File and offset are named; the lines beside the log are ok."""
    rewrite(out / "log", SFT, lambda rows: rows.insert(0, rows.pop(0).model_copy(update={"task": "another"})))
    ran = verify(out)
    assert ran.code == 1
    assert list(ran.faults) == [f"{out}/log/training.sft.v1/00000.avro@0"]


def test_a_stored_record_that_belies_its_content_is_found(verify: Verify, out: Path) -> None:
    """The fields in Avro have to agree with the signed view beside them."""
    rewrite(out / "log", EVIDENCE, lambda rows: rows.insert(0, rows.pop(0).model_copy(update={"record_id": "1" * 64})))
    assert verify(out / "log").faults == {
        f"{out}/log/{EVIDENCE.name}/00000.avro@0": "stored: the record_id is not the hash of the record"
    }


def test_rows_of_a_log_may_repeat(verify: Verify, out: Path) -> None:
    """A worker that was restarted writes the same records again."""
    rewrite(out / "log", SFT, lambda rows: rows.append(rows[0]))
    assert verify(out / "log").code == 0


def test_a_damaged_container_is_named_and_the_rest_is_verified(verify: Verify, out: Path) -> None:
    """The file is cut; what the other files hold is judged as ever."""
    path = out / "log" / RANKINGS.name / "00000.avro"
    path.write_bytes(path.read_bytes()[:-30])
    ran = verify(out)
    assert ran.code == 1
    assert "the file is damaged here" in ran.faults[f"{path}@0"]


@pytest.mark.parametrize(
    "name", ["sft.jsonl", "dpo.jsonl", "ppo.jsonl", "rejected.jsonl", "rankings.jsonl", "branches.jsonl"]
)
def test_a_repeated_key_of_a_row_is_found(verify: Verify, out: Path, name: str) -> None:
    """The last one counts to us, the first one to another reader."""

    def repeat(lines: list[bytes]) -> None:
        lines[1] = lines[1].replace(b"{", b'{"rollout_id":"other",', 1)

    edit(out / name, repeat)
    ran = verify(out)
    assert ran.code == 1
    assert "repeated key: rollout_id: the key stands twice" in ran.faults[f"{out}/{name}:2"]
