"""The fold of a captured branch: captures in, in the order of the log, its numbered events out.

The events follow from the captures alone: reading a branch again gives the same slices with the same numbers, so that
writing them twice has no effect. The branch ends with its first valid end; whatever comes later is late.
"""

from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Any

from pydantic import ValidationError

from agents.capture.lost_calls import LOST_BY
from agents.capture.parts import PartJoin
from agents.capture.request_delta import TooManyItemsError, UnknownBeginningError
from agents.capture.span_episode import branch_info, events_of_spans
from agents.capture.span_fold import SpanFold
from agents.capture.told_call import CallReader
from agents.capture.tool_events import ToolEvents
from agents.conversations.token_deltas import TokenDeltas, size_of
from agents.conversations.tokens import pack_data
from agents.importers.line_error import LineError
from agents.importers.traces.call_facts import CallTrouble
from agents.importers.traces.content import fitting_source
from agents.importers.traces.fields import object_in, text_in
from agents.importers.traces.spoken import Spoken, short
from agents.importers.traces.traced_end import TracedEnd, traced_end
from agents.importers.traces.tracker import ConversationTracker, Event, TracedCall
from agents.summarize.output import byte_length
from schemas.captures import Capture
from schemas.conversation import GivenTokens
from schemas.errors import BraidError
from schemas.events import AgentEvent, AgentEvents, AgentInfo, BranchInfo, EndStatus
from schemas.jsontext import compact, parse_object

SLICE_BYTES = 512 * 1024
"""Bytes of events in a slice, unless a single event has more."""

MAX_EVENT = 3 * 1024 * 1024
"""Bytes of an event: its topic takes 4 MiB, and a slice that it refused would stop the fold again and again."""

MAX_TASK = 64 * 1024
"""Characters of the first user message that become the task of a rollout without an opening."""

UNREADABLE = (
    LineError, UnknownBeginningError, TooManyItemsError, ValueError, TypeError, KeyError, AttributeError, IndexError, OverflowError,
    RecursionError,
)  # fmt: skip
"""Errors raised by a malformed body: it comes from outside, and must not stop the fold."""

DECIDED = ("idle", "age", "size", "whole")
"""Reasons for which the worker ends a branch. Such an end is ignored if another capture arrived before it was
written."""

_CHANNELS = {
    "tool_call": "tool", "tool_result": "tool", "final_answer": "text", "assistant_message": "text", "user_message": "user",
    "reasoning": "thinking", "message": "conversation", "model_call": "conversation",
}  # fmt: skip

_STATUSES: dict[str, EndStatus] = {each: each for each in ("answered", "failed", "aborted", "infra_error")}


class RefusedCaptureError(BraidError):
    """A capture that does not count, with the code of the reason."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class CaptureFold:
    """One attempt of one branch."""

    def __init__(self, rollout_id: str, branch_index: int, attempt: int = 0) -> None:
        self._branch = (rollout_id, branch_index, attempt)
        self._deltas = TokenDeltas()
        self._place = {"rollout_id": rollout_id, "branch_index": branch_index, "attempt": attempt}
        self.is_ended = False
        self.last_offset = -1
        """The offset of the last capture that counts."""
        self.bytes = 0
        """Bytes of all captures so far."""
        self._next_seq = 0
        self._seen: set[tuple[bool, str]] = set()
        self._parts = PartJoin()
        self._reader = CallReader()
        self._tracker = ConversationTracker(reasoning=True)
        self._tools = ToolEvents()
        self._info: BranchInfo | None = None
        self._is_info_told = False
        self._trouble: CallTrouble | None = None
        self._missing: str | None = None
        """Why an action of the agent is missing from its events."""
        self._response: Spoken | None = None
        self._calls = 0
        self.spans: SpanFold | None = None
        """The spans of the branch, or of the trace."""

    @property
    def has_events(self) -> bool:
        """Whether any event followed."""
        return self._next_seq > 0

    def take(self, capture: Capture, offset: int) -> list[AgentEvents | Capture]:
        """Return the slices that follow from a capture, and captures of branches that a trace names. Raises RefusedCaptureError."""
        name = (capture.kind == "end", capture.capture_id)  # no agent's capture hides an end by its id
        if name in self._seen:
            return []
        if self.is_ended:
            raise RefusedCaptureError("late", "its branch has ended")
        if capture.kind == "end":
            return self._ended(capture)
        body = self._parts.whole(capture)
        if capture.parts > 1 and body is None:
            self.last_offset = offset
            return []
        self._seen.add(name)
        self.last_offset = offset
        self.bytes += len(body or b"")
        if capture.source == LOST_BY:
            self._missing = self._missing or "calls found no room in the proxy's spool"
        if capture.kind in ("span", "log") and body is not None and capture.parts:
            if self.spans is None:
                self.spans = SpanFold(self._place)
            self.spans.add(capture, body)
            return []
        try:
            return list(self._slices(self._events(capture, body)))
        except RefusedCaptureError:
            self._missing = self._missing or f"{capture.kind} {capture.capture_id} cannot be read"
            raise

    def _events(self, capture: Capture, body: bytes | None) -> list[Event]:
        if capture.parts == 0:
            self._missing = self._missing or f"{capture.kind} {capture.capture_id} is too large to be kept"
            data = {"position": capture.capture_id, "reason": "too large", "raw": {"sha256": capture.digest}}
            return [{"channel": "status", "event": "unreadable", "data": data}]
        try:
            told = parse_object(body or b"")
            if capture.kind == "call":
                return self._call(told, capture.capture_id)
            if capture.kind == "event":
                return self._event(told)
        except UNREADABLE as error:
            raise RefusedCaptureError("unreadable", f"{capture.kind} {capture.capture_id}: {error}") from None
        raise RefusedCaptureError("unknown_kind", f"captures of kind {capture.kind} are not read yet")

    # -- calls and events ----------------------------------------------------------------------------------------------

    def _call(self, body: dict[str, Any], capture_id: str) -> list[Event]:
        told = self._reader.read(body, capture_id)
        events: list[Event] = []
        for call in told.calls:
            events += self._tracker.take(call)
        first = told.calls[0]
        if self._info is None:
            self._info = _info(first)
        self._calls += 1
        self._trouble = first.facts.error if first.response is None else None
        if first.response is not None:
            self._response = first.response
        return events + self._tools.respond(first.response)

    def _event(self, body: dict[str, Any]) -> list[Event]:
        told = object_in(body, "event")
        kind = text_in(told, "event")
        if kind is None:
            raise LineError("event.event", "missing")
        data = fitting_source(object_in(told, "data"), SLICE_BYTES)
        event: Event = {
            "channel": text_in(told, "channel") or _CHANNELS.get(kind, "status"),
            "event": kind,
            "data": data,
        }
        at = body.get("at_ms")
        if isinstance(at, int) and not isinstance(at, bool) and abs(at) < 2**53:
            event["timestamp_ms"] = at
        return self._tools.take(event) if kind in ("tool_call", "tool_result") else [event]

    # -- the end -------------------------------------------------------------------------------------------------------

    def _ended(self, capture: Capture) -> list[AgentEvents | Capture]:
        try:
            told = parse_object(capture.body or b"{}")
        except ValueError as error:
            raise RefusedCaptureError("unreadable", f"end {capture.capture_id}: {error}") from None
        if told.get("reason") in DECIDED and told.get("read_to") != self.last_offset:
            return []  # another capture arrived before it was written
        self.is_ended = True
        self._seen.add((True, capture.capture_id))
        if self.spans is not None:
            spans, self.spans = self.spans, None
            if not self._calls and not self._next_seq:
                return self._spans_ended(spans, told)
            data = {"message": "spans left out: the calls of this branch were captured"}
            return [*self._slices([{"channel": "status", "event": "status", "data": data}]), *self._branch_ended(told)]
        return list(self._branch_ended(told))

    def _spans_ended(self, spans: SpanFold, told: dict[str, Any]) -> list[AgentEvents | Capture]:
        """The events of spans, and the captures that go to other branches; nothing if no span is about a model, a tool
        or an agent.
        """
        found = spans.finish()
        if found.episode is None:
            return list(found.moved)
        self._info = branch_info(found.episode)
        end = TracedEnd(_STATUSES.get(str(told.get("status")), "aborted"), "its trace had not ended")
        if found.episode.status is not None:
            end = TracedEnd(_STATUSES[found.episode.status], found.episode.error)
        if self._missing is not None:
            end = TracedEnd("infra_error", f"not captured whole: {self._missing}")
        slices = list(self._slices(events_of_spans(found.episode, found.bad)))
        return [*slices, self._bare_end(end), *found.moved]

    def _branch_ended(self, told: dict[str, Any]) -> list[AgentEvents]:
        events = self._tools.release()
        answer = text_in(told, "answer")
        if answer is not None:
            events.append(
                {"channel": "text", "event": "final_answer", "data": fitting_source({"answer": answer}, SLICE_BYTES)}
            )
        end = self._end(told)
        slices = list(self._slices(events))
        bare = self._bare_end(end)
        self._forget()
        return [*slices, bare]

    def _bare_end(self, end: TracedEnd) -> AgentEvents:
        last = self._next_seq - 1 if self._next_seq else None
        return AgentEvents(
            **self._place, first_seq=self._next_seq, ended=True, last_seq=last, status=end.status, error=end.error, captured=True,
            branch=self._untold_info(),
        )  # fmt: skip

    def _end(self, told: dict[str, Any]) -> TracedEnd:
        """How the branch ended: by its agent's end, else by its last call. A conversation with missing parts is neither
        right nor wrong.
        """
        status, error = _STATUSES.get(str(told.get("status"))), text_in(told, "error")
        if self._missing is not None:
            return TracedEnd("infra_error", f"not captured whole: {self._missing}")
        if status is not None:
            return TracedEnd(status, error)
        if self._trouble is not None:
            return traced_end(ended=True, last_trouble=self._trouble, error=None)
        if not self._calls and not self._next_seq:
            return TracedEnd("infra_error", "it ended before anything of it was captured")
        return self._decided_end(told.get("reason"))

    def _decided_end(self, reason: Any) -> TracedEnd:
        if reason in ("age", "size"):
            return TracedEnd("aborted", f"its captures reached the limit of {reason}")
        if reason == "idle" and self._response is not None and self._response.calls:
            return TracedEnd("aborted", "nothing came after its last tool calls")
        return TracedEnd("answered")

    def _forget(self) -> None:
        """Drop everything but the ids, so that repetitions of earlier captures are still ignored."""
        self._parts, self._reader, self._tools = PartJoin(), CallReader(), ToolEvents()
        self._tracker = ConversationTracker(reasoning=True)
        self._deltas = TokenDeltas()
        self._response = None

    # -- slices --------------------------------------------------------------------------------------------------------

    def _slices(self, events: Iterable[Event]) -> Iterator[AgentEvents]:
        held: list[AgentEvent] = []
        size = 0
        for each in events:
            event = self._deltas.shrunk(self._branch, self._fitting(_agent_event(each)))
            length = byte_length(event.data) + size_of(event.tokens)
            if held and size + length > SLICE_BYTES:
                yield self._slice(held)
                held, size = [], 0
            held.append(event)
            size += length
        if held:
            yield self._slice(held)

    def _fitting(self, event: AgentEvent) -> AgentEvent:
        """Return the event, or a note in its place if it is too large for a slice."""
        size = byte_length(event.data) + byte_length(event.channel)
        if size <= MAX_EVENT:
            return event
        self._missing = self._missing or f"a {event.event} is too large"
        digest = sha256(event.data.encode()).hexdigest()
        data = {"position": str(self._next_seq), "reason": "too large", "raw": {"sha256": digest, "bytes": size}}
        return AgentEvent(channel="status", event="unreadable", data=compact(data))

    def _slice(self, events: list[AgentEvent]) -> AgentEvents:
        first, self._next_seq = self._next_seq, self._next_seq + len(events)
        return AgentEvents(
            **self._place, first_seq=first, events=tuple(events), branch=self._untold_info(), captured=True
        )

    def _untold_info(self) -> BranchInfo | None:
        """Facts about the branch, returned once."""
        info = None if self._is_info_told else self._info
        self._is_info_told = self._is_info_told or info is not None
        return info


def _agent_event(told: Event) -> AgentEvent:
    """The event, with the tokens of a model call packed. Tokens that contradict each other are dropped."""
    data, tokens = told["data"], None
    if told["event"] == "model_call" and "tokens" in data:
        try:
            data, tokens = pack_data(data, GivenTokens.model_validate(data["tokens"]))
        except ValidationError:
            data = {name: value for name, value in data.items() if name != "tokens"}
    return AgentEvent(
        channel=told["channel"], event=told["event"], data=compact(data), timestamp_ms=told.get("timestamp_ms"),
        tokens=tokens,
    )  # fmt: skip


def _info(call: TracedCall) -> BranchInfo:
    """Facts about a branch from its first call. The task is used only if the rollout has no opening."""
    user = next((each.text for each in call.messages if each.role == "user" and each.text), None)
    sampling = call.facts.sampling or {}
    warmth = sampling.get("temperature")
    known = isinstance(warmth, int | float) and not isinstance(warmth, bool) and abs(warmth) < 1e6
    return BranchInfo(
        temperature=float(warmth) if known else None,  # type: ignore[arg-type]
        agent=AgentInfo(model=short(call.facts.model)) if call.facts.model else None,
        task=None if user is None else user[:MAX_TASK],
        observed="raw",
    )
