"""An archive without its manifest is no archive: every command that reads a log refuses one that was cut off or has lost files."""

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from streams.cluster.config import Settings
from streams.jobs.run.run import _clear
from streams.log.topics import CLOSURES, EVIDENCE
from tests.conftest import Braid
from tests.streams.jobs.replay.test_archived import _archived

ROLLOUT = "csv-parser"


@pytest.fixture(scope="module")
def whole(ran: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of everything."""
    return _archived(ran, tmp_path_factory.mktemp("archive") / "whole", everything=True)


def reading(log: Path, whole: Path, to: Path) -> dict[str, tuple[object, ...]]:
    """By name, every command that reads a log in files."""
    return {
        "replay": ("replay", "--from-dir", log, "--dry-run", "--processes", 1),
        "diff": ("diff", log, whole),
        "diff, second": ("diff", whole, log),
        "export": ("export", "--from-dir", log, "--format", "trl-sft", "--out", to / "exported"),
        "restore": ("archive", "restore", log, "--to-prefix", "beside."),
        "check": ("archive", "check", log),
        "verify": ("verify", log, "--allow-unsigned"),
        "show": ("show", ROLLOUT, "--from-dir", log),
        "memory": ("memory", "add", "--from-dir", log),
        "judge stats": ("judge", "stats", "--from-dir", log),
        "judge again": ("judge", "again", "--from-dir", log, "--out", to / "judged"),
    }


def remove_the_manifest(log: Path) -> None:
    (log / "log-manifest.json").unlink()


def leave_what_a_kill_leaves(log: Path) -> None:
    """Some partitions are there, one is half, and the manifest was never written."""
    remove_the_manifest(log)
    shutil.rmtree(log / "log" / EVIDENCE.name)
    path = next((log / "log" / CLOSURES.name).glob("*.avro"))
    path.rename(path.with_suffix(".part"))


def cut(where: float) -> Callable[[Path], None]:
    def change(log: Path) -> None:
        for path in (log / "log" / CLOSURES.name).glob("*.avro"):
            path.write_bytes(path.read_bytes()[: int(path.stat().st_size * where)])

    return change


def remove_a_file(log: Path) -> None:
    next((log / "log" / EVIDENCE.name).glob("*.avro")).unlink()


def half_a_manifest(log: Path) -> None:
    path = log / "log-manifest.json"
    path.write_bytes(path.read_bytes()[:-200])


def add_a_file(log: Path) -> None:
    path = next((log / "log" / EVIDENCE.name).glob("*.avro"))
    shutil.copy(path, path.with_name("00077.avro"))


CUTS = {
    "with a file of another log": add_a_file,
    "without a manifest": remove_the_manifest,
    "killed": leave_what_a_kill_leaves,
    "cut to nothing": cut(0),
    "cut in the first half": cut(0.3),
    "cut before the end": cut(0.99),
    "without a file": remove_a_file,
    "half a manifest": half_a_manifest,
}


@pytest.mark.parametrize("change", CUTS.values(), ids=CUTS)
def test_an_archive_that_is_not_whole_is_refused_by_all_that_read_it(
    whole: Path, braid: Braid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None]
) -> None:
    """With an error that names the directory and says what to do; nothing is written, and no broker is asked."""
    monkeypatch.setenv("BRAID_KAFKA", "127.0.0.1:1")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    log = shutil.copytree(whole, tmp_path / "log")
    change(log)
    for name, words in reading(log, whole, tmp_path).items():
        code, said, complaint = braid(*words)
        assert code == 1, name
        if name not in ("verify", "check"):
            assert (said, str(log) in complaint) == ("", True), (name, said, complaint)
            assert "Traceback" not in complaint
    assert not list(tmp_path.rglob("exported/*.jsonl"))
    assert not list(tmp_path.rglob("judged/*.jsonl"))


@pytest.mark.parametrize("inside", [False, True], ids=["directory", "log folder"])
def test_an_archive_without_its_manifest_says_what_to_do(
    whole: Path, braid: Braid, tmp_path: Path, inside: bool
) -> None:  # fmt: skip
    log = shutil.copytree(whole, tmp_path / "log")
    remove_the_manifest(log)
    words = ("replay", "--from-dir", log / "log" if inside else log, "--dry-run", "--processes", 1)
    code, _, said = braid(*words)
    assert code == 1
    assert f"log-manifest.json, which is written last, is not in {log}; take a whole copy, or make it again" in said
    assert f"`braid archive --out {log}`" in said
    assert braid(*words, "--unfinished")[0] == 0


def test_a_run_that_was_cut_off_does_not_pass_for_the_one_before(ran: Path, braid: Braid, tmp_path: Path) -> None:
    """Its directory held the results of a finished run: nothing of them is left to be read."""
    out = shutil.copytree(ran, tmp_path / "out")
    _clear(out)
    words = ("replay", "--from-dir", out, "--dry-run", "--processes", 1)
    assert braid(*words)[0] == 1
    shutil.copytree(ran / "log", out / "log")  # as far as the second run came
    assert braid(*words)[0] == 1


def test_a_finished_run_of_before_manifests_is_read(ran: Path, braid: Braid, tmp_path: Path) -> None:
    """All its files are there. One that was killed has left others, and is refused."""
    older = shutil.copytree(ran, tmp_path / "older")
    remove_the_manifest(older)
    words = ("replay", "--from-dir", older, "--dry-run", "--verify", "--processes", 1)
    assert braid(*words)[0] == 1  # its lock says that it had a manifest
    (older / ".run.lock").unlink()
    assert braid(*words)[0] == 0
    for left in ("sft.jsonl.part", "braid-run-x1", f"log/{CLOSURES.name}/00001.part"):
        (older / left).touch()
        assert braid(*words)[0] == 1
        (older / left).unlink()
    (older / "sft.jsonl").unlink()
    assert braid(*words)[0] == 1


def test_a_run_that_is_killed_leaves_no_manifest_and_is_run_again(ran: Path, braid: Braid, tmp_path: Path) -> None:
    """Over the results of an earlier one, which then are not taken for the new ones."""
    out = shutil.copytree(ran, tmp_path / "out")
    lines = (ran.parent / "sample.ndjson").read_bytes()
    (tmp_path / "long.ndjson").write_bytes(lines * 20)
    command = [sys.executable, "-m", "streams.cli", "run", str(tmp_path / "long.ndjson"), "--out", str(out)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not list(out.glob("braid-run-*")) and time.monotonic() < deadline:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (out / "log-manifest.json").exists()
    assert braid("replay", "--from-dir", out, "--dry-run", "--processes", 1)[0] == 1
    assert braid("verify", out)[0] == 1
    assert braid("run", ran.parent / "sample.ndjson", "--out", out, "--json")[0] == 0
    assert braid("verify", out)[0] == 0
    assert json.loads((out / "log-manifest.json").read_bytes())["files"].keys() == (
        json.loads((ran / "log-manifest.json").read_bytes())["files"].keys()
    )


KILLS = 50


@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.timeout(1800)
def test_fifty_archives_that_were_killed_are_refused_by_all_that_read_them(
    settings: Settings, ran: Path, whole: Path, braid: Braid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kill -9 at times spread over the whole archiving; those that had ended by then are whole."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    for name in ("kafka", "registry", "prefix", "partitions"):
        monkeypatch.setenv(f"BRAID_{name.upper()}", str(getattr(settings, name)))
    assert braid("up")[0] == 0
    assert braid("ingest", ran.parent / "sample.ndjson", "--keep-going")[0] == 0
    command = [sys.executable, "-m", "streams.cli", "archive", "--all", "--out"]
    began = time.monotonic()
    subprocess.run([*command, str(tmp_path / "timed")], check=True, stdout=subprocess.DEVNULL)
    seconds, counts = time.monotonic() - began, dict.fromkeys(("refused", "ended before", "READ"), 0)
    for number in range(3 * KILLS):
        out = tmp_path / f"killed-{number}"
        process = subprocess.Popen([*command, str(out)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not (out / "log").is_dir() and process.poll() is None:
            time.sleep(0.0005)
        time.sleep(seconds * 0.2 * (number % KILLS) / KILLS)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if (out / "log-manifest.json").is_file():
            assert braid("archive", "check", out)[0] == 0
            counts["ended before"] += 1
        else:
            counts["refused" if _refused(braid, out, whole, tmp_path / str(number)) else "READ"] += 1
        if counts["refused"] + counts["READ"] == KILLS:
            break
    sys.stdout.write(f"\nkilled archives: {counts}\n")
    assert (counts["refused"], counts["READ"]) == (KILLS, 0)


def _refused(braid: Braid, log: Path, whole: Path, to: Path) -> bool:
    """Whether no command reads a log."""
    return {braid(*words)[0] for words in reading(log, whole, to).values()} == {1}


@pytest.mark.long
@pytest.mark.timeout(600)
def test_fifty_archives_that_were_cut_anywhere_are_refused_by_all_that_read_them(
    whole: Path, braid: Braid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One file each, at any byte, or gone altogether."""
    monkeypatch.setenv("BRAID_KAFKA", "127.0.0.1:1")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    for seed in range(KILLS):
        chance = random.Random(seed)
        log = shutil.copytree(whole, tmp_path / str(seed) / "log")
        path = chance.choice(sorted(log.rglob("*.avro")))
        if chance.random() < 0.2:
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[: chance.randrange(path.stat().st_size)])
        assert _refused(braid, log, whole, tmp_path / str(seed)), (seed, path)
        shutil.rmtree(log)
