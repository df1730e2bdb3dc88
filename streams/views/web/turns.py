"""A branch's transcript as people read it: turn by turn, from the kept events of its attempt.

A turn is one response of the model with the results of its calls, and with the messages that were given before it. All
text is redacted: the fold removed secrets when it read the events, and text that arrived in pieces is redacted here, as
a whole.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from agents.conversations.chat import Asked, Told
from agents.conversations.held_text import HeldText, whole
from schemas.jsontext import parse
from schemas.training import Fidelity

WRITING = ("write", "edit", "create", "patch", "replace", "delete", "remove", "move", "rename")
"""Parts of the names of tools that change files."""

PATHS = ("path", "file_path", "filePath", "filename", "file", "target_file")
"""Arguments that name a file."""


class Words(NamedTuple):
    """A text that was spoken or given."""

    kind: str
    """system, developer, user, context, assistant, note, answer or error."""
    held: str | HeldText

    @property
    def text(self) -> str:
        """The whole text."""
        return whole(self.held)


class ShownCall(NamedTuple):
    """A tool call and its result."""

    name: str
    arguments: str
    """JSON text."""
    held: str | HeldText | None = None
    """The output: null until a result arrives, and if there is only an error."""
    error: str | None = None
    code: str | None = None
    output_bytes: int = 0
    """Bytes of the raw output."""
    digest: str = ""
    """Digest of the raw output."""
    started: int | None = None
    ended: int | None = None
    returned: bool = False
    paired: bool = True
    """False for a result without a call."""
    asked: str = ""
    """Digest of the raw arguments."""

    @property
    def output(self) -> str | None:
        """The whole output."""
        return None if self.held is None else whole(self.held)

    @property
    def failed(self) -> bool:
        """Whether the tool reported a failure."""
        return self.error is not None


class Turn(NamedTuple):
    """A turn of the model."""

    number: int
    given: tuple[Words, ...]
    """Messages since the last turn that are not results."""
    thought: str | HeldText
    said: str | HeldText
    calls: tuple[ShownCall, ...]
    ending: Words | None
    notes: tuple[str, ...]
    """The changes of its context: rewritten, another agent, a failed request."""
    at: int | None
    model: str | None
    agent: str | None
    input_tokens: int | None
    output_tokens: int | None
    call_id: str | None
    """The model call, if it is known exactly."""
    did: bytes
    """Digest of the model's words and calls: equal in branches that did the same."""
    saw: bytes
    """Digest of that and of the results."""
    seqs: tuple[int, int] = (0, 0)
    """The first seq of its events, and the one after the last."""

    @property
    def reasoning(self) -> str:
        """The reasoning of the model before its words."""
        return whole(self.thought)

    @property
    def text(self) -> str:
        """The words of the model."""
        return whole(self.said)

    @property
    def is_rewritten(self) -> bool:
        """Whether it begins another context."""
        return any(note.startswith(REWRITTEN) for note in self.notes)

    @property
    def failures(self) -> int:
        """Calls that failed; a run that failed counts as one."""
        return sum(call.failed for call in self.calls) + (self.ending is not None and self.ending.kind == "error")

    @property
    def tools(self) -> str:
        """The names of its calls."""
        return ", ".join(call.name for call in self.calls)


REWRITTEN = "context rewritten"


class Seen(NamedTuple):
    """One message that a model was given."""

    role: str
    held: str | HeldText
    calls: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The whole text."""
        return whole(self.held)


@dataclass(frozen=True)
class Transcript:
    """All turns of an attempt."""

    fidelity: Fidelity
    turns: tuple[Turn, ...] = ()
    messages: Mapping[str, Told] = field(default_factory=dict)
    asked: Mapping[str, Asked] = field(default_factory=dict)
    """By call id, in the order of the log."""

    @cached_property
    def files(self) -> dict[str, list[int]]:
        """By path, the turns with calls that change the file."""
        found: dict[str, list[int]] = {}
        for turn in self.turns:
            for call in turn.calls:
                path = _path_of(call)
                if path is not None and turn.number not in found.setdefault(path, []):
                    found[path].append(turn.number)
        return found

    def seen(self, number: int) -> list[Seen]:
        """The messages that the model was given before a turn: exactly, or everything before it."""
        turn = self.turns[number]
        if turn.call_id is not None and turn.call_id in self.asked:
            return [_seen(told) for told in self._context(turn.call_id)]
        found: list[Seen] = []
        for earlier in self.turns[: number + 1]:
            found += [Seen(words.kind, words.held) for words in earlier.given]
            if earlier.number == number:
                break
            found.append(
                Seen("assistant", earlier.said, tuple(f"{call.name} {call.arguments}" for call in earlier.calls))
            )
            found += [Seen("tool", _result_text(call)) for call in earlier.calls if call.returned]
        return found

    def _context(self, call_id: str) -> list[Told]:
        """The messages of a model call's context; missing ones are left out."""
        steps: list[Asked] = []
        at = self.asked.get(call_id)
        while at is not None and len(steps) <= len(self.asked):
            steps.append(at)
            at = None if at.after is None else self.asked.get(at.after)
        found: list[str] = []
        for number, call in enumerate(reversed(steps)):
            found = [*found[: call.keep], *call.add]
            if number < len(steps) - 1 and call.response is not None:
                found.append(call.response)
        return [self.messages[name] for name in found if name in self.messages]


def _seen(told: Told) -> Seen:
    return Seen(told.role, told.content or "", tuple(f"{call.name} {call.arguments}" for call in told.tools))


def _result_text(call: ShownCall) -> str | HeldText:
    return call.held if call.held is not None else call.error or ""


def _path_of(call: ShownCall) -> str | None:
    if not any(part in call.name.lower() for part in WRITING):
        return None
    try:
        arguments = parse(call.arguments)
    except ValueError:
        return None
    if not isinstance(arguments, dict):
        return None
    return next((path for name in PATHS if isinstance(path := arguments.get(name), str) and path), None)
