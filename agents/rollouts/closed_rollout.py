"""A closed rollout as one frozen value: the input of every stage of its emission."""

from collections.abc import Mapping
from typing import NamedTuple

from agents.rollouts.branch_outcomes import branch_outcomes
from agents.rollouts.broken_log import BrokenLogError
from agents.rollouts.pinned_config import pinned_config
from agents.rollouts.rollout import Rollout
from agents.summarize.opening import CleanedOpening, cleaned_opening
from agents.verdicts.meaning import BranchOutcome, Terms, Verdict, terms_of
from schemas.closures import RolloutClosed, RolloutSettled
from schemas.codec.body import Bodies
from schemas.emission import EmissionConfig
from schemas.rankings import HackSignal

NO_SIGNALS: Mapping[int, tuple[HackSignal, ...]] = {}


class ClosedRollout(NamedTuple):
    """The pinned facts of a rollout, and the configuration and rules under which records are made of them."""

    rollout: Rollout
    """Its facts. The pinned facts never change."""
    settled: RolloutSettled
    closed: RolloutClosed
    config: EmissionConfig
    config_digest: str
    opening: CleanedOpening
    terms: Terms
    """How its verdicts are read, with the rules of the emission version."""
    verdicts: dict[int, list[Verdict]]
    """By branch, the pinned verdicts."""
    outcomes: dict[int, BranchOutcome]
    """By branch."""
    bodies: Bodies
    """The Avro body of each record, by id: every stage adds those that it makes."""
    signals: Mapping[int, tuple[HackSignal, ...]] = NO_SIGNALS
    """By branch, its hack signals, if it has any."""


def closed_rollout(rollout: Rollout, config: EmissionConfig | None) -> ClosedRollout:
    """The value of a rollout that has closed; `config` replaces the pinned configuration.

    Raises BrokenLogError when a pinned verdict is not in the log.
    """
    settled, closed = rollout.settled, rollout.closed
    assert settled is not None
    assert closed is not None
    config_digest = settled.config_digest if config is None else config.digest
    config = config or pinned_config(settled)
    opening = cleaned_opening(rollout.opened if settled.opened else None, redacting=config.redact)
    verdicts = rollout.pinned_verdicts()
    if verdicts is None:
        raise BrokenLogError(
            f"rollout {rollout.rollout_id}: verdicts that were settled are not in the log; it cannot be rebuilt"
        )
    return ClosedRollout(
        rollout=rollout,
        settled=settled,
        closed=closed,
        config=config,
        config_digest=config_digest,
        opening=opening,
        terms=terms_of(config.version, opening.opened),
        verdicts=verdicts,
        outcomes=branch_outcomes(rollout, config, settled.branches, verdicts),
        bodies=Bodies(config.version),
    )
