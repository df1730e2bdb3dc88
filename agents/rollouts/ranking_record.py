"""The Ranking record of a closed rollout, from its pinned votes and objective statuses."""

from collections.abc import Mapping, Sequence
from typing import Final

from agents.ranking.ranking import Candidate, RankingResult, rank
from agents.ranking.vote_count import Vote, counted, scalar_of
from agents.rollouts.closed_rollout import ClosedRollout
from schemas.branches import BranchRecord
from schemas.codec.body import with_content_id
from schemas.codec.maker import unchecked
from schemas.judging import JudgeVote
from schemas.rankings import Ranking

_ranking: Final = unchecked(Ranking)


def ranking_of(
    source: ClosedRollout, branches: Mapping[int, BranchRecord], votes: Sequence[JudgeVote]
) -> tuple[Ranking, RankingResult]:
    """The record, and the result that probabilities can be asked of."""
    settled, closed = source.settled, source.closed
    scores: list[JudgeVote] = []
    compared: list[Vote] = []
    for vote in votes:
        b = vote.b
        if b is None:
            scores.append(vote)
        else:
            compared.append(counted(vote, b))
    result = rank(
        [
            Candidate(
                index,
                found.status,
                scalar_of(index, scores),
                found.is_counted,
                found.is_ranked,
                branches[index].attempt,
                found.flags,
                source.signals.get(index, ()),
            )
            for index, found in sorted(source.outcomes.items())
        ],
        compared,
        source.config.ranking,
    )
    record = _ranking(
        ranking_id="-",
        rollout_id=settled.rollout_id,
        task=next((branches[index].task for index in sorted(branches)), ""),
        settled_id=settled.settled_id,
        closed_id=closed.closed_id,
        settle_cause=settled.cause,
        close_cause=closed.cause,
        closed_at_ms=closed.decided_at_ms,
        branches=result.branches,
        stats=result.stats,
        config_digest=source.config_digest,
    )
    return with_content_id(record, "ranking_id", source.bodies), result
