"""Records of branches: made when a branch ends, when a judge is asked about it, and when its rollout closes."""

from collections.abc import Iterable
from typing import NamedTuple

from agents.rollouts.broken_log import BrokenLogError, breaks_alone
from agents.rollouts.rollout import Rollout
from agents.rollouts.settlement import settled_attempt
from agents.summarize.branch import BranchFacts, build_branch, n_events, raw_digest
from agents.summarize.pieces import Piece
from schemas.branches import BranchRecord
from schemas.closures import SettledBranch
from schemas.codec.body import Bodies
from schemas.emission import EmissionConfig

MOST_BYTES = 8 * 1024 * 1024 - 64
"""Largest derived record: the limit of the topics, without the header of its value."""


class Ended(NamedTuple):
    """A branch at its end: the pins that a settling would have for it, its record, and the record's Avro body."""

    pin: SettledBranch
    record: BranchRecord
    body: bytes


@breaks_alone
def ended_branch(rollout: Rollout, index: int, number: int, config: EmissionConfig) -> Ended:
    """The record of a branch that has just ended: the same as in the emission, unless it settles with other facts."""
    attempt = rollout.branches[index][number]
    view = attempt.view()
    pin = settled_attempt(index, number, attempt, view)
    bodies = Bodies(config.version)
    record = _record(rollout, pin, view.pieces, config, bodies)
    check_sizes(rollout, bodies.values())
    return Ended(pin, record, bodies[record.record_id])


def branch_record(rollout: Rollout, pin: SettledBranch, config: EmissionConfig, bodies: Bodies) -> BranchRecord:
    """The record of a settled branch. Raises BrokenLogError if pinned facts are not on the log."""
    pieces = (rollout.pinned_events() or {}).get(pin.branch_index, [])
    if raw_digest(pieces) != pin.raw_digest:
        raise BrokenLogError(
            f"rollout {rollout.rollout_id}, branch {pin.branch_index}: the events in the log are not those that were "
            f"settled ({n_events(pieces)} found, {pin.n_events} pinned); it cannot be rebuilt"
        )
    return _record(rollout, pin, pieces, config, bodies)


def _record(
    rollout: Rollout, pin: SettledBranch, pieces: list[Piece], config: EmissionConfig, bodies: Bodies | None = None
) -> BranchRecord:
    values = vars(pin)  # all at once: an attribute of a model takes five times as long as an entry of a dict
    return build_branch(
        BranchFacts(
            rollout_id=rollout.rollout_id,
            branch_index=values["branch_index"],
            attempt=values["attempt"],
            pieces=pieces,
            gaps=values["gaps"],
            status=values["status"] or "running",
            error=values["error"],
            workspace=values["workspace"],
            info=values["info"],
            opened=rollout.opened if rollout.settled is None or rollout.settled.opened else None,
            raw_digest=values["raw_digest"],
        ),
        config,
        bodies,
    )


def check_sizes(rollout: Rollout, bodies: Iterable[bytes]) -> None:
    """A rollout is written completely or not at all: otherwise there would be rows without evidence."""
    largest = max(map(len, bodies), default=0)
    if largest > MOST_BYTES:
        raise BrokenLogError(
            f"rollout {rollout.rollout_id}: one of its records has {largest:,} bytes, and {MOST_BYTES:,} are allowed"
        )
