"""AEP: signed evidence of what a branch did, what verifiers said, and which branch records and training rows came of it.

The Avro record holds what the JSON view says; `agents/evidence/build.py` turns one into the other. The signature is over
the canonical bytes of the JSON view.
"""

from typing import Literal

from schemas.base import Count, Id, Millis, Real, Record

SideEffect = Literal["read", "mutate-local", "mutate-external", "network-egress", "unknown"]
"""The possible side effects of a call, weakest first; `unknown` counts as the worst."""


class AepAction(Record):
    """One tool call."""

    action_id: str
    """The call's id."""
    tool_name: str
    """The tool."""
    state_changing: bool
    """Whether it can change anything."""
    arguments_digest: str | None = None
    """SHA-256 of the canonical JSON of the raw arguments."""
    result_digest: str | None = None
    """SHA-256 of the raw output; absent when no result came."""
    side_effect_class: SideEffect
    """Its possible side effects."""
    timestamp_ms: Millis
    """When the call was made; the branch's first known time where the producer gave none."""


class AepVerifierResult(Record):
    """A verifier's finding; only outcomes that are known."""

    verifier_id: str
    """build, visual, check:<name>, or judge:<model>."""
    passed: bool
    """The outcome."""
    score: Real | None = None
    """A degree, where there is one."""


class AepBudget(Record):
    """The usage of the run."""

    input_tokens: Count | None = None
    """Prompt tokens."""
    output_tokens: Count | None = None
    """Generated tokens."""
    tool_calls: Count
    """Tool calls."""
    usd: Real | None = None
    """Cost, where the producer says."""


class EmittedRecord(Record):
    """One branch record or training row of the rollout."""

    topic: str
    """The sink it went to, without a prefix."""
    record_id: str
    """Its id."""
    digest: str
    """SHA-256 of its Avro body, in hex."""


class AepClosing(Record):
    """The last record's statement about the whole rollout: a missing row or record is seen by this."""

    records: Count
    """How many evidence records come before this one."""
    head: str | None = None
    """SHA-256 of the canonical bytes of the one before."""
    ranking_id: str
    """The ranking."""
    ranking_digest: str
    """SHA-256 of its Avro body, in hex."""
    settled_id: str
    """The decision that pinned branches and verdicts."""
    closed_id: str
    """The decision that pinned votes."""
    vote_ids: tuple[str, ...] = ()
    """The votes that count."""
    emitted: tuple[EmittedRecord, ...] = ()
    """Every branch record of the rollout, then every training row, rejected ones included."""


class AepSignature(Record):
    """Ed25519 over the canonical bytes."""

    alg: str
    """Always `ed25519`."""
    key_id: str
    """Which key; `dev-...` for a development key."""
    sig: str
    """The signature, base64."""


class AepRecord(Record):
    """One evidence record: a branch, or (the last of a rollout) its ranking."""

    record_id: Id
    """SHA-256 of the canonical bytes of the JSON view, in hex."""
    rollout_id: Id
    """The rollout; also the Kafka key."""
    schema_version: str = "aep/v0.3"
    """The AEP version of the JSON view."""
    run_id: str
    """`<rollout_id>/b<index>/a<attempt>`, or `<rollout_id>/ranking`."""
    model_id: str | None = None
    """The model, when known."""
    repo_commit: str | None = None
    """The commit, when known."""
    tool_manifest_digest: str | None = None
    """The tool manifest, when known."""
    raw_digest: str | None = None
    """The branch's raw digest: what the log must hold for this to be true."""
    actions: tuple[AepAction, ...] = ()
    """Its actions."""
    verifier_results: tuple[AepVerifierResult, ...] = ()
    """The verifiers' findings."""
    budget_ledger: AepBudget | None = None
    """Its usage."""
    created_at_ms: Millis
    """Time of the closing decision."""
    prev_record_hash: str | None = None
    """SHA-256 of the canonical bytes of the rollout's previous record."""
    run_side_effect_class_max: SideEffect | None = None
    """The worst of the actions."""
    closing: AepClosing | None = None
    """On the last record of a rollout."""
    signature: AepSignature | None = None
    """Outside the signed content."""
