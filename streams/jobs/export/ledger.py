"""The provenance of every row of a dataset: lines next to its files, written and published with them.

`provenance/evidence-*.jsonl` has the signed evidence of every exported rollout, including the decisions named in its
closing record; `provenance/rows-*.jsonl` has for each row its file, position and digest, and the records it was made
of. With both, and the signed manifest, a row is traced to its evidence without the log.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agents.evidence.build import json_view
from agents.formats.shape import Made, Row
from agents.formats.story import run_id_of
from schemas.base import Record
from schemas.branches import BranchRecord
from schemas.compliance import ComplianceEvalRecord
from schemas.evidence import AepRecord
from schemas.training import DpoRecord, PpoRecord, RejectedRecord, SftRecord
from streams.jobs.export.row_file import Lines
from streams.jobs.export.shards import Place, Shard, finished, partial
from streams.jobs.export.whole_rollouts import Whole
from streams.log.topics import BY_RECORD

FOLDER = "provenance"
EVIDENCE = f"{FOLDER}/evidence"
ROWS = f"{FOLDER}/rows"
NAMES = (EVIDENCE, ROWS)


class Ledger:
    """The two files of one export; they do not exist before the first rollout."""

    def __init__(self, folder: Path, number: int) -> None:
        self._folder = folder
        self._number = number
        self._files: dict[str, Lines] = {}

    def add(self, whole: Whole, rows: Sequence[Row], places: Sequence[Place]) -> None:
        """Add a rollout, and the positions of its rows."""
        if not self._files:
            (self._folder / FOLDER).mkdir(exist_ok=True)
            self._files = {name: Lines(partial(self._folder, f"{name}-{self._number:05d}.jsonl")) for name in NAMES}
        self._files[EVIDENCE].write([json_view(record) for record in whole.chain], 0)
        self._files[ROWS].write(
            [
                {
                    **place._asdict(),
                    "rollout_id": whole.rollout_id,
                    "records": [reference(made) for made in row.sources],
                }
                for row, place in zip(rows, places, strict=True)
            ],
            0,
        )

    def finish(self) -> list[Shard]:
        """Complete the files."""
        return [finished(self._folder, writer, FOLDER, "") for writer in self._files.values()]

    def discard(self) -> None:
        """Remove everything that was written."""
        for writer in self._files.values():
            writer.discard()
        clear_ledgers(self._folder)


def clear_ledgers(folder: Path) -> None:
    """Remove the folder of the ledgers, if it is empty."""
    ledgers = folder / FOLDER
    if ledgers.is_dir() and not any(ledgers.iterdir()):
        ledgers.rmdir()


def reference(made: Made) -> dict[str, Any]:
    """The identity of a record in its evidence (its id, and of a branch also its actions), and its subject."""
    named: dict[str, Any] = {"topic": BY_RECORD[type(made)].name, "record_id": made.record_id}
    if isinstance(made, AepRecord):
        return named | {"run_id": made.run_id}
    named["branches"] = branches_of(made)
    if isinstance(made, BranchRecord):
        named |= {"run_id": run_id_of(made), "raw_digest": made.raw_digest}
    return named


def branches_of(made: Record) -> tuple[int, ...]:
    """The branches that a record is about, ascending."""
    if isinstance(made, DpoRecord):
        return tuple(sorted((made.chosen_branch, made.rejected_branch)))
    if isinstance(made, RejectedRecord):
        return tuple(sorted(made.branches))
    return (made.branch_index,) if isinstance(made, SftRecord | PpoRecord | BranchRecord | ComplianceEvalRecord) else ()
