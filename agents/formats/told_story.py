"""The story of a transcript: a pass over the events of a branch, each of which becomes a message or a part of one, or
is counted as lost.

The order is that of the events. The task comes where the model first speaks: importers write it into `run_start`, and
everything given before it follows there.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from agents.formats.story import Said, Story
from agents.redaction.redaction import redact, redact_json
from schemas.event_kinds import SUBAGENT_CHANNEL, SUBAGENT_PREFIX
from schemas.events import EventFields
from schemas.jsontext import compact, parse_object
from schemas.training import FunctionCall, Message, Role, ToolCall

SOURCE = "source_fields"
"""Counted as lost: fields of a producer's elements that have no place in an event, and so none in a message."""

_SILENT = frozenset({"step_start", "model_start", "error", "thinking_done"})
"""Events without text; the end of a branch is recorded separately."""


class Given(NamedTuple):
    """Facts about a branch in addition to its events."""

    system: str | None = None
    task: str | None = None
    """The task that all branches were shown, for events without it."""
    tools: str = "[]"
    redacting: bool = True
    reasoning: bool = True


def transcript_story(events: Iterable[EventFields], given: Given) -> Story:
    """The story of events that are turns in order; sub-agents have stories of their own."""
    own: list[EventFields] = []
    subs: dict[str, list[EventFields]] = {}
    for event in events:
        if event.channel == SUBAGENT_CHANNEL and event.event.startswith(SUBAGENT_PREFIX):
            inner = event._replace(channel="", event=event.event.removeprefix(SUBAGENT_PREFIX))
            subs.setdefault(event.trace_id, []).append(inner)
        else:
            own.append(event)
    telling = _Telling(given)
    for event in own:
        data = parse_object(event.data)
        telling.take(event.event, redact_json(data).value if given.redacting else data, event.timestamp_ms)
    story = telling.end()
    inside = given._replace(system=None, task=None, tools="[]")
    others = [
        replace(transcript_story(told, inside), agent=name.rpartition("-")[0] or name, number=number)
        for number, (name, told) in enumerate(subs.items(), start=1)
    ]
    return replace(story, others=tuple(others))


class _Turn:
    """A model turn while it may still grow."""

    def __init__(self, step: Any, time: int | None) -> None:
        self.step = step
        self.time = time
        self.reasoning: list[str] = []
        self.text: str | None = None
        self.deltas: list[str] = []
        self.media: list[Any] = []
        self.calls: list[ToolCall] = []
        self.model: str | None = None


class _Telling:
    """One pass over the events of one agent."""

    def __init__(self, given: Given) -> None:
        self._given = given
        self._before: list[Said] = []
        """Everything given before the model first spoke."""
        self._said: list[Said] = []
        self._begun = False
        self._start: Mapping[str, Any] = {}
        self._start_time: int | None = None
        self._started = False
        self._turn: _Turn | None = None
        self._lost: Counter[str] = Counter()
        self._has_answer = False

    def take(self, kind: str, data: Mapping[str, Any], time: int | None) -> None:
        """Add the next event."""
        if data.get("source") or kind == "import_source":
            self._lost[SOURCE] += 1
        tell = _TELL.get(kind)
        if tell is not None:
            tell(self, data, time)
        elif kind not in _SILENT and kind != "import_source":
            self._lost[kind] += 1

    def end(self) -> Story:
        """Return the story."""
        self._end_turn()
        if not self._begun:
            self._begin()
        config = self._start.get("agentConfig")
        config = config if isinstance(config, dict) else {}
        tools = config.get("tools")
        offered = compact(tools) if isinstance(tools, list) and tools else self._given.tools
        system = config.get("systemPrompt")
        system = system if isinstance(system, str) else self._given.system
        first = [Said(Message(role="system", content=system))] if system else []
        return Story((*first, *self._said), offered, has_answer=self._has_answer, lost=self._lost)

    # -- what the model was given --------------------------------------------------------------------------------------

    def _run_start(self, data: Mapping[str, Any], time: int | None) -> None:
        if self._started:
            self._lost["run_start"] += 1
        self._start, self._start_time, self._started = data, time, True

    def _user(self, data: Mapping[str, Any], time: int | None) -> None:
        self._add(self._words("user", data, "text", time))

    def _context(self, data: Mapping[str, Any], time: int | None) -> None:
        role: Role = data["role"] if data.get("role") in ("system", "developer") else "user"
        self._add(self._words(role, data, "text", time)._replace(context=True))

    def _given_words(self, data: Mapping[str, Any], time: int | None) -> None:
        said = self._words("assistant", data, "text", time)
        self._add(said._replace(message=said.message.model_copy(update={"trained": False})))

    def _left_out(self, data: Mapping[str, Any], time: int | None) -> None:
        """Words that were put into the model's mouth; or media, which are next to their text."""
        if data.get("reason") == "given_message" and (data.get("text") or data.get("calls")):
            calls = [each for each in data.get("calls") or () if isinstance(each, dict)]
            asked = [_call(str(each.get("id") or ""), str(each.get("name")), each.get("arguments")) for each in calls]
            text = data.get("text")
            told = Message(
                role="assistant",
                content=text if isinstance(text, str) else None,
                tool_calls=tuple(asked),
                trained=False,
            )
            self._add(Said(told, time=time))
        elif isinstance(data.get("media"), list) and self._said and self._said[-1].message.role == "tool":
            last = self._said[-1]
            parts = _parts(last.message.content, data["media"])
            self._said[-1] = last._replace(message=last.message.model_copy(update={"parts": parts}))
        elif data.get("reason") not in ("media", "too_large", "given_message"):
            self._lost["content_left_out"] += 1

    # -- model turns ---------------------------------------------------------------------------------------------------

    def _reasoning(self, data: Mapping[str, Any], time: int | None) -> None:
        turn = self._turn_of(data.get("step"), time, fresh=lambda turn: turn.text is not None or bool(turn.calls))
        text = data.get("text")
        if data.get("signature"):
            self._lost["reasoning_signature"] += 1
        if isinstance(text, str) and text and self._given.reasoning:
            turn.reasoning.append(text)
        elif text:
            self._lost["reasoning_content"] += 1

    def _text(self, data: Mapping[str, Any], time: int | None) -> None:
        if data.get("beforeTask") is True:
            self._given_words(data, time)
            return
        turn = self._turn_of(data.get("step"), time, fresh=lambda turn: turn.text is not None or bool(turn.calls))
        turn.text, turn.media = self._words_of(data, "text")

    def _delta(self, data: Mapping[str, Any], time: int | None) -> None:
        turn = self._turn_of(data.get("step"), time, fresh=lambda turn: bool(turn.calls))
        turn.deltas.append(str(data.get("delta", "")))

    def _model_done(self, data: Mapping[str, Any], _time: int | None) -> None:
        if self._turn is not None and isinstance(data.get("modelId"), str):
            self._turn.model = data["modelId"]

    def _call(self, data: Mapping[str, Any], time: int | None) -> None:
        step = data.get("stepIndex", data.get("step"))
        turn = self._turn_of(step, time, fresh=lambda turn: turn.step != step)
        text = data.get("argsText")
        arguments = data.get("args", data.get("arguments", {})) if text is None else text
        call_id = data.get("callId", data.get("id"))
        name = str(data.get("toolName", data.get("name", "unknown")))
        turn.calls.append(_call(str(call_id if call_id is not None else f"call_{len(self._said)}"), name, arguments))

    def _result(self, data: Mapping[str, Any], time: int | None) -> None:
        self._end_turn()
        if not self._begun:
            self._begin()
        output = data.get("output", data.get("result"))
        is_text = output is None or isinstance(output, str)
        told = Message(
            role="tool", content=output if is_text else compact(output),
            tool_call_id=None if data.get("callId") is None else str(data["callId"]),
            name=data["toolName"] if isinstance(data.get("toolName"), str) else None,
        )  # fmt: skip
        self._said.append(Said(told, failed=data.get("error") is not None, is_value=not is_text, time=time))

    def _answer(self, data: Mapping[str, Any], time: int | None) -> None:
        text, media = self._words_of(data, "answer")
        step = data.get("step")
        turn = self._turn_of(step, time, fresh=lambda turn: bool(turn.calls) or turn.text not in (None, text))
        if turn.deltas and "".join(turn.deltas).strip() == (text or "").strip():
            turn.deltas = []  # the answer was written piece by piece before
        turn.text, turn.media = text, media
        self._end_turn()
        self._has_answer = True
        if isinstance(data.get("reply"), str):
            self._add(self._words("user", data, "reply", time))

    # -- pieces --------------------------------------------------------------------------------------------------------

    def _add(self, said: Said) -> None:
        """Add a message from anyone but the model and its tools."""
        self._end_turn()
        (self._said if self._begun else self._before).append(said)

    def _turn_of(self, step: Any, time: int | None, fresh: Any) -> _Turn:
        """The turn of an event: that of its step, unless `fresh` shows that it begins another one."""
        turn = self._turn
        other = turn is not None and None not in (step, turn.step) and step != turn.step
        if turn is None or other or fresh(turn):
            self._end_turn()
            if not self._begun:
                self._begin()
            turn = self._turn = _Turn(step, time)
        return turn

    def _begin(self) -> None:
        """The model or a tool speaks: everything given so far comes before the task."""
        self._begun = True
        task = self._start.get("task")
        told = self._before
        if task is not None:
            start = {"text": task, "media": self._start.get("media")}
            told = [*told, self._words("user", start, "text", self._start_time)]
        elif (
            self._given.task
            and not self._started
            and not any(each.message.role == "user" and not each.context for each in told)
        ):
            told = [*told, Said(Message(role="user", content=self._given.task))]
        self._said = [*told, *self._said]

    def _end_turn(self) -> None:
        turn, self._turn = self._turn, None
        if turn is None:
            return
        text = turn.text
        if turn.deltas:
            whole = "".join(turn.deltas)
            text = "\n\n".join(filter(None, (redact(whole).text if self._given.redacting else whole, turn.text)))
        if not (turn.reasoning or text or turn.media or turn.calls):
            return
        told = Message(
            role="assistant", content=text or None, tool_calls=tuple(turn.calls), trained=True,
            reasoning_content="\n\n".join(turn.reasoning) or None, parts=_parts(text, turn.media) if turn.media else None,
        )  # fmt: skip
        self._has_answer = False
        self._said.append(Said(told, time=turn.time, model=turn.model))

    def _words(self, role: Role, data: Mapping[str, Any], name: str, time: int | None) -> Said:
        text, media = self._words_of(data, name)
        return Said(Message(role=role, content=text, parts=_parts(text, media) if media else None), time=time)

    def _words_of(self, data: Mapping[str, Any], name: str) -> tuple[str | None, list[Any]]:
        """A text and its media; a text that is too long for an event is itself a reference."""
        value = data.get(name)
        media = data.get("media") if name != "reply" else None
        beside = list(media) if isinstance(media, list) else []
        if isinstance(value, dict) and "digest" in value:
            return None, [value, *beside]
        return value if isinstance(value, str) or value is None else compact(value), beside


def _call(call_id: str, name: str, arguments: Any) -> ToolCall:
    text = arguments if isinstance(arguments, str) else compact({} if arguments is None else arguments)
    return ToolCall(id=call_id, function=FunctionCall(name=name, arguments=text))


def _parts(text: str | None, media: Iterable[Any]) -> str:
    return compact([*([{"type": "text", "text": text}] if text else []), *media])


_TELL = {
    "run_start": _Telling._run_start,
    "user_message": _Telling._user,
    "context_message": _Telling._context,
    "assistant_message": _Telling._text,
    "reasoning": _Telling._reasoning,
    "thinking_delta": _Telling._delta,
    "model_done": _Telling._model_done,
    "tool_call": _Telling._call,
    "tool_result": _Telling._result,
    "final_answer": _Telling._answer,
    "content_left_out": _Telling._left_out,
}
