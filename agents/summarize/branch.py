"""A branch's record from its kept events: calls paired with their results, the answer, the usage, the raw digest.

A pure function of the events in the order of their seq, of the producer's report of the branch, and of the
configuration.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, final

from agents.conversations.chat import Asked, Odd, Told, Uttered
from agents.conversations.chat_reader import SHORTEST_SECRET
from agents.conversations.held_text import whole
from agents.conversations.sequences import NotRepresentableError, sequences_of
from agents.evidence.canonical import digest
from agents.redaction.redaction import redact
from agents.rules.emission_rules import RULES
from agents.summarize.output import Excerpt, shorten
from agents.summarize.pieces import (
    DIGEST,
    EXACT,
    PLAIN,
    TRANSCRIPT,
    Answer,
    Body,
    Call,
    Failure,
    Piece,
    Result,
    Round,
    Said,
    Spent,
    Start,
)  # fmt: skip
from agents.summarize.told_steps import last_response, told_steps
from schemas.branches import BranchCall, BranchRecord, BranchStatus, ToolFailure
from schemas.codec.body import Bodies, with_content_id
from schemas.codec.maker import unchecked
from schemas.emission import EmissionConfig, SummaryLimits
from schemas.events import AgentInfo, BranchInfo, EndStatus, Workspace
from schemas.judging import Usage
from schemas.lifecycle import RolloutOpened
from schemas.training import Fidelity

_branch_record: Final = unchecked(BranchRecord)
_branch_call: Final = unchecked(BranchCall)
_usage: Final = unchecked(Usage)
_agent_info: Final = unchecked(AgentInfo)

NO_INFO = BranchInfo()


@dataclass(frozen=True, slots=True)
class BranchEnd:
    """The producer's report when it ended the branch."""

    status: EndStatus | None = None
    error: str | None = None
    workspace: Workspace | None = None


@final
class BranchFacts:
    """The inputs of a branch record."""

    __slots__ = (
        "attempt",
        "branch_index",
        "error",
        "gaps",
        "info",
        "opened",
        "pieces",
        "raw_digest",
        "rollout_id",
        "status",
        "workspace",
    )

    def __init__(
        self,
        rollout_id: str,
        branch_index: int,
        attempt: int,
        pieces: Sequence[Piece],
        gaps: tuple[int, ...],
        status: BranchStatus,
        error: str | None,
        workspace: Workspace | None,
        info: BranchInfo | None,
        opened: RolloutOpened | None,
        raw_digest: str,
    ) -> None:
        self.rollout_id = rollout_id
        self.branch_index = branch_index
        self.attempt = attempt
        self.pieces = pieces
        """The events, in the order of their seq."""
        self.gaps = gaps
        self.status = status
        """How it ended; `running` when it did not."""
        self.error = error
        """The reason of its end, in the producer's words."""
        self.workspace = workspace
        self.info = info
        self.opened = opened
        self.raw_digest = raw_digest
        """Digest of these events, from the caller that collects them."""


def last_word(pieces: Sequence[Piece]) -> Answer | Failure | None:
    """The last answer or error among events."""
    for piece in reversed(pieces):
        for each in reversed(piece.noted):
            if isinstance(each.body, (Answer, Failure)):
                return each.body
    return None


def end_status(word: Answer | Failure | None, ended: BranchEnd | None) -> EndStatus | None:
    """How a branch ended: the producer's report, else its last answer or error; None if it has not ended.

    The sender of an end may not know why the branch ended. A reported answer or failure is not believed if the last
    event is an error: a provider's failure is not the agent's.
    """
    doubted = isinstance(word, Failure) and ended is not None and ended.status in ("answered", "failed")
    if ended is not None and ended.status is not None and not doubted:
        return ended.status
    if isinstance(word, Answer):
        return "answered"
    if isinstance(word, Failure):
        return "infra_error" if word.provider else "failed"
    return "failed" if ended is not None else None


def n_events(pieces: Sequence[Piece]) -> int:
    """The number of events."""
    return sum(len(piece.digests) for piece in pieces) // DIGEST


def raw_digest(pieces: Sequence[Piece]) -> str:
    """SHA-256 over the digests of the raw events, in order."""
    return digest(b"".join([piece.digests for piece in pieces]))


FIDELITIES: Final[dict[int, Fidelity]] = {PLAIN: "reconstructed", TRANSCRIPT: "transcript", EXACT: "exact"}
"""The fidelity for each form of a conversation."""


def form_of(pieces: Sequence[Piece]) -> int:
    """The form of a branch's conversation, by the events that are there."""
    form = PLAIN
    for piece in pieces:
        form = max(form, piece.form)
    return form


def n_sequences(pieces: Sequence[Piece]) -> int | None:
    """How many conversations the model calls of a branch make; None if that is unknown."""
    bodies = [each.body for piece in pieces for each in piece.noted]
    calls = [body for body in bodies if isinstance(body, Asked)]
    try:
        # Tools are grouped by their digests; counting does not need the lists themselves.
        known = {call.tools_digest: "" for call in calls if call.tools_digest is not None}
        return len(sequences_of([body for body in bodies if isinstance(body, Told)], calls, known).all)
    except NotRepresentableError:
        return None


def build_branch(facts: BranchFacts, config: EmissionConfig, bodies: Bodies | None = None) -> BranchRecord:
    """The record of one attempt."""
    form = form_of(facts.pieces) if RULES[config.version].rows_are_conversations else None
    reading = _Reading(ToolLimits(config, facts.opened), redacting=config.redact, form=form)
    reading.take(facts.pieces)
    status = facts.status
    error = reading.cleaned(facts.error) if facts.error else reading.error
    info = facts.info or NO_INFO
    agent = info.agent and _agent_info(
        name=reading.cleaned_name(info.agent.name),
        model=reading.cleaned_name(info.agent.model),
        version=reading.cleaned_name(info.agent.version),
    )
    if agent is None and reading.model is not None:
        agent = _agent_info(model=reading.model)
    record = _branch_record(
        record_id="-",
        rollout_id=facts.rollout_id,
        task=reading.cleaned(task_of(facts, reading.task)),
        branch_index=facts.branch_index,
        attempt=facts.attempt,
        temperature=info.temperature,
        seed=info.seed,
        session_id=reading.cleaned_name(info.session_id),
        agent=agent,
        observed=info.observed,
        status=status,
        error=None if status == "answered" else error,
        final_answer=reading.final_answer() if status == "answered" else None,
        tool_calls=tuple(reading.finished_calls()),
        usage=reading.usage(),
        n_events=n_events(facts.pieces),
        raw_digest=facts.raw_digest,
        workspace=facts.workspace,
        first_event_ms=reading.first_ms,
        last_event_ms=reading.last_ms,
        gaps=facts.gaps,
        redactions=dict(sorted(reading.redactions.items())) if reading.redactions else {},
        fidelity=None if form is None else FIDELITIES[form],
        sequences=None if form is None else n_sequences(facts.pieces) if form == EXACT else 1,
    )
    return with_content_id(record, bodies=bodies)


def task_of(facts: BranchFacts, started: str | None) -> str:
    """The task of the agents: from RolloutOpened, else from the branch's facts, else from its first event."""
    if facts.opened is not None:
        return facts.opened.task
    if facts.info is not None and facts.info.task:
        return facts.info.task
    return started or ""


class ToolLimits:
    """The limits of a tool: from RolloutOpened by name, then for all tools, else from the configuration by name, then
    for all.
    """

    def __init__(self, config: EmissionConfig, opened: RolloutOpened | None) -> None:
        self._config = config.summarize
        self._by_rollout = {options.tool: options for options in opened.summarize} if opened else {}

    def of(self, tool: str) -> SummaryLimits:
        """Of one tool."""
        chosen = self._by_rollout.get(tool) or self._by_rollout.get("*")
        if chosen is not None:
            return SummaryLimits(
                max_bytes=chosen.max_bytes,
                keep_first_lines=chosen.keep_first_lines,
                keep_last_lines=chosen.keep_last_lines,
            )
        return self._config.tools.get(tool, self._config)


class _Slot:
    """A call whose result may still arrive."""

    __slots__ = ("call", "ended", "paired", "result", "started", "text", "turn")

    def __init__(self, call: Call, turn: int, text: str | None, started: int | None) -> None:
        self.call = call
        self.turn = turn
        self.text = text
        self.started = started
        self.result: Result | None = None
        self.ended: int | None = None
        self.paired = True


class _Early(NamedTuple):
    """A result that arrived before its call."""

    number: int
    result: Result
    time: int | None


class _Reading:
    """One pass over a branch's events."""

    def __init__(self, limits: ToolLimits | None, *, redacting: bool, form: int | None) -> None:
        self.limits = limits
        """None: outputs are kept whole."""
        self.redacting = redacting
        self.form = form
        """The form of the conversation; None under version 1, which has none."""
        self.task: str | None = None
        self.model: str | None = None
        self.answer: str | None = None
        self.error: str | None = None
        self.in_rounds = False
        """Whether it is a compliance run."""
        self.response: Told | None = None
        """The last message of the model, if the branch has messages."""
        self.spent: Spent | None = None
        self.first_ms: int | None = None
        self.last_ms: int | None = None
        self.redactions: dict[str, int] = {}
        self._slots: list[_Slot] = []
        self._open: dict[int, _Slot] = {}
        """Calls without a result, by their index; `_open_by_id` has the indexes of those with an id."""
        self._open_by_id: dict[str, dict[int, None]] = {}
        self._early: dict[str | None, list[_Early]] = {}
        """Results whose call has not arrived, by its id."""
        self._arrived = 0
        self._said: list[Said] = []
        self._turn = -1
        self._turn_key: str | int | None = None

    def take(self, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            if piece.first_time is not None:
                self.first_ms = piece.first_time if self.first_ms is None else self.first_ms
                self.last_ms = piece.last_time
            for each in piece.noted:
                if each.redactions and (
                    self.form is not None or not isinstance(each.body, (Told, Asked, Uttered, Round))
                ):
                    for kind, count in each.redactions:
                        self.redactions[kind] = self.redactions.get(kind, 0) + count
                if not self.form:
                    self._take_body(each.body, each.time)
        if self.form:
            for step in told_steps(pieces, exact=self.form == EXACT):
                self._take_body(step.body, step.time)
            self.response = last_response(pieces, exact=self.form == EXACT)
            self._spoken()

    def _take_body(self, body: Body, time: int | None) -> None:
        if isinstance(body, Said):
            self._said.append(body)
        elif isinstance(body, Call):
            self._take_call(body, time)
        elif isinstance(body, Result):
            self._take_result(body, time)
        elif isinstance(body, Answer):
            self.answer = body.text
        elif isinstance(body, Failure):
            self.error = body.message
        elif isinstance(body, Round):
            self.in_rounds = True
        elif isinstance(body, Start):
            self.task, self.model = self.task or body.task, self.model or body.model
        elif isinstance(body, Spent):
            self._take_usage(body)
        elif isinstance(body, (Odd, Uttered)):
            self._take_words(body)

    def _take_words(self, words: Odd | Uttered) -> None:
        """Add words of a conversation: version 1 reads them as an utterance of the model."""
        if self.form is None:
            if words.said is not None:
                self._said.append(Said(words.said, words.step))
        elif isinstance(words, Uttered):
            self._spoken()  # a user spoke: earlier words began no later call, but secrets in them count

    def _take_call(self, call: Call, time: int | None) -> None:
        # Parallel calls share a batch or a step; a call that names neither is a turn of its own.
        key = call.batch or call.step
        if key is None or key != self._turn_key:
            self._turn += 1
            self._turn_key = key
        slot = _Slot(call, self._turn, self._spoken(), time)
        early = self._early.get(call.call_id) if call.call_id is not None else None
        if early:
            _, slot.result, slot.ended = early.pop(0)
        else:
            self._open[len(self._slots)] = slot
            if call.call_id is not None:
                self._open_by_id.setdefault(call.call_id, {})[len(self._slots)] = None
        self._slots.append(slot)

    def _take_result(self, result: Result, time: int | None) -> None:
        place = self._first_open(result)
        if place is None:
            self._arrived += 1
            self._early.setdefault(result.call_id, []).append(_Early(self._arrived, result, time))
            return
        slot = self._open.pop(place)
        self._open_by_id.get(slot.call.call_id or "", {}).pop(place, None)
        slot.result, slot.ended = result, time

    def _first_open(self, result: Result) -> int | None:
        """The first call that a result may belong to: by its id, or by the tool's name if it has no id."""
        if result.call_id is not None:
            return next(iter(self._open_by_id.get(result.call_id, ())), None)
        return next((place for place, slot in self._open.items() if result.name in (None, slot.call.name)), None)

    def _take_usage(self, spent: Spent) -> None:
        # Counts are cumulative for the run, so the last one is the total.
        before = self.spent
        self.model = self.model or spent.model
        self.spent = (
            spent
            if before is None
            else Spent(
                before.input_tokens if spent.input_tokens is None else spent.input_tokens,
                before.output_tokens if spent.output_tokens is None else spent.output_tokens,
                before.cached_tokens if spent.cached_tokens is None else spent.cached_tokens,
                before.usd if spent.usd is None else spent.usd,
                None,
            )
        )

    def final_answer(self) -> str | None:
        """The answer: the model's last response, if the branch has messages and it calls no tools; else the event's."""
        told = self.response
        if self.in_rounds:  # the answer may be made of the words of several calls
            return self.answer
        return self.answer if told is None or told.tools or not told.text else told.text

    def usage(self) -> Usage | None:
        """The usage of the whole run; None if it was never reported."""
        spent = self.spent
        if spent is None:
            return None
        return _usage(
            input_tokens=spent.input_tokens,
            output_tokens=spent.output_tokens,
            cached_tokens=spent.cached_tokens,
            usd=spent.usd,
        )

    def _spoken(self) -> str | None:
        """The text since the last call: deltas of one step joined, steps separated."""
        if not self._said:
            return None
        steps: list[list[str]] = [[]]
        step = self._said[0].step
        for said in self._said:
            if said.step != step:
                steps.append([])
                step = said.step
            steps[-1].append(said.text)
        self._said = []
        return self.cleaned("\n\n".join("".join(parts) for parts in steps).strip()) or None

    def cleaned_name(self, text: str | None) -> str | None:
        """A name that a producer gave."""
        return text if text is None or len(text) < SHORTEST_SECRET else self.cleaned(text)

    def cleaned(self, text: str) -> str:
        if not self.redacting:
            return text
        result = redact(text)
        for kind, count in result.counts:
            self.redactions[kind] = self.redactions.get(kind, 0) + count
        return result.text

    def finished_calls(self) -> list[BranchCall]:
        """All calls in order, then the results without a call."""
        for _, result, ended in sorted(early for waiting in self._early.values() for early in waiting):
            orphan = Call(result.call_id, result.name or "unknown", "{}", digest(b"{}"), None, None)
            self._turn += 1
            slot = _Slot(orphan, self._turn, None, None)
            slot.result, slot.ended, slot.paired = result, ended, False
            self._slots.append(slot)
        self._early.clear()
        return [self._call_record(position, slot) for position, slot in enumerate(self._slots)]

    def _call_record(self, position: int, slot: _Slot) -> BranchCall:
        call, result = slot.call, slot.result
        summary = failure = None
        if result is not None:
            summary = None if result.output is None else self._output(call.name, result, result.output)
            if result.error_message is not None:
                failure = ToolFailure(code=result.error_code, message=result.error_message)
        return _branch_call(
            call_id=self._shown_id(call.call_id) or f"call-{position}",
            name=call.name,
            arguments=call.arguments,
            arguments_digest=call.arguments_digest,
            output_summary=summary,
            output_digest=result.output_digest if result else None,
            output_bytes=result.output_bytes if result else None,
            error=failure,
            turn=slot.turn,
            text=slot.text,
            step=call.step,
            paired=slot.paired,
            started_ms=slot.started,
            ended_ms=slot.ended,
        )

    def _shown_id(self, call_id: str | None) -> str | None:
        """The id of a call; version 1 shows it as it came."""
        return call_id if self.form is None else self.cleaned_name(call_id)

    def _output(self, tool: str, result: Result, kept: Excerpt) -> str:
        if self.limits is not None:
            return shorten(kept, self.limits.of(tool))
        return kept.head if result.whole is None else whole(result.whole)


def whole_calls(pieces: Sequence[Piece], *, redacting: bool) -> list[BranchCall]:
    """The calls of a branch with their whole outputs."""
    reading = _Reading(None, redacting=redacting, form=form_of(pieces))
    reading.take(pieces)
    return reading.finished_calls()
