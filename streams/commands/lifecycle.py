"""`braid cancel` and `braid close`: how a person ends a rollout."""

import asyncio
import sys

from agents.facts.fact import Fact
from schemas.lifecycle import CloseRequested, Lifecycle, RolloutCancelled


def cancel(rollout: str, /, *, reason: str | None = None) -> None:
    """Give a rollout up: its branches and evidence are emitted, training rows are not.

    Example: `braid cancel csv-table --reason superseded`

    Parameters
    ----------
    rollout
        The rollout's id.
    reason
        Why, for people.
    """
    _write(Lifecycle(cancelled=RolloutCancelled(rollout_id=rollout, reason=reason)))
    sys.stdout.write(f"asked to cancel {rollout}; `braid show {rollout}` tells when it has closed\n")


def close(rollout: str, /) -> None:
    """Settle a rollout with its current facts: anything missing is unknown.

    Example: `braid close csv-table`

    Parameters
    ----------
    rollout
        The rollout's id.
    """
    _write(Lifecycle(close_requested=CloseRequested(rollout_id=rollout)))
    sys.stdout.write(f"asked to close {rollout}; `braid show {rollout}` tells when it has closed\n")


def _write(fact: Fact) -> None:
    from streams.cluster.config import load
    from streams.log.kafka_writer import FactWriter

    async def write() -> None:
        async with FactWriter(load(), "cli") as writer:
            await writer.write(fact)

    asyncio.run(write())
