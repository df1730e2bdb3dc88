"""The arithmetic of Bradley-Terry for a fixed number of branches, as straight-line code made once for each size.

A group has 2 to 16 branches: too small for a linear algebra library, whose calls cost more than the arithmetic. The
code made here has no loops and no indexing, only named numbers, so it runs on floats (one group) and on arrays (the
same entry of many groups) alike: a batch does the same operations in the same order, and gives the same bits.

The matrix of a Newton step is A = H + ridge I, H the Hessian of the likelihood. Off the diagonal A is -w_ij with
w_ij = count_ij p_ij p_ji >= 0, and elimination only ever adds to the w, so they are kept as positive numbers. Then the
factors of A = L D L' (with L_ij = -f_ij) and its inverse are sums of positive terms, without cancellation.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agents.ranking.portable import GROWTH

LARGEST = 16
"""Branches of the largest code made: it grows with the cube of the size (16: 1900 lines, 40 ms to make, once)."""

RING_REACH = 3
"""The judge's schedule above six branches pairs each with the next three in circular order. Code for these pairs alone
is half as long for 16 branches."""

Pair = tuple[int, int]

# A number is a float or an array of floats: the code is the same, and typing cannot say that of generated text.
Numbers = Sequence[Any] | NDArray[np.float64]
Results = tuple[Any, ...]


class Kernel(NamedTuple):
    """The code for one size and one set of pairs."""

    pairs: tuple[Pair, ...]
    """Pairs (i, j), i < j, sorted: the order in which wins and counts of pairs are given."""
    begin: Callable[[Numbers, Numbers, Callable[[Any], Any]], Results]
    """(wins of i, wins of j, square root) -> n scores to start from, n wins as `newton` takes them, the count of each pair,
    all counts. The wins of j are less its counts with lower branches: of those the gradient then needs one product less."""
    newton: Callable[[Numbers, Numbers, Numbers, Numbers, float], Results]
    """(theta, exp theta, wins, counts, ridge) -> the step's n entries, then the factors of A."""
    climb: Callable[[Numbers, Numbers, Numbers, Numbers, float, float, float, int], Results | None] | None
    """(theta, exp theta, wins, counts, ridge, tolerance, longest step, rounds) -> theta, exp theta and the factors after as many
    steps as it takes; None when a step is too long or there are too many. For floats only; None where there is no such code."""
    finish: Callable[[Numbers, Numbers], Results]
    """(exp theta, factors) -> n sums of win probabilities, then the lower triangle of A^-1 by rows."""


@lru_cache(maxsize=64)
def ring(n: int) -> tuple[Pair, ...]:
    """Pairs at most RING_REACH apart in circular order, sorted: all pairs up to seven branches."""
    return tuple((i, j) for i, j in combinations(range(n), 2) if min(j - i, n - j + i) <= RING_REACH)


@lru_cache(maxsize=64)
def unrolled(n: int, sparse: bool) -> Kernel:
    """The code for n branches: for the pairs of the ring, or for all pairs."""
    pairs = ring(n) if sparse else tuple(combinations(range(n), 2))
    columns = _filled(n, pairs)
    functions = (_begin(n, pairs), _newton(n, pairs, columns), _climb(n, pairs, columns), _finish(n, columns))
    source = "".join(f"{head}\n    " + "\n    ".join(body) + "\n" for head, *body in functions)
    names: dict[str, Any] = {}
    exec(compile(source, f"<Bradley-Terry for {n} branches>", "exec"), names)  # noqa: S102 - our own text, no input in it
    return Kernel(pairs, names["begin"], names["newton"], names["climb"], names["finish"])


def _filled(n: int, pairs: Sequence[Pair]) -> list[list[int]]:
    """For each column k the rows i > k where L is not zero: the pairs, and what elimination fills in."""
    columns: list[set[int]] = [set() for _ in range(n)]
    for i, j in pairs:
        columns[i].add(j)
    for column in columns:
        for i, j in combinations(sorted(column), 2):
            columns[i].add(j)
    return [sorted(column) for column in columns]


def _begin(n: int, pairs: Sequence[Pair]) -> list[str]:
    """A good start: what the share of wins says, plus the same of the mean opponent.

    With y = (wins - losses) / (count + 2), 2.4 y / sqrt(1.01 - y^2) is near the log odds, without a logarithm, and
    below 24 for any count. Where one starts changes the number of rounds, not the result: 2.4 took the fewest.
    """
    code = ["def begin(ahead, behind, sqrt):", f"{_of_pairs('a', pairs)}= ahead", f"{_of_pairs('b', pairs)}= behind"]
    code += [f"c{i}_{j} = a{i}_{j} + b{i}_{j}" for i, j in pairs]
    for i in range(n):
        won = [f"a{i}_{j}" if i < j else f"b{j}_{i}" for j in _met(i, pairs)]
        met = [_pair("c", i, j) for j in _met(i, pairs)]
        code.append(f"m{i} = {_sum(['2.0', *met])}; g{i} = {_sum(won)}; y = (g{i} + g{i} + 2.0) / m{i} - 1.0")
        code.append(f"x{i} = 2.4 * y / sqrt(1.01 - y * y)")
    for i in range(n):
        code.append(f"t{i} = x{i} + ({_sum([_pair('c', i, j) + f' * x{j}' for j in _met(i, pairs)])}) / m{i}")
    code.append(f"mean = ({_sum([f't{i}' for i in range(n)])}) / {n}.0")
    starts = "".join(f"t{i} - mean, " for i in range(n))
    # Of j's comparisons with lower branches i, c - won_ij is expected: c is taken off here, once.
    wins = "".join(" - ".join([f"g{j}", *(f"c{i}_{j}" for i in _met(j, pairs) if i < j)]) + ", " for j in range(n))
    whole = _sum([f"g{i}" for i in range(n)])
    code.append(f"return ({starts}{wins}{_of_pairs('c', pairs)}{whole})")
    return code


def _newton(n: int, pairs: Sequence[Pair], columns: list[list[int]]) -> list[str]:
    """One step, for arrays: the gradient g, the matrix (d on the diagonal, -w below), elimination, back substitution.

    What is done with is written over, so that few arrays are in use at a time.
    """
    code = ["def newton(theta, strengths, wins, counts, ridge):", *_given(n, pairs)]
    code += [f"g{i} = h{i} - ridge * t{i}; d{i} = ridge" for i in range(n)]
    for i, j in pairs:
        code.append(f"p = e{i} / (e{i} + e{j}); u = c{i}_{j} * p; w{j}_{i} = u - u * p")
        code.append(f"g{i} -= u; g{j} += u; d{i} = d{i} + w{j}_{i}; d{j} = d{j} + w{j}_{i}")
    present = set(pairs)
    for k, rows in enumerate(columns):
        code.append(f"v{k} = 1.0 / d{k}")
        for i in rows:
            code.append(f"f{i}_{k} = w{i}_{k} * v{k}; d{i} -= f{i}_{k} * w{i}_{k}; g{i} += f{i}_{k} * g{k}")
            for j in rows[: rows.index(i)]:
                code.append(f"w{i}_{j} {'+=' if (j, i) in present else '='} f{i}_{k} * w{j}_{k}")
                present.add((j, i))
    code += [f"g{k} = g{k} * v{k}" for k in range(n)]
    for k in reversed(range(n)):
        code += [f"g{j} += f{k}_{j} * g{k}" for j in range(k) if k in columns[j]]
    code.append(f"return ({_of_branches('g', n)}{_of_factors(n, columns)})")
    return code


def _climb(n: int, pairs: Sequence[Pair], columns: list[list[int]]) -> list[str]:
    """Step after step with all numbers in hand: passing them in and out costs as much as half of the arithmetic."""
    steps = _of_branches("g", n)
    grow = [line.format(step=f"g{i}", strength=f"e{i}") for i in range(n) for line in GROWTH]
    round_ = [
        *_step(n, pairs, columns),
        f"far = max({steps}-min({steps[:-2]}))",
        "if far > longest:",
        "    return None",
        *(f"t{i} = t{i} + g{i}" for i in range(n)),
        *grow,
        "if far < tolerance:",
        f"    return ({_of_branches('t', n)}{_of_branches('e', n)}{_of_factors(n, columns)})",
    ]
    return [
        "def climb(theta, strengths, wins, counts, ridge, tolerance, longest, rounds):",
        *_given(n, pairs),
        "for _ in range(rounds):",
        *(f"    {line}" for line in round_),
        "return None",
    ]


def _given(n: int, pairs: Sequence[Pair]) -> list[str]:
    return [
        f"{_of_branches('t', n)}= theta",
        f"{_of_branches('e', n)}= strengths",
        f"{_of_branches('h', n)}= wins",
        f"{_of_pairs('c', pairs)}= counts",
    ]


def _step(n: int, pairs: Sequence[Pair], columns: list[list[int]]) -> list[str]:
    """The same step, for floats: every number is one expression of those before it, because names cost as much as sums.

    Terms are added in the order in which `newton` adds them, so the bits are the same.
    """
    code = [f"u{i}_{j} = c{i}_{j} * (p := e{i} / (e{i} + e{j})); w{j}_{i} = u{i}_{j} - u{i}_{j} * p" for i, j in pairs]
    for k, rows in enumerate(columns):
        before = [m for m in range(k) if k in columns[m]]
        curved = _sum(["ridge", *(f"w{max(k, j)}_{min(k, j)}" for j in _met(k, pairs))])
        # o is w with what elimination has added to it.
        code.append(f"v{k} = 1.0 / ({curved}{''.join(f' - f{k}_{m} * o{k}_{m}' for m in before)})")
        pulled = "".join(f" - u{k}_{j}" if k < j else f" + u{j}_{k}" for j in _met(k, pairs))
        code.append(f"g{k} = h{k} - ridge * t{k}{pulled}{''.join(f' + f{k}_{m} * g{m}' for m in before)}")
        for i in rows:
            terms = [f"w{i}_{k}"] if (k, i) in pairs else []
            terms += [f"f{i}_{m} * o{k}_{m}" for m in before if i in columns[m]]
            code.append(f"o{i}_{k} = {_sum(terms)}; f{i}_{k} = o{i}_{k} * v{k}")
    for k in reversed(range(n)):
        code += [f"g{k} = g{k} * v{k}{''.join(f' + f{i}_{k} * g{i}' for i in reversed(columns[k]))}"]
    return code


def _finish(n: int, columns: list[list[int]]) -> list[str]:
    """Win probabilities; the inverse Z from its last row up: Z_ij = [i = j] / d_i + sum over k > i of f_ki Z_kj."""
    code = ["def finish(strengths, factors):", f"{_of_branches('e', n)}= strengths"]
    code.append(f"{_of_factors(n, columns)}= factors")
    code += [f"s{i} = 0.0" for i in range(n)]
    for i, j in combinations(range(n), 2):
        code.append(f"both = e{i} + e{j}; s{i} = s{i} + e{i} / both; s{j} = s{j} + e{j} / both")
    for i in reversed(range(n)):
        for j in reversed(range(i, n)):
            terms = [f"f{k}_{i} * z{max(k, j)}_{min(k, j)}" for k in columns[i]]
            code.append(f"z{j}_{i} = " + _sum([f"v{i}", *terms] if i == j else terms))
    triangle = "".join(f"z{i}_{j}, " for i in range(n) for j in range(i + 1))
    code.append(f"return ({_of_branches('s', n)}{triangle})")
    return code


def _met(i: int, pairs: Sequence[Pair]) -> list[int]:
    """Whom a branch is compared with, ascending."""
    return sorted([b for a, b in pairs if a == i] + [a for a, b in pairs if b == i])


def _pair(letter: str, i: int, j: int) -> str:
    return f"{letter}{min(i, j)}_{max(i, j)}"


def _sum(terms: Sequence[str]) -> str:
    """Added from left to right."""
    return " + ".join(terms)


def _of_branches(letter: str, n: int) -> str:
    return "".join(f"{letter}{i}, " for i in range(n))


def _of_pairs(letter: str, pairs: Sequence[Pair]) -> str:
    return "".join(f"{letter}{i}_{j}, " for i, j in pairs)


def _of_factors(n: int, columns: list[list[int]]) -> str:
    return _of_branches("v", n) + "".join(f"f{i}_{k}, " for k, rows in enumerate(columns) for i in rows)
