"""Records as JSON lines in files that become visible when they are complete."""

from collections.abc import Iterable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import orjson

from agents.evidence.build import json_view
from schemas.base import Record
from schemas.branches import BranchRecord
from schemas.compliance import ComplianceEvalRecord
from schemas.evidence import AepRecord
from schemas.rankings import Ranking, RewardComponent
from schemas.training import DpoRecord, Message, PpoRecord, RejectedRecord, SftRecord
from streams.log.durable_files import open_output
from streams.log.headers import identity

SINK_FILES: dict[type[Record], str] = {
    BranchRecord: "branches.jsonl",
    Ranking: "rankings.jsonl",
    ComplianceEvalRecord: "compliance.jsonl",
    SftRecord: "sft.jsonl",
    DpoRecord: "dpo.jsonl",
    PpoRecord: "ppo.jsonl",
    RejectedRecord: "rejected.jsonl",
    AepRecord: "evidence.jsonl",
}
"""The records of an output directory, one JSON record a line; evidence in its AEP form."""


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

    def write(self, records: Iterable[Record]) -> None:
        """Add records. A worker that crashed may have written one twice; the same id has the same content.

        Rows of one rollout have much in common: a part of several rows is encoded as JSON once.
        """
        known: Known = {}
        kept = list(records)  # while they are referenced, no other part can get the memory address that is their id
        for record in kept:
            short = bytes.fromhex(identity(record)[:16])
            if short not in self._seen:
                self._seen.add(short)
                self._files[type(record)].write(json_line(record, known))

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for record, file in self._files.items():
            partial = self._folder / f"{self._names[record]}.part"
            if kind is None:
                file.close()
                partial.replace(self._folder / self._names[record])
            else:
                with suppress(OSError):  # on a full disk the last flush fails, too
                    file.close()
                partial.unlink()


Known = dict[int, orjson.Fragment]
"""JSON of messages and reward components, by their ids in memory."""


def json_line(record: Record, known: Known | None = None) -> bytes:
    """A record as a line of JSON: evidence in its AEP form, messages as trainers write them; parts in `known` are not
    encoded again.
    """
    value = json_view(record) if isinstance(record, AepRecord) else record
    return orjson.dumps(
        value, default=partial(_members, {} if known is None else known), option=orjson.OPT_APPEND_NEWLINE
    )


def _members(known: Known, record: Record) -> dict[str, Any] | orjson.Fragment:
    """The members of a record; of a message without fields that do not apply. Reading them back gives the same record."""
    kind = type(record)
    if kind is Message or kind is RewardComponent:
        found = known.get(id(record))
        if found is None:
            members = _of_message(record) if kind is Message else vars(record)
            found = known[id(record)] = orjson.Fragment(orjson.dumps(members, default=vars))
        return found
    members = vars(record)
    hidden = [name for name in _optional(kind) if members[name] is None or members[name] == ()]
    return {name: value for name, value in members.items() if name not in hidden} if hidden else members


def _of_message(message: Record) -> dict[str, Any]:
    # `content` stays even when it is null: loaders look for it.
    return {
        name: value
        for name, value in vars(message).items()
        if (value is not None and value != ()) or name in ("role", "content")
    }


@cache
def _optional(record: type[Record]) -> tuple[str, ...]:
    """The fields that views leave out if they are null or empty: those that were added later."""
    return tuple([name for name, field in record.model_fields.items() if field.exclude_if is not None])
