"""`braid memory` from a log, and what a fork is told: in addition to its prompt, and recorded in its opening."""

import json
from pathlib import Path
from typing import Any

import pytest

from agents.fork.task_adapter import find_task, load_task
from agents.memory.memory import MemoryStoreError
from streams.cluster.config import MemoryConfig, Settings
from streams.jobs.memory import embedding, memory_store
from tests.processes import run_braid
from tests.qdrant_service import qdrant_service

TASK = load_task(find_task("csv-table")).instruction.replace("parse_csv", "read_table")


def braid(folder: Path, *words: str, code: int = 0, **env: str) -> str:
    done = run_braid(
        *words, cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "BRAID_STATE_DIR": str(folder / "state"), **env},
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def log_of(folder: Path) -> Path:
    """Four branches that ended: one passed, one failed, one is unknown, one passed with changed tests."""
    lines: list[dict[str, Any]] = [
        {"type": "rollout", "rollout_id": "past", "task": TASK, "branches": 4, "required": ["build"]}
    ]
    for index in range(4):
        event = {"event": "final_answer", "data": {"answer": f"answer {index}"}}
        lines.append({"type": "event", "rollout_id": "past", "branch_index": index, "event": event})
    for index, more in ((0, {}), (1, {"status": "failure", "exit_code": 1}), (3, {"protected_paths_intact": False})):
        build = {"type": "build", "rollout_id": "past", "branch_index": index, "status": "success", "exit_code": 0}
        lines.append(build | more)
    (folder / "lines.ndjson").write_text("\n".join(map(json.dumps, lines)))
    braid(folder, "run", "lines.ndjson", "--out", "out")
    return folder / "out"


def test_what_passed_is_remembered_found_and_told_to_the_next_fork(tmp_path: Path) -> None:
    """Of four branches one enters, once; a fork's opening has its id, and its prompt the note after the prompt of before."""
    out = log_of(tmp_path)
    for _ in range(2):
        said = json.loads(braid(tmp_path, "memory", "add", "--from-dir", str(out), "--json"))
        assert said == {"remembered": ["past/b0"], "in_all": 1}
    (found,) = [
        json.loads(line)
        for line in braid(tmp_path, "memory", "search", "quoted fields of a table", "--json").splitlines()
    ]
    assert (found["id"], found["answer"], found["score"] > 0.2) == ("past/b0", "answer 0", True)
    assert "nothing that fits" in braid(tmp_path, "memory", "search", "paint the fence")
    prompts = []
    for name, flags in (("plain", ()), ("told", ("--memories", "2"))):
        braid(tmp_path, "fork", "csv-table", "--branches", "1", "--id", name, "--log", f"{name}.ndjson", *flags)
        opened = json.loads((tmp_path / f"{name}.ndjson").read_text().splitlines()[0])
        prompts.append(opened["system_prompt"])
        assert opened.get("memories", []) == (["past/b0"] if flags else [])
    assert prompts[1].startswith(prompts[0] + "\n\n")
    assert "answer 0" in prompts[1]
    assert "1 forgotten" in braid(tmp_path, "memory", "forget", "past/b0")


def test_the_same_on_a_qdrant(tmp_path: Path) -> None:
    """Over HTTP, as configured by its URL."""
    out = log_of(tmp_path)
    with qdrant_service() as url:
        for _ in range(2):
            said = json.loads(
                braid(tmp_path, "memory", "add", "--from-dir", str(out), "--json", BRAID_MEMORY__QDRANT=url)
            )
            assert said == {"remembered": ["past/b0"], "in_all": 1}
        shown = braid(tmp_path, "memory", "search", "quoted fields of a table", "--json", BRAID_MEMORY__QDRANT=url)
        assert json.loads(shown)["id"] == "past/b0"


def test_a_store_or_an_embedding_that_is_not_there_is_said(tmp_path: Path) -> None:
    """Without a traceback."""
    with pytest.raises(MemoryStoreError, match="module:function"):
        embedding("no.such:thing")
    found = memory_store(
        Settings(memory=MemoryConfig(path=tmp_path / "m.sqlite", embedding="agents.memory.embedding:hashed_words"))
    )
    assert found.count() == 0
    braid(tmp_path, "memory", "search", "x", code=1, BRAID_MEMORY__QDRANT="http://127.0.0.1:9")
