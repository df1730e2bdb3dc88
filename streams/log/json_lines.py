"""Records as JSON lines in files that become visible when they are complete."""

from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import orjson

from agents.evidence.build import json_view
from schemas.base import Record
from schemas.branches import BranchRecord
from schemas.evidence import AepRecord
from schemas.rankings import Ranking
from schemas.training import DpoRecord, Message, PpoRecord, RejectedRecord, SftRecord
from streams.log.durable_files import open_output
from streams.log.headers import identity

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
        short = bytes.fromhex(identity(record)[:16])
        if short in self._seen:
            return
        self._seen.add(short)
        self._files[type(record)].write(json_line(record))

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


def json_line(record: Record) -> bytes:
    """A record as a line of JSON: evidence in its AEP form, messages as trainers write them."""
    value = json_view(record) if isinstance(record, AepRecord) else record
    return orjson.dumps(value, default=_members, option=orjson.OPT_APPEND_NEWLINE)


def _members(record: Record) -> dict[str, Any]:
    """The members of a record; of a message without those that do not apply. Reading them back gives the same record."""
    members = vars(record)
    if type(record) is not Message:
        hidden = [name for name in _optional(type(record)) if members[name] is None]
        return {name: value for name, value in members.items() if name not in hidden} if hidden else members
    # `content` stays even when it is null: loaders look for it.
    return {name: value for name, value in members.items() if name in ("role", "content") or value not in (None, ())}


@cache
def _optional(record: type[Record]) -> tuple[str, ...]:
    """The fields that views leave out where they are null: those that were added later."""
    return tuple([name for name, field in record.model_fields.items() if field.exclude_if is not None])
