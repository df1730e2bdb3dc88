"""Set-up is quiet: a line for each step, and where a step fails the end of its log with the path."""

import re
import subprocess
from pathlib import Path

STEP = Path(__file__).parents[1] / ".ci" / "step"


def step(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([STEP, *words], cwd=folder, capture_output=True, text=True, check=False)


def test_a_step_that_works_is_one_line_with_its_seconds(tmp_path: Path) -> None:
    done = step(tmp_path, "installing things", "bash", "-c", "seq 500; seq 500 >&2")
    assert re.fullmatch(r"installing things \.\.\. \d+ s \(processor: \d+ s\)\n", done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert len((tmp_path / ".logs" / "installing-things.log").read_text().splitlines()) == 1000


def test_a_step_that_fails_shows_the_end_of_its_log_and_where_it_is(tmp_path: Path) -> None:
    done = step(tmp_path, "Compiling (C)", "bash", "-c", "seq 500; echo no such header >&2; exit 7")
    assert done.returncode == 7
    assert f"the end of {tmp_path}/.logs/compiling-c.log:\n" in done.stderr
    assert done.stderr.splitlines()[-2:] == ["500", "no such header"]
    assert len(done.stderr.splitlines()) == 21
