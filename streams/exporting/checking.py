"""An exported directory, checked: its signed manifest, its files, and every row back to the signed evidence of its rollout.

The manifest states the digest of every file; the lines under `provenance/` state for every row its digest and the records it
was made of, and hold the evidence that lists those records. Nothing else is needed: no log, no broker.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq  # type: ignore[import-untyped]

from agents.evidence.canonical import CanonicalError, parse_evidence
from agents.evidence.signing import Json, signature_faults, signed_bytes
from agents.evidence.structure import quoted
from streams.durable import digest_of
from streams.evidence_sources import Read, evidence_of, lines_of
from streams.exporting.ledger import EVIDENCE, FOLDER, ROWS
from streams.exporting.shards import ROWS_AT_ONCE, values_digest
from streams.exporting.state import CARD, CHECKPOINT, MANIFEST
from streams.findings import Finding
from streams.inspection import Inspection

DATA = (".jsonl", ".parquet")
NOT_OURS = "not of this dataset: no line of its provenance has its digest"

Found = Callable[[Finding], None]
"""Told what is not as it should be, and each row that is."""


def is_dataset(folder: Path) -> bool:
    """Whether a directory was exported; what is missing of it is for the check to say."""
    return any((folder / name).is_file() for name in (MANIFEST, CHECKPOINT)) or (folder / FOLDER).is_dir()


def files_of(folder: Path) -> list[Path]:
    """Every file with rows or provenance."""
    return sorted(path for path in folder.rglob("*") if path.suffix in DATA and path.is_file())


class _Row(NamedTuple):
    number: int
    digest: str


@dataclass
class DatasetCheck:
    """One directory."""

    folder: Path
    keys: Mapping[str, bytes]
    allow_unsigned: bool
    inspection: Inspection
    found: Found
    read: Read
    apart: frozenset[str] = frozenset()
    """Files beside the dataset that are not for this check."""
    empty: bool = False
    """Whether the manifest can be trusted and lists nothing."""
    _expected: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    """By file and digest, the places of rows that should be there."""

    def run(self) -> None:
        """Check everything."""
        manifest = self._manifest()
        data, ledgers = listed(manifest, "files"), listed(manifest, "provenance")
        self._files({**data, **ledgers}, manifest.get("card"))
        for name in ledgers:
            if name.startswith(EVIDENCE) and (self.folder / name).is_file():
                for evidence in evidence_of(self.folder / name, self.read):
                    self.inspection.evidence(evidence)
        self.inspection.finish(())
        for name in ledgers:
            if name.startswith(ROWS) and (self.folder / name).is_file():
                self._provenance(self.folder / name)
        for name in sorted({*data, *self._expected}):
            self._rows(name)

    # -- the manifest and its files ------------------------------------------------------------------------------------

    def _manifest(self) -> Json:
        path = self.folder / MANIFEST
        try:
            manifest = parse_evidence(path.read_bytes())
            faults = self._signature_faults(manifest) if isinstance(manifest, dict) else ["it is not a JSON object"]
        except FileNotFoundError:
            manifest, faults = {}, ["it is missing: nothing says what belongs to the dataset"]
        except CanonicalError as error:
            manifest, faults = {}, [str(error)]
        self._tell(str(path), [f"manifest: {fault}" for fault in faults])
        self.empty = not faults and manifest.get("files") == [] == manifest.get("provenance")
        return manifest if isinstance(manifest, dict) else {}

    def _signature_faults(self, manifest: Json) -> list[str]:
        signature = manifest.get("signature")
        if signature is None:
            return [] if self.allow_unsigned else ["it is not signed"]
        return signature_faults(signature, signed_bytes(manifest), self.keys)

    def _files(self, listed: Mapping[str, Json], card: object) -> None:
        for name, shard in listed.items():
            self._file(name, shard.get("sha256"))
        self._file(CARD, card)
        for path in files_of(self.folder):
            name = path.relative_to(self.folder).as_posix()
            if name not in listed and name not in self.apart:
                self._tell(str(path), ["file: the manifest does not list it"])

    def _file(self, name: str, stated: object) -> None:
        path = self.folder / name
        if not path.is_file():
            self._tell(str(path), ["file: it is missing"])
        elif digest_of(path) != stated:
            self._tell(str(path), ["file: changed: its digest is not the one in the manifest"])

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _provenance(self, path: Path) -> None:
        """Resolve what every row says of its origin."""
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
        """Compare the rows of a file with what its provenance lists, whatever their order."""
        path, expected = self.folder / name, self._expected.get(name, {})
        if not path.is_file():
            return  # said already
        strangers = []
        for row in _read_rows(path, self.read):
            places = expected.get(row.digest)
            self.inspection.count_row(name)
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
        if reasons:
            self.found(Finding(position, None, ok=False, reasons=tuple(reasons), more={}))


def _origin(line: Any) -> tuple[str, int, str, str, list[Json]]:
    """File, place and digest of a row, its rollout and the records it was made of. Raises what a line of another shape does."""
    file, row, digest, rollout_id, records = (line[name] for name in ("file", "row", "sha256", "rollout_id", "records"))
    texts = all(isinstance(each, str) for each in (file, digest, rollout_id))
    if not texts or type(row) is not int or row < 0 or not isinstance(records, list):
        raise TypeError
    return file, row, digest, rollout_id, records


def _position(path: Path, row: int) -> str:
    return f"{path}[{row}]" if path.suffix == ".parquet" else f"{path}:{row + 1}"


def listed(manifest: Json, member: str) -> dict[str, Json]:
    """The files of a manifest, by name; names that lead out of the directory are nobody's."""
    entries = manifest.get(member)
    named = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    return {
        name: entry
        for entry in named
        if isinstance(name := entry.get("name"), str) and not Path(name).is_absolute() and ".." not in Path(name).parts
    }


def _read_rows(path: Path, read: Read) -> Iterator[_Row]:
    """The rows of a file with their digests; what cannot be read is a row without one."""
    if path.suffix != ".parquet":
        with path.open("rb") as source:
            for position, text in lines_of(source, str(path), read):
                yield _Row(int(position.rpartition(":")[2]) - 1, sha256(text).hexdigest())
        return
    number = 0
    try:
        for batch in pq.ParquetFile(path).iter_batches(batch_size=ROWS_AT_ONCE):
            for row in batch.to_pylist():
                yield _Row(number, values_digest(row))
                number += 1
        read(path.stat().st_size)
    except Exception as error:  # noqa: BLE001 - Arrow raises whatever foreign bytes make it trip over
        yield _Row(number, f"unreadable: {quoted(error)}")
