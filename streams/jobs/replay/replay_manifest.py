"""The manifest of a replay: what was read, under which rules, and the results. Enough to do it again elsewhere."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from agents.evidence.signing import SigningKey
from schemas.codec.body import first_problem
from schemas.emission import EmissionConfig
from schemas.jsontext import compact
from schemas.versions import RECORDS, latest
from streams.jobs.errors import ReplayError
from streams.jobs.replay.comparison import Comparison
from streams.jobs.replay.partition_job import Job
from streams.log.file_writer import SUFFIX
from streams.log.files import LOG
from streams.log.fold import Hole
from streams.log.manifest import ARCHIVE, LOG_MANIFEST, described, read_manifest, seal
from streams.log.record import Span
from streams.log.topics import BY_NAME

REPLAY = "replay"
CONFIGURED = "configured"
"""Used if the configuration for rollouts that never settled is not the default."""
UNDIGESTED = "sign"
"""Digests are of records without their signatures."""


class Inputs(BaseModel):
    """The part of a log that was read."""

    topics: dict[str, dict[int, Span]]
    asked: dict[str, str] = {}


class ListedFile(BaseModel):
    """A file as it was written."""

    sha256: str
    bytes: int


class ReplayManifest(BaseModel):
    """Next to the log that a replay made."""

    inputs: Inputs
    rules: dict[str, Any] = {}
    formats: list[str] = []
    records: dict[str, int]
    digests: dict[str, str]
    holes: list[Hole] = []
    counts: dict[str, Any]
    files: dict[str, ListedFile | str]
    """In older manifests, which have no sizes, a digest for each file."""
    facts: int = 0
    partitions: int = 0
    open: int = 0
    undecodable: int = 0
    verified: Comparison | None = None


class ArchiveManifest(BaseModel):
    """Next to the log of an archive."""

    inputs: Inputs
    schemas: dict[int, dict[str, Any]]
    files: dict[str, ListedFile]


OTHERS = ("run", "demo", "again")
"""Kinds of manifests of directories that have no part of a log to name: all of it is theirs."""

_KINDS: dict[object, type[ReplayManifest | ArchiveManifest]] = {REPLAY: ReplayManifest, ARCHIVE: ArchiveManifest}


def manifest_at(path: Path) -> ReplayManifest | ArchiveManifest:
    """The manifest in a file of any name, or in a directory. Raises ReplayError if there is none, or it is invalid."""
    path = path / LOG_MANIFEST if path.is_dir() else path
    try:
        plain = json.loads(path.read_bytes())
    except OSError as error:
        raise ReplayError(f"{path}: {error.strerror}; give the manifest of a replay or an archive") from None
    except ValueError as error:
        raise ReplayError(f"{path}: not JSON: {error}") from None
    kind = plain.get("kind") if isinstance(plain, dict) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ReplayError(f"{path}: no manifest of a replay or an archive")
    try:
        return _KINDS[kind].model_validate(plain)
    except ValidationError as error:
        raise ReplayError(f"{path}: no manifest of a replay or an archive: {first_problem(error)}") from None


def require_manifest(directory: Path) -> None:
    """Raises ReplayError when there is a manifest of a replay or an archive in a directory and it is not in order."""
    if (directory / LOG_MANIFEST).is_file() and read_manifest(directory).get("kind") not in OTHERS:
        unknown = sorted(set(manifest_at(directory).inputs.topics) - BY_NAME.keys())
        if unknown:
            raise ReplayError(f"{directory / LOG_MANIFEST}: {unknown[0]!r} is no topic of ours")


def rules_of(job: Job) -> dict[str, Any]:
    """The settings that decide the output of the facts: `braid diff` names those in which two replays differ."""
    rules: dict[str, Any] = {
        "set": list(job.overrides), "reclose": job.reclose, "evidence": job.evidence, "sign": job.sign,
        "code": job.code, "redaction": job.redaction,
        "schemas": [f"{name} {latest(record).number}" for name, record in sorted(RECORDS.items())],
    }  # fmt: skip
    if job.closing is not None:
        rules["closing"] = [f"{name}={value}" for name, value in job.closing]
    if job.trusted is not None:
        rules["trusted_verifiers"] = sorted(job.trusted)
    if job.emission is not None and job.emission != (usual := EmissionConfig()):
        rules[CONFIGURED] = list(_differing(job.emission.model_dump(mode="json"), usual.model_dump(mode="json")))
    return rules


def _differing(plain: Mapping[str, Any], usual: Mapping[str, Any], section: str = "") -> Iterator[str]:
    """The settings of a configuration that differ from the defaults."""
    for name, value in plain.items():
        if isinstance(value, dict) and isinstance(usual.get(name), dict):
            yield from _differing(value, usual[name], f"{section}{name}.")
        elif value != usual.get(name):
            yield f"{section}{name}={compact(value)}"


def other_options(job: Job, found: ReplayManifest) -> list[str]:
    """In which options a job differs from the replay that a manifest is of."""
    rules = rules_of(job)
    names = ("set", "reclose", "evidence", "sign", "closing", "trusted_verifiers", CONFIGURED, "code", "redaction")
    now = job.asked | {name: rules.get(name) for name in names}
    then = found.inputs.asked | {name: found.rules.get(name) for name in names}
    now |= {"format": sorted(job.formats), "verify": job.verify}
    then |= {"format": sorted(found.formats), "verify": found.verified is not None}
    return [f"{name} {in_words(then.get(name))}, not {in_words(now.get(name))}" for name in _unequal(then, now)]


def in_words(value: object) -> str:
    """An option or a rule, for people."""
    return "nothing" if value in (None, []) else ", ".join(value) if isinstance(value, list) else str(value)


class Repeat(BaseModel):
    """How a replay compares with an earlier one, by the earlier one's manifest."""

    same: bool
    sinks: list[str]
    """Those whose records differ."""
    rules: list[str]
    """The rules that differ."""

    @property
    def ok(self) -> bool:
        """Whether the same rules gave the same records; other rules may give others."""
        return self.same or bool(self.rules)


def repeat_of(found: ReplayManifest, job: Job, digests: dict[str, str]) -> Repeat:
    """Compare the digests of a replay with those in a manifest."""
    now = {name: rule for name, rule in rules_of(job).items() if name != UNDIGESTED}
    then = {name: rule for name, rule in found.rules.items() if name != UNDIGESTED}
    differing = _unequal(found.digests, digests)
    return Repeat(
        same=not differing, sinks=differing,
        rules=[f"{name} {in_words(then.get(name))}, not {in_words(now.get(name))}" for name in _unequal(then, now)],
    )  # fmt: skip


def _unequal(one: Mapping[str, object], other: Mapping[str, object]) -> list[str]:
    return [name for name in sorted(one.keys() | other.keys()) if one.get(name) != other.get(name)]


def seal_replay(job: Job, outcome: dict[str, Any], key: SigningKey | None) -> None:
    """Write the manifest of a replay to its directory: inputs, rules, results, and files."""
    assert job.out is not None
    members = {
        "inputs": {
            "kind": "kafka" if job.directory is None else "files",
            "asked": job.asked,
            "topics": {name: {str(at): list(span) for at, span in parts.items()} for name, parts in job.spans.items()},
        },
        "rules": rules_of(job),
        "formats": list(job.formats),
        **outcome,
    }
    seal(job.out, REPLAY, described(job.out, (job.out / LOG).glob(f"*/*{SUFFIX}")), key, members)
