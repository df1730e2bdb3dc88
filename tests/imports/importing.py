"""Imports for tests: lines and rejections of a path, read with the code of `braid import`, without a process."""

from pathlib import Path
from typing import Any, NamedTuple

import orjson

from agents.importers.traces.format import Options
from agents.importers.traces.rollout_book import Grouping
from streams.jobs.imports.trace_import import Imported, TraceImport
from streams.log.input_lines import Rejected


class Read(NamedTuple):
    """The output."""

    lines: list[dict[str, Any]]
    text: bytes
    found: Imported
    rejected: Rejected

    def of(self, *types: str) -> list[dict[str, Any]]:
        """The lines of these types."""
        return [line for line in self.lines if line["type"] in types]

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        """The data of events of these kinds."""
        return [line["event"]["data"] for line in self.of("event") if line["event"]["event"] in kinds]


def read_traces(
    format_name: str,
    *paths: Path,
    options: Options | None = None,
    grouping: Grouping | None = None,
    sidecar: Path | None = None,
) -> Read:
    """Import paths."""
    rejected = Rejected(sidecar)
    work = TraceImport(options or Options(), grouping or Grouping(), rejected, lambda _share: None)
    work.read(format_name, paths)
    text = b"".join(work.lines())
    rejected.close()
    return Read([orjson.loads(line) for line in text.splitlines()], text, work.found, rejected)
