"""The ranking of a rollout: which branch is best, by verdicts and by the judge's preferences, and how certain that is.

Decides totals, ranks and their ranges, and the probability that one branch is better than another. Guarantees: a
passing branch is above a failing one; a branch with an unknown outcome has no rank; the same branches and votes give
the same result in any order, alone (`rank`) or among others (`rank_many`); every float is rounded to nine significant
digits, and floats are compared only after rounding.
"""

from collections.abc import Iterable, Sequence
from math import fsum, inf
from operator import attrgetter
from typing import Final, NamedTuple, final

from agents.ranking.bradley_terry import Fit, Group, beats, fit_many
from agents.ranking.statistics import ranking_stats
from agents.ranking.vote_count import Place, Vote, VoteCount, count_votes
from schemas.codec.maker import unchecked
from schemas.emission import RankingConfig
from schemas.numbers import nine
from schemas.rankings import HackSignal, ObjectiveStatus, RankedBranch, RankingStats, RewardComponent

_ranked: Final = unchecked(RankedBranch)
_component: Final = unchecked(RewardComponent)

TIERS: tuple[ObjectiveStatus, ...] = ("pass", "not_required", "fail")
"""Best first. Branches of one rollout have the same required verdicts, so `not_required` never occurs together with the
other two.
"""

OBJECTIVE_SCORES: dict[ObjectiveStatus, float] = {"pass": 1.0, "fail": 0.0}

SURE = 0.95
"""From this probability on, one branch is significantly better."""

CLEARLY_UNSURE, CLEARLY_SURE = 2.70, 2.71
"""Around the square of 1.645, the squared difference in standard errors that is significant: Phi is computed only
between these two.
"""

DEFAULTS = RankingConfig()

NO_SCORE = 1e-12
"""Scores closer to zero are set to zero: they are rounding errors, which would otherwise keep nine digits."""


@final
class Candidate:
    """A branch to be ranked."""

    __slots__ = (
        "attempt", "branch_index", "flags", "is_counted", "is_ranked", "judge_scalar", "objective_status", "signals",
    )  # fmt: skip

    def __init__(
        self,
        branch_index: int,
        objective_status: ObjectiveStatus,
        judge_scalar: float | None = None,
        is_counted: bool = True,
        is_ranked: bool = True,
        attempt: int = 0,
        flags: tuple[str, ...] = (),
        signals: tuple[HackSignal, ...] = (),
    ) -> None:
        self.branch_index = branch_index
        self.objective_status = objective_status
        self.judge_scalar = judge_scalar
        """0..10: the mean of the judge's scores of this branch alone."""
        self.is_counted = is_counted
        """Whether statistics and comparisons count it. A mistrusted branch is ranked by its outcome, and changes no
        other branch.
        """
        self.is_ranked = is_ranked
        """Whether it may have a rank."""
        self.attempt = attempt
        """The attempt that counts."""
        self.flags = flags
        """Everything that is odd about it."""
        self.signals = signals


class Contest(NamedTuple):
    """The branches of one rollout and the votes about them."""

    branches: Sequence[Candidate]
    votes: Sequence[Vote]
    config: RankingConfig = DEFAULTS


class RankingResult(NamedTuple):
    """Branches best first, those without a rank last, by index."""

    branches: tuple[RankedBranch, ...]
    stats: RankingStats
    ignored_votes: int
    """Votes that are not about two branches of one tier."""
    places: dict[int, Place]
    fits: tuple[Fit, ...]
    """One for each tier."""

    def probability(self, chosen: int, rejected: int) -> float | None:
        """Probability that one branch is really better than another, by the judge; None if they are not comparable."""
        first, second = self.places.get(chosen), self.places.get(rejected)
        if first is None or second is None or first.tier != second.tier:
            return None
        probability = self.fits[first.tier].probability(first.position, second.position)
        return None if probability is None else nine(probability)


def rank(branches: Sequence[Candidate], votes: Sequence[Vote], config: RankingConfig = DEFAULTS) -> RankingResult:
    """Rank the branches of one rollout."""
    return rank_many([Contest(branches, votes, config)])[0]


def rank_many(contests: Iterable[Contest]) -> list[RankingResult]:
    """Rank many rollouts: each result is the same as that of `rank`, to the bit, with the fits made in batches."""
    drafts = [_Draft(contest) for contest in contests]
    by_ridge: dict[float, list[Group]] = {}
    for draft in drafts:
        by_ridge.setdefault(draft.ridge, []).extend(draft.count.groups)
    fits = {ridge: iter(fit_many(groups, ridge)) for ridge, groups in by_ridge.items()}
    return [draft.finish(tuple([next(fits[draft.ridge]) for _ in TIERS])) for draft in drafts]


@final
class _Scored:
    """A branch with everything that its order in the tier depends on."""

    __slots__ = ("branch", "bt_score", "judge_score", "parts", "position", "se", "total")

    def __init__(
        self,
        position: int,
        branch: Candidate,
        parts: tuple[RewardComponent, ...],
        total: float | None,
        bt_score: float | None,
        se: float | None,
        judge_score: float | None,
    ) -> None:
        self.position = position
        self.branch = branch
        self.parts = parts
        self.total = total
        self.bt_score = bt_score
        self.se = se
        self.judge_score = judge_score


class _Draft:
    """A rollout whose votes are counted and whose fits are still to be made."""

    def __init__(self, contest: Contest) -> None:
        self.weights = [(each.key, each.component, each.weight) for each in contest.config.weights]
        self.ridge = contest.config.ridge
        self.tiers: list[list[Candidate]] = [[] for _ in TIERS]
        self.unknown: list[Candidate] = []
        self.places: dict[int, Place] = {}
        for branch in sorted(contest.branches, key=attrgetter("branch_index")):
            if branch.objective_status == "unknown" or not branch.is_ranked:
                self.unknown.append(branch)
                continue
            tier = TIERS.index(branch.objective_status)
            self.places[branch.branch_index] = Place(tier, len(self.tiers[tier]))
            self.tiers[tier].append(branch)
        if len({branch.branch_index for branch in contest.branches}) < len(contest.branches):
            raise ValueError("a branch index occurs twice; give each branch once, with the attempt that counts")
        mistrusted = {branch.branch_index for branch in contest.branches if not branch.is_counted}
        votes = contest.votes
        if mistrusted:
            votes = [vote for vote in votes if vote.a not in mistrusted and vote.b not in mistrusted]
        self._mistrusted = mistrusted
        self.count: VoteCount = count_votes(votes, self.places, [len(tier) for tier in self.tiers])

    def finish(self, fits: tuple[Fit, ...]) -> RankingResult:
        ranked: list[RankedBranch] = []
        for tier, fit in zip(self.tiers, fits):  # noqa: B905 - one for each
            if tier:
                ranked += self._ranked_tier(tier, fit, above=len(ranked))
        outcomes = [
            row.objective_status == "pass"
            for row in ranked
            if row.objective_status != "not_required" and row.branch_index not in self._mistrusted
        ]
        unknown = [self._unranked(branch) for branch in self.unknown]
        stats = ranking_stats(outcomes, self.count.counted)
        return RankingResult((*ranked, *unknown), stats, self.count.ignored, self.places, fits)

    def _ranked_tier(self, tier: list[Candidate], fit: Fit, above: int) -> list[RankedBranch]:
        """The branches of a tier in order; `above` are in better tiers."""
        rows = sorted([self._scored(at, branch, fit) for at, branch in enumerate(tier)], key=_order)
        better, worse = surely(fit)
        ranked = []
        for number, row in enumerate(rows, start=1):
            position, branch = row.position, row.branch
            beats_next = None if number == len(rows) else fit.probability(position, rows[number].position)
            ranked.append(
                _ranked(
                    branch_index=branch.branch_index,
                    attempt=branch.attempt,
                    objective_status=branch.objective_status,
                    objective_score=OBJECTIVE_SCORES.get(branch.objective_status),
                    flags=branch.flags,
                    bt_score=row.bt_score,
                    se=row.se,
                    judge_score=row.judge_score,
                    total=row.total,
                    rank=above + number,
                    rank_low=above + 1 + better[position],
                    rank_high=above + len(rows) - worse[position],
                    p_beats_next=None if beats_next is None else nine(beats_next),
                    n_comparisons=self.count.valid[branch.branch_index],
                    n_missing=self.count.missing[branch.branch_index],
                    components=row.parts,
                    judge_scalar=branch.judge_scalar,
                    signals=branch.signals,
                )
            )
        return ranked

    def _scored(self, position: int, branch: Candidate, fit: Fit) -> _Scored:
        place = fit.place(position)
        if place is None:
            parts = self._parts(branch, None)
            return _Scored(position, branch, parts, total(parts), None, None, None)
        component, at = place
        judge = nine(component.judge_score(at))
        parts = self._parts(branch, judge)
        score = component.score(at)
        score = 0.0 if -NO_SCORE < score < NO_SCORE else nine(score)
        return _Scored(position, branch, parts, total(parts), score, nine(component.se(at)), judge)

    def _parts(self, branch: Candidate, judge_score: float | None) -> tuple[RewardComponent, ...]:
        values = {
            "objective": OBJECTIVE_SCORES.get(branch.objective_status),
            "judge": _tenth(judge_score),
            "judge_scalar": _tenth(branch.judge_scalar),
        }
        return tuple(
            [_component(key=key, value=values[component], weight=weight) for key, component, weight in self.weights]
        )

    def _unranked(self, branch: Candidate) -> RankedBranch:
        """A branch whose outcome is unknown, or a confirmed hack: no score, no total, no rank."""
        return _ranked(
            branch_index=branch.branch_index,
            attempt=branch.attempt,
            objective_status=branch.objective_status,
            objective_score=OBJECTIVE_SCORES.get(branch.objective_status),
            flags=branch.flags,
            judge_scalar=branch.judge_scalar,
            components=self._parts(branch, None),
            signals=branch.signals,
        )


def total(parts: Sequence[RewardComponent]) -> float | None:
    """Sum of weight x value over the known parts, scaled up to the weight of all parts; None if no part is known.

    So a total has the same scale with and without a judge: 1.3 is the best with the default weights.
    """
    pairs = [(part.weight, part.value) for part in parts]
    known = [(weight, value) for weight, value in pairs if value is not None]
    weight = fsum([abs(weight) for weight, _ in known])
    if not weight:
        return None
    scale = fsum([abs(weight) for weight, _ in pairs]) / weight
    return nine(scale * fsum([weight * value for weight, value in known]))


def surely(fit: Fit) -> tuple[list[int], list[int]]:
    """For each branch, how many branches of its component are significantly better, and how many significantly worse."""
    better, worse = [0] * fit.n, [0] * fit.n
    for component in fit.components:
        members, (theta, _, z) = component.members, component.solution
        diagonal = [z[at * (at + 3) // 2] for at in range(len(members))]
        for b in range(1, len(members)):
            row = b * (b + 1) // 2
            for a in range(b):
                difference = theta[a] - theta[b]
                variance = diagonal[a] + diagonal[b] - 2.0 * z[row + a]
                square = difference * difference
                if square < CLEARLY_UNSURE * variance:
                    continue
                if square > CLEARLY_SURE * variance or nine(beats(abs(difference), variance)) >= SURE:
                    above, below = (a, b) if difference > 0.0 else (b, a)
                    better[members[below]] += 1
                    worse[members[above]] += 1
    return better, worse


def _order(row: _Scored) -> tuple[float, float, int]:
    """Total descending, score descending, index ascending; missing values last."""
    return (
        inf if row.total is None else -row.total,
        inf if row.bt_score is None else -row.bt_score,
        row.position,
    )


def _tenth(score: float | None) -> float | None:
    return None if score is None else nine(score / 10.0)
