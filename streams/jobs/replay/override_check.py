"""Checks whether overrides fit the configurations in a log: before anything is replayed, and naming the rollout."""

from agents.rollouts.broken_log import BrokenLogError
from agents.rollouts.pinned_config import pinned_config
from schemas.closures import Closure, RolloutSettled
from schemas.emission import EmissionConfig
from schemas.errors import DecodeError
from streams.jobs.errors import ReplayError
from streams.jobs.replay.overrides import Overrides
from streams.log.facts import read_fact, rollout_of_key
from streams.log.reader import LogReader
from streams.log.record import LogRecord, Span
from streams.log.terminal_text import visible
from streams.log.topics import CLOSURES


def require_fitting(overrides: Overrides, config: EmissionConfig, whose: str) -> None:
    """Raises ReplayError if an override does not fit a configuration; `whose` names that configuration."""
    try:
        overrides.config(config)
    except ReplayError as error:
        raise ReplayError(f"{error} (in the configuration {whose})") from None


async def require_fitting_log(overrides: Overrides, log: LogReader, decisions: dict[int, Span]) -> None:
    """Raises ReplayError if an override does not fit a configuration that the log pins.

    `decisions` has the offsets of each partition. The first settling of a rollout counts. Most have the configuration
    of the one before, as the same text in the record, so they are not decoded.
    """
    fits: bytes | None = None
    for partition, span in sorted(decisions.items()):
        settled: set[bytes | None] = set()
        async for records in log.blocks(CLOSURES, partition, span):
            await log.learn(records)
            for record in records:
                if record.key in settled:
                    continue
                if fits is None or fits not in (record.value or b""):
                    settling = _settling(log, record)
                    if settling is None:
                        continue
                    _require_fitting_one(overrides, settling)
                    fits = settling.config.encode()
                settled.add(record.key)


def _settling(log: LogReader, record: LogRecord) -> RolloutSettled | None:
    try:
        fact = read_fact(log.codec, CLOSURES, record.value, rollout_of_key(record.key))
    except DecodeError:
        return None  # named when it is folded
    return fact.settled if isinstance(fact, Closure) else None


def _require_fitting_one(overrides: Overrides, settled: RolloutSettled) -> None:
    try:
        config = pinned_config(settled)
    except BrokenLogError:
        return  # named when it is made again
    require_fitting(overrides, config, f"that rollout {visible(settled.rollout_id)} was settled under")
