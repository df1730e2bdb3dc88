"""A transcript as messages: the turns of a branch in the order in which they were recorded.

A model turn is its reasoning, its text and its calls; the results of the calls follow it as they came. A transcript
that needs a guess (a result without a call, a call without a result before the next turn, text after the calls of the
same turn, a rewritten context) is not representable.
"""

from collections.abc import Sequence
from typing import NamedTuple

from agents.conversations.chat import AskedTool, Odd, Told, Uttered
from agents.conversations.held_text import HeldText, whole
from agents.conversations.sequences import NotRepresentableError
from agents.redaction.redaction import redact
from agents.summarize.pieces import Answer, Call, Kept, Piece, Result, Said, Start


class Turns(NamedTuple):
    """The messages of a transcript."""

    messages: list[Told]
    begun: int
    """Assistant messages before this place were given: a greeting, an example."""


def transcript(pieces: Sequence[Piece], task: str | None, system: str | None, *, redacting: bool) -> Turns:
    """Return the messages of a transcript, without user messages that have no response.

    `task` is the model's task if its events do not contain it; `system` is the prompt that all branches share. Raises
    NotRepresentableError.
    """
    bodies = [each.body for piece in pieces for each in piece.noted]
    told = [body for body in bodies if isinstance(body, Told)]
    given = 0
    if told:
        messages = _told_alone(bodies, told)
    else:
        reading = _Transcript(redacting=redacting)
        for body in bodies:
            reading.take(body)
        messages = reading.end(task, system)
        given = reading.n_given
    while messages and messages[-1].role == "user":
        messages.pop()
    begun = next((place for place, each in enumerate(messages) if each.role == "user"), 0)
    return Turns(messages, max(begun, given))


def _told_alone(bodies: Sequence[Kept], told: Sequence[Told]) -> list[Told]:
    """The messages of a branch whose turns are all messages: they are the whole conversation.

    Calls and results may be recorded in addition to their messages, and an answer without a message gets its place.
    Turns of other kinds next to messages, and texts of several agents, could only be combined by guessing.
    """
    if len({each.agent for each in told if each.role == "assistant"}) > 1:
        raise NotRepresentableError("several_agents")
    if len({each.message_id for each in told}) < len(told):
        raise NotRepresentableError("repeated_message_id")
    messages: list[Told] = []
    asked = {tool.call_id for each in told for tool in each.tools}
    answered = {each.tool_call_id for each in told}
    answers: list[tuple[int, str]] = []
    for body in bodies:
        match body:
            case Told():
                messages.append(body)
            case Answer():
                answers.append((len(messages), body.text))
            case Odd():
                raise NotRepresentableError(body.code)
            case Call() if body.call_id in asked:
                pass
            case Result() if body.call_id in answered:
                pass
            case Uttered() | Said() | Call() | Result():
                raise NotRepresentableError("mixed_turns")
    for place, text in reversed(answers):
        beside = [each for each in messages[max(place - 1, 0) : place + 1] if each.role == "assistant"]
        if not any((each.text or "").strip() == text.strip() for each in beside):
            messages.insert(place, Told("assistant", text or None))
    return messages


class _Transcript:
    """One pass over the events of a transcript."""

    def __init__(self, *, redacting: bool) -> None:
        self._redacting = redacting
        self.n_given = 0
        """Messages before the model's first turn, at the end."""
        self._start: Start | None = None
        self._before: list[Told] = []
        """Messages before the task."""
        self._messages: list[Told] = []
        self._turn = _Turn()
        self._n_calls = 0
        self._open: dict[str, list[_OpenCall]] = {}
        """Calls without a result, by the producer's id."""
        self._unanswered = False
        """Whether a call of the last turn has no result."""

    def take(self, body: Kept) -> None:
        """Add the next event."""
        match body:
            case Start():
                if self._start is not None:
                    raise NotRepresentableError("second_run_start")
                self._start = body
            case Uttered():
                self._take_words(body)
            case Said():
                self._take_text(body.text, body.step, delta=True)
            case Call():
                self._take_call(body)
            case Result():
                self._take_result(body)
            case Answer():
                self._take_answer(body.text)
            case Odd():
                raise NotRepresentableError(body.code)

    def end(self, task: str | None, system: str | None) -> list[Told]:
        """Return all messages."""
        self._end_turn()
        while self._messages and self._messages[-1].role not in ("assistant", "tool"):
            self._messages.pop()
        start = self._start
        given = self._before
        shown = start.task if start is not None and start.task is not None else task
        first = self._messages[0] if self._messages else None
        if shown is not None and not (first is not None and first.role == "user" and first.text == shown):
            given = [*given, Told("user", shown)]
        prompt = start.system if start is not None and start.system is not None else system
        given = [*([Told("system", prompt)] if prompt else []), *given]
        self.n_given = len(given)
        return [*given, *self._messages]

    # -- turns ---------------------------------------------------------------------------------------------------------

    def _take_words(self, words: Uttered) -> None:
        if words.what == "context":
            self._take_context(Told(words.role, words.text))
        elif words.what == "user":
            self._end_turn()
            self._messages.append(Told("user", words.text))
        elif words.before_task:
            self._before.append(Told("assistant", words.text))
        elif words.what == "reasoning":
            turn = self._turn_for_words(words.step, spoken=bool(self._turn.texts))
            turn.reasoning.append(whole(words.text))
        else:
            self._take_text(words.text, words.step, delta=False)

    def _take_context(self, told: Told) -> None:
        """Add words that the model was given: before its first turn they precede the task, later they keep their place."""
        self._end_turn()
        (self._messages or self._before).append(told)

    def _take_text(self, text: str | HeldText, step: int | None, *, delta: bool) -> None:
        turn = self._turn_for_words(step, spoken=bool(self._turn.texts) and not delta)
        if turn.texts and turn.delta != delta:
            raise NotRepresentableError("text_twice")
        turn.delta = delta
        turn.texts.append(whole(text))

    def _turn_for_words(self, step: int | None, *, spoken: bool) -> "_Turn":
        """The turn of some words: that of their step, or the one that has no words and no calls yet."""
        turn = self._turn
        same = step is not None and step == turn.step
        if turn.calls and same and not turn.results:
            raise NotRepresentableError("text_after_calls")
        other = step is not None and turn.step is not None and step != turn.step
        if turn.calls or (not same and (spoken or (other and not turn.is_empty))):
            self._end_turn()
        self._turn.step = step if step is not None else self._turn.step
        return self._turn

    def _take_call(self, call: Call) -> None:
        turn = self._turn
        key = call.batch or call.step
        if turn.calls:
            if key is None or key != turn.key:
                self._end_turn()
        elif not turn.is_empty and None not in (call.step, turn.step) and call.step != turn.step:
            self._end_turn()
        turn = self._turn
        turn.key = key
        turn.step = call.step if call.step is not None else turn.step
        name = f"c{self._n_calls}"
        self._n_calls += 1
        turn.calls.append(AskedTool(name, call.name, call.arguments, call.arguments_digest, call.malformed))
        turn.unanswered += 1
        self._open.setdefault(call.call_id or "", []).append(_OpenCall(name, call.name, turn))

    def _take_result(self, result: Result) -> None:
        """Assign a result to the first call of its id, else of its name, that has none in the nearest turn."""
        waiting = self._open.get(result.call_id or "", [])
        fitting = [call for call in waiting if result.call_id or result.name in (None, call.tool)]
        if not fitting:
            raise NotRepresentableError("unpaired_result")
        call = next(each for each in fitting if each.turn is fitting[-1].turn)
        if call.turn is not self._turn:
            raise NotRepresentableError("late_result")
        waiting.remove(call)
        self._turn.unanswered -= 1
        self._turn.results.append(
            Told(
                "tool",
                _content(result),
                tool_call_id=call.name,
                name=call.tool,
                is_error=result.error_message is not None,
            )
        )

    def _take_answer(self, text: str) -> None:
        turn = self._turn
        if turn.calls or (turn.texts and self._words(turn).strip() != text.strip()):
            self._end_turn()
            turn = self._turn
        if not turn.texts:
            turn.texts.append(text)
        self._end_turn()

    def _words(self, turn: "_Turn") -> str:
        """The text of a turn. Deltas come as they were written, and a secret may be spread over several."""
        if not turn.delta:
            return "\n\n".join(turn.texts)
        text = "".join(turn.texts)
        return redact(text).text if self._redacting else text

    def _end_turn(self) -> None:
        """Add the turn and its results to the messages, and begin another one."""
        turn = self._turn
        if turn.is_empty:
            return
        if self._unanswered:
            raise NotRepresentableError("unanswered_call")
        self._unanswered = turn.unanswered > 0
        text = self._words(turn)
        reasoning = "\n\n".join(turn.reasoning) or None
        self._messages.append(Told("assistant", text or None, reasoning=reasoning, tools=tuple(turn.calls)))
        self._messages += turn.results
        self._turn = _Turn()


class _Turn:
    """A model turn while it may still grow."""

    def __init__(self) -> None:
        self.reasoning: list[str] = []
        self.texts: list[str] = []
        self.delta = False
        """Whether its texts are pieces of one."""
        self.calls: list[AskedTool] = []
        self.results: list[Told] = []
        self.unanswered = 0
        self.key: str | int | None = None
        self.step: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it has neither words nor calls."""
        return not (self.reasoning or self.texts or self.calls)


class _OpenCall:
    """A call that waits for its result."""

    def __init__(self, name: str, tool: str, turn: _Turn) -> None:
        self.name = name
        self.tool = tool
        self.turn = turn


def _content(result: Result) -> str:
    """The output as the model got it, or the error if there is no output."""
    if result.output is None:
        return result.error_message if result.error_message is not None else "null"
    return result.output.head if result.whole is None else whole(result.whole)
