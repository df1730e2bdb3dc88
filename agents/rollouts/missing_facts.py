"""The facts that a rollout lacks to be made again, by name: the cost of a hole in the log."""

from collections.abc import Iterator

from agents.rollouts.rollout import Rollout

NAMED = 3
"""Most facts that are named for each kind; all are counted."""


def missing(rollout: Rollout) -> list[str]:
    """The facts that the decisions about a rollout pin and the log lacks; empty if none is missing."""
    if rollout.settled is None:
        return ["its settling is not in the log"]
    return [*_facts(rollout)]


def _facts(rollout: Rollout) -> Iterator[str]:
    settled, closed = rollout.settled, rollout.closed
    assert settled is not None
    if settled.opened and rollout.opened is None:
        yield "its opening is not in the log"
    for pin in settled.branches:
        attempt = rollout.branches.get(pin.branch_index, {}).get(pin.attempt)
        pinned = range((pin.last_seq if pin.last_seq is not None else -1) + 1)
        gone = [seq for seq in pinned if attempt is None or attempt.digest(seq) is None]
        gone = [seq for seq in gone if seq not in pin.gaps]
        if gone:
            yield f"branch {pin.branch_index}: {len(gone):,} of {pin.n_events:,} events, first seq {gone[0]}"
        found = zip(pin.verdict_ids, rollout.pinned_by(pin), strict=True)
        verdicts = [verdict_id for verdict_id, stamped in found if stamped is None]
        if verdicts:
            yield f"branch {pin.branch_index}: verdicts {_some(verdicts)}"
    if closed is None:
        yield "its closing is not in the log"
    else:
        votes = [vote_id for vote_id in closed.vote_ids if vote_id not in rollout.votes]
        if votes:
            yield f"votes {_some(votes)}"


def _some(names: list[str]) -> str:
    rest = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {rest:,} more" if rest > 0 else "")
