"""An exported directory, checked: its signed manifest, its files, and every row back to the signed evidence of its rollout.

The manifest lists the digest of every file; the lines under `provenance/` have for every row its digest and the records
it was made of, and contain the evidence that lists those records. Nothing else is needed: no log, no broker.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from agents.evidence.canonical import CanonicalError, parse_evidence
from agents.evidence.signing import Json
from agents.evidence.structure import quoted
from schemas.extras import require
from schemas.jsontext import parse_object
from streams.jobs.export.checkpoint import CARD, METADATA, PUBLISHING
from streams.jobs.export.croissant import CROISSANT
from streams.jobs.export.duplicates import FILE as KEPT
from streams.jobs.export.ledger import EVIDENCE, ROWS
from streams.jobs.export.row_file import values_digest
from streams.jobs.export.shards import ALONE
from streams.jobs.verify.directory_check import DirectoryCheck, Manifest
from streams.jobs.verify.evidence_sources import Read, evidence_of, lines_of
from streams.jobs.verify.inspection import Inspection
from streams.log.manifest import CHECKPOINT, listed

DATA = (".jsonl", ".parquet")
NOT_OURS = "not of this dataset: no line of its provenance has its digest"


def files_of(folder: Path) -> list[Path]:
    """Every file with rows or provenance."""
    return sorted(path for path in folder.rglob("*") if (path.suffix in DATA or path.name in ALONE) and path.is_file())


def _kept(checkpoint: Path) -> str:
    """The digest of the signatures of kept rows, from a checkpoint; empty if it has none."""
    try:
        return str(parse_object(checkpoint.read_bytes()).get("kept_sha256") or "")
    except (OSError, ValueError):
        return ""  # the manifest states the checkpoint's own digest


class _Row(NamedTuple):
    number: int
    digest: str


@dataclass
class DatasetCheck:
    """One directory."""

    folder: Path
    manifest: Manifest
    inspection: Inspection
    directory: DirectoryCheck
    read: Read
    _expected: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    """By file and digest, the positions of the expected rows."""

    @property
    def empty(self) -> bool:
        """Whether the manifest can be trusted and lists no files."""
        said = self.manifest.said
        return self.manifest.trusted and said.get("files") == [] == said.get("provenance")

    def run(self) -> None:
        """Check everything that the manifest lists."""
        said = self.manifest.said
        data, ledgers = listed(said), listed(said, "provenance")
        self.directory.manifest(self.manifest)
        self.directory.files({**data, **ledgers, CARD: {"sha256": said.get("card")}})
        beside = {CROISSANT: "croissant", METADATA: "metadata"}
        self.directory.files({name: {"sha256": said[key]} for name, key in beside.items() if key in said})
        if "checkpoint" in said:
            self.directory.files({CHECKPOINT: {"sha256": said["checkpoint"]}})
        self.directory.know(CHECKPOINT)
        kept = _kept(self.folder / CHECKPOINT)
        if kept:
            self.directory.files({KEPT: {"sha256": kept}})
        if (self.folder / PUBLISHING).is_file():
            self.directory.know(PUBLISHING)
            self._tell(str(self.folder / PUBLISHING), ["file: an export was cut off here; run it again"])
        for name in ledgers:
            if name.startswith(EVIDENCE) and (self.folder / name).is_file():
                for evidence in evidence_of(self.folder / name, self.read):
                    self.inspection.evidence(evidence)
        self.inspection.finish(())
        self.directory.rollouts(self.manifest, self.inspection.closings())
        for name in ledgers:
            if name.startswith(ROWS) and (self.folder / name).is_file():
                self._provenance(self.folder / name)
        for name in sorted({*data, *self._expected}):
            self._rows(name)

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _provenance(self, path: Path) -> None:
        """Resolve the provenance of every row."""
        with path.open("rb") as source:
            for position, text in lines_of(source, str(path), self.read):
                try:
                    file, row, digest, rollout_id, records = _origin(parse_evidence(text))
                    faults = [self.inspection.unsupported(rollout_id, record) for record in records]
                except CanonicalError as error:
                    self._tell(position, [f"provenance: {error}"])
                    continue
                except (ValueError, KeyError, TypeError, AttributeError):
                    self._tell(position, ["provenance: not a line that says where a row came from"])
                    continue
                if not records:
                    faults = ["it names no record"]
                place = _position(self.folder / file, row)
                reasons = [f"provenance: {fault} (see {position})" for fault in dict.fromkeys(faults) if fault]
                self._tell(place, reasons)
                self._expected.setdefault(file, {}).setdefault(digest, []).append(row)

    def _rows(self, name: str) -> None:
        """Compare the rows of a file with its provenance, in any order."""
        path, expected = self.folder / name, self._expected.get(name, {})
        if not path.is_file():
            return  # said already
        strangers = []
        counted = f"*/{path.name}" if path.name in ALONE else name
        for row in _read_rows(path, self.read):
            places = expected.get(row.digest)
            self.inspection.count_row(counted)
            if not places:
                strangers.append(row.number)
            else:
                places.pop(0)
        gone = {place for places in expected.values() for place in places}
        for number in strangers:
            what = "changed: its digest is not the one in its provenance" if number in gone else NOT_OURS
            self._tell(_position(path, number), [f"row: {what}"])
        for missing in sorted(gone.difference(strangers)):
            self._tell(_position(path, missing), ["row: it is missing"])

    def _tell(self, position: str, reasons: list[str]) -> None:
        self.directory.tell(position, reasons)


def _origin(line: Any) -> tuple[str, int, str, str, list[Json]]:
    """File, place and digest of a row, its rollout and the records it was made of. Raises an error for a line of
    another shape.
    """
    file, row, digest, rollout_id, records = (line[name] for name in ("file", "row", "sha256", "rollout_id", "records"))
    texts = all(isinstance(each, str) for each in (file, digest, rollout_id))
    if not texts or type(row) is not int or row < 0 or not isinstance(records, list):
        raise TypeError
    return file, row, digest, rollout_id, records


def _position(path: Path, row: int) -> str:
    return f"{path}[{row}]" if path.suffix == ".parquet" else f"{path}:{row + 1}"


def _read_rows(path: Path, read: Read) -> Iterator[_Row]:
    """The rows of a file with their digests; an unreadable row has no digest."""
    if path.suffix != ".parquet":
        with path.open("rb") as source:
            for position, text in lines_of(source, str(path), read):
                yield _Row(int(position.rpartition(":")[2]) - 1, sha256(text).hexdigest())
        return
    require("export", f"{path}: checking Parquet", "pyarrow")
    from streams.jobs.export.parquet_file import read_parquet

    number = 0
    try:
        for row in read_parquet(path):
            yield _Row(number, values_digest(row))
            number += 1
        read(path.stat().st_size)
    except Exception as error:  # noqa: BLE001 - Arrow raises whatever foreign bytes make it trip over
        yield _Row(number, f"unreadable: {quoted(error)}")
