"""The data of the two conversation events: a `message`, and a `model_call` that names the messages it was made with.

A message is written once, when it comes into being. A call says its context as a difference to an earlier call, so that a turn
costs only what is new in it. Both stand in an event's `data`; these models check what comes in.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, StringConstraints, model_validator

from schemas.base import Count, Millis, Real, Whole
from schemas.jsontext import compact, kind_of
from schemas.training import TokenId

MAX_MESSAGE_BYTES = 1024 * 1024
"""UTF-8 bytes of a message event's data. A longer message is a bad event."""

ChatRole = Literal["system", "developer", "user", "assistant", "tool"]
Digest = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
Name = Annotated[str, StringConstraints(min_length=1, max_length=1024)]


class _Data(BaseModel):
    # Unknown fields stay in the event; they are not read.
    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)


class ContentPart(_Data):
    """One part of a content that is not a plain text."""

    type: Literal["text", "image", "audio", "file", "other"]
    """The kind of part."""
    text: str | None = None
    """The text, where it is one."""
    digest: str | None = None
    """SHA-256 of the media, which stay outside the log."""
    media_type: str | None = None
    """Media type of what the digest names."""
    bytes: Count | None = None
    """Length of what the digest names."""

    @model_validator(mode="after")
    def _says_something(self) -> "ContentPart":
        if self.type == "text" and self.text is None:
            raise ValueError("a part of type text needs its text")
        if self.text is None and self.digest is None:
            raise ValueError("a part without text needs the digest of its media")
        return self


class RequestedCall(_Data):
    """A tool call inside an assistant message."""

    id: Name
    """The producer's id; a tool message names it."""
    name: Name
    """The tool."""
    arguments: str
    """The arguments as the model wrote them: JSON text. An object is taken, too."""

    @model_validator(mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        if isinstance(value, dict) and "arguments" in value and not isinstance(value["arguments"], str):
            given = value["arguments"]
            if not isinstance(given, dict):
                raise ValueError(f"arguments: expected an object or JSON text, found {kind_of(given)}")
            return value | {"arguments": compact(given)}
        return value


class ChatMessage(_Data):
    """A message of a conversation."""

    id: Name | None = None
    """Unique in the attempt; `m<seq>` when left out."""
    role: ChatRole
    """The speaker."""
    agent: str | None = None
    """The agent whose conversation it belongs to, where a branch has several."""
    content: str | tuple[ContentPart, ...] | None = None
    """The text, or its parts; null for an assistant that only calls tools."""
    reasoning: str | None = None
    """The reasoning of an assistant before its content."""
    tool_calls: tuple[RequestedCall, ...] = ()
    """The calls of an assistant."""
    tool_call_id: str | None = None
    """On a tool message: the call that it answers."""
    name: str | None = None
    """On a tool message: the tool."""
    is_error: bool = False
    """On a tool message: whether the tool failed."""
    extra: dict[str, Any] | None = None
    """Provider's own data: signatures of thinking blocks, cache marks. It reaches no row."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        return {name: part for name, part in value.items() if part is not None} if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _fits_its_role(self) -> "ChatMessage":
        if self.role != "assistant" and (self.tool_calls or self.reasoning is not None):
            raise ValueError(f"tool_calls and reasoning belong to an assistant message, not to a {self.role} message")
        if self.role == "tool" and not self.tool_call_id:
            raise ValueError("a tool message needs tool_call_id: the call that it answers")
        return self


class CallContext(_Data):
    """The messages that were sent: the first `keep` of an earlier call's context and response, then `add`."""

    after: str | None = None
    """The earlier call; null to begin with nothing."""
    keep: Count = 0
    """How many of its messages, its response counted, stay."""
    add: tuple[str, ...] = ()
    """Ids of the messages that follow."""


class SamplingOptions(_Data):
    """How the model was asked to sample."""

    temperature: Real | None = None
    """Temperature."""
    top_p: Real | None = None
    """Share of the probability that tokens are drawn from."""
    top_k: Whole | None = None
    """Number of tokens that are drawn from."""
    seed: Whole | None = None
    """Seed, where the model takes one."""
    max_tokens: Count | None = None
    """Limit of the response."""
    stop: str | tuple[str, ...] | None = None
    """Texts that end the response."""


class CallUsage(_Data):
    """Tokens of one call."""

    input: Count | None = None
    """Of the prompt, cached ones included."""
    output: Count | None = None
    """Of the response, reasoning included."""
    cached: Count | None = None
    """Of the prompt, read from a cache."""
    reasoning: Count | None = None
    """Of the response, spent on reasoning."""


class CallError(_Data):
    """Why a call has no response."""

    kind: str
    """rate_limited, http_5xx, timeout, refused, ..."""
    message: str = ""
    """The provider's words."""


class GivenTokens(_Data):
    """The tokens of a call, exactly as its engine returned them."""

    prompt_ids: list[TokenId] | Digest
    """The ids of the prompt. On the log their SHA-256 stands here, and the ids in a field of their own."""
    ids: list[TokenId] | Digest
    """The ids of the response."""
    logprobs: list[Real] | Digest | None = None
    """The log-probability of each id of the response."""
    tokenizer: str | None = None
    """The tokenizer, where the engine names it."""
    left_out: str | None = None
    """Written here where the ids did not fit into a slice: tokens_too_large."""

    @model_validator(mode="after")
    def _fit_together(self) -> "GivenTokens":
        given = [each for each in (self.prompt_ids, self.ids, self.logprobs) if each is not None]
        if len({isinstance(each, str) for each in given}) > 1:
            raise ValueError("tokens: expected arrays of numbers")
        if isinstance(self.ids, list) and isinstance(self.logprobs, list) and len(self.ids) != len(self.logprobs):
            raise ValueError(
                f"tokens: {len(self.logprobs)} logprobs for {len(self.ids)} ids; there must be one for each"
            )
        return self


class ModelCall(_Data):
    """One request to a model: its context, and the response or the error. A retried call is another call."""

    call_id: Name
    """Unique in the attempt."""
    agent: str | None = None
    """The agent that made it, where a branch has several."""
    context: CallContext
    """The messages that were sent."""
    response: str | None = None
    """Id of the assistant message that came back."""
    model: str | None = None
    """The model that was asked."""
    policy_version: str | None = None
    """The version of its weights, in training."""
    sampling: SamplingOptions | None = None
    """How it was asked to sample."""
    tools: list[Any] | None = None
    """The tools on offer."""
    tools_digest: str | None = None
    """SHA-256 of the canonical JSON of the tools, where an earlier call or the rollout has them."""
    finish_reason: str | None = None
    """Why the response ended."""
    usage: CallUsage | None = None
    """Tokens of this call alone."""
    tokens: GivenTokens | None = None
    """The tokens of prompt and response, where the engine returned them."""
    error: CallError | None = None
    """Why there is no response."""
    request_digest: str | None = None
    """SHA-256 of the request's canonical JSON."""
    started_ms: Millis | None = None
    """When it was sent."""
    latency_ms: Count | None = None
    """Milliseconds until the response was complete."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        return {name: part for name, part in value.items() if part is not None} if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _ended_once(self) -> "ModelCall":
        if self.response is not None and self.error is not None:
            raise ValueError("a call has a response or an error, not both; a retried call is another call")
        return self
