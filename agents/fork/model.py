"""What the coding agent asks of a model: one turn at a time. Retrying is the agent's business, so that the log shows it."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Protocol

TroubleKind = Literal["rate_limited", "overloaded", "http_5xx", "connection", "timeout", "refused", "setup"]

Stop = Literal["end_turn", "tool_use", "max_tokens", "refusal", "other"]


class ToolUse(NamedTuple):
    """A tool that the model wants called."""

    call_id: str
    name: str
    arguments: Mapping[str, Any]


class ToolAnswer(NamedTuple):
    """What the model is told of a call."""

    call_id: str
    content: str
    failed: bool = False


class Assistant(NamedTuple):
    """A turn of the model, as it stays in the conversation."""

    text: str
    calls: tuple[ToolUse, ...]


class Answers(NamedTuple):
    """The answers to all calls of the turn before."""

    answers: tuple[ToolAnswer, ...]


Entry = Assistant | Answers


class Ask(NamedTuple):
    """All that a model is given for its next turn."""

    system: str
    task: str
    entries: tuple[Entry, ...]
    tools: tuple[Mapping[str, Any], ...]
    """Function definitions: name, description, parameters."""
    temperature: float | None = None
    seed: int | None = None


class Tokens(NamedTuple):
    """What was used."""

    input: int = 0
    """Without what was read from a cache."""
    output: int = 0
    cached: int = 0

    def plus(self, other: "Tokens") -> "Tokens":
        """Both together."""
        return Tokens(self.input + other.input, self.output + other.output, self.cached + other.cached)

    @property
    def total(self) -> int:
        """All of them."""
        return self.input + self.output + self.cached


class Turn(NamedTuple):
    """What the model did."""

    text: str
    calls: tuple[ToolUse, ...]
    stop: Stop
    tokens: Tokens


class ModelTroubleError(Exception):
    """The model gave no turn. Says whether asking again may help, and when the service wants to be asked again."""

    def __init__(self, kind: TroubleKind, message: str, after_s: float | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.after_s = after_s

    @property
    def may_pass(self) -> bool:
        """Whether asking again may help."""
        return self.kind not in ("refused", "setup")


class Model(Protocol):
    """A model that takes turns in one branch."""

    @property
    def name(self) -> str:
        """As it is recorded."""

    @property
    def takes_seed(self) -> bool:
        """Whether a seed means anything to it."""

    async def ask(self, ask: Ask) -> Turn:
        """Its next turn. Raises ModelTroubleError."""
