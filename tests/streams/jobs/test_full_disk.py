"""A disk that is full: one line that names the path and says what to do, no traceback, and no half files left behind."""

import errno
import json
import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.importers.line_error import LineError
from streams.log.durable_files import open_output, problem_of, write_whole
from streams.log.input_lines import Line, Rejected
from tests.conftest import Braid

FULL = Path("/dev/full")
"""Opens, and takes no byte."""

SAID = "No space left on device; free some space there, or give another directory"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("needs root to mount a small file system; this test was NOT run")
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


def lines_of_two_megabytes(path: Path) -> Path:
    """Rollouts whose rows fit into no small file system, however they are packed."""
    chance = random.Random(1)
    lines: list[dict[str, object]] = []
    for name in (f"r{number}" for number in range(30)):
        lines.append({"type": "rollout", "rollout_id": name, "task": "t", "branches": 2, "required": ["build"]})
        for branch in (0, 1):
            about = {"rollout_id": name, "branch_index": branch}
            answer = {"event": "final_answer", "data": {"answer": chance.randbytes(32_000).hex()}}
            lines.append({"type": "event", **about, "event": answer})
            lines.append(
                {"type": "build", **about, "status": "success" if branch else "failure", "exit_code": 1 - branch}
            )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_full_disk_ends_commands_with_its_path(small: Path, tmp_path: Path, braid: Braid) -> None:
    """`run`, `export` to lines and to Parquet, and `replay`."""
    lines, done = lines_of_two_megabytes(tmp_path / "lines.ndjson"), tmp_path / "done"
    assert braid("run", lines, "--out", done)[0] == 0
    for number, words in enumerate((
        ("run", lines), ("export", "--from-dir", done, "--format", "trl-sft"),
        ("export", "--from-dir", done, "--format", "trl-sft", "--file", "parquet"), ("replay", "--from-dir", done),
    )):  # fmt: skip
        out = small / str(number)
        code, _, complaint = braid(*words, "--out", out)
        said = [line for line in complaint.splitlines() if "space" in line]
        assert (code, len(said)) == (1, 1)
        assert said[0].startswith("braid: ")
        assert f"{out}/" in said[0]
        assert said[0].endswith(SAID)
        assert "Traceback" not in complaint
        assert [path for path in out.rglob("*.part") if path.is_file()] == []
        subprocess.run(["rm", "-rf", out], check=True)


def test_a_directory_that_nothing_can_be_written_to_is_named(small: Path, tmp_path: Path, braid: Braid) -> None:
    """A file system that is mounted read-only."""
    lines = tmp_path / "lines.ndjson"
    lines.write_text('{"type": "rollout", "rollout_id": "r", "task": "t", "branches": 1, "required": []}\n')
    subprocess.run(["mount", "-o", "remount,ro", small], check=True)
    code, _, complaint = braid("run", lines, "--out", small / "out")
    assert code == 1
    assert complaint.startswith(f"braid: --out {small / 'out'}: Read-only file system; give a directory")
    assert complaint.count("\n") == 1


def test_an_output_that_cannot_be_flushed_names_its_path() -> None:
    """Bytes wait in a buffer: the error comes when the file is closed, also of the sidecar of bad lines."""
    with pytest.raises(OSError, match="/dev/full") as late, open_output(FULL) as out:
        out.write(b"x")
    assert problem_of(late.value) == f"/dev/full: {SAID}"
    rejected = Rejected(FULL)
    rejected.add(Line("f", 1, b"{"), LineError("", "no"))
    with pytest.raises(OSError, match="/dev/full"):
        rejected.close()


def test_a_file_that_is_replaced_as_a_whole_is_named(small: Path) -> None:
    """Its old content stays."""
    write_whole(small / "kept", b"old")
    with pytest.raises(OSError, match=r"kept\.part") as error:
        write_whole(small / "kept", os.urandom(2 * 1024 * 1024))
    assert error.value.errno == errno.ENOSPC
    assert {path.name: path.read_bytes() for path in small.iterdir()} == {"kept": b"old"}
