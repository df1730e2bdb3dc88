"""The client and the application beside agent frameworks, really installed: the client touches nothing, the application collides."""

from pathlib import Path

import pytest

from tests.clients.environments import CLIENT, ROOT, Environment

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


def test_the_client_goes_beside_agent_frameworks_and_touches_nothing(tmp_path: Path) -> None:
    """openai-agents, langgraph and pydantic-ai are as they were, and all of them can be imported together."""
    environment = Environment(tmp_path / "env")
    environment.install("openai-agents", "langgraph", "pydantic-ai-slim[openai]")
    before = environment.freeze()
    environment.install(CLIENT)
    added = [line for line in environment.freeze() if line not in before]
    assert [line.partition(" ")[0] for line in added] == ["braidstream-client"]
    assert [line for line in before if line not in environment.freeze()] == []
    code = "from agents import Agent\nimport langgraph, pydantic_ai, braidstream\nprint(Agent.__module__)"
    done = environment.run("-c", code)
    assert (done.returncode, done.stdout) == (0, "agents.agent\n"), done.stderr


def test_doctor_names_a_neighbour_that_collides(tmp_path: Path) -> None:
    """The application beside openai-agents: one of the packages `agents` is broken, and doctor says which and what to do."""
    environment = Environment(tmp_path / "env")
    environment.install("openai-agents")
    environment.install(f"{ROOT}")
    broken = environment.run("-c", "from agents import Agent")
    assert "ImportError" in broken.stderr
    done = environment.run("-m", "streams", "doctor")
    assert done.returncode == 1
    assert "openai-agents (agents)" in " ".join(done.stdout.split())


def test_the_core_installs_and_works_without_extras(tmp_path: Path) -> None:
    """Rows from lines, JSON lines from rows; Parquet says which extra it needs, and works when that is there."""
    environment = Environment(tmp_path / "env")
    environment.install(f"{ROOT}")
    (tmp_path / "lines.ndjson").write_text(
        '{"type":"rollout","rollout_id":"r","task":"t","branches":1,"required":["build"]}\n'
        '{"type":"event","rollout_id":"r","branch_index":0,"event":{"event":"final_answer","data":{"answer":"42"}}}\n'
        '{"type":"build","rollout_id":"r","branch_index":0,"status":"success","exit_code":0}\n'
    )
    done = environment.run(
        "-m", "streams", "run", tmp_path / "lines.ndjson", "--out", tmp_path / "out", "--format", "trl-sft"
    )
    assert done.returncode == 0, done.stderr
    parquet = (
        "-m",
        "streams",
        "export",
        "--format",
        "verl-parquet",
        "--from-dir",
        tmp_path / "out",
        "--out",
        tmp_path / "verl",
    )
    assert "install braidstream[export]" in environment.run(*parquet).stderr
    environment.install(f"{ROOT}[export]")
    assert environment.run(*parquet).returncode == 0
