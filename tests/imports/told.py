"""Conversations for tests of the tracker: calls told to it, and read back from the events alone."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from agents.importers.traces.call_facts import CallFacts
from agents.importers.traces.spoken_chat import spoken_of
from agents.importers.traces.tracker import ConversationTracker, Event, TracedCall

Message = dict[str, Any]


def system(text: str) -> Message:
    return {"role": "system", "content": text}


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def said(text: str | None, *calls: str, **more: Any) -> Message:
    """An assistant message; each call is named by its id and calls the tool `look`."""
    asked = [{"id": each, "function": {"name": "look", "arguments": f'{{"at": "{each}"}}'}} for each in calls]
    return {"role": "assistant", "content": text, **({"tool_calls": asked} if asked else {}), **more}


def result(call_id: str, text: str) -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def told(tracker: ConversationTracker, sent: list[Message], response: Message | None, **more: Any) -> list[Event]:
    """Tell a call to a tracker."""
    messages = [each for message in sent for each in spoken_of(message)]
    answer = None if response is None else spoken_of(response)[0]
    return tracker.take(TracedCall(messages, answer, facts=CallFacts(**more.pop("facts", {})), **more))


class Heard(NamedTuple):
    """A call as its events say it."""

    sent: list[Message]
    response: Message | None
    data: dict[str, Any]


def heard(events: Iterable[Event]) -> list[Heard]:
    """The calls of events, with their messages. Follows `context` as the contract says it."""
    messages: dict[str, Message] = {}
    ends: dict[str, list[Message]] = {}
    calls = []
    for event in events:
        data = event["data"]
        if event["event"] == "message":
            assert data["id"] not in messages
            messages[data["id"]] = data
        elif event["event"] == "model_call":
            context = data["context"]
            begun = ends[context["after"]] if context.get("after") is not None else []
            assert len(begun) >= context["keep"]
            sent = [*begun[: context["keep"]], *[messages[each] for each in context["add"]]]
            response = messages[data["response"]] if "response" in data else None
            ends[data["call_id"]] = [*sent, *([] if response is None else [response])]
            calls.append(Heard(sent, response, data))
    return calls


def texts(messages: Iterable[Message]) -> list[str | None]:
    return [each.get("content") for each in messages]


def kinds(events: Iterable[Event], kind: str) -> list[dict[str, Any]]:
    """The data of events of a kind."""
    return [event["data"] for event in events if event["event"] == kind]
