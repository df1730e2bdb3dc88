"""Where a replay in files writes, and what it is asked: directories, formats, manifests, bounds, and being stopped."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import psutil
import pytest

from agents.redaction.redaction import RULES_VERSION
from streams.cluster.connections import partition_of
from streams.jobs.errors import ReplayError
from streams.jobs.replay.output import Output
from streams.jobs.replay.partition_job import Job
from streams.log.container import partitions_of, read_partition
from streams.log.file_writer import LogWriter, file_of
from streams.log.topics import (
    CLOSURES,
    DPO,
    FACTS,
    LIFECYCLE,
    SFT,
)
from tests.conftest import Braid
from tests.processes import Forked
from tests.sealed import sealed
from tests.streams.jobs.replay.replays import replay


@pytest.fixture(scope="module")
def log(parted: Path) -> Path:
    """The sample in four partitions."""
    return parted


def test_a_replay_that_was_killed_leaves_no_half_file_and_is_resumed(log: Path, braid: Braid, tmp_path: Path) -> None:
    expected = replay(braid, log, "--out", tmp_path / "whole", "--processes", 1)
    out = tmp_path / "killed"
    words = ("replay", "--from-dir", log, "--out", out, "--processes", 1, "--resume", "--json")
    killed = 0
    for _ in range(40):
        process = Forked(words, os.environ, tmp_path / "said")
        deadline = time.monotonic() + 60
        while (
            process.poll() is None and not list(out.glob(f".replay/{killed % 4}.json")) and time.monotonic() < deadline
        ):
            time.sleep(0.005)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            killed += 1
        code = process.wait()
        for path in out.glob("log/*/*.avro"):
            assert list(read_partition(out / "log", path.parent.name, int(path.stem))) is not None
        if code == 0 or killed >= 3:
            break
    with LogWriter(tmp_path / "more") as writer:  # meanwhile the log grows; what was set out for stays the same
        more = writer.append(LIFECYCLE.name, 0, b"new", b"not read", 1, offset=10**6)
    grown = file_of(log / "log", LIFECYCLE.name, 0, more.offset)
    file_of(tmp_path / "more", LIFECYCLE.name, 0).replace(grown)
    try:
        found = replay(braid, sealed(log), "--out", out, "--processes", 1, "--resume")
    finally:
        grown.unlink()
        sealed(log)
    assert found["undecodable"] == 0
    assert found["digests"] == expected["digests"]
    assert killed
    assert found["resumed"] > 0
    assert not list(out.glob("log/*/*.part"))
    assert not (out / ".replay").exists()


def test_what_is_no_replay_is_never_cleared(log: Path, braid: Braid, tmp_path: Path) -> None:
    """Neither an archive, nor a bare log, nor foreign files; an earlier replay is replaced."""
    bare, files = tmp_path / "bare", tmp_path / "files"
    shutil.copytree(log, bare)
    files.mkdir()
    (files / "thesis.txt").write_text("mine")
    archive = tmp_path / "archive"
    shutil.copytree(log, archive)
    (archive / "log-manifest.json").write_text('{"kind":"archive","files":{},"schemas":{}}')
    for place in (bare, files, archive):
        before = sorted(place.rglob("*"))
        code, _, said = braid("replay", "--from-dir", log, "--out", place, "--processes", 1)
        assert (code, sorted(place.rglob("*"))) == (1, before)
        assert "holds no replay" in said
    for _ in range(2):
        replay(braid, log, "--out", tmp_path / "again")


def test_formats_are_exported_from_what_was_replayed(log: Path, braid: Braid, tmp_path: Path) -> None:
    found = replay(braid, log, "--out", tmp_path / "out", "--format", "trl-dpo")
    rows = (tmp_path / "out" / "trl-dpo" / "train-00000.jsonl").read_text().splitlines()
    assert len(rows) == found["dpo"] == found["records"][DPO.name]
    code, _, said = braid("verify", tmp_path / "out")
    assert code == 0, said


def _tree(folder: Path) -> dict[str, bytes]:
    """Every file under a directory, with its bytes."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_what_is_read_is_never_replaced(log: Path, braid: Braid, tmp_path: Path) -> None:
    """A replay onto the log that it reads is refused before anything is touched, links and parents or not."""
    shutil.copytree(log, tmp_path / "X")
    replay(braid, log, "--out", tmp_path / "replay")
    shutil.copy(tmp_path / "replay" / "log-manifest.json", tmp_path / "X")  # what a replay made may be replaced
    (tmp_path / "link").symlink_to(tmp_path / "X")
    linked = tmp_path / "linked" / "log"
    linked.mkdir(parents=True)
    for topic in (tmp_path / "X" / "log").iterdir():
        (linked / topic.name).symlink_to(topic)
    before = _tree(tmp_path / "X")
    for source, out in (
        ("X", "X"), ("X", "link"), ("link", "X"), ("X/log", "X"), ("X", "X/log"), ("X", "X/log/deeper"), ("linked", "X"),
    ):  # fmt: skip
        code, _, said = braid("replay", "--from-dir", tmp_path / source, "--out", tmp_path / out, "--processes", 1)
        assert (code, _tree(tmp_path / "X")) == (1, before), (source, out)
        assert "share files" in said
    replay(braid, sealed(tmp_path / "X"), "--out", tmp_path / "X" / "again")  # beside its log: nothing is read there


def test_a_finished_replay_is_not_resumed(log: Path, braid: Braid, tmp_path: Path) -> None:
    """With the same options that is said and nothing is done; with others it is refused."""
    out, what_if = tmp_path / "out", ("--set", "pairs.max_per_rollout=1")
    first = replay(braid, log, "--out", out, *what_if, "--format", "trl-dpo")
    before = _tree(out)
    code, again, said = braid(
        "replay", "--from-dir", log, "--out", out, *what_if, "--format", "trl-dpo", "--resume", "--json"
    )
    assert (code, _tree(out)) == (0, before)
    assert "finished replay with these options; nothing was done" in said
    assert again["finished"]
    for name in ("digests", "records", "rollouts", "dpo", "facts", "partitions"):
        assert again[name] == first[name]
    for others, named in (
        (("--format", "trl-dpo"), "set pairs.max_per_rollout=1, not nothing"),
        (what_if, "format trl-dpo, not nothing"),
        ((*what_if, "--format", "trl-dpo", "--no-sign"), "sign True, not False"),
        ((*what_if, "--format", "trl-dpo", "--to", "2200-01-01"), "--to nothing, not 2200-01-01"),
        ((*what_if, "--format", "trl-dpo", "--verify"), None),
    ):
        code, _, said = braid("replay", "--from-dir", log, "--out", out, "--resume", *others)
        assert (code, _tree(out)) == (1, before)
        assert named is None or named in said


@pytest.mark.parametrize("other", [{"code": "0.0.1"}, {"redaction": "1"}])
def test_what_another_version_began_is_not_completed_by_this_one(tmp_path: Path, other: dict[str, str]) -> None:
    """Partitions of two versions side by side would be a log that neither of them makes."""
    job = Job(spans={}, out=tmp_path / "out")
    with suppress(KeyboardInterrupt), Output(job.model_copy(update=other), resume=False):
        raise KeyboardInterrupt
    with pytest.raises(ReplayError, match=rf"made by .*{other.get('code', 'rules 1')}.*leave --resume out"):
        Output(job, resume=True).__enter__()
    with Output(job, resume=False) as output:
        assert output.finished is None


def test_what_was_exported_from_an_earlier_replay_goes_with_it(log: Path, braid: Braid, tmp_path: Path) -> None:
    """A dataset never stands beside a log that it was not made of; one that the replay did not make is not removed."""
    out = tmp_path / "out"
    many = replay(braid, log, "--out", out, "--format", "trl-dpo", "--format", "trl-sft")
    few = replay(braid, log, "--out", out, "--format", "trl-dpo", "--set", "pairs.max_per_rollout=1")
    assert few["dpo"] < many["dpo"]
    assert len((out / "trl-dpo" / "train-00000.jsonl").read_text().splitlines()) == few["dpo"]
    assert not (out / "trl-sft").exists()
    code, _, said = braid("export", "--from-dir", out, "--out", out / "trl-kto", "--format", "trl-kto")
    assert code == 0, said
    before = _tree(out)
    code, _, said = braid("replay", "--from-dir", log, "--out", out, "--processes", 1)
    assert (code, _tree(out)) == (1, before)
    assert "trl-kto was not made by the replay" in said


def test_one_replay_at_a_time_writes_to_a_directory(log: Path, braid: Braid, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with (out / ".replay.lock").open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        code, _, said = braid("replay", "--from-dir", log, "--out", out, "--processes", 1)
    assert (code, sorted(path.name for path in out.iterdir())) == (1, [".replay.lock"])
    assert "another replay writes to it" in said
    replay(braid, log, "--out", out)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--format", "trl-dop"), "there is no format 'trl-dop'; there are trl-sft, trl-dpo"),
        (("--format", "trl-dpo", "--no-evidence"), "leave --no-evidence out"),
        (("--format", "dsse", "--no-sign"), "leave --no-sign out"),
        (("--processes", 0), "--processes 0: give at least 1"),
    ],
)
def test_options_that_cannot_be_are_refused_before_anything_is_written(
    log: Path, braid: Braid, tmp_path: Path, given: tuple[object, ...], said: str
) -> None:
    code, _, error = braid("replay", "--from-dir", log, "--out", tmp_path / "out", *given)
    assert (code, (tmp_path / "out").exists()) == (1, False)
    assert said in error


def test_a_key_that_cannot_be_read_is_said_before_anything_is_written(
    log: Path, braid: Braid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRAID_SIGNING_KEY", str(tmp_path / "no.key"))
    code, _, said = braid("replay", "--from-dir", log, "--out", tmp_path / "out", "--processes", 2)
    assert (code, (tmp_path / "out").exists()) == (1, False)
    assert "no.key" in said
    replay(braid, log, "--out", tmp_path / "out", "--no-sign")


def test_other_options_that_cannot_be_are_refused(log: Path, braid: Braid, tmp_path: Path) -> None:
    for given, said in (
        (("--to-prefix", "a b"), "letters, digits, dots"),
        (("--to-prefix", ""), "where the facts are"),
        (("--dry-run", "--resume"), "--resume needs --out"),
    ):
        code, _, error = braid("replay", "--from-dir", log, *given)
        assert code == 1
        assert said in error


def test_signed_evidence_is_exported_with_envelopes(log: Path, braid: Braid, tmp_path: Path) -> None:
    found = replay(braid, log, "--out", tmp_path / "out", "--format", "dsse")
    rows = (tmp_path / "out" / "dsse" / "train-00000.jsonl").read_text().splitlines()
    assert len(rows) == found["aep"] > 0


def test_a_replay_is_repeated_by_its_manifest(log: Path, braid: Braid, tmp_path: Path) -> None:
    """A manifest under any name: the same digests, or an error; under other rules, which ones."""
    replay(braid, log, "--out", tmp_path / "first")
    named = tmp_path / "monday.json"
    shutil.copy(tmp_path / "first" / "log-manifest.json", named)
    code, found, said = braid(
        "replay", "--from-dir", log, "--dry-run", "--manifest", named, "--no-sign", "--json", "--processes", 1
    )
    assert (code, found["repeat"]) == (0, {"same": True, "sinks": [], "rules": []})
    assert f"the same digests as in {named}" in said
    other = replay(braid, log, "--dry-run", "--manifest", named, "--set", "pairs.max_per_rollout=1")["repeat"]
    assert not other["same"]
    assert DPO.name in other["sinks"]
    assert other["rules"] == ["set nothing, not pairs.max_per_rollout=1"]
    plain = json.loads(named.read_text())
    plain["digests"][SFT.name] = "0" * 64
    named.write_text(json.dumps(plain))
    code, found, said = braid("replay", "--from-dir", log, "--dry-run", "--manifest", named, "--json", "--processes", 1)
    assert (code, found["repeat"]["sinks"]) == (1, [SFT.name])
    assert f"the rules are the same, the records of {SFT.name} are not those of {named}" in said
    plain["rules"]["redaction"] = "1"
    named.write_text(json.dumps(plain))
    code, found, said = braid("replay", "--from-dir", log, "--dry-run", "--manifest", named, "--json", "--processes", 1)
    assert (code, found["repeat"]["rules"]) == (0, [f"redaction 1, not {RULES_VERSION}"])


def test_the_policy_that_closed_again_is_a_rule(
    log: Path, braid: Braid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it was set, the manifest holds it, and `braid diff` names it."""
    replay(braid, log, "--out", tmp_path / "a", "--reclose")
    monkeypatch.setenv("BRAID_CLOSING__IDLE_MS", "5000")
    replay(braid, log, "--out", tmp_path / "b", "--reclose")
    _, found, _ = braid("diff", tmp_path / "a", tmp_path / "b", "--json")
    [rule] = found["rules"]
    assert rule.startswith("closing: deadline_ms=")
    assert rule.count("idle_ms=5000") == 1
    rules = json.loads((tmp_path / "b" / "log-manifest.json").read_text())["rules"]
    assert rules["code"] == version("braidstream")
    assert any(schema.startswith("AgentEvents ") for schema in rules["schemas"])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[]", "no manifest of a replay"),
        ('{"kind":"replay","inputs":[]}', "inputs"),
        ('{"kind":["replay"]}', "no manifest of a replay"),
        ('{"kind":"archive","inputs":{"topics":{"a":{"x":[0,1]}}},"files":{},"schemas":{}}', "inputs.topics.a.x"),
        ('{"kind":"archive","inputs":{"topics":{}},"files":{},"schemas":{}}', "names no fact topics"),
        ("{", "not JSON"),
        (None, "No such file"),
    ],
)
def test_what_is_no_manifest_is_said_to_be_none(
    log: Path, braid: Braid, tmp_path: Path, content: str | None, said: str
) -> None:
    path = tmp_path / "manifest.json"
    if content is not None:
        path.write_text(content)
    code, _, error = braid("replay", "--from-dir", log, "--dry-run", "--manifest", path)
    assert code == 1
    assert said in error


@pytest.fixture(scope="module")
def long_log(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample many times over, under other ids: a replay of it takes some seconds."""
    target = tmp_path_factory.mktemp("long")
    with LogWriter(target / "log") as writer:
        for topic in FACTS:
            records = [
                record
                for partition in partitions_of(log / "log", topic.name)
                for record in read_partition(log / "log", topic.name, partition)
            ]
            for copy in range(300):
                for record in records:
                    old = record.key or b""
                    name = b"%04d" % copy + old[4:]
                    value = (record.value or b"").replace(old, name)
                    writer.append(topic.name, partition_of(name.decode(), 4), name, value, record.at, record.headers)
    return sealed(target)


def _at_work(log: Path, out: Path, processes: int) -> "subprocess.Popen[str]":
    """A replay that has begun to write."""
    command = [sys.executable, "-m", "streams.cli", "replay", "--from-dir", str(log), "--out", str(out)]
    process = subprocess.Popen(
        [*command, "--processes", str(processes)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while len(list(out.glob("log/*/*.part"))) < processes and time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    return process


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_replay_that_is_stopped_ends_at_once_and_leaves_no_half_file(
    long_log: Path, tmp_path: Path, processes: int, number: int, code: int
) -> None:
    out = tmp_path / "out"
    process = _at_work(long_log, out, processes)
    children = psutil.Process(process.pid).children()
    process.send_signal(number)
    _, said = process.communicate(timeout=30)
    assert said == ""
    assert process.returncode in (
        code,
        -number,
    )  # Python itself ends by the signal where it met `exec`; shells see the code
    assert not [child for child in children if child.is_running()]
    assert list(out.rglob("*.part")) == []
    assert (out / ".replay" / "job.json").is_file()


def test_processes_end_quietly_when_their_parent_is_killed(long_log: Path, tmp_path: Path) -> None:
    """In the middle of a partition, and what they left half goes with them."""
    out = tmp_path / "out"
    process = _at_work(long_log, out, 2)
    children = psutil.Process(process.pid).children()
    assert len(children) == 2
    process.kill()
    _, alive = psutil.wait_procs(children, timeout=30)
    assert alive == []
    assert process.communicate(timeout=30)[1] == ""
    assert list(out.rglob("*.part")) == []


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        (("--from", "²"), "neither a time"),
        (("--to", "99999999999999999999"), "neither a time"),
        (("--from", f"{CLOSURES.name}/²@1"), "write TOPIC/PARTITION@OFFSET"),
        (("--from", "2026-02-01", "--to", "2026-01-01"), "--from 2026-02-01 is later than --to 2026-01-01"),
        (("--from", f"{CLOSURES.name}/0@3", "--to", f"{CLOSURES.name}/0@2"), "--from is offset 3, --to is offset 2"),
        (("--from", "2200-01-01", "--to", f"{CLOSURES.name}/0@1"), "nothing lies between them"),
        (("--to", f"{CLOSURES.name}/7@2"), f"{CLOSURES.name} has 0, 1, 2, 3"),
        (("--from", f"{SFT.name}/0@2"), "no such partition of a fact topic"),
    ],
)
def test_bounds_that_cannot_be_are_refused(log: Path, braid: Braid, bounds: tuple[str, ...], said: str) -> None:
    code, _, error = braid("replay", "--from-dir", log, "--dry-run", "--processes", 1, *bounds)
    assert code == 1
    assert said in error


def test_a_file_where_a_directory_is_needed_is_said(log: Path, braid: Braid, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("mine")
    code, _, said = braid("replay", "--from-dir", log, "--out", path)
    assert (code, said) == (1, f"braid: --out {path} is a file; give a directory\n")
    code, _, said = braid("archive", "--out", path)
    assert (code, said) == (1, f"braid: --out {path} is a file; give a directory\n")
    code, _, said = braid("replay", "--from-dir", log, "--out", path / "deeper")
    assert code == 1
    assert "Not a directory" in said
    assert path.read_text() == "mine"


def test_an_archive_with_an_odd_manifest_is_said_to_have_one(log: Path, braid: Braid, tmp_path: Path) -> None:
    odd = tmp_path / "odd"
    shutil.copytree(log, odd)
    for content in (
        '{"kind":"archive"}',
        '{"kind":"archive","inputs":{"topics":{}},"schemas":[],"files":{}}',
        '{"kind":"archive","inputs":{"topics":{}},"schemas":{"x":{}},"files":{}}',
        '{"kind":"archive","inputs":{"topics":{}},"schemas":{},"files":{"a":"b"}}',
        '{"kind":"archive","inputs":{"topics":{"other":{}}},"schemas":{},"files":{}}',
    ):
        (odd / "log-manifest.json").write_text(content)
        for words in (
            ("archive", "check", odd),
            ("archive", "restore", odd, "--to-prefix", "x."),
            ("replay", "--dry-run", "--from-dir", odd),
        ):
            code, _, said = braid(*words)
            assert code == 1
            assert said.startswith(f"braid: {odd / 'log-manifest.json'}: ")
    code, _, said = braid("archive", "restore", odd, "--to-prefix", "a b")
    assert code == 1
    assert "letters, digits, dots" in said
