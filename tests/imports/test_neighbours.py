"""A bad episode among good ones: each other one comes out as before, whatever the format of the lines."""

from pathlib import Path
from typing import Any

import pytest

from tests.imports.importing import Read, read_traces
from tests.imports.test_counts import paths_of

LINES = (
    "mcp-atlas/outputs.csv",
    "langsmith/runs.jsonl",
    "oai-agents/traces.jsonl",
    "ms-agent-framework/sessions.jsonl",
    "adk/sessions.jsonl",
    "a2a-task/tasks.jsonl",
    "otel/gen_ai/spans.otlp.jsonl",
)
"""Samples with several episodes in a file."""

BAD = b'{"id": "broken", \xff\xfe "messages": [\n'


def told(read: Read) -> dict[Any, list[Any]]:
    """By branch its events without the place in the file, its verdicts and its end."""
    found: dict[Any, list[Any]] = {}
    for line in read.of("event", "end", "check", "build"):
        if line["type"] == "event" and line["event"]["event"] == "import_source":
            continue
        found.setdefault((line["rollout_id"], line["branch_index"]), []).append(line)
    return found


@pytest.mark.parametrize("sample", LINES)
@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_a_line_that_cannot_be_read_changes_no_other(sample: str, place: str, tmp_path: Path) -> None:
    source = paths_of(sample)[0]
    lines = source.read_bytes().splitlines(keepends=True)
    header = sample.endswith(".csv")  # a table's first line has its names
    at = {"first": int(header), "middle": len(lines) // 2, "last": len(lines)}[place]
    broken = tmp_path / source.name
    broken.write_bytes(b"".join([*lines[:at], BAD, *lines[at:]]))
    beside = [path for path in source.parent.iterdir() if path.is_file() and path != source and header]
    for path in beside:
        (tmp_path / path.name).write_bytes(path.read_bytes())
    before, after = (read_traces(sample.partition("/")[0], path) for path in (source, broken))
    assert told(after) == told(before)
    assert after.rejected.count == before.rejected.count + 1
    assert any(f"line {at + 1}" in said for said in after.rejected.first), after.rejected.first
