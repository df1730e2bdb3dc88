"""The report over compliance runs: how often each mode passes, its cost, and the differences that the data show.

Seeds of one task are not independent samples. Every pair of modes is therefore tested twice, over (task, seed) and
by task, and the conclusion follows from the second test.
"""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from math import sqrt
from typing import Any, Final, NamedTuple

from agents.ranking.statistics import mcnemar, wilson
from schemas.compliance import MODES
from schemas.numbers import nine

ALPHA: Final = 0.05

_ALONE: Final = "One mode alone: there is nothing to compare."
_UNKNOWN: Final = "No task and seed has known outcomes in two modes: these data compare nothing."


class RunOutcome(NamedTuple):
    """One run: a task, a seed and a mode, with its verdict."""

    task: str
    seed: str
    mode: str
    passed: bool | None
    """None: unknown. The run counts in no rate."""
    tokens: int | None = None
    rounds: int = 0
    edits_alone: bool = False
    """Whether every committed repair was made by code."""


class Pair(NamedTuple):
    """Two modes compared on each (task, seed) where both results are known."""

    first: str
    second: str
    n: int
    only_first: int
    only_second: int
    mcnemar_p: float
    tasks_up: int
    tasks_down: int
    by_task_p: float
    delta_pp: float


def report_of(outcomes: Iterable[RunOutcome]) -> dict[str, Any]:
    """Return the report as JSON values."""
    found = list(outcomes)
    known: list[str] = [mode for mode in MODES if any(each.mode == mode for each in found)]
    by_mode = {mode: [each for each in found if each.mode == mode] for mode in known}
    compared = [_pair(second, first, by_mode[second], by_mode[first]) for first, second in combinations(known, 2)]
    pairs = [pair for pair in compared if pair is not None]
    pairs.sort(key=lambda pair: (known.index(pair.second), pair.first), reverse=True)
    return {
        "modes": [_mode(mode, by_mode[mode]) for mode in known],
        "pairs": [pair._asdict() for pair in pairs],
        "conclusion": [conclusion(pair) for pair in pairs] or [_ALONE if len(known) < 2 else _UNKNOWN],
    }


def _mode(mode: str, runs: Sequence[RunOutcome]) -> dict[str, Any]:
    told = [each for each in runs if each.passed is not None]
    seeds = list(dict.fromkeys(each.seed for each in runs))
    per_seed = [[each.passed for each in told if each.seed == seed] for seed in seeds]
    rates = [100 * sum(map(bool, each)) / len(each) for each in per_seed if each]
    passes = sum(bool(each.passed) for each in told)
    low, high = wilson(passes, len(told)) if told else (None, None)
    tokens = [each.tokens for each in runs if each.tokens is not None]
    return {
        "mode": mode,
        "n": len(told),
        "tasks": len({each.task for each in runs}),
        "seeds": seeds,
        "passes": passes,
        "passes_per_seed": [sum(map(bool, each)) for each in per_seed],
        "mean": nine(sum(rates) / len(rates)) if rates else None,
        "sd": nine(_deviation(rates)) if len(rates) > 1 else None,
        "wilson": None if low is None or high is None else [nine(100 * low), nine(100 * high)],
        "unknown": len(runs) - len(told),
        "rounds": sum(each.rounds for each in runs),
        "tokens": sum(tokens) if tokens else None,
        "edits_alone": sum(bool(each.passed) and each.edits_alone for each in runs),
    }


def _deviation(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))


def _pair(first: str, second: str, one: Sequence[RunOutcome], two: Sequence[RunOutcome]) -> Pair | None:
    a, b = ({(each.task, each.seed): each.passed for each in runs if each.passed is not None} for runs in (one, two))
    shared = [key for key in a if key in b]
    if not shared:
        return None
    only_a = sum(bool(a[key]) and not b[key] for key in shared)
    only_b = sum(bool(b[key]) and not a[key] for key in shared)
    by_task: dict[str, int] = {}
    for key in shared:
        by_task[key[0]] = by_task.get(key[0], 0) + bool(a[key]) - bool(b[key])
    differences = list(by_task.values())
    return Pair(
        first,
        second,
        len(shared),
        only_a,
        only_b,
        nine(mcnemar(only_a, only_b)),
        sum(each > 0 for each in differences),
        sum(each < 0 for each in differences),
        nine(sign_flip_p(differences)),
        nine(100 * (only_a - only_b) / len(shared)),
    )


def sign_flip_p(differences: Sequence[int]) -> float:
    """Return the exact two-sided sign-flip p: the share of sign choices with a sum at least as far from 0."""
    sizes = [abs(each) for each in differences if each]
    counts: Mapping[int, int] = {0: 1}
    for size in sizes:
        spread: dict[int, int] = {}
        for total, ways in counts.items():
            for each in (total + size, total - size):
                spread[each] = spread.get(each, 0) + ways
        counts = spread
    least = abs(sum(differences))
    share = Fraction(sum(ways for total, ways in counts.items() if abs(total) >= least), 2 ** len(sizes))
    return float(share)


def conclusion(pair: Pair) -> str:
    """Return one plain sentence about the differences that a pair shows and those that it does not."""
    n_tasks = pair.tasks_up + pair.tasks_down
    lead = (
        f"{pair.first} against {pair.second}: {pair.delta_pp:+.1f} points; over (task, seed) p = {pair.mcnemar_p:.2g}, "
        f"by task p = {pair.by_task_p:.2g} ({n_tasks} tasks differ)."
    )
    if not n_tasks:
        return f"{lead} No task differs, so these data do not show a difference."
    if pair.by_task_p < ALPHA:
        better = pair.first if pair.delta_pp > 0 else pair.second
        return f"{lead} Seeds of one task are not independent, so the test by task counts: on these tasks {better} passes more often."
    note = (
        " (the first p takes seeds of one task for independent, which they are not)" if pair.mcnemar_p < ALPHA else ""
    )
    return f"{lead} These data do not show a difference{note}; more tasks would be needed, not more seeds."
