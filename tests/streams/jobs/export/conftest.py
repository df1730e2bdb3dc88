"""A run of three rollouts to export from, and the export itself as one call."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from agents.formats import FORMATS
from streams.cluster.config import Settings
from streams.jobs.export.export import export
from streams.jobs.export.export_counts import Counts
from streams.jobs.export.recipe import Recipe
from streams.jobs.run.run import run_files
from streams.log.file_reader import FileReader
from tests.agents.formats.rollouts import Line, encoded, mixed

ROLLOUTS = ("r1", "r2", "r3")


def make_run(folder: Path, lines: list[Line]) -> Path:
    """The output of `braid run` on lines."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "lines.ndjson").write_bytes(encoded(lines))
    run_files([folder / "lines.ndjson"], folder / "run", Settings(), None)
    return folder / "run"


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three rollouts, each with a passing and two failing branches."""
    lines = [line for each in ROLLOUTS for line in mixed(each, labels={"team": f"of-{each}"})]
    return make_run(tmp_path_factory.mktemp("ran"), lines)


def take(source: Path, out: Path, name: str = "trl-sft", *, from_beginning: bool = False, **more: Any) -> Counts:
    """Export a directory of `braid run`."""
    recipe = Recipe.of(FORMATS[name], more.pop("kind", None), **more)
    return asyncio.run(export(FileReader(source), out, recipe, from_beginning=from_beginning))


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def rows(folder: Path, pattern: str = "*-*.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(folder.glob(pattern)) for line in path.read_text("utf-8").splitlines()]
