"""The port: one request to a model, one response or a ModelError.

A call is exactly one request to the service. Adapters never retry: a retry is another call, which the caller makes and sees.
Requests and responses have the fields of the log's `message` and `model_call` events.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Literal, NamedTuple, Protocol

from agents.evidence.canonical import CanonicalError, canonical_bytes
from agents.models.conversation import Message, ToolDefinition
from agents.models.model_error import ModelError

FinishReason = Literal["end_turn", "tool_use", "max_tokens", "refusal", "content_filter", "other"]


class SamplingParameters(NamedTuple):
    """How tokens are chosen. None is not sent."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()


class ResponseSchema(NamedTuple):
    """The form of a structured answer: a forced tool of the Messages API, a strict JSON schema of chat completions."""

    name: str
    description: str
    schema: Mapping[str, Any]


class ModelRequest(NamedTuple):
    """The whole input of a model for one response."""

    model: str
    messages: tuple[Message, ...]
    system: str = ""
    tools: tuple[ToolDefinition, ...] = ()
    sampling: SamplingParameters = SamplingParameters()
    response_schema: ResponseSchema | None = None
    timeout_s: float = 300.0
    """Limit for the whole call."""
    stream: bool = True
    cache: bool = False
    """Mark the system prompt, the tools and the conversation for caching, if the provider needs marks."""


class TokenUsage(NamedTuple):
    """Tokens of a call. None: the service did not report it."""

    input: int | None = None
    """Without tokens read from a cache."""
    output: int | None = None
    """Reasoning included."""
    cached: int | None = None
    reasoning: int | None = None

    def plus(self, other: "TokenUsage") -> "TokenUsage":
        """Return the sum; a count unknown on both sides stays unknown."""
        return TokenUsage(*(_sum(one, two) for one, two in zip(self, other, strict=True)))

    @property
    def total(self) -> int:
        """The sum of all known counts."""
        return (self.input or 0) + (self.output or 0) + (self.cached or 0)


class ModelResponse(NamedTuple):
    """A whole response."""

    message: Message
    """The assistant's."""
    model: str
    """As the service names it."""
    finish_reason: FinishReason
    usage: TokenUsage
    structured: str | None = None
    """JSON text of the answer to `response_schema`; None: the model did not answer in that form."""
    request_digest: str = ""
    """SHA-256 of the canonical JSON of the body that was sent, in hex; empty if nothing was sent."""
    latency_ms: int = 0
    tokens: Mapping[str, Any] | None = None
    """The ids and log-probabilities that the engine returned."""
    policy_version: str | None = None
    """The version of the model's weights, if the service reports it."""


class Model(Protocol):
    """A model that can be called. Branches may share one, and its connections."""

    @property
    def name(self) -> str:
        """The name used in requests and in records."""

    @property
    def takes_seed(self) -> bool:
        """Whether a seed means anything to it."""

    @property
    def takes_reasoning(self) -> bool:
        """Whether the reasoning of earlier turns is sent back to it."""

    async def call(self, request: ModelRequest) -> ModelResponse:
        """Make one call. Raises ModelError."""

    async def close(self) -> None:
        """Close the connections."""


def digest_of(body: Mapping[str, Any]) -> str:
    """Return the digest of a request's body. Raises ModelError for a body that has no JSON form."""
    try:
        return sha256(canonical_bytes(dict(body), big_integers="exact")).hexdigest()
    except CanonicalError as error:
        raise ModelError("bad_request", f"the request has no JSON form: {error}") from None


def _sum(one: int | None, two: int | None) -> int | None:
    return None if one is None and two is None else (one or 0) + (two or 0)
