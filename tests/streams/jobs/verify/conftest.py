"""Fixtures that tests of `braid verify` share: a finished run of two rollouts, copies of it to tamper with, and the
command."""

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest

from agents.evidence.keys import development_key
from streams.cli import app
from streams.jobs.verify.findings import Finding
from streams.jobs.verify.verification import Verification
from streams.log.container import read_partition
from streams.log.file_writer import LogWriter
from streams.log.manifest import LOG_MANIFEST
from streams.log.topics import Topic
from streams.log.wire import Codec
from tests.sample.sample_lines import sample_lines

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
    """The output of `braid run` on two rollouts of the sample."""
    lines = [orjson.dumps(line) for line in sample_lines() if line["rollout_id"] in ROLLOUTS]
    (home / "sample.ndjson").write_bytes(b"\n".join(lines))
    app(["run", str(home / "sample.ndjson"), "--out", str(home / "finished"), "--json"], result_action="return_value")
    return home / "finished"


@pytest.fixture
def out(finished: Path, tmp_path: Path) -> Path:
    """A copy to spoil, without its manifest: rows and evidence alone have to show what was done."""
    return shutil.copytree(finished, tmp_path / "out", ignore=shutil.ignore_patterns(LOG_MANIFEST))


@pytest.fixture
def check(home: Path, capsys: pytest.CaptureFixture[str]) -> Verify:
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


@pytest.fixture
def verify(check: Verify) -> Verify:
    """The same where a manifest need not be there: rows and evidence alone have to show what was done."""
    return partial(check, "--unfinished")


def edit(path: Path, change: Edit) -> None:
    """Change the lines of a file in place."""
    lines = path.read_bytes().splitlines()
    change(lines)
    path.write_bytes(b"".join(line + b"\n" for line in lines))


def records_of(path: Path) -> list[Json]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def rewrite(log: Path, topic: Topic, change: Callable[[list[Any]], object]) -> None:
    """Change the records of a topic of an embedded log, which loses its manifest."""
    (log.parent / LOG_MANIFEST).unlink(missing_ok=True)
    stored = list(read_partition(log, topic.name, 0))
    codec = Codec()
    records = [codec.decode(topic, each.value) for each in stored]
    change(records)
    with LogWriter(log) as writer:
        for record in records:
            writer.append(topic.name, 0, str(getattr(record, "rollout_id", "")).encode(), codec.encode(record), 0)


def key_flag(home: Path) -> str:
    key = development_key(home / "braidstream" / "keys")
    return f"{key.key_id}={key.public.hex()}"


def every_turned_bit_is_found(path: Path, looked_at: Path) -> None:
    """Turn one bit over at many places of a file, and expect the line that has it to be named every time."""
    original = path.read_bytes()
    keys = {development_key().key_id: development_key().public}
    for place in range(0, len(original), len(original) // 60):
        path.write_bytes(original[:place] + bytes([original[place] ^ 1]) + original[place + 1 :])
        found: list[Finding] = []
        verification = Verification(
            keys, allow_unsigned=False, tell=found.append, say=lambda _what, _share: None, unfinished=True
        )
        verification.paths([looked_at])
        line = original[:place].count(b"\n") + 1
        assert not verification.outcome.ok
        assert f"{path}:{line}" in {finding.position for finding in found if not finding.ok}, (place, line)
