"""The Avro of every record: generated from the models, committed under `schemas/avro/`, one file per version.

`<Record>.v<N>.avsc` is never changed once it has been released; a changed model gets the next number, which must be able to
read everything that every earlier version wrote (BACKWARD_TRANSITIVE). `check()` says what is wrong, `write()` adds what is new.
"""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
from fastavro.schema import fingerprint, to_parsing_canonical_form

from schemas.base import Record
from schemas.branches import BranchRecord
from schemas.captures import Capture
from schemas.closures import Closure
from schemas.compliance import ComplianceEvalRecord
from schemas.emission import NEWEST_VERSION
from schemas.errors import SchemaError
from schemas.events import AgentEvents
from schemas.evidence import AepRecord
from schemas.judging import JudgeRequest, JudgeVote
from schemas.lifecycle import Lifecycle
from schemas.rankings import Ranking
from schemas.training import DpoRecord, PpoRecord, RejectedRecord, SftRecord
from schemas.verdicts import BuildVerdict, CheckVerdict, VisualVerdict

FOLDER = Path(__file__).parent / "avro"

RECORDS: dict[str, type[Record]] = {
    record.__name__: record
    for record in (
        Lifecycle, AgentEvents, BuildVerdict, VisualVerdict, CheckVerdict, Capture, JudgeRequest, JudgeVote, Closure,
        BranchRecord, Ranking, AepRecord, SftRecord, DpoRecord, PpoRecord, RejectedRecord, ComplianceEvalRecord,
    )
}  # fmt: skip
"""Every record that is a topic's value, by name."""

AvroSchema = dict[str, Any]

_EMITTED: dict[int, dict[str, int]] = {
    1: dict.fromkeys(
        (
            "BranchRecord", "Ranking", "AepRecord", "SftRecord", "DpoRecord", "PpoRecord", "RejectedRecord", "JudgeRequest",
        ),
        1,
    ),
    2: {
        "BranchRecord": 2, "Ranking": 2, "SftRecord": 3, "DpoRecord": 3, "PpoRecord": 4, "ComplianceEvalRecord": 1,
    },
}  # fmt: skip
"""By emission version, the schema version of each record that follows from a closed rollout; an unnamed one has that of the
emission version before. A released emission version never changes: its rollouts keep their bytes for ever."""

assert max(_EMITTED) == NEWEST_VERSION

_FILE = re.compile(r"^(?P<name>\w+)\.v(?P<version>\d+)\.avsc$")


class Version(NamedTuple):
    """One committed schema."""

    name: str
    """The record."""
    number: int
    """1, 2, ..."""
    schema: AvroSchema
    """As committed."""
    parsed: Any
    """As fastavro wants it."""
    fingerprint: bytes
    """CRC-64-AVRO of the parsing canonical form, 8 bytes little-endian: the single-object header."""


def generate(record: type[Record]) -> AvroSchema:
    """The Avro of a model."""
    schema: AvroSchema = _without_container_names(json.loads(record.avro_schema()))
    return schema


def _without_container_names(node: Any) -> Any:
    # The generator names arrays and maps after their field; Avro gives only records a name.
    if isinstance(node, list):
        return [_without_container_names(item) for item in node]
    if isinstance(node, dict):
        kept = {key: _without_container_names(value) for key, value in node.items()}
        if kept.get("type") in ("array", "map"):
            kept.pop("name", None)
        return kept
    return node


def without_docs(node: Any) -> Any:
    """A schema without its descriptions: wording may change, and makes no new version."""
    if isinstance(node, list):
        return [without_docs(item) for item in node]
    if isinstance(node, dict):
        return {key: without_docs(value) for key, value in node.items() if key != "doc" or not isinstance(value, str)}
    return node


def committed(folder: Path = FOLDER) -> dict[str, tuple[Version, ...]]:
    """All committed versions by record name, oldest first."""
    return _committed(folder)  # the cache takes `committed()` and `committed(FOLDER)` for two things


@cache
def _committed(folder: Path) -> dict[str, tuple[Version, ...]]:
    found: dict[str, list[Version]] = {}
    for path in sorted(folder.glob("*.avsc")):
        match = _FILE.match(path.name)
        if match is None:
            raise SchemaError(f"{path}: not a schema file; expected <Record>.v<N>.avsc")
        schema = json.loads(path.read_text("utf-8"))
        mark = bytes.fromhex(fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO"))
        version = Version(match["name"], int(match["version"]), schema, fastavro.parse_schema(schema), mark)
        found.setdefault(version.name, []).append(version)
    return {name: tuple(sorted(versions, key=lambda v: v.number)) for name, versions in found.items()}


def latest(record: type[Record], folder: Path = FOLDER) -> Version:
    """The newest committed version of a record."""
    versions = committed(folder).get(record.__name__)
    if not versions:
        raise SchemaError(f"{record.__name__} has no committed schema; run `braid schemas write`")
    return versions[-1]


@cache
def emitted(emission: int) -> dict[str, int]:
    """By record, the schema version that a rollout of this emission version is written with."""
    numbers: dict[str, int] = {}
    for each in range(1, emission + 1):
        numbers |= _EMITTED[each]
    return numbers


@cache
def numbered(record: type[Record], number: int) -> Version:
    """A committed version of a record."""
    return next(version for version in committed()[record.__name__] if version.number == number)


def part_of(whole: type[Record], number: int, part: type[Record]) -> AvroSchema:
    """The schema that a record had inside of a committed version of another one, which names it first."""
    found = _find(numbered(whole, number).schema, part.__name__)
    assert found is not None
    return found


def _find(node: Any, name: str) -> AvroSchema | None:
    if isinstance(node, dict) and node.get("type") == "record" and node["name"] == name:
        return node
    inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return next((found for each in inner if (found := _find(each, name)) is not None), None)


def unversioned(record: type[Record]) -> Version:
    """The schema of a record that is not a topic's value."""
    schema = generate(record)
    return Version(record.__name__, 0, schema, fastavro.parse_schema(schema), b"")


def check(folder: Path = FOLDER) -> list[str]:
    """Return what is wrong: models that differ from their file, versions that cannot read an earlier one. Empty when
    all is well."""
    problems = []
    versions = committed(folder)
    for name, record in RECORDS.items():
        if name not in versions:
            problems.append(f"{name}: no committed schema; run `braid schemas write`")
            continue
        newest = versions[name][-1]
        if without_docs(generate(record)) != without_docs(newest.schema):
            problems.append(f"{name}: the model differs from {name}.v{newest.number}.avsc; run `braid schemas write`")
        for earlier in versions[name][:-1]:
            problems += [
                f"{name}.v{newest.number} cannot read v{earlier.number}: {why}"
                for why in incompatibilities(newest.schema, earlier.schema)
            ]
    problems += [
        f"{name}.v{versions[name][-1].number} belongs to no emission version: emission version {NEWEST_VERSION} writes "
        f"v{number}; name it in schemas/versions.py, in a version that has not been released"
        for name, number in emitted(NEWEST_VERSION).items()
        if name in versions and versions[name][-1].number != number
    ]
    problems += [f"{name}: a committed schema without a model" for name in sorted(set(versions) - set(RECORDS))]
    return problems


def incompatibilities(reader: AvroSchema, writer: AvroSchema) -> list[str]:
    """Why `reader` cannot read what `writer` wrote; empty when it can."""
    from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
    from avro.schema import parse as parse_for_check

    checker: Any = ReaderWriterCompatibilityChecker
    result = checker().get_compatibility(parse_for_check(json.dumps(reader)), parse_for_check(json.dumps(writer)))
    if result.compatibility is SchemaCompatibilityType.compatible:
        return []
    return sorted(result.messages)


def write(folder: Path = FOLDER, *, amend: bool = False) -> list[Path]:
    """Commit what changed: a new version of each record whose model differs (or the last one again, with `amend`)."""
    written = []
    folder.mkdir(parents=True, exist_ok=True)
    versions = committed(folder)
    for name, record in RECORDS.items():
        schema, known = generate(record), versions.get(name, ())
        if known and (
            known[-1].schema == schema or (not amend and without_docs(known[-1].schema) == without_docs(schema))
        ):
            continue
        number = (known[-1].number + (0 if amend else 1)) if known else 1
        path = folder / f"{name}.v{number}.avsc"
        path.write_text(json.dumps(schema, indent=2, ensure_ascii=False) + "\n", "utf-8")
        written.append(path)
    _committed.cache_clear()
    return written
