"""The ranking of whole rollouts."""

import random
from itertools import combinations, product
from operator import attrgetter
from pathlib import Path

import pytest

from agents.ranking.ranking import DEFAULTS, Candidate, Contest, RankingResult, rank, rank_many, total
from agents.ranking.vote_count import Vote, tie_by_content
from schemas.emission import RankingConfig, Weight
from schemas.rankings import RewardComponent
from tests.agents.ranking.simulated import strict_votes


def passing(n: int) -> list[Candidate]:
    return [Candidate(i, "pass") for i in range(n)]


def part(key: str, value: float | None, weight: float) -> RewardComponent:
    return RewardComponent(key=key, value=value, weight=weight)


def order(result: RankingResult) -> list[int]:
    return [branch.branch_index for branch in result.branches]


def test_a_strict_order_is_ranked_strictly() -> None:
    """A judge that prefers 2 to 0 to 3 to 1 gives that ranking."""
    result = rank(passing(4), strict_votes([2, 0, 3, 1]))
    assert order(result) == [2, 0, 3, 1]
    assert [branch.rank for branch in result.branches] == [1, 2, 3, 4]


numbers = attrgetter(
    "branch_index", "objective_status", "objective_score", "bt_score", "se", "judge_score", "total", "rank", "rank_low",
    "rank_high", "p_beats_next", "n_comparisons", "n_missing",
)  # fmt: skip


def test_golden_numbers() -> None:
    """The numbers of a strict order of four: the same on every machine."""
    first, second, third, last = rank(passing(4), strict_votes([0, 1, 2, 3])).branches
    assert numbers(first) == (
        0,
        "pass",
        1.0,
        3.56579034,
        1.28717917,
        9.7028508,
        1.29108552,
        1,
        1,
        2,
        0.937453405,
        12,
        0,
    )
    assert numbers(second) == (
        1,
        "pass",
        1.0,
        1.11153375,
        0.915981265,
        6.57403885,
        1.19722117,
        2,
        1,
        3,
        0.940502825,
        12,
        0,
    )
    assert numbers(third) == (
        2,
        "pass",
        1.0,
        -1.11153375,
        0.915981265,
        3.42596115,
        1.10277883,
        3,
        2,
        4,
        0.937453405,
        12,
        0,
    )
    assert numbers(last) == (3, "pass", 1.0, -3.56579034, 1.28717917, 0.297149195, 1.00891448, 4, 3, 4, None, 12, 0)
    assert first.components == (part("objective", 1.0, 1.0), part("judge", 0.97028508, 0.3))


def test_all_ties_are_equal_and_in_index_order() -> None:
    """Equal scores, judge score 5, even odds, and every rank possible."""
    votes = [Vote(a, b, o, 0, "tie") for a, b in combinations(range(3), 2) for o in ("ab", "ba")]
    result = rank(passing(3), votes)
    assert order(result) == [0, 1, 2]
    assert {(b.bt_score, b.judge_score, b.total, b.rank_low, b.rank_high) for b in result.branches} == {
        (0.0, 5.0, 1.15, 1, 3)
    }
    assert [b.p_beats_next for b in result.branches] == [0.5, 0.5, None]


@pytest.mark.parametrize("n", [3, 5, 7])
def test_the_middle_of_a_strict_order_has_the_score_zero(n: int) -> None:
    """A number that is zero but for rounding leaves as zero, not as nine digits of rounding."""
    result = rank(passing(n), strict_votes(list(range(n))))
    assert result.branches[n // 2].bt_score == 0.0


def test_a_position_biased_judge_decides_nothing() -> None:
    """One that always prefers what it is shown first yields equal scores and position consistency 0."""
    votes = [
        Vote(a, b, o, s, "a" if o == "ab" else "b")
        for a, b in combinations(range(4), 2)
        for o, s in product(("ab", "ba"), (0, 1))
    ]
    result = rank(passing(4), votes)
    assert {b.bt_score for b in result.branches} == {0.0}
    assert result.stats.position_consistency == 0.0
    assert result.stats.first_position_rate == 1.0


def test_passing_is_always_above_failing() -> None:
    """For any votes and any weights, a failing branch is below a passing one."""
    branches = [
        Candidate(0, "fail", 10.0),
        Candidate(1, "pass", 0.0),
        Candidate(2, "fail", 10.0),
        Candidate(3, "pass", 0.0),
    ]
    config = RankingConfig(weights=(Weight(key="scalar", weight=5.0, component="judge_scalar"),))
    result = rank(branches, strict_votes([2, 0]), config)
    assert [b.objective_status for b in result.branches] == ["pass", "pass", "fail", "fail"]
    assert [b.rank for b in result.branches] == [1, 2, 3, 4]


def test_unknown_branches_are_listed_without_rank() -> None:
    """They come last, by index, without rank, score or total."""
    branches = [Candidate(3, "unknown", 9.0), Candidate(1, "fail"), Candidate(0, "unknown"), Candidate(2, "pass")]
    result = rank(branches, [Vote(0, 3, "ab", 0, "a")])
    assert order(result) == [2, 1, 0, 3]
    assert [b.rank for b in result.branches] == [1, 2, None, None]
    for branch in result.branches[2:]:
        assert numbers(branch)[2:11] == (None,) * 9
        assert numbers(branch)[11:13] == (0, 0)
    assert result.ignored_votes == 1


def test_votes_across_tiers_are_ignored_and_counted() -> None:
    """A vote between a passing and a failing branch, or about a branch that is not there, changes nothing else."""
    branches = [Candidate(0, "pass"), Candidate(1, "pass"), Candidate(2, "fail")]
    votes = strict_votes([1, 0])
    extra = [Vote(0, 2, "ab", 0, "b"), Vote(2, 1, "ab", 0, None), Vote(0, 9, "ab", 0, "a"), Vote(1, 1, "ab", 0, "a")]
    with_extra, without = rank(branches, votes + extra), rank(branches, votes)
    assert with_extra.ignored_votes == 4
    assert with_extra._replace(ignored_votes=0) == without


def test_not_required_branches_are_ranked_by_the_judge_alone() -> None:
    """They form one tier; the judge's component is scaled up to the whole weight; n and passes are 0."""
    result = rank([Candidate(i, "not_required") for i in range(3)], strict_votes([2, 1, 0]))
    assert order(result) == [2, 1, 0]
    assert [b.objective_score for b in result.branches] == [None] * 3
    assert [b.total for b in result.branches] == pytest.approx([0.13 * b.judge_score for b in result.branches])
    assert (result.stats.n, result.stats.passes, result.stats.pass_rate) == (0, 0, None)


def test_without_a_judge_passing_branches_share_the_whole_weight() -> None:
    """No votes: totals 1.3 and 0, index order within a tier, and a range as wide as the tier."""
    result = rank([Candidate(0, "fail"), Candidate(1, "pass"), Candidate(2, "pass")], [])
    assert [(b.branch_index, b.total, b.rank, b.rank_low, b.rank_high) for b in result.branches] == [
        (1, 1.3, 1, 1, 2),
        (2, 1.3, 2, 1, 2),
        (0, 0.0, 3, 3, 3),
    ]
    assert {b.p_beats_next for b in result.branches} == {None}
    assert {b.judge_score for b in result.branches} == {None}


def test_without_any_component_there_is_no_total() -> None:
    """Not required and not judged: ranked by index, total None."""
    result = rank([Candidate(1, "not_required"), Candidate(0, "not_required")], [])
    assert [(b.branch_index, b.total, b.rank) for b in result.branches] == [(0, None, 1), (1, None, 2)]


def test_missing_votes_are_counted_not_guessed() -> None:
    """A call without an answer is missing for both branches and no comparison."""
    result = rank(passing(3), [Vote(0, 1, "ab", 0, "a"), Vote(0, 1, "ba", 0, None), Vote(1, 2, "ab", 0, None)])
    by_index = {b.branch_index: b for b in result.branches}
    assert [by_index[i].n_comparisons for i in range(3)] == [1, 1, 0]
    assert [by_index[i].n_missing for i in range(3)] == [1, 2, 1]
    assert by_index[2].bt_score is None


def test_ranges_are_shifted_by_the_tiers_above() -> None:
    """Ranges of failing branches begin after all passing ones, and are narrow where the judge is unanimous."""
    branches = [*passing(2), *(Candidate(i, "fail") for i in (2, 3, 4))]
    result = rank(branches, strict_votes([0, 1], 20) + strict_votes([4, 3, 2], 20))
    assert order(result) == [0, 1, 4, 3, 2]
    assert [(b.rank_low, b.rank_high) for b in result.branches] == [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5)]


def test_components_of_a_tier_are_not_compared() -> None:
    """Branches that no chain of votes connects have no probability, and may stand anywhere in the tier."""
    result = rank(passing(4), strict_votes([0, 1], 20) + strict_votes([2, 3], 20))
    assert {(b.branch_index, b.rank_low, b.rank_high) for b in result.branches} == {
        (0, 1, 3),
        (1, 2, 4),
        (2, 1, 3),
        (3, 2, 4),
    }
    assert result.probability(0, 2) is None
    assert result.probability(0, 1) > 0.99
    assert [b.branch_index for b in result.branches] == [0, 2, 1, 3]
    assert {b.p_beats_next for b in result.branches} == {None}


def test_the_threshold_of_a_sure_difference_is_taken_on_the_rounded_probability() -> None:
    """A branch is counted as surely better exactly when its rounded probability is 0.95 or more."""
    rng = random.Random(8)
    for _ in range(100):
        votes = [Vote(a, b, "ab", s, rng.choice("ab")) for a, b in combinations(range(6), 2) for s in range(3)]
        result = rank(passing(6), votes)
        for branch in result.branches:
            i = branch.branch_index
            assert branch.rank_low == 1 + sum((result.probability(j, i) or 0.0) >= 0.95 for j in range(6))
            assert branch.rank_high == 6 - sum((result.probability(i, j) or 0.0) >= 0.95 for j in range(6))


def test_probability_of_a_pair() -> None:
    """It is that of the next in rank, rounded; the other way round is the rest; across tiers there is none."""
    branches = [*passing(3), Candidate(3, "fail"), Candidate(4, "unknown")]
    result = rank(branches, strict_votes([1, 0, 2]))
    assert result.probability(1, 0) == result.branches[0].p_beats_next
    assert result.probability(0, 1) == pytest.approx(1.0 - result.probability(1, 0))
    assert [result.probability(0, i) for i in (0, 3, 4, 99)] == [None] * 4


def test_identical_texts_are_one_tie() -> None:
    """A tie by content is one comparison with an even result."""
    result = rank(passing(2), [tie_by_content(0, 1)])
    assert [(b.bt_score, b.judge_score, b.n_comparisons, b.n_missing) for b in result.branches] == [
        (0.0, 5.0, 1, 0)
    ] * 2
    assert result.stats.tie_rate is None


def test_configured_weights_decide_the_total() -> None:
    """Components are weighted as configured, by key; scores of 0..10 count as 0..1."""
    config = RankingConfig(
        weights=(
            Weight(key="works", weight=2.0, component="objective"),
            Weight(key="liked", weight=1.0, component="judge_scalar"),
        )
    )
    first, second = rank([Candidate(0, "pass", 4.0), Candidate(1, "pass", 6.0)], strict_votes([0, 1]), config).branches
    assert (first.branch_index, first.total, second.total) == (1, 2.6, 2.4)
    assert first.components == (part("works", 1.0, 2.0), part("liked", 0.6, 1.0))


def test_the_configured_ridge_is_used() -> None:
    """A larger ridge pulls scores to zero."""
    weak, strong = (
        rank(passing(2), strict_votes([0, 1]), RankingConfig(ridge=r)).branches[0].bt_score for r in (0.1, 10.0)
    )
    assert 0.0 < strong < weak / 2


def test_totals_of_missing_parts() -> None:
    """A missing component is left out and the rest scaled to the whole weight; a zero weight alone is nothing."""
    assert total([part("a", 0.5, 1.0), part("b", None, 0.3)]) == 0.65
    assert total([part("a", None, 1.0), part("b", 0.5, 0.3)]) == 0.65
    assert total([part("a", None, 1.0), part("b", None, 0.3)]) is None
    assert total([part("a", None, 1.0), part("b", 0.5, 0.0)]) is None
    assert total([]) is None


def test_a_branch_given_twice_is_refused() -> None:
    """Two attempts of one branch cannot both be ranked."""
    with pytest.raises(ValueError, match="occurs twice"):
        rank([Candidate(0, "pass"), Candidate(0, "fail")], [])


def test_many_rollouts_are_ranked_as_each_alone() -> None:
    """A batch of rollouts of all kinds and configurations gives what each gives alone."""
    rng = random.Random(21)
    contests = [_random_contest(rng) for _ in range(300)]
    assert rank_many(contests) == [rank(*contest) for contest in contests]


def test_no_rollouts_and_no_branches() -> None:
    """Nothing in, nothing out."""
    assert rank_many([]) == []
    assert rank([], []).branches == ()


def _random_contest(rng: random.Random) -> Contest:
    n = rng.randint(1, 9)
    statuses = rng.choice((("pass",), ("pass", "fail", "unknown"), ("not_required", "unknown")))
    branches = [Candidate(i, rng.choice(statuses), rng.choice((None, 5.0))) for i in range(n)]
    votes = [
        Vote(a, b, shown, 0, rng.choice(("a", "a", "b", "tie", None)))
        for a, b in combinations(range(n), 2)
        for shown in ("ab", "ba")
        if rng.random() < 0.8
    ]
    return Contest(branches, votes, rng.choice((DEFAULTS, RankingConfig(ridge=0.5))))


def test_the_example_of_the_documentation() -> None:
    """The lines under "From Python" in docs/ranking.md run and give what their comments say."""
    page = (Path(__file__).parents[3] / "docs" / "ranking.md").read_text()
    lines = [line[4:] for line in page.split("## From Python")[1].splitlines() if line.startswith("    ")]
    names: dict[str, object] = {}
    exec("\n".join(lines[: lines.index(")") + 1]), names)
    shown = [line.split("#") for line in lines if line.startswith("result.")]
    assert [eval(code, names) for code, _ in shown] == [float(comment) for _, comment in shown]
