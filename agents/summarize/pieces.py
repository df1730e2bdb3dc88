"""The few fields of agent events that records are made of, kept while their rollout is open."""

from typing import Final, final

from agents.conversations.chat import Asked, Odd, Told, Uttered
from agents.conversations.held_text import HeldText
from agents.redaction.redaction import Counts
from agents.summarize.output import Excerpt


@final
class Call:
    """A tool call."""

    __slots__ = ("arguments", "arguments_digest", "batch", "call_id", "malformed", "name", "step")

    def __init__(
        self,
        call_id: str | None,
        name: str,
        arguments: str,
        arguments_digest: str,
        batch: str | None,
        step: int | None,
        malformed: bool = False,
    ) -> None:
        self.call_id = call_id
        self.name = name
        self.arguments = arguments
        self.arguments_digest = arguments_digest
        self.batch = batch
        self.step = step
        self.malformed = malformed
        """Whether the model's arguments were not a JSON object."""


@final
class Result:
    """A tool's answer."""

    __slots__ = ("call_id", "error_code", "error_message", "name", "output", "output_bytes", "output_digest", "whole")

    def __init__(
        self,
        call_id: str | None,
        name: str | None,
        output: Excerpt | None,
        output_digest: str,
        output_bytes: int,
        error_code: str | None,
        error_message: str | None,
        whole: str | HeldText | None = None,
    ) -> None:
        self.call_id = call_id
        self.name = name
        self.output = output
        self.output_digest = output_digest
        self.output_bytes = output_bytes
        self.error_code = error_code
        self.error_message = error_message
        self.whole = whole
        """The whole output, if it is longer than the excerpt."""


@final
class Start:
    """The start of the run."""

    __slots__ = ("model", "system", "task", "tools")

    def __init__(
        self, task: str | None, model: str | None, system: str | None = None, tools: str | None = None
    ) -> None:
        self.task = task
        self.model = model
        self.system = system
        """The system prompt of this branch alone."""
        self.tools = tools
        """The tools that this branch alone was offered: a JSON array as text."""


@final
class Said:
    """Text that the model wrote while working; deltas are joined and redacted when the branch is built."""

    __slots__ = ("step", "text")

    def __init__(self, text: str, step: int | None) -> None:
        self.text = text
        self.step = step


@final
class Answer:
    """The final answer."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


@final
class Failure:
    """An error that ended the run."""

    __slots__ = ("message", "provider")

    def __init__(self, message: str, provider: bool) -> None:
        self.message = message
        self.provider = provider


@final
class Spent:
    """Usage so far: token counts are cumulative for the run."""

    __slots__ = ("cached_tokens", "input_tokens", "model", "output_tokens", "usd")

    def __init__(
        self,
        input_tokens: int | None,
        output_tokens: int | None,
        cached_tokens: int | None,
        usd: float | None,
        model: str | None,
    ) -> None:
        self.input_tokens = input_tokens
        self.output_tokens = output_tokens
        self.cached_tokens = cached_tokens
        self.usd = usd
        self.model = model


@final
class Decision:
    """A decision about the agent's actions by another party: a supervisor or a guardrail."""

    __slots__ = ("kind",)

    def __init__(self, kind: str) -> None:
        self.kind = kind


@final
class Round:
    """One round of an answer to a specification, as recorded by its runner."""

    __slots__ = (
        "base", "cached_tokens", "committed", "digest", "input_tokens", "latency_ms", "made_by", "mode", "number", "output",
        "output_tokens", "reason", "rolled_back", "strategy", "target", "truncated",
    )  # fmt: skip

    def __init__(
        self, number: int, mode: str, strategy: str, target: tuple[str, ...], output: str, digest: str,
        made_by: str, *,
        base: int | None, committed: bool, rolled_back: bool, reason: str | None, truncated: bool,
        input_tokens: int | None, output_tokens: int | None, cached_tokens: int | None, latency_ms: int | None,
    ) -> None:  # fmt: skip
        self.number = number
        self.mode = mode
        self.strategy = strategy
        self.target = target
        self.output = output
        self.digest = digest
        """SHA-256 of the raw text, as its verdict names it."""
        self.made_by = made_by
        self.base = base
        self.committed = committed
        self.rolled_back = rolled_back
        self.reason = reason
        self.truncated = truncated
        self.input_tokens = input_tokens
        self.output_tokens = output_tokens
        self.cached_tokens = cached_tokens
        self.latency_ms = latency_ms


Kept = Call | Result | Start | Said | Answer | Failure | Spent | Decision | Round | Told | Asked | Uttered | Odd
Body = Kept | None

PLAIN: Final = 0
TRANSCRIPT: Final = 1
EXACT: Final = 2
"""The form of a conversation, by the events that are there: steps of an agent alone, its turns in order, or its model calls."""


@final
class Noted:
    """Something that records are made of, with its time by the producer's clock and the redactions in it."""

    __slots__ = ("body", "redactions", "time")

    def __init__(
        self,
        body: Kept,
        time: int | None,
        redactions: Counts,
    ) -> None:
        self.body = body
        self.time = time
        self.redactions = redactions


@final
class Piece:
    """The kept part of contiguous events that came together, as long as their rollout is open."""

    __slots__ = ("at", "digests", "first_seq", "first_time", "form", "last_time", "noted")

    def __init__(
        self,
        first_seq: int,
        at: int,
        digests: bytes,
        noted: tuple[Noted, ...],
        first_time: int | None,
        last_time: int | None,
        form: int = 0,
    ) -> None:
        self.first_seq = first_seq
        self.at = at
        """When the log took them in, in its own time."""
        self.digests = digests
        """SHA-256 of the canonical JSON of each raw event, one after the other."""
        self.noted = noted
        """Their content, in order; text that the model wrote in one step is joined."""
        self.first_time = first_time
        self.last_time = last_time
        self.form = form
        """The strongest form of a conversation that its events have."""

    @property
    def stop(self) -> int:
        """The seq after its last."""
        return self.first_seq + len(self.digests) // DIGEST

    def digest(self, seq: int) -> bytes:
        """The digest of one of its events."""
        at = (seq - self.first_seq) * DIGEST
        return self.digests[at : at + DIGEST]


DIGEST: Final = 32
"""Bytes of a SHA-256."""
