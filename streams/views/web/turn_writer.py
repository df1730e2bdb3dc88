"""Writes transcripts: one pass over the kept events of an attempt, from which turns come out."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from agents.conversations.chat import Asked, Odd, Told, Uttered
from agents.conversations.held_text import HeldText, held, whole
from agents.redaction.redaction import redact
from agents.summarize.branch import FIDELITIES, form_of
from agents.summarize.pieces import EXACT, Answer, Call, Decision, Failure, Kept, Piece, Result, Said, Spent, Start
from streams.log.text_spill import process_texts
from streams.views.web.turns import REWRITTEN, ShownCall, Transcript, Turn, Words


def transcript_of(pieces: Sequence[Piece]) -> Transcript:
    """The transcript of an attempt's events."""
    form = form_of(pieces)
    noted = [each for piece in pieces for each in piece.noted]
    asked = {each.body.call_id: each.body for each in noted if isinstance(each.body, Asked)}
    writer = _Writer(exact=form == EXACT, asked=asked, told=any(isinstance(each.body, Told) for each in noted))
    for piece in pieces:
        for each in piece.noted:
            writer.take(each.body, each.time, (piece.first_seq, piece.stop))
    messages = {each.body.message_id: each.body for each in noted if isinstance(each.body, Told)}
    return Transcript(FIDELITIES[form], writer.end(), messages, asked)


@dataclass
class _Call:
    """A call whose result may still arrive."""

    call_id: str | None
    shown: ShownCall


class _Calls:
    """The calls of a turn in their order, and those without a result by id and by name: a turn may have ten thousand."""

    def __init__(self) -> None:
        self._all: list[_Call] = []
        self._first: dict[str | None, _Call] = {}
        self._waiting: dict[tuple[str, str | None], deque[_Call]] = {}

    def __iter__(self) -> Iterator[_Call]:
        return iter(self._all)

    def __bool__(self) -> bool:
        return bool(self._all)

    def append(self, call: _Call) -> None:
        """Add a call."""
        self._all.append(call)
        self._first.setdefault(call.call_id, call)
        if not call.shown.returned:
            for key in (("id", call.call_id), ("name", call.shown.name), ("any", None)):
                self._waiting.setdefault(key, deque()).append(call)

    def of(self, call_id: str | None) -> _Call | None:
        """The first call of an id."""
        return self._first.get(call_id)

    def waiting(self, call_id: str | None, name: str | None) -> _Call | None:
        """The first call of an id, or else of a name, that has no result yet."""
        key = ("id", call_id) if call_id is not None else ("any", None) if name is None else ("name", name)
        calls = self._waiting.get(key, deque())
        while calls and calls[0].shown.returned:
            calls.popleft()
        return calls[0] if calls else None


@dataclass
class _Turn:
    """A turn while it may grow."""

    given: list[Words] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    calls: _Calls = field(default_factory=_Calls)
    ending: Words | None = None
    key: str | int | None = None
    step: int | None = None
    at: int | None = None
    model: str | None = None
    agent: str | None = None
    tokens: tuple[int | None, int | None] = (None, None)
    call_id: str | None = None
    seqs: tuple[int, int] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the model has no words and no calls yet."""
        return not (self.reasoning or self.texts or self.calls or self.ending)

    @property
    def has_results(self) -> bool:
        return any(call.shown.returned for call in self.calls)


class _Writer:
    """One pass over a branch's kept events."""

    def __init__(self, *, exact: bool, asked: Mapping[str, Asked], told: bool) -> None:
        self._exact = exact
        self._told = told
        self._responses = {call.response: call for call in asked.values() if call.response is not None}
        self._lengths: dict[str, int] = {}
        self._last_agent: str | None = None
        self._turns: list[_Turn] = []
        self._turn = _Turn()
        self._spent = (0, 0)

    def take(self, body: Kept, time: int | None, seqs: tuple[int, int]) -> None:
        """Take the next event, of a slice with these numbers."""
        self._take(body, time)
        turn = self._turn
        turn.seqs = (seqs if turn.seqs is None else turn.seqs)[0], seqs[1]

    def _take(self, body: Kept, time: int | None) -> None:  # noqa: C901, PLR0912 - one case for each kind
        match body:
            case Start():
                self._given([("system", body.system), ("user", None if self._told else body.task)])
            case Uttered():
                self._take_words(body, time)
            case Told():
                self._take_message(body, time)
            case Asked():
                self._take_request(body)
            case Said() if not self._told:
                self._words_of(body.step, time).texts.append(body.text)
            case Call() if not self._told:
                self._take_call(body, time)
            case Call():
                self._time_call(body, time)
            case Result():
                self._take_result(body, time)
            case Answer():
                self._end(Words("answer", body.text), time)
            case Failure():
                self._end(Words("error", body.message), time)
            case Spent():
                self._take_usage(body)
            case Odd():
                self._take_odd(body)
            case Decision():
                self._next().given.append(Words("note", body.kind))
            case _:
                pass

    # -- words -------------------------------------------------------------------------------------------------------------

    def _next(self) -> _Turn:
        """The turn that begins next: messages given now come before it."""
        if not self._turn.is_empty:
            self._turns.append(self._turn)
            self._turn = _Turn()
        return self._turn

    def _given(self, words: Sequence[tuple[str, str | HeldText | None]]) -> None:
        self._next().given += [Words(kind, text) for kind, text in words if text]

    def _words_of(self, step: int | None, time: int | None) -> _Turn:
        """The turn for words of the model at a step."""
        turn = self._turn
        other = step is not None and turn.step is not None and step != turn.step
        if turn.calls or turn.ending is not None or (other and not turn.is_empty):
            turn = self._next()
        turn.step = step if step is not None else turn.step
        turn.at = turn.at if turn.at is not None else time
        return turn

    def _take_words(self, words: Uttered, time: int | None) -> None:
        if words.what in ("user", "context"):
            self._given([("user" if words.what == "user" else f"context ({words.role})", words.text)])
        elif words.before_task:
            self._given([("assistant (before the task)", words.text)])
        else:
            if self._turn.texts:
                self._next()
            turn = self._words_of(words.step, time)
            (turn.reasoning if words.what == "reasoning" else turn.texts).append(whole(words.text))

    def _take_odd(self, odd: Odd) -> None:
        if odd.code == "context_rewritten":
            self._next().notes.append(REWRITTEN)
        elif odd.said is not None:
            self._next().given.append(Words("note", redact(odd.said).text))
        else:
            self._next().notes.append(odd.code.replace("_", " "))

    # -- messages and requests -----------------------------------------------------------------------------------------------

    def _take_message(self, told: Told, time: int | None) -> None:
        if told.role == "tool":
            found = self._waiting(told.tool_call_id, told.name)
            shown = found.shown if found else ShownCall(told.name or "unknown", "{}", paired=False)
            shown = shown._replace(
                held=told.content, output_bytes=told.output_bytes, digest=told.output_digest, returned=True,
                error=(shown.error or "the tool says that it failed") if told.is_error else shown.error, ended=shown.ended or time,
            )  # fmt: skip
            self._put(found, shown)
        elif told.role != "assistant" or (self._exact and told.message_id not in self._responses):
            given = "assistant (given)" if told.role == "assistant" else told.role
            self._given([(given, told.content if told.parts is None else f"{told.text or ''}\n{told.parts}")])
        else:
            turn = self._next()
            turn.at, turn.agent = time, told.agent
            turn.texts += [told.text] if told.text else []
            turn.reasoning += [told.reasoning] if told.reasoning else []
            for call in told.tools:
                shown = ShownCall(call.name, call.arguments, started=time, asked=call.arguments_digest)
                turn.calls.append(_Call(call.call_id, shown))
            if turn.is_empty:
                turn.texts.append("")
            request = self._responses.get(told.message_id)
            if request is not None:
                self._note_request(turn, request)

    def _note_request(self, turn: _Turn, call: Asked) -> None:
        turn.call_id, turn.model = call.call_id, call.model
        turn.tokens = (call.input_tokens, call.output_tokens)
        if call.agent != self._last_agent and self._lengths:
            turn.notes.append(f"another agent: {call.agent or 'the main one'}")
        elif self._lengths and (call.after is None or call.keep < self._lengths.get(call.after, 0)):
            before = self._lengths.get(call.after or "", max(self._lengths.values()))
            turn.notes.append(f"{REWRITTEN}: {call.keep} of {before} messages stay, {len(call.add)} are new")
        self._last_agent = call.agent
        self._lengths[call.call_id] = call.keep + len(call.add) + 1

    def _take_request(self, call: Asked) -> None:
        if call.response is None:
            self._lengths.setdefault(call.call_id, call.keep + len(call.add))
            self._next().notes.append(f"a request to {call.model or 'the model'} failed")

    # -- calls and results -----------------------------------------------------------------------------------------------------

    def _take_call(self, call: Call, time: int | None) -> None:
        turn, key = self._turn, call.batch or call.step
        apart = None not in (call.step, turn.step) and call.step != turn.step
        if turn.ending or (turn.calls and (key is None or key != turn.key)) or (not turn.is_empty and apart):
            turn = self._next()
        turn.key, turn.step = key, call.step if call.step is not None else turn.step
        turn.at = turn.at if turn.at is not None else time
        shown = ShownCall(call.name, call.arguments, started=time, asked=call.arguments_digest)
        turn.calls.append(_Call(call.call_id, shown))

    def _time_call(self, call: Call, time: int | None) -> None:
        """Note when a call of a message was made."""
        found = self._turn.calls.of(call.call_id)
        if found is not None:
            found.shown = found.shown._replace(started=time if time is not None else found.shown.started)

    def _waiting(self, call_id: str | None, name: str | None) -> _Call | None:
        for turn in (self._turn, *reversed(self._turns[-20:])):
            found = turn.calls.waiting(call_id, name)
            if found is not None:
                return found
        return None

    def _take_result(self, result: Result, time: int | None) -> None:
        found = self._waiting(result.call_id, result.name)
        if self._told:  # the message has the output; the event has its time and error
            if found is not None:
                found.shown = found.shown._replace(
                    ended=time, error=result.error_message, code=result.error_code, output_bytes=result.output_bytes,
                    digest=result.output_digest,
                )  # fmt: skip
            return
        shown = found.shown if found else ShownCall(result.name or "unknown", "{}", paired=False)
        shown = shown._replace(
            held=_output(result), error=result.error_message, code=result.error_code, output_bytes=result.output_bytes,
            digest=result.output_digest, ended=time, returned=True,
        )  # fmt: skip
        self._put(found, shown)

    def _put(self, call: _Call | None, shown: ShownCall) -> None:
        if call is None:
            self._turn.calls.append(_Call(None, shown))
        else:
            call.shown = shown

    # -- ends --------------------------------------------------------------------------------------------------------------------

    def _end(self, words: Words, time: int | None) -> None:
        turn = self._turn
        said = redact("".join(turn.texts)).text.strip()
        if turn.calls or turn.ending or (said and said != words.text.strip()):
            turn = self._next()
        elif said:
            turn.texts = []
        turn.ending = words
        turn.at = turn.at if turn.at is not None else time

    def _take_usage(self, spent: Spent) -> None:
        """Counts are cumulative for the run: the turn gets the increase."""
        before = self._spent
        now = (spent.input_tokens or before[0], spent.output_tokens or before[1])
        used = tuple(after - earlier if after >= earlier else None for earlier, after in zip(before, now, strict=True))
        turn = self._turn
        turn.tokens = (
            used[0] if spent.input_tokens is not None else None,
            used[1] if spent.output_tokens is not None else None,
        )
        turn.model = spent.model or turn.model
        self._spent = now

    def end(self) -> tuple[Turn, ...]:
        """All turns."""
        turn = self._turn
        if turn.given or turn.notes or not turn.is_empty:
            self._turns.append(turn)
        return tuple(_closed(number, each) for number, each in enumerate(self._turns))


def _output(result: Result) -> str | HeldText | None:
    if result.output is None:
        return None
    return result.output.head if result.whole is None else result.whole


def _closed(number: int, turn: _Turn) -> Turn:
    text, texts = redact("".join(turn.texts)).text, process_texts()
    calls = tuple(each.shown for each in turn.calls)
    ending = turn.ending and (turn.ending.kind, turn.ending.text)
    did = sha256(repr((text, [(call.name, call.asked) for call in calls], ending)).encode())
    saw = did.copy()
    for words in turn.given:
        saw.update(repr((words.kind, words.text)).encode())
    saw.update(repr([(call.digest, call.error) for call in calls]).encode())
    return Turn(
        number, tuple(turn.given), held("\n\n".join(turn.reasoning), texts), held(text, texts), calls, turn.ending, tuple(turn.notes),
        turn.at, turn.model, turn.agent, *turn.tokens, turn.call_id, did.digest(), saw.digest(),
        turn.seqs or (0, 0),
    )  # fmt: skip
