"""Exchanges of a real SDK with a model, captured and folded: the SDK writes the requests, a script the responses.

`Wire` is the network of an SDK's client: it answers each request with the next of its answers and keeps both. `rows_of` folds what
it kept as the captures of a branch that passes, and returns what becomes of them.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import httpx
import orjson

from agents.capture.call_body import Exchanged, call_body
from agents.capture.capture_fold import CaptureFold
from agents.capture.protocol import protocol_of
from agents.formats.shape import Group
from agents.importers.lines import LineReader
from schemas.captures import Capture
from schemas.events import AgentEvents
from tests.agents.conversations.chats import opened, rendered_row
from tests.agents.formats.rollouts import group_of_facts

Answer = dict[str, Any] | list[Any] | bytes | httpx.Response
"""A whole response, the events of a stream, the bytes of one, or anything else that HTTP has."""


class Exchange(NamedTuple):
    """A request and its response, as bytes."""

    path: str
    request: bytes
    status: int
    content_type: str
    response: bytes


class Wire:
    """A transport that plays a script and keeps every exchange; for both HTTP clients that SDKs use."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self.kept: list[Exchange] = []

    def answer(self, request: Any, made_by: Any) -> Any:
        """Answer with the next of the answers, as a response of the client's own library."""
        answer = self._answers.pop(0)
        made = answer if isinstance(answer, httpx.Response) else _response(answer)
        kind = made.headers.get("content-type", "")
        self.kept.append(Exchange(request.url.path, request.read(), made.status_code, kind, made.read()))
        return made_by.Response(made.status_code, headers={"content-type": kind}, content=made.read(), request=request)

    def client(self, library: Any = httpx) -> Any:
        """A client for an SDK, of the library that it uses."""
        return library.Client(transport=library.MockTransport(lambda request: self.answer(request, library)))


def _response(answer: dict[str, Any] | list[Any] | bytes) -> httpx.Response:
    if isinstance(answer, dict):
        return httpx.Response(200, json=answer)
    raw = answer if isinstance(answer, bytes) else b"".join(map(_event, answer))
    return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=raw)


def _event(event: Any) -> bytes:
    if isinstance(event, str):
        return f"data: {event}\n\n".encode()
    named = f"event: {event['type']}\n" if isinstance(event.get("type"), str) else ""
    return f"{named}data: {json.dumps(event)}\n\n".encode()


def captures_of(exchanges: Iterable[Exchange]) -> list[Capture]:
    """The captures of exchanges, each with what is new in its request."""
    known: set[bytes] = set()
    made = []
    for number, each in enumerate(exchanges):
        protocol = protocol_of("POST", each.path)
        assert protocol is not None, each.path
        streamed = each.content_type.startswith("text/event-stream")
        call = Exchanged(protocol, each.request, each.response, each.status, streamed, None, number, None, 1)
        body, digests = call_body(call, known)
        known.update(digests)
        made.append(_capture("call", f"c{number}", body))
    return made


def _capture(kind: Any, name: str, body: bytes) -> Capture:
    return Capture(rollout_id="r", branch_index=0, capture_id=name, kind=kind, received_ms=1, body=body)


def slices_of(exchanges: Iterable[Exchange]) -> list[AgentEvents]:
    """The slices of a branch with these exchanges, and its end."""
    fold = CaptureFold("r", 0)
    captures = [*captures_of(exchanges), _capture("end", "end", b'{"reason": "client"}')]
    return [
        made
        for offset, capture in enumerate(captures)
        for made in fold.take(capture, offset)
        if isinstance(made, AgentEvents)
    ]


class Folded(NamedTuple):
    """Outcome of a branch."""

    group: Group
    events: list[tuple[str, dict[str, Any]]]

    @property
    def rows(self) -> list[list[dict[str, Any]]]:
        """The messages of its SFT rows, calls numbered by position."""
        assert all(row.fidelity == "exact" for row in self.group.sft)
        return [rendered_row(row.messages) for row in self.group.sft]

    @property
    def reasons(self) -> set[str]:
        """Why rows were kept out."""
        return {reason for each in self.group.rejected for reason in each.reasons}

    def data(self, kind: str) -> list[dict[str, Any]]:
        """The data of events of a kind."""
        return [data for name, data in self.events if name == kind]

    @property
    def usage(self) -> list[Any]:
        """Of each call."""
        return [call.get("usage") for call in self.data("model_call")]


def folded(exchanges: Sequence[Exchange]) -> Folded:
    """Fold exchanges as a branch whose build passes."""
    slices = slices_of(exchanges)
    opening = LineReader().read(orjson.dumps(opened()))
    events = [(event.event, orjson.loads(event.data)) for each in slices for event in each.events]
    return Folded(group_of_facts([*opening, *slices], passes=[0]), events)
