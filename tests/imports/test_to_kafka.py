"""`braid import --to kafka`: traces become closed rollouts on a real broker, with the counts of `--to run`."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from streams.cluster.config import Settings
from tests.conftest import Braid
from tests.imports.importing import read_traces
from tests.imports.test_counts import paths_of
from tests.live import Worker, until_closed

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]

SAMPLES = ("tau-bench/*.json", "mcp-atlas/scored_*.csv", "claude-code/*.jsonl", "otel/gen_ai/spans.otlp.jsonl")
"""Runs with verdicts and without, a failure of the harness, exact conversations."""

COUNTS = (
    "rollouts",
    "branches",
    "events",
    "passes",
    "fails",
    "unknown",
    "not_required",
    "sft",
    "dpo",
    "ppo",
    "rejected",
)


def test_imported_traces_are_closed_by_a_worker(
    settings: Settings, braid: Braid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same rollouts, branches, verdicts and rows as without a broker; and the same conversations."""
    for name in ("kafka", "registry", "prefix", "partitions"):
        monkeypatch.setenv(f"BRAID_{name.upper()}", str(getattr(settings, name)))
    monkeypatch.chdir(tmp_path)
    rollouts: set[str] = set()
    for sample in SAMPLES:
        name, paths = sample.partition("/")[0], paths_of(sample)
        rollouts |= {line["rollout_id"] for line in read_traces(name, *paths).of("rollout")}
        code, _, said = braid("import", name, *paths, "--to", "kafka")
        assert code == 0, said
        code, _, said = braid("import", name, *paths, "--out", tmp_path / f"{name}.ndjson")
        assert code == 0, said
    with Worker(settings, tmp_path / "worker.log") as worker:
        asyncio.run(until_closed(settings, rollouts))
        worker.stop()
    code, _, said = braid("run", *sorted(tmp_path.glob("*.ndjson")), "--out", tmp_path / "run")
    assert code == 0, said
    live, here = [
        braid("export", "--format", "messages", *source, "--out", tmp_path / out, "--json")[1]
        for out, source in (("live", ()), ("here", ("--from-dir", tmp_path / "run")))
    ]
    assert {name: live[name] for name in COUNTS} == {name: here[name] for name in COUNTS}
    assert live["rollouts"] == len(rollouts)
    assert conversations(tmp_path / "live") == conversations(tmp_path / "here")


def conversations(folder: Path) -> dict[Any, Any]:
    """By branch: its messages, how it ended, and its verdicts."""
    rows = [json.loads(line) for path in folder.glob("train-*.jsonl") for line in path.read_bytes().splitlines()]
    return {
        (row["rollout_id"], row["branch_index"], row["sequence"]): [
            row[name] for name in ("messages", "ended", "verdicts")
        ]
        for row in rows
    }
