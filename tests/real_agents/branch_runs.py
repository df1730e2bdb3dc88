"""Four branches of the task by the documented command, and what is left of them: events on the log, and the agent's own session logs."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from schemas.events import AgentEvents
from tests.imports.importing import read_traces
from tests.model_server import ModelServer
from tests.real_agents import installed
from tests.real_agents.agent_runs import Bases, environment
from tests.real_agents.played_task import TASK
from tests.real_agents.services import Services
from tests.real_agents.told_runs import ToldRun, captured_run, imported_run

SCRIPT = Path(__file__).parents[2] / "docs" / "examples" / "agent_branches.sh"
CHECK = 'test "$(cat hello.txt)" = hello'
FLAGS = {"claude": "", "codex": "--dangerously-bypass-approvals-and-sandbox -m gpt-5"}
FORMATS = {"claude": "claude-code", "codex": "codex"}
SESSIONS = {"claude": ".claude/projects", "codex": ".codex/sessions"}
RUN_S = 400


def run_branches(agent: str, rollout: str, running: Services, api: ModelServer, folder: Path) -> str:
    """Run the documented command in a folder; returns the page of the rollout that it ends with."""
    start = folder / "start"
    start.mkdir()
    path = f"{installed.commands()}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = environment(folder / "home", Bases(api.chat_url, api.url)) | running.env
    env |= {"PATH": path, "GATEWAY": running.gateway, "PROXY": running.proxy, "AGENT_FLAGS": FLAGS[agent]}
    done = subprocess.run(
        [SCRIPT, agent, rollout, TASK, CHECK, "4"], cwd=start, env=env | {"TMPDIR": str(folder)}, capture_output=True, text=True,
        timeout=RUN_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def captured_runs(slices: Iterable[AgentEvents], rollout: str) -> dict[int, ToldRun]:
    """By branch, the run that its events tell."""
    events: dict[int, list[dict[str, object]]] = {}
    for each in slices:
        if each.rollout_id == rollout:
            told = [{"event": event.event, "data": json.loads(event.data)} for event in each.events]
            events.setdefault(each.branch_index, []).extend(told)
    return {branch: captured_run(told) for branch, told in events.items()}


def imported_runs(agent: str, folder: Path) -> dict[int, ToldRun]:
    """By branch, the run that the agent's own session log tells, as `braid import` reads it."""
    files = sorted((folder / "home" / SESSIONS[agent]).rglob("*.jsonl"), key=_begun)
    found = {}
    for branch, file in enumerate(files):
        read = read_traces(FORMATS[agent], file)
        found[branch] = imported_run([line["event"] for line in read.of("event")])
    return found


def _begun(file: Path) -> str:
    """The first time that a session log says."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return str(min(line["timestamp"] for line in lines if "timestamp" in line))
