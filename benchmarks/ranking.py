"""How fast and how right the ranking is, beside evalica and choix on the same votes in the same run.

    .venv/bin/python -m benchmarks.ranking [--quick]

Votes are simulated from a seed: true strengths are normal, 15% of the calls are ties, each pair of the judge's schedule is
asked twice in both orders. Times are processor times, the best of several repetitions of each group, averaged over groups,
so that other work on the machine disturbs them little. evalica and `fit` start from the same wins, added up by pair (choix
has no weights and starts from the votes, without ties); `rank` does everything from votes to ranks. evalica and choix give
scores only; `fit` gives scores, standard errors and the probability of every pair.
"""

import argparse
import gc
import math
import random
import sys
import time
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import choix
import evalica
from scipy.stats import kendalltau

from agents.judge.schedule import tier_pairs
from agents.ranking.bradley_terry import Group, Observation, Pair, fit, fit_many, tally
from agents.ranking.compiled_adapter import COMPILED
from agents.ranking.ranking import Candidate, Contest, rank, rank_many
from agents.ranking.vote_count import Vote

SEED = 20240611
TIES = 0.15
SAMPLES = 2
SINGLE_GOAL, BATCH_GOAL = 3.0, 20.0


class Sample(NamedTuple):
    """The votes about one simulated group, in the form that each of the three takes."""

    truth: list[float]
    contest: Contest
    group: Group
    rows: tuple[list[int], list[int], list[evalica.Winner]]
    weights: list[float]
    choix: tuple[int, list[tuple[int, int]]]


def simulate(rng: random.Random, n: int, pairs: Sequence[Pair], missing: float = 0.0) -> Sample:
    """Ask a noisy judge about each pair, SAMPLES times in both orders."""
    truth = [rng.gauss(0.0, 1.0) for _ in range(n)]
    votes = []
    for i, j in pairs:
        chance = 1.0 / (1.0 + math.exp(truth[j] - truth[i]))
        for order in ("ab", "ba"):
            for sample in range(SAMPLES):
                preferred = "tie" if rng.random() < TIES else "a" if rng.random() < chance else "b"
                votes.append(Vote(i, j, order, sample, None if rng.random() < missing else preferred))
    valid = [vote for vote in votes if vote.preferred is not None]
    shares = {"a": (1.0, 0.0), "b": (0.0, 1.0), "tie": (0.5, 0.5)}
    group = tally(n, [Observation(v.a, v.b, *shares[v.preferred or ""]) for v in valid])
    first, second = [i for i, _ in group.pairs], [j for _, j in group.pairs]
    winners = [evalica.Winner.X] * len(first) + [evalica.Winner.Y] * len(first)
    return Sample(
        truth,
        Contest([Candidate(i, "pass") for i in range(n)], votes),
        group,
        (first + first, second + second, winners),
        [*group.ahead, *group.behind],
        (n, [(v.a, v.b) if v.preferred == "a" else (v.b, v.a) for v in valid if v.preferred != "tie"]),
    )


def scheduled(n: int) -> Sequence[Pair]:
    """The pairs that the judge is asked about."""
    return tier_pairs(list(range(n)))


def evalica_scores(sample: Sample) -> Any:
    """The scores of evalica for the same wins."""
    return evalica.bradley_terry(*sample.rows, weights=sample.weights).scores


def best_times(calls: Sequence[Callable[[Any], object]], items: Sequence[Any], repeats: int) -> list[float]:
    """Microseconds of each call: the best of `repeats` for every item, averaged. The calls take turns."""
    sums = [0.0] * len(calls)
    for item in items:
        best = [math.inf] * len(calls)
        for _ in range(repeats):
            for number, call in enumerate(calls):
                start = time.process_time()
                call(item)
                best[number] = min(best[number], time.process_time() - start)
        sums = [total + one for total, one in zip(sums, best, strict=True)]
    return [total / len(items) * 1e6 for total in sums]


def times(groups: int, repeats: int) -> None:
    """The table of times."""
    print(
        f"Time for one group in microseconds; batches of {groups} groups. evalica and choix fit one group at a time.\n"
    )
    print(
        "                 votes  evalica   choix |   fit  x evalica  x choix |  in a batch  x evalica |  rank  in a batch"
    )
    met = []
    for name, n, pairs in (
        ("N = 4 ", 4, scheduled(4)),
        ("N = 8 ", 8, scheduled(8)),
        ("N = 16", 16, scheduled(16)),
        ("N = 16, all pairs", 16, tuple(combinations(range(16), 2))),
    ):
        rng = random.Random(SEED + n)
        samples = [simulate(rng, n, pairs) for _ in range(groups)]
        calls: list[Callable[[Sample], object]] = [
            evalica_scores,
            lambda sample: fit(sample.group),
            lambda sample: rank(*sample.contest),
        ]
        theirs, single, ranked = best_times(calls, samples[:40], repeats)
        (other,) = best_times([lambda sample: choix.ilsr_pairwise(*sample.choix, alpha=0.1)], samples[:10], 5)
        all_groups, all_contests = [sample.group for sample in samples], [sample.contest for sample in samples]
        batch = best_times([fit_many], [all_groups], repeats)[0] / groups
        rank_batch = best_times([rank_many], [all_contests], 5)[0] / groups
        print(
            f"{name:17}{len(samples[0].contest.votes):5} {theirs:8.0f} {other:7.0f} | {single:5.0f} {theirs / single:10.1f}"
            f" {other / single:8.0f} | {batch:11.1f} {theirs / batch:10.1f} | {ranked:5.0f} {rank_batch:11.0f}"
        )
        if pairs == scheduled(n):
            met.append((name, theirs / single, theirs / batch))
    print()
    for name, single_ratio, batch_ratio in met:
        print(
            f"{name}: single {single_ratio:.1f} times evalica (goal {SINGLE_GOAL:g}: {_met(single_ratio >= SINGLE_GOAL)}), "
            f"batched {batch_ratio:.1f} times (goal {BATCH_GOAL:g}: {_met(batch_ratio >= BATCH_GOAL)})"
        )


def strict_orders() -> None:
    """The scores of each for a judge that never contradicts itself."""
    print("\nA strict order a > b > c > d, every pair asked once:\n")
    pairs = list(combinations(range(4), 2))
    theirs = evalica.bradley_terry([i for i, _ in pairs], [j for _, j in pairs], [evalica.Winner.X] * 6).scores
    print("  evalica ", [float(f"{theirs[i]:.3g}") for i in range(4)])
    try:
        print("  choix   ", choix.ilsr_pairwise(4, pairs))
    except (ValueError, RuntimeError) as error:
        print(f"  choix    {type(error).__name__}: {error}")
    ours = fit(tally(4, [Observation(i, j, 1.0, 0.0) for i, j in pairs]))
    print("  ours    ", [round(ours.score(i) or 0.0, 3) for i in range(4)])


def agreement(groups: int) -> None:
    """Kendall's tau-b of the order found with the true order."""
    print(f"\nKendall's tau-b with the true order, mean of {groups} groups (15% ties, 10% of the answers missing):\n")
    print("          wins  share of wins  evalica    ours   ours - wins")
    for n in (4, 8, 16):
        rng = random.Random(SEED - n)
        rows = [_taus(simulate(rng, n, scheduled(n), missing=0.10)) for _ in range(groups)]
        wins, shares, theirs, ours = (sum(column) / groups for column in zip(*rows, strict=True))
        gains = [row[3] - row[0] for row in rows]
        error = math.sqrt(sum((gain - ours + wins) ** 2 for gain in gains)) / groups
        print(f"  N = {n:<2} {wins:.4f} {shares:14.4f} {theirs:8.4f} {ours:7.4f}   {ours - wins:+.4f} +- {error:.4f}")


def _taus(sample: Sample) -> tuple[float, float, float, float]:
    """Of counting wins, of the share of comparisons won, of evalica, and of ours."""
    n = len(sample.truth)
    won, met = [0.0] * n, [0.0] * n
    for (i, j), ahead, behind in zip(sample.group.pairs, sample.group.ahead, sample.group.behind, strict=True):
        won[i] += ahead
        won[j] += behind
        met[i] += ahead + behind
        met[j] += ahead + behind
    found, theirs = fit(sample.group), evalica_scores(sample)

    def tau(scores: Sequence[float]) -> float:
        statistic = float(kendalltau(sample.truth, [round(score, 9) for score in scores]).statistic)
        return 0.0 if math.isnan(statistic) else statistic

    return (
        tau(won),
        tau([w / m if m else 0.5 for w, m in zip(won, met, strict=True)]),
        tau([float(theirs.get(i, 0.0)) for i in range(n)]),
        tau([found.score(i) or 0.0 for i in range(n)]),
    )


def _met(good: bool) -> str:
    return "met" if good else "missed"


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer groups and repetitions")
    quick = parser.parse_args().quick
    gc.disable()
    way = "compiled" if COMPILED else "in Python: no compiler was there when the package was installed"
    print(f"Python {sys.version.split()[0]}, evalica {evalica.__version__}; our arithmetic is {way}\n")
    times(groups=256 if quick else 2048, repeats=5 if quick else 25)
    strict_orders()
    agreement(groups=200 if quick else 3000)


if __name__ == "__main__":
    main()
