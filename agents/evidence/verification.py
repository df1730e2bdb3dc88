"""Verifying evidence: records in, one verdict per record and per chain out.

Judges records layer by layer: structural and semantic (`structure`), authenticity (an inline Ed25519 signature or a
DSSE envelope, by a known key), and the link to the record before (`chain`). A record is ok if every layer passes; the
whole is ok if every record and every chain is, and there is at least one record. A line that is not a record gets its
own verdict, and reading goes on. Records are judged as they come; only their hashes are kept.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from agents.evidence.canonical import CanonicalError, digest, parse_evidence
from agents.evidence.chain import MAX_REASONS, ChainState, ChainTracker, ChainVerdict
from agents.evidence.dsse import check_envelope, enveloped, is_envelope
from agents.evidence.signing import Json, signature_faults, signed_bytes
from agents.evidence.structure import printable, semantic_faults, structural_faults


class Authenticity(StrEnum):
    """How a record is authenticated."""

    DSSE_VALID = "dsse-valid"
    INLINE_VALID = "inline-valid"
    LEGACY_DSSE = "legacy-dsse"
    UNSIGNED = "unsigned"
    INVALID = "invalid"


class Evidence(NamedTuple):
    """One item to verify and its position: a record, or the reason why it is not one."""

    position: str
    record: Json | None
    problem: str = ""


@dataclass(frozen=True)
class RecordVerdict:
    """The verdict of each layer on one record."""

    position: str
    run_id: str | None
    structural: bool
    semantic: bool
    authenticity: Authenticity
    ok: bool
    reasons: tuple[str, ...]
    record_hash: str | None = None
    """The next record refers to this hash; None if the record has no canonical bytes."""

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as a JSON object."""
        return {
            "position": self.position,
            "run_id": self.run_id,
            "ok": self.ok,
            "reasons": list(self.reasons),
            "structural": "valid" if self.structural else "invalid",
            "semantic": "valid" if self.semantic else "invalid",
            "authenticity": str(self.authenticity),
        }


@dataclass(frozen=True)
class Report:
    """Everything that was verified."""

    records: tuple[RecordVerdict, ...]
    chains: tuple[ChainVerdict, ...]

    @property
    def ok(self) -> bool:
        """Whether every check passed; False if there is nothing to check."""
        return bool(self.records) and all(record.ok for record in self.records) and all(c.ok for c in self.chains)

    @property
    def chain_state(self) -> ChainState:
        """The chain verdict over everything."""
        return worst_chain(self.chains)


class Verifier:
    """Judges records as they arrive, for input that does not fit in memory."""

    def __init__(self, keys: Mapping[str, bytes], *, allow_unsigned: bool = False) -> None:
        self._keys = keys
        self._accepted = {Authenticity.DSSE_VALID, Authenticity.INLINE_VALID}
        if allow_unsigned:
            self._accepted.add(Authenticity.UNSIGNED)
        self._tracker = ChainTracker()
        self.counts: Counter[bool] = Counter()
        """How many records were ok (True) and how many were not (False)."""

    def add(self, evidence: Evidence) -> RecordVerdict:
        """Judge the next record."""
        verdict = self._judge(evidence.position, evidence.record, evidence.problem)
        self.counts[verdict.ok] += 1
        return verdict

    def finish(self) -> list[ChainVerdict]:
        """Judge the chains; call once, after the last record."""
        return self._tracker.finish()

    def _judge(self, position: str, record: Json | None, problem: str) -> RecordVerdict:
        if record is None:
            return RecordVerdict(position, None, False, False, Authenticity.INVALID, ok=False, reasons=(problem,))
        structural = structural_faults(record)
        semantic = semantic_faults(record)
        body: bytes | None = None
        try:
            body = signed_bytes(record)
            authenticity, faults = _authenticity(record, body, self._keys)
            if not faults and authenticity not in self._accepted:
                faults = ["the record is not signed"]
        except CanonicalError as error:
            authenticity, faults = Authenticity.INVALID, [f"no canonical bytes: {error}"]
        record_hash = digest(body) if body is not None else None
        run_id = record.get("run_id")
        linked = self._tracker.add(record, record_hash, position)
        reasons = (
            *_few("structural", structural),
            *_few("semantic", semantic),
            *_few("authenticity", faults),
            *_few("chain", linked),
        )
        return RecordVerdict(
            position=position,
            run_id=printable(run_id) if isinstance(run_id, str) else None,
            structural=not structural,
            semantic=not semantic,
            authenticity=authenticity,
            ok=not reasons,
            reasons=reasons,
            record_hash=record_hash,
        )


def verify_records(evidence: Iterable[Evidence], keys: Mapping[str, bytes], *, allow_unsigned: bool = False) -> Report:
    """Judge all records and their chains; `keys` are the public keys (32 bytes) by key_id."""
    verifier = Verifier(keys, allow_unsigned=allow_unsigned)
    records = tuple(verifier.add(item) for item in evidence)
    return Report(records, tuple(verifier.finish()))


def read_lines(lines: Iterable[bytes | str], source: str = "line") -> Iterator[Evidence]:
    """Read JSONL: every line that is not blank becomes a record, or the reason why it is not one, at `source:number`."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield read_record(line, f"{source}:{number}")


def read_record(text: bytes | str, position: str) -> Evidence:
    """Read one record from JSON text."""
    try:
        return evidence_in(parse_evidence(text), position)
    except CanonicalError as error:
        return Evidence(position, None, str(error))


def evidence_in(value: object, position: str) -> Evidence:
    """The record in a JSON value, or in a bare DSSE envelope."""
    if not isinstance(value, dict):
        return Evidence(position, None, "not a record: a JSON object is expected")
    if not is_envelope(value):
        return Evidence(position, value)
    record = enveloped(value)
    return Evidence(position, record, "" if record else "a DSSE envelope without a Statement about a record in it")


def worst_chain(chains: Iterable[ChainVerdict]) -> ChainState:
    """Return the worst state of all chains; not-present if there are none."""
    states = {verdict.state for verdict in chains}
    return next((state for state in _WORST_FIRST if state in states), ChainState.NOT_PRESENT)


_WORST_FIRST = (
    ChainState.BROKEN,
    ChainState.ORPHANED,
    ChainState.PARTIAL,
    ChainState.NOT_PRESENT,
    ChainState.INTACT,
)


class _Judged(NamedTuple):
    authenticity: Authenticity
    faults: list[str]


def _authenticity(record: Json, body: bytes, keys: Mapping[str, bytes]) -> _Judged:
    """Judge signature and envelope; if both are present the envelope decides and the signature must agree."""
    signature = record.get("signature")
    if record.get("dsse_envelope") is None:
        if signature is None:
            return _Judged(Authenticity.UNSIGNED, [])
        faults = signature_faults(signature, body, keys)
        return _Judged(Authenticity.INVALID if faults else Authenticity.INLINE_VALID, faults)

    state, faults = check_envelope(record, keys)
    if signature is not None and not _repeats_envelope(record) and (own := signature_faults(signature, body, keys)):
        return _Judged(Authenticity.INVALID, faults + own)
    named = {"valid": Authenticity.DSSE_VALID, "legacy": Authenticity.LEGACY_DSSE, "invalid": Authenticity.INVALID}
    return _Judged(named[state], faults)


def _repeats_envelope(record: Json) -> bool:
    """Say whether the inline signature is a copy of the envelope's, as emitters of aep/v0.4 write it."""
    try:
        entry = record["dsse_envelope"]["signatures"][0]
        copy = {"alg": "ed25519", "key_id": entry["keyid"], "sig": entry["sig"]}
    except (KeyError, IndexError, TypeError):
        return False
    signature = record["signature"]
    return isinstance(signature, dict) and all(signature.get(name) == value for name, value in copy.items())


def _few(layer: str, faults: list[str]) -> Iterator[str]:
    yield from (f"{layer}: {fault}" for fault in faults[:MAX_REASONS])
    if len(faults) > MAX_REASONS:
        yield f"{layer}: and {len(faults) - MAX_REASONS} more"
