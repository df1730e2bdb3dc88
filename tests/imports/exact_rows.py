"""Rows of imported traces: the lines of an import, with a verdict for every answered branch, through `braid run`."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from tests.conftest import Braid
from tests.imports.importing import Read


class Rows(NamedTuple):
    """The results of a run."""

    sft: list[dict[str, Any]]
    ppo: list[dict[str, Any]]
    rejected: list[dict[str, Any]]


def rows_of(read: Read, folder: Path, braid: Braid) -> Rows:
    """Run the lines of an import. Every answered branch passes a check."""
    lines = []
    for line in read.lines:
        if line["type"] == "rollout":
            line = line | {"required": ["ok"]}  # noqa: PLW2901 - the same line with another field
        lines.append(line)
        if line["type"] == "end":
            status = "pass" if line["status"] == "answered" else "unknown"
            where = {name: line[name] for name in ("rollout_id", "branch_index", "attempt")}
            lines.append({"type": "check", **where, "name": "ok", "status": status})
    file = folder / "lines.ndjson"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    code, said, complaints = braid(
        "run", file, "--out", folder / "out", "--no-evidence", "--json", "--set", "redact=false"
    )
    assert code == 0, complaints
    assert said["bad_lines"] == 0
    return Rows(*(_lines(folder / "out" / f"{name}.jsonl") for name in ("sft", "ppo", "rejected")))


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]
