"""The page about imports has the table that the command prints, and its commands run."""

import json
import re
import shlex
from pathlib import Path

import pytest

from agents.importers.formats.registry import FORMATS
from tests.conftest import Braid
from tests.imports.test_counts import paths_of

PAGE = Path(__file__).parents[2] / "docs" / "import.md"
CHAT = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
SAMPLE = {
    "results.json": paths_of("tau-bench/*.json")[0],
    "~/.claude/projects/my-project": paths_of("claude-code/*.jsonl")[0].parent,
    "~/.codex/sessions": paths_of("codex/*.jsonl")[0].parent,
    "~/.pi/agent/sessions": paths_of("pi/linear.jsonl")[0].parent,
    "session.jsonl": paths_of("sts/*.jsonl")[0],
    "spans.jsonl": paths_of("otel/gen_ai/spans.otlp.jsonl")[0],
    "runs.jsonl": paths_of("langsmith/runs.jsonl")[0],
    "traces.jsonl": paths_of("oai-agents/traces.jsonl")[0],
    "sessions.jsonl": paths_of("ms-agent-framework/sessions.jsonl")[0],
    "adk.jsonl": paths_of("adk/sessions.jsonl")[0],
    "tasks.jsonl": paths_of("a2a-task/tasks.jsonl")[0],
    "logs/": paths_of("agent-harm/agentharm.json")[0],
    "jobs/my-job": paths_of("harbor/job-demo/")[0],
    "trajectory.json": paths_of("atif/trajectory.json")[0],
    "runs/my-run": paths_of("terminal-bench/demo-run/")[0],
    "tau2.json": paths_of("tau2/results.json")[0],
    "bfcl/": paths_of("bfcl/")[0],
    "outputs.csv": paths_of("mcp-atlas/outputs.csv")[0],
    "data/my-run": paths_of("tool-sandbox/agent_.../")[0],
}
"""A sample in place of each path of the page."""


def table() -> str:
    """The formats as a table of Markdown."""
    rows = [
        f"| `{each.name}` | {each.about} | {each.rollout} | {each.verdict} | {each.unknown} |"
        for each in FORMATS.values()
    ]
    return "\n".join(["| format | reads | rollout / branch | verdict | cannot know |", "|---|---|---|---|---|", *rows])


def test_the_page_has_the_formats_of_the_command() -> None:
    """A format that is added or changed is on the page."""
    found = re.search(r"<!-- formats -->\n(.*)<!-- /formats -->", PAGE.read_text("utf-8"), re.DOTALL)
    assert found is not None
    assert found[1].strip() == table()


def commands() -> list[str]:
    """The commands of the page; what the shell would write to a file, they write themselves."""
    found = re.findall(r"^    braid (import .*?)(?: +#.*)?$", PAGE.read_text("utf-8"), re.MULTILINE)
    return [command.replace(" > ", " --out ") for command in found]


def test_the_commands_of_the_page_run(tmp_path: Path, braid: Braid, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command with a sample in place of its file; that for a running worker counts only."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "chats.jsonl").write_text(json.dumps({"id": "a", "messages": CHAT}) + "\n")
    found = commands()
    assert len(found) == 6 + len(FORMATS)
    for command in found:
        words = [str(SAMPLE[word]) if word in SAMPLE else word for word in shlex.split(command)]
        words = ["--check" if word in ("--to", "kafka") and "kafka" in words else word for word in words]
        code, _, said = braid(*dict.fromkeys(words))
        assert code == 0, (command, said)


def test_the_page_has_a_command_for_each_format() -> None:
    """In a list of its own, each once."""
    assert sorted(command.split()[1] for command in commands()[6:]) == sorted(FORMATS)
