"""Pieces of groups on disk: together, in order, each once, and never more of a group than fits."""

import random

import pytest

from streams.jobs.imports import group_spool
from streams.jobs.imports.group_spool import GroupSpool


def filled(pieces: list[tuple[str, object]], **options: int) -> GroupSpool:
    spool = GroupSpool(**options)
    for name, value in pieces:
        spool.add(name, value)
    return spool


@pytest.fixture
def pieces() -> list[tuple[str, object]]:
    """More than is kept in memory, of 40 groups in turns."""
    text = "x" * (3 * group_spool.BUFFERED // 1000)
    return [(f"group {(number * 7) % 40:02}", [number, text]) for number in range(1000)]


def test_groups_come_in_the_order_of_their_names(pieces: list[tuple[str, object]]) -> None:
    """The pieces come in any order; those of a group stay in theirs."""
    found = list(filled(pieces).groups(sorted_by_name=True))
    assert [each.name for each in found] == sorted({name for name, _ in pieces})
    for name, values in found:
        assert values == [value for other, value in pieces if other == name]


def test_groups_come_in_the_order_of_their_first_pieces(pieces: list[tuple[str, object]]) -> None:
    """As a file tells them."""
    random.Random(1).shuffle(pieces)
    found = [each.name for each in filled(pieces).groups(sorted_by_name=False)]
    assert found == list(dict.fromkeys(name for name, _ in pieces))


def test_a_piece_that_is_sent_again_counts_once() -> None:
    """Exporters send again what was not answered."""
    assert list(filled([("a", 1), ("b", 1), ("a", 2), ("a", 1)]).groups(sorted_by_name=True)) == [
        ("a", [1, 2]),
        ("b", [1]),
    ]


def test_a_group_that_is_too_long_is_not_read() -> None:
    """Its neighbours are; pieces that are sent again do not make it longer."""
    short, long = [("short", "x" * 60)] * 50, [("long", f"{number:030}") for number in range(4)]
    found = dict(filled([*long, *short], most=100).groups(sorted_by_name=True))
    assert found == {"long": None, "short": ["x" * 60]}


def test_integers_of_any_size_stay_exact() -> None:
    """Those beyond 64 bits as well."""
    assert list(filled([("a", [10**30, -(2**63)])]).groups(sorted_by_name=True)) == [("a", [[10**30, -(2**63)]])]


def test_an_empty_spool_has_no_groups() -> None:
    """And opens no file."""
    assert list(GroupSpool().groups(sorted_by_name=False)) == []
