"""The Ranking record of a closed rollout, from its pinned votes and objective statuses."""

from collections.abc import Mapping, Sequence
from math import fsum
from typing import Final

from agents.ranking.ranking import Candidate, RankingResult, rank
from agents.ranking.statistics import RankingStats as StatsOfGroup
from agents.ranking.votes import Vote, tie_by_content
from agents.verdicts.meaning import BranchOutcome
from schemas.branches import BranchRecord
from schemas.closures import RolloutClosed, RolloutSettled
from schemas.codec.body import Bodies, with_content_id
from schemas.codec.maker import unchecked
from schemas.emission import EmissionConfig
from schemas.judging import CONTENT_JUDGE, JudgeVote
from schemas.numbers import nine
from schemas.rankings import RankedBranch, Ranking, RankingStats, RewardComponent

_ranking: Final = unchecked(Ranking)
_stats: Final = unchecked(RankingStats)
_ranked: Final = unchecked(RankedBranch)
_component: Final = unchecked(RewardComponent)

_STATS = StatsOfGroup._fields


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
            Candidate(index, found.status, scalar_of(index, scores), found.is_counted, found.is_ranked)
            for index, found in sorted(outcomes.items())
        ],
        [counted(vote, vote.b) for vote in votes if vote.b is not None],
        config.ranking,
    )
    ranked = [
        _ranked(
            branch_index=row.branch_index,
            attempt=branches[row.branch_index].attempt,
            objective_status=row.objective_status,
            objective_score=row.objective_score,
            flags=outcomes[row.branch_index].flags,
            bt_score=row.bt_score,
            se=row.se,
            judge_score=row.judge_score,
            judge_scalar=row.judge_scalar,
            components=tuple(
                [_component(key=key, value=value, weight=weight) for key, value, weight in row.components]
            ),
            total=row.total,
            rank=row.rank,
            rank_low=row.rank_low,
            rank_high=row.rank_high,
            p_beats_next=row.p_beats_next,
            n_comparisons=row.n_comparisons,
            n_missing=row.n_missing,
        )
        for row in result.branches
    ]
    record = _ranking(
        ranking_id="-",
        rollout_id=settled.rollout_id,
        task=next((branches[index].task for index in sorted(branches)), ""),
        settled_id=settled.settled_id,
        closed_id=closed.closed_id,
        settle_cause=settled.cause,
        close_cause=closed.cause,
        closed_at_ms=closed.decided_at_ms,
        branches=tuple(ranked),
        stats=_stats(**dict(zip(_STATS, result.stats, strict=True))),
        config_digest=config_digest,
    )
    return with_content_id(record, "ranking_id", bodies), result


def counted(vote: JudgeVote, b: int) -> Vote:
    """A vote as the ranking counts it; a tie by content is nobody's answer and has no order."""
    if vote.judge == CONTENT_JUDGE:
        return tie_by_content(vote.a, b)
    return Vote(vote.a, b, vote.order, vote.sample, vote.preferred, vote.judge)


def scalar_of(index: int, votes: Sequence[JudgeVote]) -> float | None:
    """Mean of the valid scores of a branch; None without any, never 5 and never 0."""
    scores = [vote.score for vote in votes if vote.b is None and vote.a == index and vote.score is not None]
    return nine(fsum(scores) / len(scores)) if scores else None
