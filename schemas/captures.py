"""Raw material of captured branches: spans, logs, model calls and events as they came, before anything was made of them.

A fold of its own (`agents/capture`) turns the captures of a branch into its events; the worker that folds rollouts reads those events
and never a capture.
"""

from typing import Literal

from pydantic import ConfigDict

from schemas.base import Count, Id, Index, Millis, Record

CaptureKind = Literal["span", "log", "call", "event", "end"]
"""span and log: OpenTelemetry. call: one request to a model. event: one event of a tracer. end: the branch is over."""


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
    """The writer: proxy, tracer, fold."""
    trace_id: str | None = None
    """The trace of a span or log, in hex."""
    span_id: str | None = None
    """The span of a span or log, in hex."""
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
