"""Records as JSON lines in files that become visible when they are complete."""

from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import orjson

from agents.evidence.build import json_view
from agents.training.view import row_view
from schemas.base import Record
from schemas.branches import BranchRecord
from schemas.evidence import AepRecord
from schemas.rankings import Ranking
from schemas.training import DpoRecord, PpoRecord, RejectedRecord, SftRecord
from streams.log.durable_files import open_output

SINK_FILES: dict[type[Record], str] = {
    BranchRecord: "branches.jsonl",
    Ranking: "rankings.jsonl",
    SftRecord: "sft.jsonl",
    DpoRecord: "dpo.jsonl",
    PpoRecord: "ppo.jsonl",
    RejectedRecord: "rejected.jsonl",
    AepRecord: "evidence.jsonl",
}
"""What lies in an output directory, one JSON record a line; evidence in its AEP form."""


class Outputs:
    """Files of records; each record once, however often it comes."""

    def __init__(self, folder: Path, files: dict[type[Record], str]) -> None:
        self._folder = folder
        self._names = files
        self._files: dict[type[Record], BinaryIO] = {}
        self._seen: set[bytes] = set()

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        for record, name in self._names.items():
            self._files[record] = open_output(self._folder / f"{name}.part")
        return self

    def write(self, record: Record) -> None:
        """Add a record. A worker that crashed may have written it twice; the same id is the same content."""
        identity = str(getattr(record, "record_id", None) or getattr(record, "ranking_id", ""))
        short = bytes.fromhex(identity[:16])
        if short in self._seen:
            return
        self._seen.add(short)
        self._files[type(record)].write(orjson.dumps(view_of(record)) + b"\n")

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for record, file in self._files.items():
            partial = self._folder / f"{self._names[record]}.part"
            if kind is None:
                file.close()
                partial.replace(self._folder / self._names[record])
            else:
                with suppress(OSError):  # a full disk takes no last flush either
                    file.close()
                partial.unlink()


def view_of(record: Record) -> dict[str, Any]:
    """A record as JSON: evidence in its AEP form, rows as trainers write them."""
    if isinstance(record, AepRecord):
        return json_view(record)
    return row_view(record) if isinstance(record, SftRecord | DpoRecord | PpoRecord) else record.plain()
