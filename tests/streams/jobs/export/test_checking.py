"""`braid verify` on exported directories: every row leads to signed evidence, and whatever was changed is found."""

import asyncio
import json
import shutil
from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from agents.evidence.signing import SigningKey, sign_record
from agents.formats import FORMATS
from agents.formats.selection import Split
from agents.formats.shape import Attestor
from streams.cluster.config import Settings
from streams.jobs.export.export import export
from streams.jobs.export.recipe import Recipe
from streams.jobs.run.run import run_files
from streams.jobs.verify.findings import Finding, Outcome
from streams.jobs.verify.verification import Verification
from streams.log.file_reader import FileReader
from streams.log.topics import BRANCHES, EVIDENCE
from tests.agents.formats.rollouts import encoded, mixed
from tests.older import made_older
from tests.sealed import sealed
from tests.streams.jobs.export.test_loading import BOTH

KEY = SigningKey("prod", Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
STRANGER = SigningKey("prod", Ed25519PrivateKey.from_private_bytes(bytes(32)))
KEYS = {KEY.key_id: KEY.public}


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three rollouts with signed evidence."""
    folder = tmp_path_factory.mktemp("signed")
    (folder / "lines.ndjson").write_bytes(encoded([line for each in ("r1", "r2", "r3") for line in mixed(each)]))
    run_files([folder / "lines.ndjson"], folder / "run", Settings(), KEY)
    return folder / "run"


def take(source: Path, out: Path, name: str, kind: str | None = None, key: SigningKey = KEY) -> Path:
    recipe = Recipe.of(FORMATS[name], kind, split=Split.parse("train=0.5,test=0.5"))  # type: ignore[arg-type]
    asyncio.run(export(FileReader(source), out, recipe, attestor=Attestor(key, KEYS)))
    return out


def verified(path: Path, *, allow_unsigned: bool = False) -> tuple[Outcome, list[str]]:
    """The outcome, and every reason that was given."""
    found: list[Finding] = []
    verification = Verification(KEYS, allow_unsigned=allow_unsigned, tell=found.append, say=lambda _what, _share: None)
    verification.paths([path])
    return verification.outcome, [reason for finding in found for reason in finding.reasons]


@pytest.mark.parametrize(("name", "kind"), BOTH)
def test_every_format_is_traced_to_signed_evidence(signed: Path, tmp_path: Path, name: str, kind: str) -> None:
    """All rows of all files, by the directory alone."""
    out = take(signed, tmp_path / "out", name, kind)
    outcome, reasons = verified(out)
    assert (outcome.ok, reasons) == (True, [])
    assert outcome.records == 12
    manifest = json.loads((out / "manifest.json").read_bytes())
    files = Counter({"*/session.jsonl" if name == "sts" else file["name"]: 0 for file in manifest["files"]})
    for file in manifest["files"]:
        files["*/session.jsonl" if name == "sts" else file["name"]] += file["rows"]
    assert outcome.rows == files
    assert sum(outcome.rows.values()) == manifest["counts"]["rows"]
    # All pairs differ in their calls, no branch has tokens, and none is a compliance run.
    assert outcome.rows or name in ("openai-dpo", "tokens-parquet", "compliance-eval")


def data_file(out: Path) -> Path:
    return min(path for path in out.iterdir() if path.suffix in {".jsonl", ".parquet"})


def change_a_byte(out: Path) -> None:
    path = data_file(out)
    content = bytearray(path.read_bytes())
    content[content.index(b"Be brief")] ^= 1
    path.write_bytes(content)


def drop_a_row(out: Path) -> None:
    path = data_file(out)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[1:]))


def add_a_row(out: Path) -> None:
    path = data_file(out)
    path.write_bytes(path.read_bytes() + b'{"messages":[{"role":"assistant","content":"poison"}],"tools":"[]"}\n')


def repeat_a_row(out: Path) -> None:
    path = data_file(out)
    path.write_bytes(path.read_bytes() + path.read_bytes().splitlines(keepends=True)[0])


def swap_the_splits(out: Path) -> None:
    one, other = sorted(path for path in out.iterdir() if path.suffix == ".jsonl")
    held = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(held)


def remove_a_file(out: Path) -> None:
    data_file(out).unlink()


def add_a_file(out: Path) -> None:
    (out / "train-00009.jsonl").write_text("{}\n")


def change_the_card(out: Path) -> None:
    (out / "README.md").write_text((out / "README.md").read_text("utf-8").replace("train-*", "evil-*"), "utf-8")


def drop_an_evidence_record(out: Path) -> None:
    path = out / "provenance" / "evidence-00000.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[1:]))


def drop_the_last_closing(out: Path) -> None:
    path = out / "provenance" / "evidence-00000.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


def remove_the_manifest(out: Path) -> None:
    (out / "manifest.json").unlink()


def unsign_the_manifest(out: Path) -> None:
    manifest = json.loads((out / "manifest.json").read_bytes())
    del manifest["signature"]
    (out / "manifest.json").write_text(json.dumps(manifest))


def remove_the_provenance(out: Path) -> None:
    shutil.rmtree(out / "provenance")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (change_a_byte, "row: changed"),
        (drop_a_row, "row: it is missing"),
        (add_a_row, "row: not of this dataset"),
        (repeat_a_row, "row: not of this dataset"),
        (swap_the_splits, "file: changed"),
        (remove_a_file, "file: it is missing"),
        (add_a_file, "file: the manifest does not list it"),
        (change_the_card, "file: changed"),
        (drop_an_evidence_record, "chain:"),
        (drop_the_last_closing, "no closing record of rollout 'r3' that can be trusted"),
        (remove_the_manifest, "manifest: it is missing"),
        (unsign_the_manifest, "manifest: it is not signed"),
        (remove_the_provenance, "file: it is missing"),
    ],
)
def test_whatever_was_changed_is_found(signed: Path, tmp_path: Path, change: Callable[[Path], None], said: str) -> None:
    """Rows, files, evidence and manifest: each change has its reason."""
    out = take(signed, tmp_path / "out", "trl-sft")
    change(out)
    outcome, reasons = verified(out)
    assert not outcome.ok
    assert any(reason.startswith(said) or said in reason for reason in reasons), reasons


def resigned(out: Path, key: SigningKey) -> None:
    """State the digests of the files as they are now, as a forger with a key would."""
    manifest = json.loads((out / "manifest.json").read_bytes())
    for shard in (*manifest["files"], *manifest["provenance"]):
        shard["sha256"] = sha256((out / shard["name"]).read_bytes()).hexdigest()
    (out / "manifest.json").write_text(json.dumps(sign_record(manifest, key)))


def forge_a_row(out: Path) -> None:
    """A row, its digest and its origin, all made up, and all consistent."""
    path = data_file(out)
    line = b'{"messages":[{"role":"assistant","content":"poison"}],"tools":"[]"}'
    path.write_bytes(path.read_bytes() + line + b"\n")
    place = {"file": path.name, "row": 99, "sha256": sha256(line).hexdigest(), "rollout_id": "r1"}
    with (out / "provenance" / "rows-00000.jsonl").open("a") as rows:
        rows.write(json.dumps(place | {"records": [{"topic": "training.sft.v1", "record_id": "f" * 32}]}) + "\n")


def test_a_forged_row_has_no_evidence(signed: Path, tmp_path: Path) -> None:
    """Even with every digest put right and signed again: the signed closing record does not list it."""
    out = take(signed, tmp_path / "out", "trl-sft")
    forge_a_row(out)
    resigned(out, KEY)
    outcome, reasons = verified(out)
    assert not outcome.ok
    assert len(reasons) == 1
    assert "does not list 'training.sft.v1/ffff" in reasons[0]


def recited(out: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Let every row name other records, and sign that."""
    path = out / "provenance" / "rows-00000.jsonl"
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    changed = [line | {"records": [change(record) for record in line["records"]]} for line in lines]
    path.write_text("".join(json.dumps(line) + "\n" for line in changed), "utf-8")
    resigned(out, KEY)


@pytest.mark.parametrize("name", ["atif", "rollout-wire", "trl-stepwise"])
def test_a_row_of_a_branch_that_evidence_does_not_list_is_found(signed: Path, tmp_path: Path, name: str) -> None:
    """The same run and the same events are not enough: the closing record lists which record of the branch is the one."""
    out = take(signed, tmp_path / "out", name)
    recited(out, lambda each: each | {"record_id": "f" * 32} if each["topic"] == BRANCHES.name else each)
    outcome, reasons = verified(out)
    assert not outcome.ok
    assert reasons
    assert all("does not list 'rollouts.branches.v1/ffff" in reason for reason in reasons)


def test_a_row_does_not_pass_for_a_run(signed: Path, tmp_path: Path) -> None:
    """A listed file has to be there: that there is a run with such events says nothing about a row."""
    out = take(signed, tmp_path / "out", "trl-sft")
    evidence = (out / "provenance" / "evidence-00000.jsonl").read_text("utf-8").splitlines()
    runs = {run["run_id"]: run.get("raw_digest") for run in map(json.loads, evidence)}
    recited(out, lambda each: each | {"record_id": "f" * 32, "run_id": "r1/b0/a0", "raw_digest": runs["r1/b0/a0"]})
    outcome, reasons = verified(out)
    assert not outcome.ok
    assert len(reasons) == 3
    assert all("does not list 'training.sft.v1/ffff" in reason for reason in reasons)


@pytest.mark.parametrize("name", ["atif", "rollout-wire", "trl-stepwise"])
def test_a_dataset_of_before_branches_were_listed_is_ok_with_a_note(signed: Path, tmp_path: Path, name: str) -> None:
    """Its rows lead to evidence of the same events, as they did; no signature covers the text."""
    older = made_older(shutil.copytree(signed, tmp_path / "run"), KEY)
    outcome, reasons = verified(take(older, tmp_path / "out", name))
    assert (outcome.ok, reasons, len(outcome.uncovered)) == (True, [], 3)
    assert outcome.warnings == [
        "the evidence of 3 rollouts was made before it listed branch records: no signature covers those"
    ]
    other = take(older, tmp_path / "sft", "trl-sft")
    assert (verified(other)[0].ok, verified(other)[0].warnings) == (True, [])
    recited(tmp_path / "out", lambda each: each | {"raw_digest": "0" * 64} if each["topic"] == BRANCHES.name else each)
    assert not verified(tmp_path / "out")[0].ok


def test_a_foreign_key_on_the_manifest_is_found(signed: Path, tmp_path: Path) -> None:
    """A consistent directory, signed with a key that is not trusted."""
    out = take(signed, tmp_path / "out", "trl-sft", key=STRANGER)
    outcome, reasons = verified(out)
    assert not outcome.ok
    assert reasons == ["manifest: signature: the signature does not match the content"]


def test_a_changed_value_in_parquet_is_found_at_its_row(signed: Path, tmp_path: Path) -> None:
    """The file is written anew with another label: its digest, and the row's, say so."""
    out = take(signed, tmp_path / "out", "trl-kto", "parquet")
    path = data_file(out)
    table = pq.read_table(path)
    rows = table.to_pylist()
    rows[1]["label"] = not rows[1]["label"]
    pq.write_table(type(table).from_pylist(rows, schema=table.schema), path)
    found: list[Finding] = []
    Verification(KEYS, allow_unsigned=False, tell=found.append, say=lambda _what, _share: None).paths([out])
    faults = [(finding.position, finding.reasons[0]) for finding in found if not finding.ok]
    assert [fault.partition(":")[0] for _, fault in faults] == ["file", "row"]
    assert faults[1][0] == f"{path}[1]"


def test_a_damaged_parquet_file_is_a_finding(signed: Path, tmp_path: Path) -> None:
    """A file that Arrow cannot read is reported, and the rest is verified."""
    out = take(signed, tmp_path / "out", "verl-parquet")
    path = data_file(out)
    path.write_bytes(path.read_bytes()[:-20])
    outcome, reasons = verified(out)
    assert not outcome.ok
    assert any(reason.startswith("file: changed") for reason in reasons)
    assert any(reason.startswith("row:") for reason in reasons)


def test_a_second_export_is_verified_with_the_first(tmp_path: Path) -> None:
    """Files, evidence and provenance of both exports belong to one manifest."""
    lines = tmp_path / "lines.ndjson"
    for names in (("r1",), ("r1", "r2")):
        lines.write_bytes(encoded([line for name in names for line in mixed(name)]))
        run_files([lines], tmp_path / "run", Settings(), KEY)
        out = take(tmp_path / "run", tmp_path / "out", "trl-dpo")
    outcome, reasons = verified(out)
    assert (outcome.ok, reasons, outcome.records) == (True, [], 8)
    assert len(list((out / "provenance").iterdir())) == 4


def test_a_dataset_is_checked_with_the_files_of_a_run_beside_it(signed: Path, tmp_path: Path) -> None:
    """Both are ok where both are whole; a file of a run hides nothing that was done to the dataset."""
    out = take(signed, shutil.copytree(signed, tmp_path / "both"), "trl-kto")
    assert verified(out)[1] == []
    data = next(out.glob("t*-00000.jsonl"))
    data.write_bytes(data.read_bytes().replace(b"true", b"false"))
    assert "file: changed: its digest is not the one in the manifest" in verified(out)[1]
    alone = take(signed, tmp_path / "alone", "trl-kto")
    shutil.copy(signed / "rankings.jsonl", alone)
    next(alone.glob("t*-00000.jsonl")).unlink()
    assert {"file: it is missing", "the file is missing"} <= set(verified(alone)[1])


@pytest.mark.parametrize(
    "line",
    [
        *({member: []} for member in ("file", "sha256", "row", "rollout_id")),
        {"row": 1e300}, {"row": -1}, {"row": True}, {"records": {}}, {"records": [None]}, {"records": [{"run_id": []}]},
        {"records": [{"topic": EVIDENCE.name, "record_id": "i", "run_id": []}]},
    ],
)  # fmt: skip
def test_a_line_of_provenance_that_says_nothing_is_a_finding(
    signed: Path, tmp_path: Path, line: dict[str, object]
) -> None:
    """Its file has changed, and the line is named; the rest is checked."""
    out = take(signed, tmp_path / "out", "trl-kto")
    path = out / "provenance" / "rows-00000.jsonl"
    first, *others = path.read_text("utf-8").splitlines(keepends=True)
    changed = json.dumps(json.loads(first) | line).replace("1e+300", "1e400")
    path.write_text(changed + "\n" + "".join(others), "utf-8")
    outcome, reasons = verified(out)
    assert sum(outcome.rows.values()) == 9
    assert "file: changed: its digest is not the one in the manifest" in reasons
    assert "provenance: not a line that says where a row came from" in reasons


def test_a_signed_dataset_of_nothing_is_ok(tmp_path: Path) -> None:
    """An export that found no rollout says so under its signature; without it, nothing says that nothing is missing."""
    (tmp_path / "run" / "log" / EVIDENCE.name).mkdir(parents=True)
    out = take(sealed(tmp_path / "run"), tmp_path / "out", "trl-sft")
    outcome, reasons = verified(out)
    assert (outcome.ok, outcome.records, reasons) == (True, 0, [])
    (out / "train-00000.jsonl").write_text("{}\n")
    assert not verified(out)[0].ok
    (out / "train-00000.jsonl").unlink()
    unsign_the_manifest(out)
    assert not verified(out)[0].ok


def test_unsigned_evidence_is_not_ok_unless_it_is_allowed(ran: Path, tmp_path: Path) -> None:
    """Without a key nothing is proved; with --allow-unsigned digests and lists are checked all the same."""
    out = tmp_path / "out"
    asyncio.run(export(FileReader(ran), out, Recipe.of(FORMATS["trl-sft"], None)))
    assert not verified(out)[0].ok
    assert verified(out, allow_unsigned=True)[0].ok
    drop_a_row(out)
    assert not verified(out, allow_unsigned=True)[0].ok


def test_dsse_goes_around(signed: Path, tmp_path: Path) -> None:
    """Evidence leaves as DSSE; its file, its directory and its bare envelopes verify; without trust nothing is signed."""
    out = take(signed, tmp_path / "out", "dsse")
    lines = [line for path in sorted(out.glob("*.jsonl")) for line in path.read_text("utf-8").splitlines()]
    assert len(lines) == 12
    (tmp_path / "all.jsonl").write_text("\n".join(lines))
    outcome, reasons = verified(tmp_path / "all.jsonl")
    assert (outcome.ok, outcome.records, reasons) == (True, 12, [])
    envelopes = [json.dumps(json.loads(line)["dsse_envelope"]) for line in lines]
    (tmp_path / "bare.jsonl").write_text("\n".join(envelopes))
    assert verified(tmp_path / "bare.jsonl")[0].ok
    (tmp_path / "bare.jsonl").write_text("\n".join(envelopes[1:]))
    assert not verified(tmp_path / "bare.jsonl")[0].ok


def test_dsse_signs_nothing_that_it_does_not_trust(signed: Path, ran: Path, tmp_path: Path) -> None:
    """Evidence without a signature, or by an unknown key, is left out with that reason."""
    recipe = Recipe.of(FORMATS["dsse"], None)
    unsigned = asyncio.run(export(FileReader(ran), tmp_path / "a", recipe, attestor=Attestor(KEY, KEYS)))
    assert (unsigned.rows, unsigned.rejected["unsigned_evidence"]) == (0, 12)
    stranger = asyncio.run(export(FileReader(signed), tmp_path / "b", recipe, attestor=Attestor(KEY, {})))
    assert (stranger.rows, stranger.rejected["untrusted_evidence"]) == (0, 12)
