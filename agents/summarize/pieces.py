"""The few fields of agent events that records are made of, kept while their rollout is open."""

from typing import Final, NamedTuple, final

from agents.conversations.chat import Asked, Odd, Told, Uttered
from agents.conversations.held_text import HeldText
from agents.redaction.redaction import Counts
from agents.summarize.output import Excerpt


class Call(NamedTuple):
    """A tool call."""

    call_id: str | None
    name: str
    arguments: str
    arguments_digest: str
    batch: str | None
    step: int | None
    malformed: bool = False
    """Whether the model's arguments were no JSON object."""


class Result(NamedTuple):
    """A tool's answer."""

    call_id: str | None
    name: str | None
    output: Excerpt | None
    output_digest: str
    output_bytes: int
    error_code: str | None
    error_message: str | None
    whole: str | HeldText | None = None
    """All of the output, where it is longer than the excerpt."""


class Start(NamedTuple):
    """How the run began."""

    task: str | None
    model: str | None
    system: str | None = None
    """The system prompt of this branch alone."""
    tools: str | None = None
    """The tools that this branch alone was offered: a JSON array as text."""


class Said(NamedTuple):
    """Text that the model wrote while working; deltas are joined and redacted when the branch is built."""

    text: str
    step: int | None


class Answer(NamedTuple):
    """The final answer."""

    text: str


class Failure(NamedTuple):
    """An error that ended the run."""

    message: str
    provider: bool


class Spent(NamedTuple):
    """Usage so far: token counts are cumulative for the run."""

    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    usd: float | None
    model: str | None


class Decision(NamedTuple):
    """Somebody or something other than the agent decided what it may do: a supervisor, a guardrail."""

    kind: str


Kept = Call | Result | Start | Said | Answer | Failure | Spent | Decision | Told | Asked | Uttered | Odd
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


class Piece(NamedTuple):
    """What is kept of contiguous events that came together, as long as their rollout is open."""

    first_seq: int
    at: int
    """When the log took them in, in its own time."""
    digests: bytes
    """SHA-256 of the canonical JSON of each raw event, one after the other."""
    noted: tuple[Noted, ...]
    """What they say, in order; what the model wrote in one step is joined."""
    first_time: int | None
    last_time: int | None
    form: int = 0
    """The strongest form of a conversation that its events have."""

    @property
    def stop(self) -> int:
        """The seq after its last."""
        return self.first_seq + len(self.digests) // DIGEST

    def digest(self, seq: int) -> bytes:
        """Of one of its events."""
        at = (seq - self.first_seq) * DIGEST
        return self.digests[at : at + DIGEST]


DIGEST: Final = 32
"""Bytes of a SHA-256."""
