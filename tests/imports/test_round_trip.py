"""An imported run, exported and imported again, says the same."""

import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.imports.facts import count
from tests.imports.importing import read_traces
from tests.imports.test_counts import paths_of
from tests.processes import run_braid

SAMPLES = (
    "tau-bench/*.json",
    "tau2/results.json",
    "agent-harm/agentharm.json",
    "harbor/job-demo/",
)
TARGETS = ("atif",)
WHOLE = os.environ | {"BRAID_EMISSION__REDACT": "false"}
"""Texts as they came: what is redacted does not come back."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of the samples, a directory for each."""
    place = tmp_path_factory.mktemp("runs")
    for sample in SAMPLES:
        name = sample.partition("/")[0]
        lines = place / f"{name}.ndjson"
        lines.write_bytes(read_traces(name, *paths_of(sample)).text)
        done = run_braid("run", lines, "--out", place / name, env=WHOLE)
        assert done.returncode == 0, done.stderr
    return place


def said(lines: list[dict[str, Any]]) -> dict[tuple[str, int], list[Any]]:
    """By branch: texts, user messages and calls with their results, in order. Ids, and replies after the answer, are left out."""
    found: dict[tuple[str, int], list[Any]] = {}
    for line in lines:
        if line["type"] != "event":
            continue
        branch = found.setdefault((line["rollout_id"], line["branch_index"]), [])
        kind, data = line["event"]["event"], line["event"]["data"]
        if kind in ("user_message", "assistant_message"):
            branch.append((kind, data["text"]))
        elif kind == "final_answer":
            branch.append(("assistant_message", data["answer"]))
        elif kind == "tool_call":
            branch.append((kind, data["toolName"], data["args"]))
        elif kind == "tool_result":
            branch.append((kind, data["output"], "error" in data))
    return found


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("sample", SAMPLES)
def test_what_was_exported_comes_back(sample: str, target: str, runs: Path, tmp_path: Path) -> None:
    """Calls, results, errors, texts, user messages, verdicts, ends and usage are those of the first import."""
    name = sample.partition("/")[0]
    done = run_braid("export", "--format", target, "--from-dir", runs / name, "--out", tmp_path / "out", env=WHOLE)
    assert done.returncode == 0, done.stderr
    first = read_traces(name, *paths_of(sample))
    again = read_traces(target, *sorted((tmp_path / "out").glob("train-*.jsonl")))
    told, back = said(first.lines), said(again.lines)
    assert back == {key: told[key] for key in back}
    counts, ends, tokens = count(first.lines)
    counts_back, ends_back, tokens_back = count(again.lines)
    replies = sum("reply" in data for data in first.events("final_answer"))
    assert counts_back | {"user": counts_back["user"] + replies} == counts
    assert ends_back == ends
    assert tokens_back == tokens


def test_what_is_not_carried_is_counted(tmp_path: Path) -> None:
    """Sessions without a verdict have no rows: the export says that it holds their calls and answers only."""
    lines = tmp_path / "lines.ndjson"
    lines.write_bytes(read_traces("claude-code", *paths_of("claude-code/*.jsonl")).text)
    assert run_braid("run", lines, "--out", tmp_path / "run").returncode == 0
    done = run_braid("export", "--format", "atif", "--from-dir", tmp_path / "run", "--out", tmp_path / "out")
    assert re.search(r"not carried: conversation +2", done.stdout), done.stdout
