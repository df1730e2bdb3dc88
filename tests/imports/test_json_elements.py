"""JSON of any size, cut into its elements: the same ones wherever a chunk ends, and whatever stands in them."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.importers.traces.json_elements import UNREAD, Element, Rest, elements

VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(10**6), 10**6), st.text(st.sampled_from('a}{][",:\\é '), max_size=6)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["id", "x", 'q"']), inner, max_size=3)),
    max_leaves=8,
)  # fmt: skip
RUNS = st.lists(
    st.one_of(
        VALUES, st.fixed_dictionaries({"id": st.integers(0, 9), "kids": st.lists(st.just({"id": 1})), "x": VALUES})
    ),
    max_size=6,
)
WRITERS = st.sampled_from([
    orjson.dumps, lambda value: json.dumps(value).encode(), lambda value: json.dumps(value, indent=1, ensure_ascii=False).encode(),
])  # fmt: skip
SIZES = st.sampled_from([5, 20, 10**6])


def cut(raw: bytes, size: int, *streamed: str) -> list[Element | Rest]:
    return list(elements([raw[at : at + size] for at in range(0, len(raw), size)], frozenset(streamed)))


def value_of(element: Element | Rest) -> Any:
    assert isinstance(element, Element)
    read = orjson.loads(element.text)
    assert element.value is UNREAD or element.value == read
    return read


@settings(deadline=None)
@given(RUNS, WRITERS, SIZES)
def test_an_array_is_cut_into_its_elements(runs: list[Any], write: Any, size: int) -> None:
    """Each with its number."""
    found = cut(write(runs), size)
    assert [value_of(each) for each in found] == runs
    assert [each.position for each in found if isinstance(each, Element)] == [
        f"[{number}]" for number in range(len(runs))
    ]


@settings(deadline=None)
@given(RUNS, VALUES, WRITERS, SIZES)
def test_a_member_is_cut_and_the_rest_comes_last(runs: list[Any], other: Any, write: Any, size: int) -> None:
    """Wherever it stands in its object."""
    *found, rest = cut(write({"a": other, "runs": runs, "z": other}), size, "runs")
    assert [value_of(each) for each in found] == runs
    assert isinstance(rest, Rest)
    assert orjson.loads(rest.text) == {"a": other, "runs": [], "z": other}


@pytest.mark.parametrize("size", [1, 100, 10**6])
def test_a_broken_element_leaves_its_neighbours(size: int) -> None:
    """Its brackets are right, so that its end is known."""
    runs = [orjson.dumps({"id": number, "text": "x" * 40}) for number in range(9)]
    runs[4] = b'{"id": nothing}'
    found = cut(b"[" + b",".join(runs) + b"]", size)
    assert [each.text for each in found] == runs


def test_most_elements_are_read_on_the_way() -> None:
    """Their ends are guessed: the structure of only the first, and of the last, is looked at."""
    runs = [{"id": number, "kids": [{"id": 1}, {"id": 2}]} for number in range(100)]
    found = cut(json.dumps(runs).encode(), 10**6)
    assert [number for number, each in enumerate(found) if isinstance(each, Element) and each.value is UNREAD] == [
        0,
        99,
    ]
