"""The conversations of a branch that rows are made of, and how they are known.

Exact: the sequences of its model calls. Transcript: its turns in their order, each taken to have seen everything before it.
Reconstructed: its steps, with outputs as the model saw them if the producer recorded them, else as summaries. A branch
whose conversation is not known exactly has none, with the reason.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Many
from typing import NamedTuple

from agents.conversations.chat import BAD_EVENT, Asked, Odd, Told
from agents.conversations.sequences import NotRepresentableError, Sequence, sequences_of
from agents.conversations.token_streams import NO_STREAMS, Streams, streams_of
from agents.redaction.redaction import was_redacted
from agents.rules.emission_rules import Rules
from agents.summarize.branch import FIDELITIES, form_of, whole_calls
from agents.summarize.opening import CleanedOpening
from agents.summarize.output import byte_length
from agents.summarize.pieces import EXACT, PLAIN, Answer, Call, Piece, Said, Start
from agents.summarize.transcript import transcript
from agents.training.compliance_rows import ComplianceRun
from agents.training.messages import Conversation, conversation, given_messages, is_blank, told_conversation
from schemas.branches import BranchRecord
from schemas.emission import EmissionConfig
from schemas.training import Fidelity, Message

NOT_REPRESENTABLE = "not_representable"
MALFORMED = "malformed_arguments"
TOO_LARGE = "output_too_large"


class Talk(NamedTuple):
    """One conversation of a branch."""

    conversation: Conversation
    agent: str | None = None
    tools: str | None = None
    """The tools offered, as JSON text; None for those of the rollout."""
    model: str | None = None
    """The requested model; None for that of the branch."""
    unfit: tuple[str, ...] = ()
    """Why it makes no row, as codes; its conversation is then empty."""
    tokens: Streams = NO_STREAMS


NOTHING = Conversation((), ())


class BranchTalk(NamedTuple):
    """All conversations of a branch."""

    talks: tuple[Talk, ...]
    """In the order of their first calls; empty if `unfit` has a reason."""
    main: int
    """The place of the one with the last response."""
    fidelity: Fidelity | None
    """None under emission version 1."""
    task: str
    """The task as rows show it."""
    unfit: tuple[str, ...] = ()
    """Why the branch is in no row, as codes."""

    def is_subagent(self, talk: Talk) -> bool:
        """Whether a conversation belongs to another agent than the branch's own."""
        return talk.agent != self.talks[self.main].agent


def answered_talk(branch: BranchRecord, run: ComplianceRun) -> BranchTalk:
    """Return the conversation of a compliance run: the task and its answer, without hints and repairs."""
    prompt = () if is_blank(branch.task) else (Message(role="user", content=branch.task),)
    answer = () if is_blank(run.answer) else (Message(role="assistant", content=run.answer, trained=True),)
    return BranchTalk((Talk(Conversation(prompt, answer)),), 0, run.fidelity, branch.task)


class TalkMaker:
    """Makes the conversations of the branches of one rollout."""

    def __init__(
        self, opening: CleanedOpening, config: EmissionConfig, rules: Rules, tools_by_digest: Mapping[str, str]
    ) -> None:
        self._opening = opening
        self._config = config
        self._rules = rules
        self._tools_by_digest = tools_by_digest
        is_whole = not opening.counts and not any(map(was_redacted, tools_by_digest.values()))
        self._tools_removed = frozenset() if is_whole else frozenset(tools_by_digest)
        """Digests of tools from which redaction may have removed something."""
        self._given: dict[str | None, tuple[Message, ...]] = {}

    def make(self, branch: BranchRecord, pieces: Many[Piece]) -> BranchTalk:
        """Return the conversations of a branch."""
        if not self._rules.rows_are_conversations:
            talk = conversation(branch, self._given_for(branch.task), turn_text=self._config.turn_text)
            return BranchTalk((Talk(talk),), 0, None, branch.task)
        form = form_of(pieces)
        fidelity = FIDELITIES[form]
        shown = self._shown_task(branch, pieces)
        task = branch.task if self._is_shown else shown or ""
        try:
            if form == PLAIN:
                return BranchTalk((self._reconstructed(branch, pieces, shown),), 0, fidelity, task)
            if form == EXACT:
                return self._exact(pieces, task)
            return BranchTalk((self._transcribed(pieces, shown),), 0, fidelity, task)
        except NotRepresentableError as error:
            return BranchTalk((), 0, fidelity, task, _reasons(error))

    @property
    def _is_shown(self) -> bool:
        opened = self._opening.opened
        return opened is None or opened.task_shown

    def _shown_task(self, branch: BranchRecord, pieces: Many[Piece]) -> str | None:
        """The task as the model saw it; None if no task is known."""
        if self._is_shown:
            return branch.task
        starts = [each.body.task for piece in pieces for each in piece.noted if isinstance(each.body, Start)]
        return next((task for task in starts if task is not None), None)

    def _given_for(self, task: str | None) -> tuple[Message, ...]:
        given = self._given.get(task)
        if given is None:  # the branches of a rollout share their tools, and nearly always the task
            given = self._given[task] = given_messages(task, self._opening.opened)
        return given

    # -- the three forms -----------------------------------------------------------------------------------------------

    def _exact(self, pieces: Many[Piece], task: str) -> BranchTalk:
        bodies = [each.body for piece in pieces for each in piece.noted]
        if any(isinstance(body, Odd) and body.code == BAD_EVENT for body in bodies):
            raise NotRepresentableError(BAD_EVENT)
        messages = [body for body in bodies if isinstance(body, Told)]
        calls = [body for body in bodies if isinstance(body, Asked)]
        found = sequences_of(messages, calls, self._tools_by_digest, self._tools_removed)
        reasoning = self._config.reasoning == "keep"
        tokens = streams_of(found.all, calls, redacting=self._config.redact, reasoning=reasoning)
        talks = tuple(map(self._sequence, found.all, tokens))
        return BranchTalk(talks, found.main, "exact", task, talks[found.main].unfit)

    def _sequence(self, sequence: Sequence, tokens: Streams) -> Talk:
        """One conversation; its own faults do not exclude the others."""
        told = NOTHING
        unfit: tuple[str, ...] = ()
        try:
            told = self._told(sequence.messages, sequence.trained)
        except NotRepresentableError as error:
            unfit = _reasons(error)
        return Talk(told, sequence.agent, sequence.tools, sequence.model, unfit, tokens)

    def _transcribed(self, pieces: Many[Piece], shown: str | None) -> Talk:
        opened = self._opening.opened
        system = opened.system_prompt if opened is not None else None
        messages, begun = transcript(pieces, shown, system, redacting=self._config.redact)
        said = [place for place, told in enumerate(messages) if told.role == "assistant" and place >= begun]
        starts = [each.body for piece in pieces for each in piece.noted if isinstance(each.body, Start)]
        return Talk(self._told(messages, frozenset(said)), tools=starts[0].tools if starts else None)

    def _told(self, messages: Many[Told], trained: frozenset[int]) -> Conversation:
        return told_conversation(messages, trained, reasoning=self._config.reasoning == "keep")

    def _reconstructed(self, branch: BranchRecord, pieces: Many[Piece], shown: str | None) -> Talk:
        _refuse_odd(pieces)
        calls = None
        if branch.observed == "raw":
            calls = whole_calls(pieces, redacting=self._config.redact)
            if any(
                call.output_summary and byte_length(call.output_summary) > self._config.max_output_bytes
                for call in calls
            ):
                raise NotRepresentableError(TOO_LARGE)
        talk = conversation(branch, self._given_for(shown), turn_text=self._config.turn_text, trained=True, calls=calls)
        return Talk(talk)


def _reasons(error: NotRepresentableError) -> tuple[str, ...]:
    return (error.code,) if error.code in (MALFORMED, TOO_LARGE) else (NOT_REPRESENTABLE, error.code)


def _refuse_odd(pieces: Many[Piece]) -> None:
    """Raise NotRepresentableError for steps that messages cannot carry."""
    started = answered = False
    for piece in pieces:
        for each in piece.noted:
            body = each.body
            if isinstance(body, Odd):
                raise NotRepresentableError(body.code)
            if isinstance(body, Call) and body.malformed:
                raise NotRepresentableError(MALFORMED)
            if isinstance(body, Start):
                if started:
                    raise NotRepresentableError("second_run_start")
                started = True
            elif isinstance(body, Answer):
                answered = True
            elif answered and isinstance(body, Said) and not is_blank(body.text):
                raise NotRepresentableError("text_after_answer")
