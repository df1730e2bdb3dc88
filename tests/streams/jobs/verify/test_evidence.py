"""`braid verify`: what is whole is ok; whatever is done to evidence is found, at its place."""

import io
import shutil
import sys
from pathlib import Path

import orjson
import pytest

from agents.evidence.keys import development_key, generate_key
from agents.evidence.signing import sign_record
from streams.cluster.config import Settings
from streams.jobs.run.run import run_files
from streams.log.topics import EVIDENCE
from tests.streams.jobs.verify.conftest import ROLLOUTS, Verify, edit, every_turned_bit_is_found, key_flag, records_of

# -- what is whole -------------------------------------------------------------------------------------------------------


def test_the_output_of_a_run_is_ok(verify: Verify, finished: Path) -> None:
    """One line for every evidence record, then the verdict; rows and log were looked at."""
    ran = verify(finished)
    assert ran.code == 0
    assert [line["run_id"] for line in ran.lines[:-1]] == [
        record["run_id"] for record in records_of(finished / "evidence.jsonl")
    ]
    assert all(line["ok"] and line["reasons"] == [] for line in ran.lines[:-1])
    assert ran.verdict["chain"] == "intact"
    assert [chain["chain"] for chain in ran.verdict["chains"]] == list(ROLLOUTS)
    assert (ran.verdict["records"], ran.verdict["ok"], ran.verdict["not_ok"]) == (10, True, 0)
    assert ran.verdict["rows"]["training.sft.v1"] == len(records_of(finished / "sft.jsonl"))


def test_a_development_key_is_ok_with_a_warning(verify: Verify, finished: Path) -> None:
    """It says beside the output that such a key proves nothing to others."""
    ran = verify(finished / "evidence.jsonl")
    assert ran.code == 0
    assert "development key dev-" in ran.err
    assert "development key dev-" in ran.verdict["warnings"][0]


def test_people_get_a_table_and_no_list_of_what_is_ok(verify: Verify, finished: Path) -> None:
    """Only what is not ok gets a line of its own, unless all of it is asked for."""
    ran = verify(finished, json=False)
    assert ran.code == 0
    assert "lru-cache/b0/a0" not in ran.out
    assert ran.out.splitlines()[-1].split() == ["verdict", "ok"]
    assert "lru-cache/b0/a0  ok" in verify(finished, "--verbose", json=False).out


def test_a_log_by_itself_is_ok(verify: Verify, finished: Path) -> None:
    """The embedded log is verified as files of lines are: evidence, rows, rankings."""
    ran = verify(finished / "log")
    assert ran.code == 0
    assert (ran.verdict["records"], ran.verdict["chain"]) == (10, "intact")
    assert ran.verdict["rows"] == verify(finished).verdict["rows"]


def test_one_avro_file_is_ok(verify: Verify, finished: Path) -> None:
    """A container of evidence can be given by itself."""
    ran = verify(finished / "log" / EVIDENCE.name / "00000.avro")
    assert (ran.code, ran.verdict["records"]) == (0, 10)


def test_json_files_hold_one_record_or_an_array(verify: Verify, finished: Path, tmp_path: Path) -> None:
    """An array is one body of evidence; a single record of a chain is part of one, and so not whole."""
    records = records_of(finished / "evidence.jsonl")
    (tmp_path / "all.json").write_bytes(orjson.dumps(records, option=orjson.OPT_INDENT_2))
    (tmp_path / "one.json").write_bytes(orjson.dumps(records[1], option=orjson.OPT_INDENT_2))
    assert verify(tmp_path / "all.json").code == 0
    assert verify(tmp_path / "one.json").verdict["chain"] == "orphaned"


def test_a_chain_may_go_on_in_the_next_file(verify: Verify, finished: Path, tmp_path: Path) -> None:
    """Files that are given together are one body of evidence."""
    lines = (finished / "evidence.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "a.jsonl").write_bytes(b"".join(lines[:3]))
    (tmp_path / "b.jsonl").write_bytes(b"".join(lines[3:]))
    assert verify(tmp_path / "a.jsonl", tmp_path / "b.jsonl").code == 0
    assert verify(tmp_path / "b.jsonl").code == 1


def test_standard_input_is_read(verify: Verify, finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dash stands for it."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((finished / "evidence.jsonl").read_bytes())))
    ran = verify("-")
    assert (ran.code, ran.lines[0]["position"]) == (0, "<stdin>:1")


def test_rows_may_be_spelled_otherwise(verify: Verify, out: Path) -> None:
    """Order of keys and spaces are no content."""
    rows = records_of(out / "sft.jsonl")
    (out / "sft.jsonl").write_text(
        "".join(f"{orjson.dumps(row, option=orjson.OPT_SORT_KEYS).decode()} \n" for row in rows)
    )
    assert verify(out).code == 0


def test_a_repeated_evidence_record_changes_nothing(verify: Verify, out: Path) -> None:
    """A log may deliver twice."""
    edit(out / "evidence.jsonl", lambda lines: lines.insert(3, lines[2]))
    assert verify(out).code == 0


# -- what was done to evidence -------------------------------------------------------------------------------------------


def test_a_changed_byte_of_evidence_is_found_wherever_it_is(home: Path, out: Path) -> None:
    """At many places of the file one bit is turned over; every time the line that has it is named."""
    shutil.rmtree(out / "log")
    every_turned_bit_is_found(out / "evidence.jsonl", out / "evidence.jsonl")


@pytest.mark.parametrize("line", [0, 2, 3])
def test_a_removed_record_is_found(verify: Verify, out: Path, line: int) -> None:
    """The first, a middle and the last branch: the record after it and the closing record say so."""
    edit(out / "evidence.jsonl", lambda lines: lines.pop(line))
    ran = verify(out)
    assert ran.code == 1
    assert ran.verdict["chain"] == "broken"
    assert "the record before it is missing" in ran.faults[f"{out}/evidence.jsonl:{line + 1}"]


def test_a_removed_closing_record_is_found(verify: Verify, out: Path) -> None:
    """The place where it should be, every row that it listed, and the log that still has it."""
    edit(out / "evidence.jsonl", lambda lines: lines.pop(4))
    ran = verify(out)
    assert ran.code == 1
    assert ran.verdict["chain"] == "partial"
    assert ran.faults[f"{out}/evidence.jsonl:4"] == "chain: the closing record that should follow is missing"
    assert "no closing record of rollout 'debounce-hook'" in ran.faults[f"{out}/sft.jsonl:1"]
    assert "only in" in ran.faults[f"{out}/log/{EVIDENCE.name}/00000.avro@4"]


def test_records_in_another_order_are_found(verify: Verify, out: Path) -> None:
    """A record that comes before the one it names, at both places."""
    edit(out / "evidence.jsonl", lambda lines: lines.insert(1, lines.pop(2)))
    ran = verify(out)
    assert ran.code == 1
    assert "comes later" in ran.faults[f"{out}/evidence.jsonl:2"]
    assert "the order was changed" in ran.faults[f"{out}/evidence.jsonl:3"]


def test_a_rollout_that_is_gone_altogether_is_found_by_the_log(verify: Verify, out: Path) -> None:
    """Evidence and rows of the others are whole; only the log beside them knows of it."""
    for path in out.glob("*.jsonl"):
        kept = [record for record in path.read_bytes().splitlines(keepends=True) if b"debounce-hook" not in record]
        path.write_bytes(b"".join(kept))
    ran = verify(out)
    assert ran.code == 1
    assert list(ran.faults.values()) == [f"chain: the closing record is only in {out}/log"]


def test_a_line_that_is_no_record_is_named_and_the_rest_is_verified(verify: Verify, out: Path) -> None:
    """It is not ok at its place; the others are judged as ever."""
    edit(out / "evidence.jsonl", lambda lines: lines.insert(2, b"{oops"))
    ran = verify(out)
    assert ran.code == 1
    assert list(ran.faults) == [f"{out}/evidence.jsonl:3"]
    assert ran.verdict["chain"] == "intact"


def test_an_unknown_key_is_found_and_may_be_given(
    verify: Verify, home: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another machine the signature says nothing until the key is given; rows say why they do not count."""
    key = key_flag(home)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    ran = verify(finished)
    assert ran.code == 1
    assert "the key 'dev-" in ran.faults[f"{finished}/evidence.jsonl:1"]
    assert f"{finished}/evidence.jsonl:5) is not to be trusted" in ran.faults[f"{finished}/sft.jsonl:1"]
    assert "give --public-key" in ran.err
    assert verify(finished, "--public-key", key).code == 0


def test_a_known_name_on_another_key_is_found(verify: Verify, home: Path, finished: Path) -> None:
    """The key that is given counts, not the one of the same name on this machine."""
    name = key_flag(home).partition("=")[0]
    ran = verify(finished / "evidence.jsonl", "--public-key", f"{name}={generate_key().public.hex()}")
    assert ran.code == 1
    assert "does not match the content" in ran.faults[f"{finished}/evidence.jsonl:1"]


def test_unsigned_evidence_is_not_ok_unless_it_is_allowed(
    verify: Verify, home: Path, finished: Path, tmp_path: Path
) -> None:
    """Chain and rows of unsigned evidence can still be checked."""
    lines = finished.parent / "sample.ndjson"
    run_files([lines], tmp_path / "unsigned", Settings(), None)
    assert verify(tmp_path / "unsigned").code == 1
    assert verify(tmp_path / "unsigned", "--allow-unsigned").code == 0


def test_a_list_of_rows_that_is_no_list_is_found(verify: Verify, home: Path, out: Path) -> None:
    """Even a signed closing record has to say which rows there are."""
    key = development_key()

    def spoil(lines: list[bytes]) -> None:
        record = orjson.loads(lines[4])
        lines[4] = orjson.dumps(sign_record(record | {"closing": record["closing"] | {"emitted": [1]}}, key))

    edit(out / "evidence.jsonl", spoil)
    assert "must list topic, record_id and digest" in verify(out).faults[f"{out}/evidence.jsonl:5"]


def test_a_forged_closing_record_does_not_discredit_the_rows(verify: Verify, out: Path) -> None:
    """It is not ok itself; what the true one lists is still vouched for."""

    def slip_in(lines: list[bytes]) -> None:
        record = orjson.loads(lines[4])
        lines.insert(0, orjson.dumps(record | {"closing": record["closing"] | {"emitted": []}, "signature": None}))

    edit(out / "evidence.jsonl", slip_in)
    ran = verify(out)
    assert ran.code == 1
    assert f"{out}/evidence.jsonl:1" in ran.faults
    assert not [position for position in ran.faults if "evidence" not in position]


def test_nothing_in_a_record_is_obeyed_by_a_terminal(verify: Verify, tmp_path: Path) -> None:
    """Control characters of an id are spelled out."""
    (tmp_path / "odd.jsonl").write_bytes(orjson.dumps({"run_id": "\x1b[2Jr"}))
    ran = verify(tmp_path / "odd.jsonl", json=False)
    assert ran.code == 1
    assert "\\x1b[2Jr" in ran.out
    assert "\x1b" not in ran.out


@pytest.mark.parametrize("member", [b'"run_id":', b'"\\u0072un_id":'])
def test_a_repeated_key_is_found(verify: Verify, out: Path, member: bytes) -> None:
    """Of a record that says one thing to some readers and another to others, neither counts."""

    def repeat(lines: list[bytes]) -> None:
        lines[1] = lines[1].replace(b"{", b"{" + member + b'"other",', 1)

    edit(out / "evidence.jsonl", repeat)
    shutil.rmtree(out / "log")
    ran = verify(out)
    assert ran.code == 1
    assert "repeated key: run_id: the key stands twice" in ran.faults[f"{out}/evidence.jsonl:2"]
