"""JSON from outside: how deep it may be nested, and what stands for no value."""

import time

import pytest

from schemas.jsontext import MAX_DEPTH, parse, parse_unique, without_constants


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


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        (b'{"a": NaN, "b": [-Infinity, Infinity]}', b'{"a": null, "b": [null, null]}'),
        (b'{"NaN": "a NaN and \\" -Infinity"}', b'{"NaN": "a NaN and \\" -Infinity"}'),
        (b'{"a": 1}', b'{"a": 1}'),
    ],
)
def test_constants_of_python_are_null_outside_of_texts(text: bytes, plain: bytes) -> None:
    assert without_constants(text) == plain


def test_a_text_that_never_ends_costs_linear_time() -> None:
    began = time.process_time()
    without_constants(b'{"a": NaN, "b": "' + b'\\"' * 500_000)
    assert time.process_time() - began < 5
