"""Old captures read with today's fold, into other rollouts: `braid capture again`. The rollouts of the original
captures do not change.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from agents.capture.capture_fold import CaptureFold, RefusedCaptureError
from schemas.base import MAX_ID, Record
from schemas.captures import Capture
from schemas.errors import BraidError, DecodeError
from schemas.events import AgentEvents
from schemas.lifecycle import Lifecycle
from streams.log.reader import LogReader
from streams.log.topics import CAPTURES, LIFECYCLE

Put = Callable[[Record], Awaitable[None]]
"""Writes a record."""


class AgainError(BraidError):
    """Captures that cannot be read again."""


@dataclass
class Again:
    """The counts of captures read and events written."""

    rollouts: int = 0
    branches: int = 0
    captures: int = 0
    slices: int = 0
    refused: int = 0
    """Captures that do not count: late, unreadable."""
    unended: int = 0
    """Branches without an end: their captures are still coming."""


async def fold_again(log: LogReader, rollouts: Iterable[str], prefix: str, put: Put) -> Again:
    """Fold the captures of rollouts (by default all) and write the events under `prefix` + their ids.

    Openings are repeated under the new id, so that the new rollout waits for the same branches and verdicts. Raises
    AgainError.
    """
    wanted, found = frozenset(rollouts), Again()
    folds: dict[tuple[str, int, int], CaptureFold] = {}
    captured: set[str] = set()
    async for placed in log.records([CAPTURES]):
        try:
            capture = await log.decode(placed)
        except DecodeError:
            found.refused += 1
            continue
        assert isinstance(capture, Capture)
        if wanted and capture.rollout_id not in wanted:
            continue
        found.captures += 1
        if capture.rollout_id not in captured:
            captured.add(capture.rollout_id)
            await _open(log, capture.rollout_id, _renamed(prefix, capture.rollout_id), put)
        key = (capture.rollout_id, capture.branch_index, capture.attempt)
        fold = folds.get(key)
        if fold is None:
            fold = folds[key] = CaptureFold(_renamed(prefix, key[0]), key[1], key[2])
        try:
            slices = fold.take(capture, placed.record.offset)
        except RefusedCaptureError:
            found.refused += 1
            continue
        for each in slices:
            if isinstance(each, AgentEvents):  # moved spans are in the log already
                await put(each)
                found.slices += 1
    missing = sorted(wanted - captured)
    if missing:
        raise AgainError(
            f"no captures of {', '.join(missing)}; `braid tail captures --from-beginning` shows those there are"
        )
    found.rollouts, found.branches = len(captured), len(folds)
    found.unended = sum(not fold.is_ended for fold in folds.values())
    return found


def _renamed(prefix: str, rollout_id: str) -> str:
    name = prefix + rollout_id
    if len(name) > MAX_ID:
        raise AgainError(f"{name[:40]}...: more than {MAX_ID} characters; use a shorter prefix")
    return name


async def _open(log: LogReader, rollout_id: str, name: str, put: Put) -> None:
    async for placed in log.records([LIFECYCLE], rollout_id=rollout_id):
        try:
            found = await log.decode(placed)
        except DecodeError:
            continue
        if isinstance(found, Lifecycle) and found.opened is not None:
            await put(Lifecycle(opened=found.opened.model_copy(update={"rollout_id": name})))
            return
