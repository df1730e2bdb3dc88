"""Exports from a real Kafka with a real registry: what a worker wrote, each rollout once, from where the last one ended."""

import asyncio
import json
import runpy
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from agents.formats import FORMATS
from streams.cluster.config import Settings
from streams.jobs.export.export import export
from streams.jobs.export.export_counts import Counts
from streams.jobs.export.recipe import Recipe
from streams.jobs.ingest import ingest_files
from streams.log.input_lines import Rejected
from streams.log.kafka_reader import KafkaReader
from streams.log.reader import LookError
from streams.log.topics import EVIDENCE, SFT
from tests.agents.formats.rollouts import encoded, mixed
from tests.live import Worker, until_closed
from tests.streams.jobs.export.conftest import rows

ROOT = Path(__file__).parents[4]
CLOSING_S = 60.0
"""A worker has to start first, on a machine that may be busy."""


def take(settings: Settings, out: Path, name: str) -> Counts:
    return asyncio.run(export(KafkaReader(settings), out, Recipe.of(FORMATS[name], None)))


def write(settings: Settings, folder: Path, names: tuple[str, ...]) -> None:
    """Write the lines of rollouts, and wait until the worker has closed them."""
    path = folder / "lines.ndjson"
    path.write_bytes(encoded([line for name in names for line in mixed(name)]))
    asyncio.run(ingest_files([path], settings, Rejected(None), close=False))
    asyncio.run(until_closed(settings, set(names), CLOSING_S))


@pytest.mark.kafka
@pytest.mark.timeout(120)
def test_whole_rollouts_leave_kafka_once(settings: Settings, tmp_path: Path) -> None:
    """The first export takes all, the second nothing, the third what a worker has closed since, from its checkpoint on."""
    names = tuple(f"k{number}" for number in range(6))
    wire = tmp_path / "wire"
    with Worker(settings, tmp_path / "worker.log"):
        write(settings, tmp_path, names)
        first = take(settings, wire, "rollout-wire")
        assert (first.rollouts, first.branches, first.incomplete, first.bad_lines) == (6, 18, 0, 0)
        assert {row["rollout_id"] for row in rows(wire, "branches-*.jsonl")} == set(names)
        assert len(rows(wire, "branches-*.jsonl")) == 18
        assert take(settings, wire, "rollout-wire").rollouts == 0
        checkpoint = json.loads((wire / "checkpoint.json").read_bytes())
        assert sum(checkpoint["offsets"][EVIDENCE.name].values()) == 24
        write(settings, tmp_path, ("k6",))
        more = take(settings, wire, "rollout-wire")
    assert (more.rollouts, more.branches) == (1, 3)
    *_, last = json.loads((wire / "manifest.json").read_bytes())["inputs"]
    assert sum(end - start for start, end in last["topics"][SFT.name].values()) == 1
    assert take(settings, tmp_path / "dpo", "trl-dpo").rows == 14
    check_the_stream(settings, {row["record_id"]: row for row in rows(tmp_path / "dpo")})


def check_the_stream(settings: Settings, exported: dict[str, Any]) -> None:
    """The example of the documentation hands out the rows of the export, and goes on after a restart where it was."""
    stream = runpy.run_path(str(ROOT / "docs" / "examples" / "dpo_stream.py"))["DpoStream"]
    place = {"kafka": settings.kafka, "registry": settings.registry, "prefix": settings.prefix}
    for whole in (False, True):
        before = stream(**place, whole=whole)
        first = list(islice(before, 5))
        for row in first[:4]:  # the fifth was handed out, and the training stopped in the middle of it
            before.done(row)
        after = stream(**place, whole=whole, stop_after_idle_s=1.0)
        after.load_state_dict(json.loads(json.dumps(before.state_dict())))
        second = list(after)
        assert (len(first), len(second)) == (5, 10)
        found = {row["record_id"]: row for row in (*first, *second)}
        assert all(row.pop("position") for row in found.values())
        assert found == exported


@pytest.mark.kafka
def test_a_cluster_without_topics_is_said_plainly(settings: Settings, tmp_path: Path) -> None:
    """Nothing to export from: the message says what creates the topics."""
    with pytest.raises(LookError, match="braid up"):
        take(settings, tmp_path / "out", "trl-sft")
