"""JSON from outside: how deep it may be nested."""

import pytest

from schemas.jsontext import MAX_DEPTH, parse, parse_unique


def nested(depth: int, mixed: bool) -> str:
    """Arrays in arrays, or arrays and objects in turns, that are longer than what need not be looked at."""
    opened = ["[" if not mixed or level % 2 else '{"a":' for level in range(depth)]
    closed = ["]" if each == "[" else "}" for each in reversed(opened)]
    return "".join([*opened, '"' + "x" * 3 * MAX_DEPTH + '"', *closed])


@pytest.mark.parametrize("mixed", [False, True])
def test_a_value_may_be_nested_so_deep_and_no_deeper(mixed: bool) -> None:
    for read in (parse, parse_unique):
        read(nested(MAX_DEPTH, mixed))
        with pytest.raises(ValueError, match="nested deeper than 100"):
            read(nested(MAX_DEPTH + 1, mixed))


def test_many_values_beside_each_other_are_not_deep() -> None:
    assert len(parse("[" + ",".join(["[{}]"] * 5 * MAX_DEPTH) + "]")) == 5 * MAX_DEPTH
