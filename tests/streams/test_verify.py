"""`braid verify`: whatever is done to evidence or rows is found, at its place; what is whole is ok."""

import asyncio
import io
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest

from agents.evidence.keys import development_key, generate_key
from agents.evidence.signing import sign_record
from schemas.base import Record
from schemas.training import SftRecord
from streams.cli import app
from streams.cluster import ensure_topics, partition_of, registry_of, start_producer
from streams.codec import Codec
from streams.config import Settings
from streams.demo.sample import sample_lines
from streams.embedded import LogWriter, read_partition
from streams.findings import Finding
from streams.inspection import ROW_TOPICS
from streams.looking.log import LookError
from streams.run import run_files
from streams.topics import BY_RECORD, EVIDENCE, RANKINGS, SFT, Topic
from streams.verifying import NothingToVerifyError, Verification
from tests.conformance import conformance

Json = dict[str, Any]
Edit = Callable[[list[bytes]], object]

ROLLOUTS = ("debounce-hook", "lru-cache")
"""Of the sample: with passing and failing branches, votes, and rows of every kind."""


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[Json]:
        return [orjson.loads(line) for line in self.out.splitlines()]

    @property
    def verdict(self) -> Json:
        return self.lines[-1]

    @property
    def faults(self) -> dict[str, str]:
        """By position, the reasons of what is not ok."""
        found: dict[str, list[str]] = {}
        for line in self.lines[:-1]:
            if not line["ok"]:
                found.setdefault(line["position"], []).extend(line["reasons"])
        return {position: "; ".join(reasons) for position, reasons in found.items()}


Verify = Callable[..., Ran]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A user's directory of its own, where the development key is made."""
    with pytest.MonkeyPatch.context() as patch:
        path = tmp_path_factory.mktemp("home")
        patch.setenv("XDG_DATA_HOME", str(path))
        patch.chdir(path)
        yield path


@pytest.fixture(scope="module")
def finished(home: Path) -> Path:
    """What `braid run` makes of two rollouts of the sample."""
    lines = [orjson.dumps(line) for line in sample_lines() if line["rollout_id"] in ROLLOUTS]
    (home / "sample.ndjson").write_bytes(b"\n".join(lines))
    app(["run", str(home / "sample.ndjson"), "--out", str(home / "finished"), "--json"], result_action="return_value")
    return home / "finished"


@pytest.fixture
def out(finished: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    return shutil.copytree(finished, tmp_path / "out")


@pytest.fixture
def verify(home: Path, capsys: pytest.CaptureFixture[str]) -> Verify:
    """Run `braid verify`; with --json unless told otherwise."""

    def run(*arguments: object, json: bool = True) -> Ran:
        capsys.readouterr()
        code = 0
        try:
            app(["verify", *map(str, arguments), *(["--json"] if json else [])], result_action="return_value")
        except SystemExit as end:
            code = int(end.code or 0)
        return Ran(code, *capsys.readouterr())

    return run


def edit(path: Path, change: Edit) -> None:
    """Change the lines of a file in place."""
    lines = path.read_bytes().splitlines()
    change(lines)
    path.write_bytes(b"".join(line + b"\n" for line in lines))


def records_of(path: Path) -> list[Json]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def key_flag(home: Path) -> str:
    key = development_key(home / "braidstream" / "keys")
    return f"{key.key_id}={key.public.hex()}"


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
    path = out / "evidence.jsonl"
    original = path.read_bytes()
    keys = {development_key().key_id: development_key().public}
    for place in range(0, len(original), len(original) // 60):
        path.write_bytes(original[:place] + bytes([original[place] ^ 1]) + original[place + 1 :])
        found: list[Finding] = []
        verification = Verification(keys, allow_unsigned=False, tell=found.append, say=lambda _what, _share: None)
        verification.paths([path])
        line = original[:place].count(b"\n") + 1
        assert not verification.outcome.ok
        assert f"{path}:{line}" in {finding.position for finding in found if not finding.ok}, (place, line)


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
    path = out / "ppo.jsonl"
    original = path.read_bytes()
    keys = {development_key().key_id: development_key().public}
    for place in range(0, len(original), len(original) // 60):
        path.write_bytes(original[:place] + bytes([original[place] ^ 1]) + original[place + 1 :])
        found: list[Finding] = []
        verification = Verification(keys, allow_unsigned=False, tell=found.append, say=lambda _what, _share: None)
        verification.paths([out])
        line = original[:place].count(b"\n") + 1
        assert f"{path}:{line}" in {finding.position for finding in found if not finding.ok}, (place, line)


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


def test_a_removed_file_of_rows_is_found(verify: Verify, out: Path) -> None:
    """Every row that was in it is missing; a dataset without rankings is complete."""
    (out / "rankings.jsonl").unlink()
    assert verify(out).code == 0
    rows = records_of(out / "dpo.jsonl")
    (out / "dpo.jsonl").unlink()
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


def rewrite(log: Path, topic: Topic, change: Callable[[list[Record]], object]) -> None:
    """Change the records of a topic of an embedded log."""
    stored = list(read_partition(log, topic.name, 0))
    codec = Codec()
    records = [codec.decode(topic, each.value) for each in stored]
    change(records)
    with LogWriter(log) as writer:
        for record in records:
            writer.append(topic.name, 0, str(getattr(record, "rollout_id", "")).encode(), codec.encode(record), 0)


def test_a_changed_row_of_a_log_is_found(verify: Verify, out: Path) -> None:
    """File and offset are named; the lines beside the log are ok."""
    rewrite(out / "log", SFT, lambda rows: rows.insert(0, rows.pop(0).model_copy(update={"task": "another"})))
    ran = verify(out)
    assert ran.code == 1
    assert list(ran.faults) == [f"{out}/log/training.sft.v1/00000.avro@0"]


def test_a_stored_record_that_belies_its_content_is_found(verify: Verify, out: Path) -> None:
    """What Avro holds beside the signed view has to agree with it."""
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


# -- what cannot be verified ---------------------------------------------------------------------------------------------


def test_nothing_proves_nothing(verify: Verify, tmp_path: Path) -> None:
    """An empty file is not ok."""
    (tmp_path / "empty.jsonl").touch()
    ran = verify(tmp_path / "empty.jsonl", json=False)
    assert ran.code == 1
    assert "nothing to verify" in ran.out


def test_a_path_without_evidence_is_an_expected_failure(verify: Verify, finished: Path, tmp_path: Path) -> None:
    """A missing path, a directory of something else, and rows without their evidence: each says what to give."""
    with pytest.raises(NothingToVerifyError, match="no such file"):
        verify(tmp_path / "nowhere")
    with pytest.raises(NothingToVerifyError, match="give an output directory"):
        verify(tmp_path)
    with pytest.raises(NothingToVerifyError, match="give the directory"):
        verify(finished / "sft.jsonl")


# -- vectors of others ---------------------------------------------------------------------------------------------------


def test_the_shared_record_verifies_with_its_key(verify: Verify) -> None:
    """A record that another program signed, under its published key; not without it."""
    path, key = (
        conformance("aep", "aep-shared.jsonl"),
        orjson.loads(conformance("aep", "aep-shared.pubkey.json").read_bytes()),
    )
    ran = verify(path, "--public-key", f"{key['key_id']}={key['public_key_hex']}")
    assert (ran.code, ran.verdict["chain"]) == (0, "not-present")
    assert verify(path).code == 1


def test_the_shared_vectors_get_their_verdicts(verify: Verify, tmp_path: Path) -> None:
    """Two chained records are intact; the envelope over the base64 text is named, and not ok."""
    vectors = orjson.loads(conformance("aep", "aep-vectors.json").read_bytes())
    key = f"{vectors['r1']['signature']['key_id']}={vectors['pub']}"
    (tmp_path / "chain.jsonl").write_bytes(orjson.dumps(vectors["r1"]) + b"\n" + orjson.dumps(vectors["r2"]) + b"\n")
    (tmp_path / "dsse.json").write_bytes(orjson.dumps(vectors["dsse"]))
    ran = verify(tmp_path / "chain.jsonl", "--public-key", key)
    assert (ran.code, ran.verdict["chain"]) == (0, "intact")
    ran = verify(tmp_path / "dsse.json", "--public-key", key)
    assert (ran.code, ran.lines[0]["authenticity"]) == (1, "legacy-dsse")


# -- a cluster -----------------------------------------------------------------------------------------------------------


async def publish(settings: Settings, records: list[Record]) -> None:
    """Write records as a worker does."""
    topics = (*ROW_TOPICS, EVIDENCE)
    await ensure_topics(settings, topics)
    registry = registry_of(settings)
    codec = Codec(registry, prefix=settings.prefix)
    await codec.register(topics)
    producer = await start_producer(settings)
    try:
        for record in records:
            rollout_id = str(getattr(record, "rollout_id", ""))
            name, partition = BY_RECORD[type(record)].name, partition_of(rollout_id, settings.partitions)
            await producer.send(
                settings.prefix + name, codec.encode(record), key=rollout_id.encode(), partition=partition
            )
    finally:
        await producer.stop()
        if registry is not None:
            await registry.close()


@pytest.fixture
def on_kafka(settings: Settings, verify: Verify, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The cluster as commands find it: by variables."""
    for name in ("kafka", "registry", "prefix", "partitions"):
        monkeypatch.setenv(f"BRAID_{name.upper()}", str(getattr(settings, name)))
    return settings


def written_by_a_run(finished: Path) -> list[Record]:
    codec = Codec()
    return [
        codec.decode(topic, stored.value)
        for topic in (*ROW_TOPICS, EVIDENCE)
        for stored in read_partition(finished / "log", topic.name, 0)
    ]


@pytest.mark.kafka
def test_the_topics_of_a_cluster_are_verified(verify: Verify, finished: Path, on_kafka: Settings) -> None:
    """What is whole is ok, also when a restarted worker wrote it twice; what was slipped in or changed is found."""
    records = written_by_a_run(finished)
    asyncio.run(publish(on_kafka, records + records))
    ran = verify()
    assert ran.code == 0
    assert (ran.verdict["records"], ran.verdict["chain"]) == (20, "intact")
    assert all(chain["repeated"] == 5 for chain in ran.verdict["chains"])

    row = next(record for record in records if isinstance(record, SftRecord))
    slipped_in = [row.model_copy(update={"task": "another"}), row.model_copy(update={"record_id": "0" * 32})]
    asyncio.run(publish(on_kafka, [*slipped_in]))
    ran = verify()
    assert ran.code == 1
    changed, unlisted = sorted(ran.faults.values())
    assert changed.startswith("row: changed: its digest is not the one that was signed; see ")
    assert unlisted.endswith("does not list it")
    assert all(position.startswith(f"{on_kafka.prefix}training.sft.v1/") for position in ran.faults)


@pytest.mark.kafka
def test_a_cluster_without_the_topics_is_an_expected_failure(verify: Verify, on_kafka: Settings) -> None:
    """The error names the topic and says what to do."""
    with pytest.raises(LookError, match=r"no topic .*evidence\.aep\.v1.*braid up"):
        verify()
