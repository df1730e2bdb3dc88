"""The page about imports has the table that the command prints, and its commands run."""

import re
import shlex
from pathlib import Path

from agents.importers.formats.registry import FORMATS
from tests.imports.test_counts import paths_of
from tests.processes import run_braid

PAGE = Path(__file__).parents[2] / "docs" / "import.md"


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


def test_the_commands_of_the_page_run(tmp_path: Path) -> None:
    """Each command with a sample in place of its file; that for a running worker counts only."""
    places = {
        "results.json": paths_of("tau-bench/*.json")[0],
        "~/.claude/projects/my-project": paths_of("claude-code/*.jsonl")[0].parent,
        "spans.jsonl": paths_of("otel/gen_ai/spans.otlp.jsonl")[0],
        "logs/": paths_of("agent-harm/agentharm.json")[0],
    }
    commands = re.findall(r"^    braid (import .*?)(?: +#.*| > .*)?$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert len(commands) == 6
    for command in commands:
        words = [str(places.get(word, word)) for word in shlex.split(command)]
        words = ["--check" if word in ("--to", "kafka") and "kafka" in words else word for word in words]
        done = run_braid(*dict.fromkeys(words), cwd=tmp_path)
        assert done.returncode == 0, (command, done.stderr)
