"""`braid rank`: rankings straight from lines, without a log, evidence or training rows.

Verdicts and votes are kept, but of events only how each attempt ended: memory does not grow with the events. A branch
without event lines counts as answered, so that its verdicts decide; otherwise statuses, attempts and required verdicts
have the same meaning as for `braid run`. Acts are not read: a branch that `braid run` suspects of gaming its tests is
ranked by its verdicts.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from agents.evidence.canonical import CanonicalError
from agents.facts.fact import Fact, rollout_of
from agents.importers.line_error import LineError
from agents.ranking.ranking import Candidate, Contest, RankingResult, rank_many
from agents.ranking.vote_count import counted, scalar_of
from agents.rollouts.rollout import VerdictKey, verdict_key
from agents.summarize.branch import BranchEnd, end_status
from agents.summarize.event_reader import keep
from agents.summarize.pieces import Answer, Body, Failure
from agents.verdicts.meaning import Verdict, counting, outcome_of, terms_of
from schemas.branches import BranchStatus
from schemas.closures import Closure
from schemas.emission import EmissionConfig
from schemas.events import AgentEvent, AgentEvents
from schemas.judging import JudgeVote
from schemas.lifecycle import Lifecycle, RolloutOpened
from schemas.rankings import RankedBranch
from schemas.verdicts import BuildVerdict

BATCH = 512
"""Rollouts ranked at once: the fits are made in batches."""

ENDING_KINDS = frozenset({"final_answer", "error"})
"""Events that end a branch; other events are not stored."""

BRANCH_FIELDS = (
    "branch_index", "objective_status", "objective_score", "bt_score", "se", "judge_score", "judge_scalar", "total", "rank",
    "rank_low", "rank_high", "p_beats_next", "n_comparisons", "n_missing",
)  # fmt: skip


class Ranked(NamedTuple):
    """The ranking of one rollout."""

    rollout_id: str
    result: RankingResult
    out_of_range: tuple[int, ...]
    """Branches that lines speak of and the rollout does not have."""

    def as_json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        branches = [{name: getattr(row, name) for name in BRANCH_FIELDS} for row in self.result.branches]
        return {"rollout_id": self.rollout_id, "branches": branches, "stats": self.result.stats.plain()}

    @property
    def branches(self) -> tuple[RankedBranch, ...]:
        """Best first."""
        return self.result.branches


@dataclass(slots=True)
class _Attempt:
    """How one attempt at a branch ended, as far as it did."""

    last_seq: int = -1
    """The seq of the event below."""
    last: Answer | Failure | None = None
    """Its last answer or error."""
    end: BranchEnd | None = None
    """The producer's word."""

    @property
    def status(self) -> BranchStatus:
        return end_status(self.last, self.end) or "running"


@dataclass(slots=True)
class _Rollout:
    """The facts of one rollout that count."""

    opened: RolloutOpened | None = None
    attempts: dict[int, dict[int, _Attempt]] = field(default_factory=dict)
    """By branch and attempt; branches with events or an end only."""
    verdicts: dict[int, dict[int, dict[str, Verdict]]] = field(default_factory=dict)
    """By branch, attempt and kind, the verdict that counts so far."""
    verdict_ids: set[VerdictKey] = field(default_factory=set)
    """Of every verdict."""
    votes: dict[str, JudgeVote] = field(default_factory=dict)
    """By id: the first one counts."""


class Standings:
    """Collects facts in any order, of any number of rollouts; ranks them in the order of their first facts."""

    def __init__(self, config: EmissionConfig) -> None:
        self._config = config
        self._rollouts: dict[str, _Rollout] = {}

    def add(self, fact: Fact) -> None:
        """Add a fact. Raises LineError for an event that cannot be understood."""
        rollout = self._rollouts.setdefault(rollout_of(fact), _Rollout())
        if isinstance(fact, AgentEvents):
            _add_events(rollout, fact)
        elif isinstance(fact, Lifecycle):
            rollout.opened = rollout.opened or fact.opened
        elif isinstance(fact, JudgeVote):
            rollout.votes.setdefault(fact.vote_id, fact.model_copy(update={"reasoning": None, "usage": None}))
        elif not isinstance(fact, Closure):
            _add_verdict(rollout, fact)

    def rankings(self) -> Iterator[Ranked]:
        """The ranking of every rollout that has a branch."""
        rollouts = iter(self._rollouts.items())
        while batch := dict(islice(rollouts, BATCH)):
            contests = {rollout_id: self._contest(rollout) for rollout_id, rollout in batch.items()}
            for (rollout_id, contest), result in zip(contests.items(), rank_many(contests.values()), strict=True):
                if contest.branches:
                    known = {branch.branch_index for branch in contest.branches}
                    yield Ranked(rollout_id, result, tuple(sorted(_mentioned(batch[rollout_id]) - known)))

    def _contest(self, rollout: _Rollout) -> Contest:
        expected = rollout.opened.branches if rollout.opened is not None else None
        indexes: Iterable[int] = range(expected) if expected is not None else sorted(_mentioned(rollout))
        required = self._required(rollout)
        terms = terms_of(self._config.version, rollout.opened)
        votes = list(rollout.votes.values())
        candidates = []
        for index in indexes:
            status, verdicts = _standing(rollout, index)
            found = outcome_of(status, required, verdicts, terms, gaps=False, conflicts=False)
            scalar = scalar_of(index, votes)
            candidates.append(Candidate(index, found.status, scalar, found.is_counted, found.is_ranked))
        pairs = [counted(vote, vote.b) for vote in votes if vote.b is not None]
        return Contest(candidates, pairs, self._config.ranking)

    def _required(self, rollout: _Rollout) -> tuple[str, ...]:
        """The verdicts that the rollout line requires, else those of the configuration; empty if there are only votes."""
        if rollout.opened is None and not rollout.verdict_ids:
            return ()
        said = rollout.opened.required if rollout.opened is not None else None
        return self._config.required if said is None else said


def _add_events(rollout: _Rollout, piece: AgentEvents) -> None:
    kept = [
        (seq, _ending(event)) for seq, event in enumerate(piece.events, piece.first_seq) if event.event in ENDING_KINDS
    ]
    attempts = rollout.attempts.setdefault(piece.branch_index, {})
    if attempts and piece.attempt < max(attempts):
        return  # a newer attempt has begun
    attempt = attempts.setdefault(piece.attempt, _Attempt())
    for seq, event in kept:
        if isinstance(event, Answer | Failure) and seq > attempt.last_seq:
            attempt.last_seq, attempt.last = seq, event
    if piece.ended and attempt.end is None:
        attempt.end = BranchEnd(piece.status)


def _ending(event: AgentEvent) -> Body:
    try:
        return keep(event, redacting=False)
    except (ValueError, CanonicalError) as error:
        raise LineError("event.data", str(error)) from None


def _add_verdict(rollout: _Rollout, verdict: Verdict) -> None:
    key = verdict_key(verdict)
    if key in rollout.verdict_ids:
        return
    rollout.verdict_ids.add(key)
    if isinstance(verdict, BuildVerdict):
        verdict = verdict.model_copy(update={"stdout": None, "stderr": None})
    known = rollout.verdicts.setdefault(verdict.branch_index, {}).setdefault(verdict.attempt, {})
    known.update(counting([*known.values(), verdict]))


def _standing(rollout: _Rollout, index: int) -> tuple[BranchStatus, dict[str, Verdict]]:
    """How a branch ended, and the verdicts about the attempt that counts: the highest that ended, else the highest."""
    attempts, verdicts = rollout.attempts.get(index), rollout.verdicts.get(index, {})
    if not attempts:
        return "answered", verdicts.get(max(verdicts, default=0), {})
    newest = sorted(attempts, reverse=True)
    number = next((number for number in newest if attempts[number].status != "running"), newest[0])
    return attempts[number].status, verdicts.get(number, {})


def _mentioned(rollout: _Rollout) -> set[int]:
    """The branches with any fact."""
    voted = {index for vote in rollout.votes.values() for index in (vote.a, vote.b) if index is not None}
    return voted | rollout.attempts.keys() | rollout.verdicts.keys()
