"""The steps of an agent from its conversation: calls, results, texts and usage, in the form of events.

If such events are recorded as well as the messages (they have times, error codes and raw outputs), they count, and the
messages' calls with the same id are not repeated.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from agents.conversations.chat import Asked, Told, Uttered
from agents.conversations.held_text import whole
from agents.summarize.output import excerpt
from agents.summarize.pieces import Call, Kept, Noted, Piece, Result, Said, Spent


def told_steps(pieces: Sequence[Piece], *, exact: bool) -> list[Noted]:
    """Return the recorded items, with the steps from messages and model calls at their places."""
    noted = [each for piece in pieces for each in piece.noted]
    steps = _Steps(noted, exact=exact)
    return [Noted(body, each.time, ()) for each in noted for body in steps.of(each.body)]


def last_response(pieces: Sequence[Piece], *, exact: bool) -> Told | None:
    """Return the last message of the model, from calls with tools if any call had tools; None if there is none."""
    messages = {
        each.body.message_id: each.body for piece in pieces for each in piece.noted if isinstance(each.body, Told)
    }
    if not exact:
        return next((told for told in reversed(messages.values()) if told.role == "assistant"), None)
    calls = [each.body for piece in pieces for each in piece.noted if isinstance(each.body, Asked)]
    answered = [call for call in calls if call.response is not None]
    last = next((call for call in reversed(answered) if call.offers_tools), answered[-1] if answered else None)
    return None if last is None else messages.get(last.response or "")


class _Steps:
    """One pass over the recorded items."""

    def __init__(self, noted: Iterable[Noted], *, exact: bool) -> None:
        bodies = [each.body for each in noted]
        self._called = Counter(body.call_id for body in bodies if isinstance(body, Call))
        self._answered = Counter(body.call_id for body in bodies if isinstance(body, Result))
        self._responses = {body.response for body in bodies if isinstance(body, Asked)}
        self._exact = exact
        self._counted = any(isinstance(body, Asked) and body.input_tokens is not None for body in bodies)
        """Whether calls report their usage: then the run's own counts would be added to theirs."""
        self._open: Counter[str] = Counter()
        """By id, the calls of messages that have no result yet."""
        self._spent = Spent(None, None, None, None, None)

    def of(self, body: Kept) -> Sequence[Kept]:
        """Return the steps that a recorded item represents."""
        match body:
            case Told():
                return self._result(body) if body.role == "tool" else self._calls(body)
            case Said() | Uttered() if self._exact or (isinstance(body, Uttered) and body.before_task):
                return ()  # messages contain it, or it is not a turn of the model
            case Uttered() if body.what == "assistant":
                return (Said(whole(body.text), body.step),)
            case Asked():
                return self._usage(body)
            case Spent() if self._counted:
                return (Spent(None, None, None, body.usd, body.model),)
        return (body,)

    def _calls(self, told: Told) -> list[Kept]:
        said = told.role == "assistant" and (not self._exact or told.message_id in self._responses)
        if not said or not told.tools:
            return []
        steps: list[Kept] = [Said(told.text, None)] if told.text else []
        for tool in told.tools:
            if self._called[tool.call_id] > 0:
                self._called[tool.call_id] -= 1
                continue
            self._open[tool.call_id] += 1
            batch = told.message_id or None
            steps.append(
                Call(tool.call_id, tool.name, tool.arguments, tool.arguments_digest, batch, None, tool.malformed)
            )
        return steps

    def _result(self, told: Told) -> Sequence[Kept]:
        name = told.tool_call_id or ""
        if self._answered[name] > 0:
            self._answered[name] -= 1
            return ()
        if self._open[name] <= 0:
            return ()  # the context of a later call repeats it
        self._open[name] -= 1
        text = told.text
        failed = text if told.is_error else None
        output = None if failed is not None or text is None else excerpt(text)
        return (Result(name, told.name, output, told.output_digest, told.output_bytes, None, failed),)

    def _usage(self, asked: Asked) -> Sequence[Kept]:
        """The usage so far: counts of a call are its own, counts of a run are cumulative."""
        before, added = self._spent, (asked.input_tokens, asked.output_tokens, asked.cached_tokens)
        known = (before.input_tokens, before.output_tokens, before.cached_tokens)
        sums = [one if other is None else (one or 0) + other for one, other in zip(known, added, strict=True)]
        self._spent = Spent(sums[0], sums[1], sums[2], None, asked.model)
        return (self._spent,)
