"""The outcome of each branch of a settled rollout, from the verdicts that the settling pins."""

from collections.abc import Sequence

from agents.rollouts.broken_log import BrokenLogError
from agents.rollouts.rollout import Rollout
from agents.verdicts.meaning import (
    BranchOutcome,
    Verdict,
    counting,
    outcome_of,
    terms_of,
)
from schemas.closures import SettledBranch
from schemas.emission import EmissionConfig
from schemas.judging import JudgeVote


def required_verdicts(rollout: Rollout, config: EmissionConfig) -> tuple[str, ...]:
    """The verdicts a branch needs: RolloutOpened says, else the configuration."""
    if rollout.opened is not None and rollout.opened.required is not None:
        return rollout.opened.required
    return config.required


def branch_outcomes(
    rollout: Rollout, config: EmissionConfig, pins: Sequence[SettledBranch]
) -> dict[int, BranchOutcome]:
    """By branch, the outcome that the pinned verdicts give. Raises BrokenLogError when one of them is not there."""
    required, terms = required_verdicts(rollout, config), terms_of(config.version, rollout.opened)
    found: dict[int, BranchOutcome] = {}
    for pin in pins:
        stamped = rollout.pinned_by(pin)
        if None in stamped:
            raise BrokenLogError(f"rollout {rollout.rollout_id}: verdicts that were settled are not in the log")
        facts = [each.fact for each in stamped if each is not None]
        by_kind: dict[str, Verdict] = counting(fact for fact in facts if not isinstance(fact, JudgeVote))
        found[pin.branch_index] = outcome_of(
            pin.status or "running", required, by_kind, terms, gaps=bool(pin.gaps), conflicts=bool(pin.conflicts)
        )
    return found
