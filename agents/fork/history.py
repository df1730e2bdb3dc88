"""The state of a fork according to the log: which branches are unfinished, and the beginning of one to fork again from.
Pure."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from agents.facts.fact import Fact
from agents.fork.fork_error import ForkError
from agents.summarize.loose_fields import first
from agents.verdicts.meaning import Verdict
from schemas.closures import Closure
from schemas.events import AgentEvent, AgentEvents, EndStatus, Workspace
from schemas.jsontext import parse_object
from schemas.lifecycle import Lifecycle, RolloutOpened

_PLACE = re.compile(r"(?P<rollout>.+)/(?P<branch>\d+)@(?P<seq>\d+)")


class Job(NamedTuple):
    """A branch to run."""

    branch_index: int
    attempt: int = 0


class Attempt(NamedTuple):
    """One attempt of a branch, as recorded on the log."""

    events: dict[int, AgentEvent]
    ended: bool
    status: EndStatus | None = None
    """With `ended`: how."""
    workspace: Workspace | None = None
    """With `ended`: the snapshot of its files."""


class History(NamedTuple):
    """The records of a rollout on the log."""

    opened: RolloutOpened | None
    attempts: dict[Job, Attempt]
    settled: bool
    """Whether the rollout has settled: nothing more can be added."""
    verdicts: tuple[Verdict, ...] = ()
    """The verdicts about its branches, trusted or not."""


def read_history(facts: Iterable[Fact], rollout_id: str) -> History:
    """The history of one rollout, from facts in any order."""
    opened: RolloutOpened | None = None
    attempts: dict[Job, Attempt] = {}
    settled = False
    verdicts: list[Verdict] = []
    for fact in facts:
        if isinstance(fact, Lifecycle):
            if fact.opened is not None and fact.opened.rollout_id == rollout_id:
                opened = opened or fact.opened
        elif isinstance(fact, AgentEvents) and fact.rollout_id == rollout_id:
            job = Job(fact.branch_index, fact.attempt)
            known = attempts.get(job, Attempt({}, False))
            events = known.events | {fact.first_seq + offset: event for offset, event in enumerate(fact.events)}
            end = (fact.status, fact.workspace) if fact.ended and not known.ended else known[2:]
            attempts[job] = Attempt(events, known.ended or fact.ended, *end)
        elif isinstance(fact, Closure):
            settled = True
        elif isinstance(fact, Verdict) and fact.rollout_id == rollout_id:
            verdicts.append(fact)
    return History(opened, attempts, settled, tuple(verdicts))


def unfinished(history: History, rollout_id: str) -> list[Job]:
    """The branches that have not ended, each as a new attempt. Raises ForkError when it cannot be resumed."""
    if history.opened is None:
        raise ForkError(f"the log has no rollout {rollout_id}; start it with --id {rollout_id}")
    if history.settled:
        raise ForkError(f"rollout {rollout_id} is settled: what counts is decided, and nothing can be added")
    jobs = []
    for branch in range(history.opened.branches or 0):
        tried = [job for job in history.attempts if job.branch_index == branch]
        if not any(history.attempts[job].ended for job in tried):
            jobs.append(Job(branch, max((job.attempt + 1 for job in tried), default=0)))
    return jobs


def counting_ends(history: History) -> list[Job]:
    """For each branch with an ended attempt, the one that counts: the highest."""
    ended = [job for job, attempt in history.attempts.items() if attempt.ended]
    return [max(job for job in ended if job.branch_index == branch) for branch in sorted({job[0] for job in ended})]


class Place(NamedTuple):
    """A moment in a branch."""

    rollout_id: str
    branch_index: int
    seq: int

    def __str__(self) -> str:
        return f"{self.rollout_id}/{self.branch_index}@{self.seq}"


def read_place(text: str) -> Place:
    """`ROLLOUT/BRANCH@SEQ`. Raises ForkError."""
    match = _PLACE.fullmatch(text)
    if match is None:
        raise ForkError(f"{text}: expected ROLLOUT/BRANCH@SEQ, as in csv-table-1/0@12")
    return Place(match["rollout"], int(match["branch"]), int(match["seq"]))


def prefix_of(history: History, place: Place) -> tuple[AgentEvent, ...]:
    """A branch's events up to a seq, cut back to the end of a whole turn. Raises ForkError."""
    tried = [job for job in history.attempts if job.branch_index == place.branch_index]
    if not tried:
        raise ForkError(f"the log has no branch {place.branch_index} of rollout {place.rollout_id}")
    job = max(tried, key=lambda each: (history.attempts[each].ended, each.attempt))
    events = history.attempts[job].events
    known = [events[seq] for seq in range(min(place.seq + 1, len(events))) if seq in events]
    if len(known) < min(place.seq + 1, len(events)):
        raise ForkError(f"{place}: events before it are missing on the log")
    whole = whole_turns(known)
    if not whole:
        raise ForkError(f"{place}: no turn is complete by then; a later seq is needed")
    return tuple(known[:whole])


def whole_turns(events: Sequence[AgentEvent]) -> int:
    """How many of the events form whole turns, with every call answered."""
    waiting: set[str] = set()
    size, called = 0, False
    for number, event in enumerate(events, start=1):
        if event.event == "tool_call":
            waiting.add(str(call_id(event)))
            called = True
        elif event.event == "tool_result":
            waiting.discard(str(call_id(event)))
        elif event.event in ("final_answer", "error"):
            break
        if called and not waiting and event.event == "tool_result":
            size = number
    return size


def call_id(event: AgentEvent) -> Any:
    """The call that an event belongs to."""
    return first(parse_object(event.data), "callId", "call_id", "id")
