"""One group and many, compiled and in Python: the same bits."""

import hashlib
import os
import random
import shutil
from array import array
from itertools import combinations
from typing import Any

import pytest

from agents.ranking import compiled_adapter
from agents.ranking.bradley_terry import AT_ONCE, Observation, fit, fit_many, tally
from agents.ranking.newton import Rules, in_python
from tests.agents.ranking.simulated import full_group, random_group

compiled = pytest.mark.skipif(not compiled_adapter.COMPILED, reason="the package was installed without a C compiler")


def test_a_machine_with_a_compiler_has_the_compiled_way() -> None:
    """Where there is a compiler and Python's headers, as on any machine that tests, nothing is skipped below."""
    if shutil.which("cc") is None and not os.environ.get("CI"):
        pytest.skip("no C compiler")
    assert compiled_adapter.COMPILED, "install the package again: make setup"


def test_a_batch_gives_the_bits_of_single_fits() -> None:
    """Three thousand groups of all sizes, shapes and components: `fit_many` equals `fit` in every bit."""
    rng = random.Random(11)
    groups = [random_group(rng) for _ in range(3000)]
    assert fit_many(groups) == [fit(group) for group in groups]


def test_more_groups_than_fit_at_once() -> None:
    """Groups beyond those of one call are fitted in the next, in order."""
    rng = random.Random(12)
    groups = [full_group(rng, [0.5, 0.0, -0.5], repeats=2) for _ in range(AT_ONCE + 30)]
    assert fit_many(groups)[-40:] == [fit(group) for group in groups[-40:]]


@compiled
def test_compiled_code_gives_the_bits_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups of all shapes, strict orders of any weight, and more branches than are usual."""
    rng = random.Random(13)
    groups = [random_group(rng) for _ in range(600)] + [random_group(rng, 17, 24) for _ in range(10)]
    for n, weight in ((2, 1.0), (4, 100.0), (9, 1e6), (16, 1e6)):
        groups.append(tally(n, [Observation(i, j, weight, 0.0) for i, j in combinations(range(n), 2)]))
    fits = fit_many(groups)
    monkeypatch.setattr(compiled_adapter, "WAY", in_python)
    assert fit_many(groups) == fits


def test_the_bits_are_those_of_every_release() -> None:
    """A change of the arithmetic changes what existing logs give: it would be a new version of the ranking."""
    rng = random.Random(14)
    digest = hashlib.sha256()
    for found in fit_many([random_group(rng) for _ in range(500)]):
        for i in range(found.n):
            # Adding zero makes a negative zero positive: the sign of nothing is not promised.
            digest.update(repr([x and x + 0.0 for x in (found.score(i), found.se(i), found.judge_score(i))]).encode())
    assert digest.hexdigest() == "fee11275b8617e6d2a0197513bf22c7af22e1c06355156d23e666044886e39bd"


RULES = Rules(0.1, 1e-10, 1e-15, 2.0, 0.75, 16, 100)


def _buffers() -> list[Any]:
    """Of one group of three branches, all pairs: pairs, wins, losses, and room for what is found."""
    pairs = array("i", [0, 1, 0, 2, 1, 2])
    return [pairs, *[array("d", [1.0] * size) for size in (3, 3, 3, 3, 6)]]


@compiled
@pytest.mark.parametrize("short", range(6))
def test_buffers_that_are_too_short_are_refused(short: int) -> None:
    """The compiled code never writes where nothing was given."""
    buffers = _buffers()
    buffers[short].pop()
    with pytest.raises(ValueError, match=r"expected|two branches"):
        compiled_adapter.WAY(3, 1, *buffers, RULES)


@compiled
@pytest.mark.parametrize("stranger", [3, -1, 2**31 - 1])
def test_pairs_of_other_branches_are_refused(stranger: int) -> None:
    """A branch beyond the others would be foreign memory."""
    buffers = _buffers()
    buffers[0][3] = stranger
    with pytest.raises(ValueError, match="two branches"):
        compiled_adapter.WAY(3, 1, *buffers, RULES)


@compiled
def test_senseless_sizes_are_refused() -> None:
    """Neither negative nor so large that a product overflows."""
    for n, groups in ((0, 1), (-1, 1), (3, -1), (1 << 40, 1), (3, 1 << 62)):
        with pytest.raises(ValueError, match="too many"):
            compiled_adapter.WAY(n, groups, *_buffers(), RULES)


@compiled
def test_what_is_no_number_has_no_maximum() -> None:
    """It ends with an error and not with a score."""
    buffers = _buffers()
    buffers[1][0] = float("nan")
    assert compiled_adapter.WAY(3, 1, *buffers, RULES) is False


def test_many_branches_that_were_hardly_compared_take_little_memory() -> None:
    """Only branches that comparisons connect are in one matrix."""
    found = fit(tally(50_000, [Observation(7, 49_999, 1.0, 0.0)]))
    assert found.components[0].members == (7, 49_999)
    assert found.score(8) is None
