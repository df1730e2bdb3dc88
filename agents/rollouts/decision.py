"""The next decision about a rollout: its settling, then its closing."""

from collections.abc import Mapping

from agents.rollouts.broken_log import breaks_alone
from agents.rollouts.closure import close
from agents.rollouts.policy import ClosingPolicy
from agents.rollouts.rollout import Rollout
from agents.rollouts.settlement import settle
from agents.rollouts.status import Status
from schemas.closures import RolloutClosed, RolloutSettled
from schemas.emission import EmissionConfig


@breaks_alone
def decide(
    rollout: Rollout, config: EmissionConfig, policy: ClosingPolicy, watermark: int | None, read_to: Mapping[str, int]
) -> RolloutSettled | RolloutClosed | None:
    """The decision that is due, if any. The caller writes it, reads it back, and only then continues.

    `read_to` has, by fact topic, the offset up to which the log has been read.
    """
    if rollout.status is Status.OPEN:
        settled = settle(rollout, config, policy, watermark)
        if settled is not None:
            rollout.status = rollout.status.to(Status.SETTLING)
        return settled
    if rollout.status is Status.SETTLED:
        closed = close(rollout, watermark, read_to)
        if closed is not None:
            rollout.status = rollout.status.to(Status.CLOSING)
        return closed
    return None
