"""The documentation, run: every command that README shows, and the code that the pages show."""

import json
import os
import re
import socket
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from agents.fork.build_verdict import build_verdict
from agents.fork.local_adapter import LocalSandboxes
from agents.fork.subject import Subject
from agents.fork.task import BraidOptions
from agents.fork.task_adapter import load_task
from agents.workspace.files import File
from streams.cluster.config import Settings
from tests import model_server
from tests.conformance import conformance
from tests.processes import run_braid

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text("utf-8"), re.DOTALL)


async def _greets(_body: dict[str, Any], _number: int) -> model_server.Reply:
    return model_server.reply([model_server.text("Hei!")])


@pytest.mark.kafka
@pytest.mark.timeout(300)
def test_the_tour_of_the_readme_runs_as_it_stands(settings: Settings, tmp_path: Path) -> None:
    """All shell blocks of the README, one after the other in one shell, end without an error and show what they promise."""
    gone = "braid broker stop"  # the broker of this test run serves other tests
    script = "set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n" + "\n".join(
        blocks(ROOT / "README.md", "sh")
    )
    assert gone in script
    with socket.create_server(("127.0.0.1", 0)) as free, socket.create_server(("127.0.0.1", 0)) as other:
        # Another run of this test may have the usual ones of gateway and proxy.
        port, proxy = free.getsockname()[1], other.getsockname()[1]
    script = script.replace("127.0.0.1:8790", f"127.0.0.1:{port}").replace("127.0.0.1:8791", f"127.0.0.1:{proxy}")
    env = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "BRAID_KAFKA": settings.kafka,
        "BRAID_REGISTRY": settings.registry,
        "BRAID_PREFIX": settings.prefix,
        "BRAID_PARTITIONS": str(settings.partitions),
        "BRAID_STATE_DIR": str(settings.state_dir or tmp_path),
        "BRAID_GATEWAY__PORT": str(port),
        "BRAID_PROXY__PORT": str(proxy),
        "BRAID_PROXY__SPOOL": str(tmp_path / "spool"),
        "OPENAI_API_KEY": "none",
    }
    if settings.state_dir is None:
        script = script.replace("braid broker start", ": broker start")
    with model_server.model_server(_greets) as api:
        done = subprocess.run(
            ["bash", "-c", script.replace(gone, ":")],
            cwd=tmp_path,
            env=env | {"MODEL_URL": api.url},
            capture_output=True,
            text=True,
            check=False,
            timeout=280,
        )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert '"accepted"' in done.stdout
    assert re.search(r"^forked  closed$", done.stdout, re.MULTILINE)
    ranked = re.findall(r"^ +(\d+) +\S+ +(\d+) +(pass|fail) ", done.stdout, re.MULTILINE)
    assert ranked[:2] == [("1", "0", "pass"), ("2", "1", "fail")], "the fork of the tour ends in a ranking"
    assert ranked[2:4] == ranked[:2], "the captured rollout of the tour ends in a ranking"
    assert "tour" in done.stdout
    assert "Added button 0" in done.stdout  # the pair that tail shows


def test_the_converter_of_the_lines_page_works(tmp_path: Path) -> None:
    """The few lines of Python turn a real report into lines that go in without a complaint."""
    (code,) = blocks(ROOT / "docs" / "lines.md", "python")
    (tmp_path / "convert.py").write_text(code)
    raw = conformance("agent-events") / "run-B" / "raw.json"
    lines = subprocess.run([sys.executable, tmp_path / "convert.py", raw], capture_output=True, check=True).stdout
    (tmp_path / "lines.ndjson").write_bytes(lines)
    counts = json.loads(run_braid("run", tmp_path / "lines.ndjson", "--out", tmp_path / "out", "--json").stdout)
    assert (counts["rollouts"], counts["branches"], counts["events"], counts["passes"]) == (6, 60, 8518, 6)
    assert (counts["bad_lines"], counts["dead_letters"]) == (0, 0)


def test_the_conversation_of_the_lines_page_goes_in(tmp_path: Path) -> None:
    """The lines of an agent of one's own are read without a complaint, and make a branch that passes."""
    (lines,) = blocks(ROOT / "docs" / "lines.md", "ndjson")
    (tmp_path / "lines.ndjson").write_text(lines)
    counts = json.loads(run_braid("run", tmp_path / "lines.ndjson", "--out", tmp_path / "out", "--json").stdout)
    assert (counts["bad_lines"], counts["dead_letters"], counts["events"], counts["passes"]) == (0, 0, 7, 1)


def test_the_conversation_of_the_lines_page_is_a_row(tmp_path: Path) -> None:
    """The row holds the messages of the last call and its response; the model said two of them."""
    (lines,) = blocks(ROOT / "docs" / "lines.md", "ndjson")
    (tmp_path / "lines.ndjson").write_text(lines)
    run_braid("run", tmp_path / "lines.ndjson", "--out", tmp_path / "out")
    (row,) = [json.loads(line) for line in (tmp_path / "out" / "sft.jsonl").read_text("utf-8").splitlines()]
    assert [(message["role"], message.get("trained")) for message in row["messages"]] == [
        ("system", None), ("user", None), ("assistant", True), ("tool", None), ("assistant", True),
    ]  # fmt: skip


def test_the_commands_of_the_training_page_work(tmp_path: Path) -> None:
    """A log of emission version 1 is made anew, and the difference is explained: a skipped test costs a pass nothing more."""
    counts = {"passed": 1, "failed": 0, "skipped": 1, "total": 2}
    place = {"rollout_id": "r", "branch_index": 0}
    lines = (
        {"type": "rollout", "rollout_id": "r", "task": "t", "branches": 1, "required": ["build"]},
        {"type": "event", **place, "event": {"event": "final_answer", "data": {"answer": "42"}}},
        {"type": "build", **place, "status": "success", "exit_code": 0, "tests": counts},
    )
    (tmp_path / "lines.ndjson").write_text("".join(json.dumps(line) + "\n" for line in lines))
    first = {"BRAID_EMISSION__VERSION": "1"}
    done = run_braid("run", tmp_path / "lines.ndjson", "--out", tmp_path / "archive", env=os.environ | first)
    assert done.returncode == 0, done.stderr
    (script,) = blocks(ROOT / "docs" / "training.md", "sh")
    for line in script.splitlines():
        done = run_braid(*line.split()[1:], cwd=tmp_path)
        assert done.returncode == (1 if "diff" in line else 0), done.stderr  # as diff does where there are differences
    assert re.search(r"ppo +changed: .*reward", done.stdout), done.stdout


def test_the_commands_of_the_compliance_page_work(tmp_path: Path) -> None:
    """Three tasks in three modes: one repaired by a patch, one by the model, one by nothing."""
    for path in (ROOT / "docs" / "examples" / "comply").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (script,) = blocks(ROOT / "docs" / "compliance.md", "sh")
    said = {}
    for line in script.splitlines():
        done = run_braid(*line.split()[1:], cwd=tmp_path)
        assert done.returncode == 0, line + done.stderr
        said[line.split()[2]] = done.stdout + done.stderr
    records = [json.loads(line) for line in (tmp_path / "results" / "compliance.jsonl").read_text("utf-8").splitlines()]
    repaired = {
        (each["task_id"], each["mode"]): (each["status"], each["made_by"], "exhausted" in each["flags"])
        for each in records
    }
    assert repaired["garden-note", "full_pcl"] == ("pass", "edit", False)
    assert repaired["train-plan", "full_pcl"] == ("pass", "model", False)
    assert repaired["never-both", "full_pcl"][::2] == ("fail", True)
    assert "do not show a difference" in said["report"]


def test_the_library_example_of_the_fork_page_works(tmp_path: Path) -> None:
    """The code forks two branches in real sandboxes."""
    (code,) = blocks(ROOT / "docs" / "fork.md", "python")
    (tmp_path / "fork.py").write_text(code)
    done = subprocess.run([sys.executable, tmp_path / "fork.py"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Lifecycle\n")
    assert done.stdout.count("answered snapshot:") == 2


async def test_the_task_of_the_verifiers_page_has_strong_verdicts(tmp_path: Path) -> None:
    """Its test.sh and its tests, as they stand, tell right from wrong."""
    page = ROOT / "docs" / "verifiers.md"
    files = {
        "instruction.md": "Write greet.py.",
        "task.toml": '[metadata.braid]\ntests = "apart"\n',
        "environment/greet.py": "def greet(name):\n    return name\n",
        "tests/test.sh": blocks(page, "sh")[0],
        "tests/test_greet.py": blocks(page, "python")[0],
    }
    for path, text in files.items():
        (tmp_path / "task" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "task" / path).write_text(text)
    task, subject = load_task(tmp_path / "task"), Subject("r", 0, 0, "test", "files")
    right = {"greet.py": File(b"def greet(name):\n    print('hi')\n    return f'Hello, {name}!'\n")}
    sandboxes = await LocalSandboxes.open(tmp_path / "sandboxes")
    verdicts = [await build_verdict(task, each, await sandboxes.create(), subject) for each in (task.start, right)]
    await sandboxes.close()
    assert [(each.status, each.isolation) for each in verdicts] == [("failure", "strong"), ("success", "strong")], (
        verdicts
    )


def test_the_options_of_a_task_are_as_the_pages_show_them() -> None:
    """Every key of `[metadata.braid]` that a page shows is one."""
    for name in ("fork.md", "verifiers.md"):
        for block in blocks(ROOT / "docs" / name, "toml"):
            options = tomllib.loads(block).get("metadata", {}).get("braid", {})
            assert options.keys() <= BraidOptions.model_fields.keys(), block


def test_the_two_commands_without_a_broker_end_in_rows(tmp_path: Path) -> None:
    """A task is forked into a file, verified and run: one branch passes, one fails, and they make a pair."""
    (script,) = blocks(ROOT / "docs" / "fork.md", "sh")
    for command in script.splitlines():
        env = os.environ | {"BRAID_STATE_DIR": str(tmp_path / "state")}
        done = run_braid(*command.split()[1:], cwd=tmp_path, env=env)
        assert done.returncode == 0, done.stderr
    rows = {name: (tmp_path / "results" / f"{name}.jsonl").read_text("utf-8").count("\n") for name in ("sft", "dpo")}
    assert rows == {"sft": 1, "dpo": 1}


def test_the_version_is_the_packages_own() -> None:
    """`braid --version` says which release this is."""
    done = subprocess.run(
        [sys.executable, "-m", "streams.cli", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == version("braidstream")
