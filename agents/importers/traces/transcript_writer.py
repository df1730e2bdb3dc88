"""Write a transcript as events: importers of files add turn after turn in the order of the file.

A format passes only speakers, tool calls and results. The rules that all formats share are here: which
user message is the task, which text is the answer, ids of calls, pairing, cumulative usage, and texts too long for an event.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from agents.importers.traces.content import Content, fitting_source, too_large
from agents.importers.traces.fields import as_text
from agents.importers.traces.pairing import Pairing
from agents.importers.traces.usage import NONE, Spent, Usage
from schemas.jsontext import parse

Event = dict[str, Any]

MAX_ERROR = 4096
"""Maximum characters of an error message. The output has the complete text."""

MAX_NOTE = 512 * 1024
"""Maximum bytes of data in an event that is not a turn."""


class Called(NamedTuple):
    """A tool call of a model turn."""

    name: str
    arguments: Any
    """An object, or the text that the model wrote."""
    id: str | None = None
    source: Mapping[str, Any] | None = None


class Turn(NamedTuple):
    """One response of the model."""

    content: Content = Content(None)
    calls: Sequence[Called] = ()
    id: str | None = None
    """The producer's id of the message or response."""
    model: str | None = None
    finish: str | None = None
    usage: Usage = NONE
    time: int | None = None
    source: Mapping[str, Any] | None = None
    metrics: Mapping[str, Any] | None = None
    """Fields of the model call, such as its token ids. They go to its `model_done`."""


class TranscriptWriter:
    """Writes the events of one branch. `finish` returns them."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._start: Event = {"channel": "text", "event": "run_start", "data": {}}
        self._pending: list[Event] = []
        """Messages since the last model turn that are not results of tools."""
        self._early: list[Event] = []
        """Events from before the first user message."""
        self._turns = 0
        self._begun = False
        """Whether the model's first turn, or a result, was written."""
        self._earlier: Event | None = None
        """The last user message before a given assistant message. It is the task if no other user message comes."""
        self._text: Event | None = None
        """The text of the last model turn, if it has no calls and only user text followed."""
        self._pairing = Pairing()
        self._spent = Spent()
        self.last_model: str | None = None
        self.replaced = 0
        """Number of texts and media that were replaced by references."""

    @property
    def turns(self) -> int:
        """Return the number of model turns."""
        return self._turns

    @property
    def ends_with_text(self) -> bool:
        """Return whether the last turn is a text without calls, and only user text followed."""
        return self._text is not None

    def user(self, content: Content | str, time: int | None = None, source: Mapping[str, Any] | None = None) -> None:
        """Add a user message."""
        self._pending.append(self._words("user_message", "user", content, time, source))

    def context(
        self,
        content: Content | str,
        time: int | None = None,
        source: Mapping[str, Any] | None = None,
        role: str = "user",
    ) -> None:
        """Add text that was given to the model and is not a question to it: files, reminders, settings, summaries."""
        event = self._words("context_message", "user", content, time, source)
        if role != "user":
            event["data"]["role"] = role
        self._pending.append(event)

    def model(self, turn: Turn) -> None:
        """Add a model turn: reasoning, text, model_done, calls."""
        asked = self._earlier is not None or any(map(_is_of_user, self._pending))
        if not self._begun and not asked and not turn.calls and turn.content.text:
            self.given(turn.content, turn.time, turn.source)
            self._usage(turn, None, None)
            return
        self._end_pending()
        step, time = self._turns, turn.time
        self._turns += 1
        for text, signature in turn.content.reasoning:
            if text or signature:
                data = {"text": text, "step": step} | ({"signature": signature} if signature else {})
                self._add("reasoning", "thinking", self._fitted(data, "text"), time)
        self._text = None
        source = turn.source
        if turn.content.text or (turn.content.media and not turn.calls):
            source = None
            said = self._words("assistant_message", "text", turn.content, time, turn.source)
            said["data"]["step"] = step
            self._events.append(said)
            self._text = said if turn.content.text and not turn.calls else None
        self._usage(turn, source, step)
        for called in turn.calls:
            self._call(called, turn, step)

    def given(
        self,
        content: Content,
        time: int | None = None,
        source: Mapping[str, Any] | None = None,
        calls: Sequence[Called] = (),
    ) -> None:
        """Add an assistant message that was given to the model.

        After the model's first turn, or with calls, a transcript has no place for it.
        """
        if self._begun or calls:
            told = {
                "reason": "given_message",
                "count": 1,
                "text": content.text or "",
                "calls": [_plain(call) for call in calls],
            }
            self.note(
                "content_left_out",
                {name: value for name, value in told.items() if value} | {"source": dict(source or {})},
                time,
            )
            return
        for event in self._pending:
            if event["event"] == "user_message":
                event["event"], self._earlier = "context_message", event
        self._events += self._pending
        self._pending = []
        early = self._words("assistant_message", "text", content, time, source)
        early["data"]["beforeTask"] = True
        self._events.append(early)
        self._early.append(early)

    def result(
        self,
        call_id: str | None,
        name: str | None,
        output: Any,
        error: Mapping[str, str] | None = None,
        time: int | None = None,
        source: Mapping[str, Any] | None = None,
    ) -> None:
        """Add a tool's output. Pass `error` {code?, message} only if the producer marks one."""
        self._end_pending()
        self._text = None
        paired, tool = self._pairing.result(call_id, name)
        data: dict[str, Any] = {"callId": paired, "output": output}
        if tool is not None:
            data["toolName"] = tool
        if error is not None:
            data["error"] = {name: value[:MAX_ERROR] for name, value in error.items()}
        if source:
            data["source"] = fitting_source(source)
        self._add("tool_result", "tool", self._fitted(data, "output"), time)

    def note(self, event: str, data: Mapping[str, Any], time: int | None = None, channel: str = "status") -> None:
        """Add any other event."""
        (self._pending or self._events).append(_event(event, channel, fitting_source(data, MAX_NOTE), time))

    @property
    def waiting(self) -> int:
        """Return the number of calls without a result."""
        return self._pairing.waiting

    def finish(self, *, answers: bool = True, task: str | None = None) -> list[Event]:
        """Return all events.

        If `answers` is false, the run was interrupted and its last text is not an answer. `task` is used if no user
        message is the task.
        """
        asked = any(event["event"] == "user_message" for event in self._pending)
        if (
            self._early and not self._begun and not asked and self._earlier is None
        ):  # the model was never asked: this is its own text
            for event in self._early:
                if event["event"] == "assistant_message":
                    del event["data"]["beforeTask"]
                    self._text = event
                    self._turns += 1
                event["data"]["step"] = self._turns - 1
        if not self._begun:
            self._begin()
        if self._text is not None and answers:
            self._answer(self._text)
        self._events += self._pending
        start = self._start["data"]
        if task is not None and "task" not in start:
            start["task"] = task
        return [self._start, *self._events]

    # -- pieces --------------------------------------------------------------------------------------------------------

    def _answer(self, text: Event) -> None:
        """Turn the last text into the answer, and a user message after it into the reply to it."""
        data = text["data"]
        answer = {"answer": data["text"], **{name: value for name, value in data.items() if name != "text"}}
        reply = next((event for event in self._pending if event["event"] == "user_message"), None)
        if reply is not None:
            self._pending.remove(reply)
            answer["reply"] = reply["data"].pop("text")
            left = {name: value for name, value in reply["data"].items() if name != "step"}
            if left:
                answer["replySource"] = left
        self._events.remove(text)  # it goes after its model_done
        self._events.append(text | {"event": "final_answer", "data": answer})

    def _end_pending(self) -> None:
        """Write the user messages before a turn or a result. Before the first turn the last of them is the task."""
        if not self._begun:
            self._begin()
        for event in self._pending:
            if event["event"] in ("user_message", "context_message"):
                event["data"]["step"] = self._turns
        self._events += self._pending
        self._pending = []

    def _begin(self) -> None:
        """Write the last user message before the first turn as the task.

        Other messages, and text given to the model, are context.
        """
        self._begun = True
        said, self._pending = self._pending, []
        last = next((event for event in reversed(said) if event["event"] == "user_message"), self._earlier)
        for event in said:
            event["event"] = "context_message" if event["event"] == "user_message" else event["event"]
        self._events = [event for event in (*self._events, *said) if event is not last]
        if last is None:
            return
        if last is self._earlier:  # a transcript has no place for text given after the task
            self._left_out("given_message", 1)
        data = last["data"]
        self._start["data"] = {"task": data.pop("text"), **data, **self._start["data"]}
        if "timestamp_ms" in last:
            self._start["timestamp_ms"] = last["timestamp_ms"]

    def _call(self, called: Called, turn: Turn, step: int) -> None:
        data: dict[str, Any] = {
            "toolName": called.name,
            **read_arguments(called.arguments),
            "callId": self._pairing.call(called.id, called.name, step),
            "batchId": turn.id or f"turn_{step}",
            "batchSize": len(turn.calls),
            "stepIndex": step,
        }
        if called.source:
            data["source"] = fitting_source(called.source)
        for name in ("args", "argsText"):
            data = self._fitted(data, name)
        self._add("tool_call", "tool", data, turn.time)

    def _usage(self, turn: Turn, source: Mapping[str, Any] | None, step: int | None) -> None:
        self.last_model = turn.model or self.last_model
        data = {"modelId": turn.model, "step": step, "finishReason": turn.finish, **self._spent.add(turn.usage)}
        known = {name: value for name, value in data.items() if value is not None}
        left = {**(source or {}), **(turn.metrics or {})}  # fields of a turn without text, and of the call
        if left:
            known["source"] = fitting_source(left, MAX_NOTE)
        if step is None and len(known) == len([name for name in ("modelId", "finishReason") if name in known]):
            return  # a greeting without any known facts
        self._add("model_done", "model", known, turn.time)
        if step is None:
            self._early.append(self._events[-1])

    def _words(
        self, event: str, channel: str, content: Content | str, time: int | None, source: Mapping[str, Any] | None
    ) -> Event:
        content = Content(content) if isinstance(content, str) else content
        data: dict[str, Any] = {"text": content.text or ""}
        if source:
            data["source"] = fitting_source(source)
        if content.media:
            data["media"] = list(content.media)
            self._left_out("media", len(content.media))
        return _event(event, channel, self._fitted(data, "text"), time)

    def _fitted(self, data: dict[str, Any], name: str) -> dict[str, Any]:
        """Return the data with a reference in place of a member that is too long for an event."""
        large = too_large(data.get(name))
        if large is None:
            return data
        self._left_out("too_large", 1)
        return data | {name: large}

    def _left_out(self, reason: str, count: int) -> None:
        """Note that the branch contains something other than event text, so that it cannot become a row."""
        self.replaced += count
        self._add("content_left_out", "status", {"reason": reason, "count": count}, None)

    def _add(self, event: str, channel: str, data: dict[str, Any], time: int | None) -> None:
        self._events.append(_event(event, channel, data, time))


def _plain(call: Called) -> dict[str, Any]:
    return {"id": call.id, "name": call.name, "arguments": call.arguments}


def _is_of_user(event: Event) -> bool:
    return bool(event["channel"] == "user" and event["data"].get("role", "user") == "user")


def _event(event: str, channel: str, data: dict[str, Any], time: int | None) -> Event:
    made: Event = {"channel": channel, "event": event, "data": data}
    if time is not None:
        made["timestamp_ms"] = time
    return made


def read_arguments(value: Any) -> dict[str, Any]:
    """Return the fields of a call's arguments. Anything but a JSON object is kept unchanged, with the reason."""
    if isinstance(value, dict):
        return {"args": value}
    if value is None:
        return {"args": {}}
    text = value if isinstance(value, str) else None
    if text is None:
        return {"args": {}, "argsText": as_text(value), "argsError": "not a JSON object"}
    try:
        read = parse(text)
    except ValueError as error:
        return {"args": {}, "argsText": text, "argsError": f"not JSON: {error}"}
    if not isinstance(read, dict):
        return {"args": {}, "argsText": text, "argsError": "not a JSON object"}
    return {"args": read}
