"""Raw material of captured branches: spans, logs, model calls and events as they came, before anything was made of them.

A fold of its own (`agents/capture`) turns the captures of a branch into its events; the worker that folds rollouts reads those events
and never a capture.
"""

from typing import Literal

from pydantic import ConfigDict, Field

from schemas.base import Count, Id, Index, Millis, Record

CaptureKind = Literal["span", "log", "call", "event", "end"]
"""span and log: those of a trace that came in one request. call: a request to a model. event: one of a tracer. end: the branch is over."""


class Capture(Record):
    """One thing that was captured of a branch."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")  # a body need not be UTF-8

    rollout_id: Id
    """The rollout; also the Kafka key."""
    branch_index: Index
    """The branch, 0..N-1."""
    attempt: Index = 0
    """The try at this branch."""
    capture_id: Id
    """Unique in the attempt; a repeated one is ignored."""
    kind: CaptureKind
    """The kind of material in the body."""
    source: str = ""
    """The writer: proxy, tracer, otlp, trace, fold."""
    trace_id: str | None = None
    """The trace of spans or log records, in hex."""
    span_id: str | None = None
    """The span, where the body is a single one, in hex."""
    received_ms: Millis
    """When it came, by the receiver's clock."""
    body: bytes = b""
    """The material, or one part of it."""
    part: Count = 0
    """The number of this part, from 0."""
    parts: Count = 1
    """Parts of the whole; 0 where the material was too large and only its digest is kept."""
    size: Count | None = None
    """Bytes of the whole, where this is not all of it."""
    digest: str | None = None
    """SHA-256 of the whole, where this is not all of it."""
    identity: str | None = Field(default=None, exclude_if=lambda identity: identity is None)
    """The branch that a sender of spans names beside them, in a header or by its token: JSON with rollout_id, branch_index, attempt, and
    `bound` where its token writes to no other."""
