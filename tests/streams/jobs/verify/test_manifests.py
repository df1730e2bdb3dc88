"""`braid verify` by the manifest: whatever was done to the files of a directory is found and named, and nothing else is."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from agents.evidence.keys import generate_key
from agents.evidence.signing import sign_record
from schemas.evidence import AepRecord
from streams.log.json_lines import SINK_FILES
from streams.log.topics import BRANCHES, CLOSURES, EVIDENCE, RANKINGS
from tests.conftest import Braid
from tests.streams.jobs.verify.conftest import ROLLOUTS, Ran, Verify, records_of, rewrite

KINDS = ("run", "dataset", "replay")
MANIFESTS = {"run": "log-manifest.json", "dataset": "manifest.json", "replay": "log-manifest.json"}
EVIDENCE_FILE = {"run": SINK_FILES[AepRecord], "dataset": "provenance/evidence-00000.jsonl"}
VANISHED = ROLLOUTS[0]


@pytest.fixture(scope="module")
def made(finished: Path, home: Path, braid: Braid) -> dict[str, Path]:
    """One directory of each kind, of the same two rollouts; the dataset has several files."""
    words = ("export", "--format", "trl-dpo", "--shard-rows", 1, "--from-dir", finished, "--out", home / "dataset")
    assert braid(*words)[0] == 0
    words = ("replay", "--from-dir", finished, "--out", home / "replay", "--format", "trl-sft", "--processes", 1)
    assert braid(*words)[0] == 0
    return {"run": finished, "dataset": home / "dataset", "replay": home / "replay"}


@pytest.fixture
def spoilt(made: dict[str, Path], tmp_path: Path, kind: str) -> Path:
    """A copy of such a directory, to be tampered with."""
    return shutil.copytree(made[kind], tmp_path / kind)


def listed(folder: Path) -> Iterator[Path]:
    """The files of a directory, locks left out."""
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and path.stat().st_size)


def named(ran: Ran, path: Path) -> bool:
    """Whether a fault stands at a file, or at a place in it."""
    return ran.code == 1 and any(place.startswith(str(path)) for place in ran.faults)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def link(path: Path) -> None:
    path.rename(path.with_name("moved"))
    path.symlink_to(path.with_name("moved"))


DONE: dict[str, Callable[[Path], object]] = {
    "one bit": flip,
    "cut": cut,
    "emptied": lambda path: path.write_bytes(b""),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"x"),
    "removed": Path.unlink,
    "a link to the same bytes": link,
}


@pytest.mark.parametrize("kind", KINDS)
def test_an_untouched_directory_is_ok(made: dict[str, Path], check: Verify, kind: str) -> None:
    ran = check(made[kind])
    assert (ran.code, ran.faults) == (0, {})


@pytest.mark.parametrize("done", DONE)
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_is_done_to_a_file_is_found_at_the_file(check: Verify, spoilt: Path, kind: str, done: str) -> None:
    """One of the first files, one of the last, and the manifest itself."""
    files = list(listed(spoilt))
    for path in {files[len(files) // 3], files[-1], spoilt / MANIFESTS[kind]}:
        before = path.read_bytes()
        DONE[done](path)
        assert named(check(spoilt), path), path
        path.unlink(missing_ok=True)
        path.with_name("moved").unlink(missing_ok=True)
        path.write_bytes(before)
    assert check(spoilt).code == 0


ADDED = (
    "notes.txt", ".hidden", "no-extension", "more.jsonl", "more.parquet", "sft.jsonl.part", "log/rollouts.closures.v1/00009.avro",
    "deep/er/file.bin", "odd\nname", "ümlaut \u202e.md", os.fsdecode(b"\xff\xfe"), "manifest.json.bak", ".git/config",
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_not_listed_is_named_whatever_it_is_called(check: Verify, spoilt: Path, kind: str) -> None:
    del kind
    for name in ADDED:
        (spoilt / name).parent.mkdir(parents=True, exist_ok=True)
        (spoilt / name).touch()
    (spoilt / "link").symlink_to("/etc/hostname")
    (spoilt / "loop").symlink_to(spoilt)
    (spoilt / "empty").mkdir()
    os.mkfifo(spoilt / "pipe")
    ran = check(spoilt)
    expected = {str(spoilt / name) for name in (*ADDED, "link", "loop", "empty", "pipe")}
    assert {place.encode("utf-8", "backslashreplace").decode() for place in expected} == set(ran.faults)
    assert all("the manifest does not list it" in why for why in ran.faults.values())


@pytest.mark.parametrize("kind", KINDS)
def test_files_that_change_places_are_both_named(check: Verify, spoilt: Path, kind: str) -> None:
    suffix = ".avro" if kind == "replay" else ".jsonl"
    one, other = [path for path in listed(spoilt) if path.suffix == suffix][:2]
    held = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(held)
    ran = check(spoilt)
    assert named(ran, one)
    assert named(ran, other)


@pytest.mark.parametrize("kind", ["run", "dataset"])
def test_rows_in_another_order_are_found(check: Verify, spoilt: Path, kind: str) -> None:
    del kind
    turned = [path for path in listed(spoilt) if path.suffix == ".jsonl" and path.read_bytes().count(b"\n") > 1]
    for path in turned:
        path.write_bytes(b"".join(reversed(path.read_bytes().splitlines(keepends=True))))
    ran = check(spoilt)
    assert turned
    assert all(named(ran, path) for path in turned)


def without(path: Path, rollout_id: str) -> None:
    """Remove every line about a rollout."""
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line for line in lines if f'"{rollout_id}'.encode() not in line))


@pytest.mark.parametrize("kind", ["run", "dataset"])
def test_a_rollout_that_vanished_from_every_file_is_named(check: Verify, spoilt: Path, kind: str) -> None:
    """Evidence, rows and log: what is left is consistent by itself."""
    for path in listed(spoilt):
        if path.suffix == ".jsonl":
            without(path, VANISHED)
    if kind == "run":
        held = (spoilt / "log-manifest.json").read_bytes()
        for topic in (EVIDENCE, BRANCHES, RANKINGS, *_rows()):
            rewrite(spoilt / "log", topic, lambda found: found.__setitem__(slice(None), [
                record for record in found if record.rollout_id != VANISHED
            ]))  # fmt: skip
        (spoilt / "log-manifest.json").write_bytes(held)
    ran = check(spoilt)
    assert ran.code == 1
    assert (
        f"rollout: '{VANISHED}' is listed here, and its evidence is nowhere"
        in ran.faults[str(spoilt / MANIFESTS[kind])]
    )
    assert named(ran, spoilt / EVIDENCE_FILE[kind])


def _rows() -> list[Any]:
    from streams.jobs.verify.inspection import ROW_TOPICS

    return [topic for topic in ROW_TOPICS if topic not in (BRANCHES, RANKINGS)]


def test_a_rollout_of_another_run_is_named(made: dict[str, Path], check: Verify, tmp_path: Path, braid: Braid) -> None:
    """Its evidence is signed by the same key; the manifest does not list it."""
    lines = (made["run"].parent / "sample.ndjson").read_bytes()
    (tmp_path / "other.ndjson").write_bytes(lines.replace(ROLLOUTS[1].encode(), b"another"))
    assert braid("run", tmp_path / "other.ndjson", "--out", tmp_path / "other", "--json")[0] == 0
    spoilt = shutil.copytree(made["run"], tmp_path / "run")
    for name in SINK_FILES.values():
        more = [
            line for line in (tmp_path / "other" / name).read_bytes().splitlines(keepends=True) if b'"another' in line
        ]
        (spoilt / name).write_bytes((spoilt / name).read_bytes() + b"".join(more))
    assert "rollout: the manifest does not list 'another'" in "; ".join(check(spoilt).faults.values())


def edited(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    manifest = orjson.loads(path.read_bytes())
    change(manifest)
    path.write_bytes(orjson.dumps(manifest))


@pytest.mark.parametrize("member", ["files", "rollouts", "signature"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_edited_or_unsigned_manifest_is_found(check: Verify, spoilt: Path, kind: str, member: str) -> None:
    path = spoilt / MANIFESTS[kind]
    edited(path, lambda manifest: manifest.pop(member))
    said = (
        "manifest: it is not signed" if member == "signature" else "manifest: signature: the signature does not match"
    )
    assert said in check(spoilt).faults[str(path)]
    if member == "signature":
        assert check(spoilt, "--allow-unsigned").code == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_manifest_that_a_foreign_key_signed_is_found(check: Verify, spoilt: Path, kind: str) -> None:
    path, stranger = spoilt / MANIFESTS[kind], generate_key("stranger")
    path.write_bytes(orjson.dumps(sign_record(orjson.loads(path.read_bytes()), stranger)))
    assert "the key 'stranger' is unknown" in check(spoilt).faults[str(path)]


def test_a_run_without_its_manifest_is_not_ok_unless_that_is_accepted(
    made: dict[str, Path], check: Verify, tmp_path: Path
) -> None:
    """An earlier version wrote none; `--unfinished` verifies what there is."""
    spoilt = shutil.copytree(made["run"], tmp_path / "run")
    (spoilt / "log-manifest.json").unlink()
    for path in (spoilt, spoilt / "log"):
        assert list(check(path).faults) == [str(spoilt / "log-manifest.json")]
        assert check(path, "--unfinished").code == 0


def test_a_log_folder_is_verified_by_the_manifest_around_it(
    made: dict[str, Path], check: Verify, tmp_path: Path
) -> None:
    spoilt = shutil.copytree(made["run"], tmp_path / "run")
    assert check(spoilt / "log").code == 0
    (spoilt / "log" / "more").touch()
    path = next((spoilt / "log" / CLOSURES.name).iterdir())
    flip(path)
    (spoilt / "beside").touch()
    assert set(check(spoilt / "log").faults) == {str(spoilt / "log" / "more"), str(path)}


def test_a_dataset_of_a_replay_that_is_gone_is_missed(made: dict[str, Path], check: Verify, tmp_path: Path) -> None:
    spoilt = shutil.copytree(made["replay"], tmp_path / "replay")
    shutil.rmtree(spoilt / "trl-sft")
    assert list(check(spoilt).faults) == [str(spoilt / "trl-sft")]


def test_a_run_into_the_same_directory_is_ok_whatever_was_left_there(
    made: dict[str, Path], check: Verify, tmp_path: Path, braid: Braid
) -> None:
    """Bad lines and none, input beside the results, votes of a judge, what a killed run leaves, a dataset in the same place."""
    out = tmp_path / "out"
    out.mkdir()
    shutil.copy(made["run"].parent / "sample.ndjson", out / "good.ndjson")
    (out / "bad.ndjson").write_bytes((out / "good.ndjson").read_bytes() + b"\n{}\n")
    (out / "braid-run-abc").mkdir()
    (out / "log" / "odd").mkdir(parents=True)
    assert braid("run", out / "bad.ndjson", "--out", out, "--keep-going", "--json")[0] == 0
    assert set(check(out).faults) == {str(out / "good.ndjson")}
    (out / "bad.ndjson").unlink()
    assert braid("run", out / "good.ndjson", "--out", out, "--json")[0] == 0
    assert not (out / "rejected-input.jsonl").exists()
    assert check(out).faults == {}
    for _ in range(2):
        words = ("export", "--format", "trl-dpo", "--from-dir", out, "--out", out, "--from-beginning")
        assert braid(*words)[0] == 0
        assert check(out).faults == {}
    assert braid("export", "--format", "trl-sft", "--from-dir", out, "--out", out / "sft")[0] == 0
    assert check(out).faults == {}
    (out / "sft" / "more").touch()
    assert set(check(out).faults) == {str(out / "sft" / "more")}


def test_a_run_does_not_replace_the_log_of_another_command(made: dict[str, Path], tmp_path: Path, braid: Braid) -> None:
    out = shutil.copytree(made["replay"], tmp_path / "replay")
    before = sorted(path for path in out.rglob("*") if path.name != ".run.lock")
    code, _, said = braid("run", made["run"].parent / "sample.ndjson", "--out", out)
    assert code == 1
    assert "holds the log of braid replay, which would be lost; give another directory" in said
    assert sorted(path for path in out.rglob("*") if path.name != ".run.lock") == before


def test_datasets_of_an_earlier_run_go_with_it_and_exported_ones_are_kept(
    made: dict[str, Path], check: Verify, tmp_path: Path, braid: Braid
) -> None:
    """A dataset says what the log beside it gives: one that was made by hand is not removed, and not left to mislead."""
    sample, out = made["run"].parent / "sample.ndjson", tmp_path / "out"
    assert braid("run", sample, "--out", out, "--format", "trl-dpo")[0] == 0
    assert check(out).faults == {}
    assert braid("run", sample, "--out", out)[0] == 0
    assert not (out / "trl-dpo").exists()
    assert braid("export", "--format", "trl-sft", "--from-dir", out, "--out", out / "trl-sft")[0] == 0
    code, _, said = braid("run", sample, "--out", out)
    assert (code, "was exported from the results that would be replaced; move it away" in said) == (1, True)
    assert check(out).faults == {}


@pytest.mark.parametrize(
    "odd", [{"formats": 5}, {"formats": [1, {"a": 1}, "nowhere"]}, {"schemas": {"1": 5}}], ids=repr
)
def test_a_manifest_with_odd_members_is_found_without_a_traceback(
    made: dict[str, Path], check: Verify, tmp_path: Path, odd: dict[str, Any]
) -> None:
    out = shutil.copytree(made["run"], tmp_path / "run")
    edited(out / "log-manifest.json", lambda manifest: manifest.update(odd))
    assert named(check(out), out / "log-manifest.json")


def test_an_input_that_is_not_there_leaves_an_earlier_run_whole(
    made: dict[str, Path], check: Verify, tmp_path: Path, braid: Braid
) -> None:
    out = shutil.copytree(made["run"], tmp_path / "run")
    assert braid("run", tmp_path / "nowhere.ndjson", "--out", out)[0] == 1
    assert check(out).code == 0


def test_the_manifest_of_a_run_says_what_it_is_made_of(made: dict[str, Path]) -> None:
    manifest = orjson.loads((made["run"] / "log-manifest.json").read_bytes())
    [read] = manifest["inputs"]["files"]
    sample = made["run"].parent / "sample.ndjson"
    assert (read["name"], read["bytes"]) == (str(sample), sample.stat().st_size)
    assert manifest["rollouts"] == sorted(ROLLOUTS)
    assert manifest["counts"]["rollouts"] == len(ROLLOUTS)
    assert sum(manifest["config_digests"].values()) == len(records_of(made["run"] / "rankings.jsonl"))
    there = {path.relative_to(made["run"]).as_posix() for path in made["run"].rglob("*") if path.is_file()}
    assert there == {*manifest["files"], "log-manifest.json", ".run.lock"}
