"""The Ranking record of a closed rollout, from its pinned votes and objective statuses."""

from collections.abc import Mapping, Sequence
from typing import Final

from agents.ranking.ranking import Candidate, RankingResult, rank
from agents.ranking.vote_count import counted, scalar_of
from agents.verdicts.meaning import BranchOutcome
from schemas.avro_body import Bodies, with_content_id
from schemas.branches import BranchRecord
from schemas.checked import unchecked
from schemas.closures import RolloutClosed, RolloutSettled
from schemas.emission import EmissionConfig
from schemas.judging import JudgeVote
from schemas.rankings import Ranking

_ranking: Final = unchecked(Ranking)


def ranking_of(
    settled: RolloutSettled,
    closed: RolloutClosed,
    branches: Mapping[int, BranchRecord],
    outcomes: Mapping[int, BranchOutcome],
    votes: Sequence[JudgeVote],
    config: EmissionConfig,
    config_digest: str,
    bodies: Bodies,
) -> tuple[Ranking, RankingResult]:
    """The record, and the result that probabilities can be asked of."""
    scores = [vote for vote in votes if vote.b is None]
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
            )
            for index, found in sorted(outcomes.items())
        ],
        [counted(vote, vote.b) for vote in votes if vote.b is not None],
        config.ranking,
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
        config_digest=config_digest,
    )
    return with_content_id(record, "ranking_id", bodies), result
