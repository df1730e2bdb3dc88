"""The facts of one rollout for audits: every verdict (including superseded ones), the ends of its branches, and their
tool calls.
"""

from collections.abc import Sequence
from typing import NamedTuple

from agents.rollouts.branch_outcomes import branch_outcomes, required_verdicts
from agents.rollouts.broken_log import BrokenLogError
from agents.rollouts.pinned_config import pinned_config
from agents.rollouts.rollout import Rollout
from agents.summarize.pieces import Call, Decision, Piece, Result
from agents.verdicts.meaning import UNDECIDED_ENDS, Outcome, Terms, Verdict, kind_of, meaning, terms_of
from schemas.branches import BranchStatus
from schemas.closures import SettledBranch
from schemas.emission import EmissionConfig
from schemas.judging import JudgeVote
from schemas.lifecycle import RolloutOpened
from schemas.rankings import ObjectiveStatus
from schemas.verdicts import BuildVerdict, CheckVerdict


class Ruling(NamedTuple):
    """A verifier's verdict on a branch."""

    verifier: str
    """The verifier's name, as in evidence: build, visual, check:NAME."""
    branch: int
    attempt: int
    outcome: Outcome
    tests: int | None
    """The number of collected tests; None if none ran, or if a file could not be collected."""
    produced_by: str


class ToolCall(NamedTuple):
    """A call that a branch made."""

    name: str
    arguments: str
    """The arguments as JSON text."""


class AuditedBranch(NamedTuple):
    """A branch, by its current attempt."""

    number: int
    """The branch's index."""
    attempt: int
    ended: BranchStatus
    status: ObjectiveStatus
    workspace: str | None
    """The digest of the branch's snapshot."""
    calls: tuple[ToolCall, ...]
    decided: bool
    """Whether a supervisor or a guardrail decided about the branch's permissions."""
    results: int
    """The number of returned results."""

    @property
    def was_testable(self) -> bool:
        """Whether the branch left files that a verifier can test."""
        return self.ended not in UNDECIDED_ENDS


class RolloutFacts(NamedTuple):
    """The facts of one rollout."""

    rollout_id: str
    opened: RolloutOpened | None
    required: tuple[str, ...]
    """The required verifiers, named as in evidence."""
    branches: tuple[AuditedBranch, ...]
    rulings: tuple[Ruling, ...]
    """The verdicts in log order."""
    votes: tuple[JudgeVote, ...]

    def name(self, branch: int) -> str:
        """Return the name of a branch for findings."""
        return f"{self.rollout_id}/b{branch}"


def facts_of(rollout: Rollout, unpinned: EmissionConfig) -> RolloutFacts:
    """Return the facts of a rollout, settled or not. If it cannot be rebuilt, the status of its branches is unknown."""
    try:
        config = unpinned if rollout.settled is None else pinned_config(rollout.settled)
    except BrokenLogError:
        config = unpinned
    terms = terms_of(config.version, rollout.opened)
    verdicts = [each.fact for each in rollout.verdicts.values() if not isinstance(each.fact, JudgeVote)]
    votes = tuple(each.fact for each in rollout.votes.values() if isinstance(each.fact, JudgeVote))
    return RolloutFacts(
        rollout.rollout_id,
        rollout.opened,
        tuple(sorted(_named(kind) for kind in required_verdicts(rollout, config))),
        tuple(_branches(rollout, config)),
        tuple(_ruling(verdict, terms) for verdict in verdicts),
        votes,
    )


def _named(kind: str) -> str:
    return kind if kind in ("build", "visual") else f"check:{kind}"


def verifier_of(verdict: Verdict) -> str:
    """Return the name of a verdict's verifier, as in evidence."""
    return f"check:{verdict.name}" if isinstance(verdict, CheckVerdict) else kind_of(verdict)


def _ruling(verdict: Verdict, terms: Terms) -> Ruling:
    tests = verdict.tests if isinstance(verdict, BuildVerdict) else None
    whole = tests is not None and not tests.collection_errors
    return Ruling(
        verifier_of(verdict), verdict.branch_index, verdict.attempt, meaning(verdict, terms).outcome,
        tests.total if tests is not None and whole else None, verdict.produced_by,
    )  # fmt: skip


def _branches(rollout: Rollout, config: EmissionConfig) -> list[AuditedBranch]:
    if rollout.settled is not None:
        return _settled(rollout, rollout.settled.branches, config)
    found = []
    for index, attempts in sorted(rollout.branches.items()):
        number = max(attempts)
        view = attempts[number].view()
        workspace = view.end.workspace if view.end is not None else None
        digest = None if workspace is None else workspace.digest
        found.append(AuditedBranch(index, number, view.status or "running", "unknown", digest, *_deeds(view.pieces)))
    return found


def _settled(rollout: Rollout, pins: Sequence[SettledBranch], config: EmissionConfig) -> list[AuditedBranch]:
    try:
        outcomes = {index: each.status for index, each in branch_outcomes(rollout, config, pins).items()}
    except BrokenLogError:
        outcomes = {}
    found = []
    for pin in pins:
        attempt = rollout.branches.get(pin.branch_index, {}).get(pin.attempt)
        pieces = [] if attempt is None else attempt.pinned(pin.last_seq, pin.gaps) or []
        digest = None if pin.workspace is None else pin.workspace.digest
        status: ObjectiveStatus = outcomes.get(pin.branch_index, "unknown")
        found.append(
            AuditedBranch(pin.branch_index, pin.attempt, pin.status or "running", status, digest, *_deeds(pieces))
        )
    return found


def _deeds(pieces: Sequence[Piece]) -> tuple[tuple[ToolCall, ...], bool, int]:
    """Return a branch's calls, whether a policy decision was made about it, and its number of results."""
    bodies = [each.body for piece in pieces for each in piece.noted]
    calls = tuple(ToolCall(body.name, body.arguments) for body in bodies if isinstance(body, Call))
    return calls, any(isinstance(body, Decision) for body in bodies), sum(isinstance(body, Result) for body in bodies)
