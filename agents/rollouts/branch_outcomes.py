"""The outcome of each branch of a settled rollout, from the verdicts that the settling pins."""

from collections.abc import Mapping, Sequence

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
    """The required verdicts of a branch: from RolloutOpened, else from the configuration."""
    if rollout.opened is not None and rollout.opened.required is not None:
        return rollout.opened.required
    return config.required


def branch_outcomes(
    rollout: Rollout,
    config: EmissionConfig,
    pins: Sequence[SettledBranch],
    verdicts: Mapping[int, Sequence[Verdict]] | None = None,
) -> dict[int, BranchOutcome]:
    """By branch, the outcome by the pinned verdicts; pass `verdicts` if they are known already.

    Raises BrokenLogError if one of them is missing.
    """
    required, terms = required_verdicts(rollout, config), terms_of(config.version, rollout.opened)
    found: dict[int, BranchOutcome] = {}
    for pin in pins:
        index = pin.branch_index
        counted = counting(_verdicts_of(rollout, pin) if verdicts is None else verdicts[index])
        found[index] = outcome_of(
            pin.status or "running", required, counted, terms, gaps=bool(pin.gaps), conflicts=bool(pin.conflicts)
        )
    return found


def _verdicts_of(rollout: Rollout, pin: SettledBranch) -> list[Verdict]:
    stamped = rollout.pinned_by(pin)
    if None in stamped:
        raise BrokenLogError(f"rollout {rollout.rollout_id}: verdicts that were settled are not in the log")
    return [each.fact for each in stamped if each is not None and not isinstance(each.fact, JudgeVote)]
