"""The model calls of a trajectory with token ids: every call with the messages of its request.

A step with token ids is an exactly known call, and its history is the steps before it. If a step has no ids, or does
not show the model's input, the trajectory stays a transcript. The ids are then kept in the source of the steps.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from agents.importers.traces.call_facts import CallFacts
from agents.importers.traces.content import Content
from agents.importers.traces.fields import text_in
from agents.importers.traces.spoken import Spoken
from agents.importers.traces.tracker import ConversationTracker, Event, TracedCall
from agents.importers.traces.transcript_writer import Called
from agents.importers.traces.usage import Usage
from agents.models.engine_tokens import is_number, token_ids_in

LISTS: Final = ("prompt_token_ids", "completion_token_ids", "logprobs")
"""Fields of a step's metrics."""


class ExactSteps:
    """The history of a trajectory, and its calls."""

    def __init__(self) -> None:
        self._history: list[Spoken] = []
        self._calls: list[TracedCall] = []
        self._is_whole = True

    @property
    def is_whole(self) -> bool:
        """Return whether every call is known, with its tokens."""
        return self._is_whole and bool(self._calls)

    def give_up(self) -> None:
        """Note a step that does not show the model's input."""
        self._is_whole = False

    def given(self, role: str, content: Content) -> None:
        """Add a message that was sent to the model."""
        if content.media:
            self.give_up()
        self._history.append(Spoken(role, content.text))

    def result(self, call_id: str | None, output: Any, *, failed: bool) -> None:
        """Add the result of a call."""
        if not isinstance(output, str):
            self.give_up()
            return
        self._history.append(Spoken("tool", output, call_id=call_id, is_error=failed))

    def turn(
        self, content: Content, calls: Sequence[Called], metrics: Mapping[str, Any], usage: Usage, model: str | None,
        time: int | None,
    ) -> None:  # fmt: skip
        """Add a model response."""
        tokens = _tokens(metrics)
        if tokens is None or content.media:
            self.give_up()
        reasoning = "\n\n".join(text for text, _ in content.reasoning) or None
        said = Spoken("assistant", content.text or None, reasoning, tuple(calls))
        facts = CallFacts(
            model=model, usage=usage, tokens=tokens, ended_ms=time,
            policy_version=text_in(metrics, "policy_version"),
        )  # fmt: skip
        self._calls.append(TracedCall(tuple(self._history), said, facts=facts))
        self._history.append(said)

    def beside(self, events: Sequence[Event]) -> list[Event]:
        """Return the trajectory's events with its messages and calls.

        These are inserted before the final answer; the calls have the tokens.
        """
        if not self.is_whole:
            return list(events)
        tracker = ConversationTracker(reasoning=True)
        told = [event for call in self._calls for event in tracker.take(call)]
        place = next((at for at, each in enumerate(events) if each["event"] == "final_answer"), len(events))
        return [*map(_without_lists, events[:place]), *told, *map(_without_lists, events[place:])]


def _tokens(metrics: Mapping[str, Any]) -> dict[str, Any] | None:
    prompt, ids = token_ids_in(metrics, "prompt_token_ids"), token_ids_in(metrics, "completion_token_ids")
    if prompt is None or ids is None:
        return None
    told: dict[str, Any] = {"prompt_ids": prompt, "ids": ids}
    logprobs = metrics.get("logprobs")
    if isinstance(logprobs, list) and len(logprobs) == len(ids) and all(map(is_number, logprobs)):
        told["logprobs"] = logprobs
    return told


def _without_lists(event: Event) -> Event:
    source = event["data"].get("source") if event["event"] == "model_done" else None
    if not isinstance(source, dict):
        return event
    kept = {name: value for name, value in source.items() if name not in LISTS}
    data = {name: value for name, value in event["data"].items() if name != "source"}
    return event | {"data": data | ({"source": kept} if kept else {})}
