"""Unusual but valid files of every format: nothing lost, nothing doubled, and no failure of others is a fail.

`samples/unusual.jsonl` has a case a line: its files, and the counts that a reader of the format's documentation expects. Parallel calls
with equal ids, results before calls or in another order, empty outputs, media, odd ids, older shapes, every way in which a harness fails.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agents.importers.formats.registry import FORMATS
from tests.imports.facts import count
from tests.imports.importing import read_traces

CASES = [json.loads(line) for line in (Path(__file__).parent / "samples" / "unusual.jsonl").read_text().splitlines()]


def write(case: dict[str, Any], folder: Path) -> Path:
    """Write the files of a case; returns the path to import."""
    for name, content in case["files"].items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content if isinstance(content, str) else json.dumps(content))
    return folder / next(iter(case["files"])) if len(case["files"]) == 1 and "/" not in name else folder


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_an_unusual_file_is_counted_right(case: dict[str, Any], tmp_path: Path) -> None:
    """By its format, and by `auto`."""
    path = write(case, tmp_path)
    for name in (case["format"], "auto"):
        read = read_traces(name, path)
        counts, ends, _ = count(read.lines)
        assert {kind: counts[kind] for kind in case["counts"]} == case["counts"]
        assert ends == case.get("ends", ends)
        assert read.rejected.first == []


def test_every_format_has_unusual_files() -> None:
    """All but AgentHarm, whose files are those of Inspect."""
    assert set(FORMATS) - {case["format"] for case in CASES} == {"agent-harm"}
    assert Counter(case["format"] for case in CASES).total() == len(CASES) > 50
