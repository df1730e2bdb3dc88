"""Tool events of a tracer and the calls of responses: each event gets the id of its call, so that no call is recorded
twice.

A tracer knows the tool and its arguments, often not the id that the model gave the call. Events that fit no call wait until the next
response, or the end: the proxy's capture of a response may come after the tracer's of its tools.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any

from agents.importers.traces.fields import text_in
from agents.importers.traces.spoken import Spoken, plain_arguments, short

Event = dict[str, Any]


class ToolEvents:
    """The tool events of one branch."""

    def __init__(self) -> None:
        self._asked: dict[str, tuple[str, str]] = {}
        """Name and arguments, by id, of calls that no event is about yet."""
        self._alike: dict[tuple[str, str], deque[str]] = {}
        """Ids of such calls in order, by name and arguments: a response may have a hundred thousand calls."""
        self._known: set[str] = set()
        """Ids of all calls of responses."""
        self._renamed: dict[str, str] = {}
        """The model's id for each id of the tracer."""
        self._waiting: list[Event] = []

    def respond(self, response: Spoken | None) -> list[Event]:
        """Note the calls of a response; returns the events that had to wait for it."""
        for call in response.calls if response is not None else ():
            if call.id:
                said = (call.name, plain_arguments(call.arguments))
                self._asked[short(call.id)] = said
                self._alike.setdefault(said, deque()).append(short(call.id))
                self._known.add(short(call.id))
        return self.release()

    def release(self) -> list[Event]:
        """Return the waiting events: an event without a matching call is a call that the program made itself."""
        waiting, self._waiting = self._waiting, []
        return [self._fitted(event) or event for event in waiting]

    def take(self, event: Event) -> list[Event]:
        """Return the events that are complete now."""
        found = self._fitted(event) if not self._waiting else None
        if found is None:
            self._waiting.append(event)
            return []
        return [found]

    def _fitted(self, event: Event) -> Event | None:
        data: Mapping[str, Any] = event["data"]
        given = text_in(data, "callId", "call_id")
        if event["event"] == "tool_call":
            call_id = self._call(given, text_in(data, "toolName", "name") or "", plain_arguments(data.get("args")))
            if call_id is not None:
                self._asked.pop(call_id, None)
                if given is not None:
                    self._renamed[given] = call_id
        else:
            call_id = self._renamed.get(given or "") or (given if given in self._known else None)
        return None if call_id is None else event | {"data": {**data, "callId": call_id}}

    def _call(self, given: str | None, name: str, arguments: str) -> str | None:
        if given in self._known:
            return given
        alike = self._alike.get((name, arguments), deque())
        while alike and self._asked.get(alike[0]) != (
            name,
            arguments,
        ):  # another event refers to it, or its id was repeated
            alike.popleft()
        return alike[0] if alike else None
