"""Groups and votes made from a seed, for the tests of the ranking."""

import math
import random
from itertools import combinations

from agents.judge.schedule import tier_pairs
from agents.ranking.bradley_terry import Group, Observation, tally
from agents.ranking.vote_count import Vote


def random_group(rng: random.Random, smallest: int = 2, largest: int = 16) -> Group:
    """A group with ties, pairs that were asked unequally often, and pairs without any vote."""
    n = rng.randint(smallest, largest)
    truth = [rng.gauss(0.0, rng.choice((0.3, 1.0, 2.5))) for _ in range(n)]
    pairs = tier_pairs(list(range(n))) if rng.random() < 0.5 else combinations(range(n), 2)
    asked, ties = rng.choice((0.3, 0.8, 1.0)), rng.choice((0.0, 0.2, 0.6))
    seen = []
    for i, j in pairs:
        if rng.random() < asked:
            seen += [observation(rng, i, j, truth, ties) for _ in range(rng.randint(1, 6))]
    return tally(n, seen)


def full_group(rng: random.Random, truth: list[float], repeats: int, ties: float = 0.0) -> Group:
    """Every pair, asked `repeats` times."""
    pairs = list(combinations(range(len(truth)), 2)) * repeats
    return tally(len(truth), [observation(rng, i, j, truth, ties) for i, j in pairs])


def observation(rng: random.Random, i: int, j: int, truth: list[float], ties: float) -> Observation:
    if rng.random() < ties:
        return Observation(i, j, 0.5, 0.5)
    won = float(rng.random() < 1.0 / (1.0 + math.exp(truth[j] - truth[i])))
    return Observation(i, j, won, 1.0 - won)


def close(one: float | None, other: float | None, rel: float = 1e-8) -> bool:
    """Equal but for rounding; None is close to None only."""
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=rel, abs_tol=1e-12)


def strict_votes(order: list[int], samples: int = 2) -> list[Vote]:
    """A judge that always prefers what comes first in `order`, asked about every pair in both orders."""
    return [
        Vote(better, worse, shown, sample, "a")
        for better, worse in combinations(order, 2)
        for shown in ("ab", "ba")
        for sample in range(samples)
    ]
