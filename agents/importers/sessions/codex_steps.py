"""Turn the lines of a Codex session into steps: turns, results, text.

Everything is in the file twice. Steps are made only from `response_item` lines. The others (`event_msg`) show which
text is a person's, which commands failed, the usage, and the end of each turn.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agents.importers.traces.content import Content, read_content
from agents.importers.traces.fields import array_in, as_text, millis, object_in, rest_of, text_in, whole_in
from agents.importers.traces.format import Bad
from agents.importers.traces.transcript_writer import Called
from agents.importers.traces.usage import NONE, Usage, read_usage

_LINE = ("timestamp", "type", "payload")

CALLS = {
    "function_call": "arguments", "custom_tool_call": "input", "local_shell_call": "action", "web_search_call": "action",
    "tool_search_call": "arguments",
}  # fmt: skip
"""Item types that are calls, and the field with their arguments."""

HARNESS = ("<environment_context>", "<user_instructions>", "# AGENTS.md instructions", "<turn_aborted>", "<subagent_")
"""Prefixes of the program's own text, for files that do not mark a person's text."""


class Line(NamedTuple):
    """A line of a session."""

    position: str
    ordinal: int
    value: Mapping[str, Any] | Bad


@dataclass
class TurnStep:
    """One response of the model."""

    time: int | None
    parts: list[dict[str, Any]] = field(default_factory=list)
    calls: list[Called] = field(default_factory=list)
    sources: list[dict[str, Any]] = field(default_factory=list)
    id: str | None = None
    model: str | None = None
    usage: Usage = NONE
    closed: bool = False

    @property
    def spoke(self) -> bool:
        """Return whether it has a text."""
        return any(part.get("type") != "reasoning" for part in self.parts)


class WordStep(NamedTuple):
    """Text to the model: a person's prompt, or context."""

    content: Content
    role: str
    is_prompt: bool
    time: int | None
    source: dict[str, Any]


class ResultStep(NamedTuple):
    """The output of a call."""

    call_id: str | None
    output: Any
    time: int | None
    source: dict[str, Any]


class NoteStep(NamedTuple):
    """Any other event."""

    event: str
    data: dict[str, Any]
    time: int | None


Step = TurnStep | WordStep | ResultStep | NoteStep | Bad


class Ended(NamedTuple):
    """The status of a session."""

    status: str | None
    error: str | None = None


class Told(NamedTuple):
    """The steps of one branch, and its end."""

    steps: list[Step]
    ended: Ended
    position: str


class CodexSteps:
    """Reads the lines of one branch. Each time the person goes back, the abandoned part becomes a branch, too."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.outcomes: dict[str, Mapping[str, Any]] = {}
        """The program's report on the execution of a call, by call id."""
        self.agents: dict[str, str] = {}
        """The call that started a sub-agent, by the sub-agent's id."""
        self._prompts: Counter[str] = Counter()
        self._says_prompts = False
        self._says_ends = False
        for line in lines:
            if isinstance(line.value, Mapping) and line.value.get("type") == "event_msg":
                self._look_at(object_in(line.value, "payload"))
        self._steps: list[Step] = []
        self._turn: TurnStep | None = None
        self._ended = Ended(None)
        self._model: str | None = None
        self._total = NONE
        self._owed = NONE
        """Usage of responses that have no line."""

    def read(self, lines: Iterable[Line], own: int) -> list[Told]:
        """Return the branches that end in the lines from `own` on: the abandoned ones and the last."""
        told: list[Told] = []
        position = ""
        for number, line in enumerate(lines):
            value = line.value
            back = self._back(value) if isinstance(value, Mapping) else None
            if back is not None:
                if number >= own:
                    told.append(Told(list(self._steps), self._end(), position))
                self._go_back(back)
            elif isinstance(value, Bad):
                self._add(value)
            else:
                self._line(value)
            position = line.position
        return [*told, Told(self._steps, self._end(), position)]

    # -- data from events ----------------------------------------------------------------------------------------------

    def _look_at(self, event: Mapping[str, Any]) -> None:
        kind, item = text_in(event, "type"), object_in(event, "item")
        if kind == "item_completed":
            if item.get("type") == "UserMessage":
                self._note_prompt(read_content(item.get("content")).text)
            elif (call := text_in(item, "id")) is not None:
                self.outcomes[call] = item
                for agent in array_in(item, "receiver_thread_ids"):
                    self.agents.setdefault(as_text(agent), call)
        elif kind == "user_message":
            self._note_prompt(text_in(event, "message"))
        elif (call := text_in(event, "call_id")) is not None and str(kind).endswith("_end"):
            self.outcomes[call] = event
        self._says_ends |= kind in ("task_started", "turn_started", "task_complete", "turn_complete")

    def _note_prompt(self, text: str | None) -> None:
        self._says_prompts = True
        self._prompts[text or ""] += 1

    def _is_prompt(self, content: Content) -> bool:
        text = content.text or ""
        if not self._says_prompts:
            return not text.startswith(HARNESS)
        if self._prompts[text] <= 0:
            return False
        self._prompts[text] -= 1
        return True

    # -- lines ---------------------------------------------------------------------------------------------------------

    def _line(self, line: Mapping[str, Any]) -> None:
        payload, kind = object_in(line, "payload"), line.get("type")
        time = millis(line.get("timestamp"))
        if kind == "response_item":
            self._item(payload, time, rest_of(line, *_LINE))
        elif kind == "event_msg":
            self._event(payload, time)
        elif kind == "token_usage_record":
            if self._turn is not None:
                self._turn.id, self._turn.closed = text_in(payload, "response_id") or self._turn.id, True
        elif kind == "compacted":
            kept = len(array_in(payload, "replacement_history"))
            said = sum(isinstance(step, TurnStep | WordStep | ResultStep) for step in self._steps)
            self._add(NoteStep("context_rewritten", {"kept": kept, "dropped": max(said - kept, 0)}, time))
            if (summary := text_in(payload, "message")) is not None:
                self._add(WordStep(Content(summary), "user", False, time, rest_of(payload, "message")))
        elif kind != "session_meta":
            self._model = text_in(payload, "model") or self._model
            self._add(NoteStep("status", {"message": as_text(kind), "source": dict(payload)}, time))

    def _item(self, item: Mapping[str, Any], time: int | None, beside: Mapping[str, Any]) -> None:
        kind, role = text_in(item, "type"), text_in(item, "role")
        if kind == "message" and role == "assistant":
            turn = self._open(time, after_calls=True)
            content = item.get("content")
            turn.parts += (
                [part for part in content if isinstance(part, dict)]
                if isinstance(content, list)
                else [{"text": as_text(content)}]
            )
            turn.sources.append(rest_of(item, "type", "role", "content") | dict(beside))
        elif kind == "message":
            content = read_content(item.get("content"))
            source = rest_of(item, "type", "role", "content") | dict(beside)
            self._add(WordStep(content, role or "user", role == "user" and self._is_prompt(content), time, source))
        elif kind == "reasoning":
            self._open(time, after_calls=True).parts.append(dict(item))
        elif kind in CALLS:
            self._open(time).calls.append(_called(item, kind, beside))
        elif kind is not None and kind.endswith("_output"):
            source = rest_of(item, "type", "call_id", "output") | dict(beside)
            self._add(ResultStep(text_in(item, "call_id"), item.get("output"), time, source))
        elif kind in _NOT_SENT:
            self._add(NoteStep("status", {"message": str(kind), "source": rest_of(item, "type")}, time))
        else:
            self._add(
                NoteStep("unreadable", {"position": "", "reason": f"unknown item {kind}", "raw": dict(item)}, time)
            )

    def _event(self, event: Mapping[str, Any], time: int | None) -> None:
        kind = text_in(event, "type")
        if kind == "token_count":
            self._count(object_in(event, "info", "total_token_usage"))
        elif kind in ("task_started", "turn_started"):
            self._ended = Ended(None)
        elif kind in ("task_complete", "turn_complete"):
            error = object_in(event, "error")
            if error:
                self._ended = _failed(error)
            elif self._ended.status is None:
                self._ended = Ended("answered")
        elif kind == "turn_aborted":
            self._ended = Ended(
                "failed" if "budget" in str(event.get("reason")) else "aborted", text_in(event, "reason")
            )
        elif kind == "error":
            self._ended = _failed(event)
            self._add(NoteStep("status", {"message": "error", "source": dict(event)}, time))
        elif kind not in _REPEATS and not str(kind).endswith(("_begin", "_end", "_delta")):
            self._add(NoteStep("status", {"message": as_text(kind), "source": dict(event)}, time))

    def _count(self, total: Mapping[str, Any]) -> None:
        """Read the total usage so far. The increase belongs to the last response."""
        if not total:
            return
        now = read_usage(total)
        added = Usage(*(_more(one, other) for one, other in zip(now[:3], self._total[:3], strict=True)))
        self._total = now
        if self._turn is None:
            self._owed = _plus(self._owed, added)
        else:
            self._turn.usage, self._turn.closed = _plus(self._turn.usage, added), True

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _open(self, time: int | None, *, after_calls: bool = False) -> TurnStep:
        """Return the turn that an item belongs to.

        Text after calls begins a new turn, because the calls were answered before it.
        """
        last = self._steps[-1] if self._steps else None
        turn = last if isinstance(last, TurnStep) and not last.closed else None
        if turn is None or (after_calls and turn.calls):
            turn = self._turn = TurnStep(time, model=self._model, usage=self._owed)
            self._owed = NONE
            self._steps.append(turn)
        return turn

    def _add(self, step: Step) -> None:
        self._steps.append(step)

    def _back(self, line: Mapping[str, Any]) -> int | None:
        event = object_in(line, "payload")
        is_back = line.get("type") == "event_msg" and event.get("type") == "thread_rolled_back"
        return (whole_in(event, "num_turns") or 0) if is_back else None

    def _go_back(self, turns: int) -> None:
        """Drop the last prompts and everything after them."""
        places = [place for place, step in enumerate(self._steps) if isinstance(step, WordStep) and step.is_prompt]
        if turns:
            cut = places[-turns] if turns <= len(places) else 0
            self._steps = self._steps[:cut]
        self._turn = next((step for step in reversed(self._steps) if isinstance(step, TurnStep)), None)
        self._ended = Ended(None)

    def _end(self) -> Ended:
        if self._says_ends or self._ended.status is not None:
            return self._ended
        words = [step for step in self._steps if isinstance(step, TurnStep | ResultStep | WordStep)]
        last = words[-1] if words else None
        return Ended("answered" if isinstance(last, TurnStep) and last.spoke and not last.calls else None)


_NOT_SENT = ("ghost_snapshot",)
"""Internal items of the program, which the model never sees."""

_REPEATS = frozenset({
    "item_completed", "item_started", "user_message", "agent_message", "agent_reasoning", "agent_reasoning_raw_content",
    "context_compacted", "raw_response_item",
})  # fmt: skip
"""Events that repeat the content of items."""


def _called(item: Mapping[str, Any], kind: str, beside: Mapping[str, Any]) -> Called:
    arguments = item.get(CALLS[kind])
    if kind == "custom_tool_call":  # this tool takes text: the text is not broken JSON
        arguments = {"input": arguments}
    name = text_in(item, "name") or kind.removesuffix("_call")
    source = {"type": kind, **rest_of(item, "type", "name", "call_id", CALLS[kind]), **beside}
    return Called(name, arguments, text_in(item, "call_id") or text_in(item, "id"), source)


def _failed(error: Mapping[str, Any]) -> Ended:
    """Return the end of a turn with an error: the agent ran out of context, or the provider failed."""
    own = "context_window_exceeded" in as_text(error.get("codex_error_info"))
    return Ended("failed" if own else "infra_error", text_in(error, "message") or "the turn failed")


def _more(now: int | None, before: int | None) -> int | None:
    """Return the increase of a count. A smaller count than before was reset."""
    if now is None or before is None:
        return now
    return now - before if now >= before else now


def _plus(one: Usage, other: Usage) -> Usage:
    pairs = zip(one[:3], other[:3], strict=True)
    return Usage(*(b if a is None else a if b is None else a + b for a, b in pairs))
