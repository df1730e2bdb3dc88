"""Repeated keys: every one is found, nothing else is, and the error says where."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.jsontext import parse, parse_unique
from schemas.repeated_keys import CHUNK, RepeatedKeyError

SPACE = st.sampled_from(["", "", " ", "\t", "\n", "\r\n  "])
TEXT = st.text(st.sampled_from('ab\\":,{}[] \n\u2028é😀/'), max_size=5)


def _spelled(text: str, escaped: bool) -> str:
    """A string in one of its spellings."""
    return json.dumps(text, ensure_ascii=True) if not escaped else '"' + "".join(_escape(each) for each in text) + '"'


def _escape(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


STRING = st.builds(_spelled, TEXT, st.booleans())
SCALAR = st.one_of(STRING, st.sampled_from(["1", "-2.5e3", "true", "null", "12345678901234567890123"]))


def _array(items: list[str], space: str) -> str:
    return "[" + f"{space},{space}".join(items) + "]"


def _object(members: list[tuple[str, str]], space: str) -> str:
    return "{" + f"{space},".join(f"{space}{key}{space}:{space}{value}" for key, value in members) + "}"


JSON = st.recursive(
    SCALAR,
    lambda inner: st.one_of(
        st.builds(_array, st.lists(inner, max_size=3), SPACE),
        st.builds(_object, st.lists(st.tuples(STRING, inner), max_size=4), SPACE),
    ),
    max_leaves=12,
)


def has_repeated_key(text: str) -> bool:
    """The same question, asked of the standard library."""
    found = []

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found.append(len(dict(pairs)) != len(pairs))
        return dict(pairs)

    json.loads(text, object_pairs_hook=members)
    return any(found)


def is_refused(text: str) -> bool:
    try:
        assert parse_unique(text) == parse(text)
    except RepeatedKeyError:
        return True
    return False


@given(JSON)
def test_a_text_is_refused_exactly_when_it_repeats_a_key(text: str) -> None:
    """For any spaces and escapes, and any strings."""
    assert is_refused(text) is has_repeated_key(text)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('{"a":1,"a":1}', "a"),
        (r'{"a":1,"\u0061":2}', "a"),
        ('{"a":{"b":[0,{"c":1,"d":2,"c":3}]}}', "a.b[1].c"),
        ('{"a":{"x":1,"x":2},"a":0}', "a"),
        ('{"":1,"":2}', '""'),
        ('{"a b":{"1\\n":1,"1\\n":2}}', '"a b"."1\\n"'),
        ('[{"a":1},{"a":1,"a":2}]', "[1].a"),
        ('{"a":{},"a":{}}', "a"),
        (r'{"\\":1,"\\":":"}', '"\\\\"'),
    ],
)
def test_the_error_names_the_key_and_the_objects_around_it(text: str, path: str) -> None:
    """As a path, the outermost first."""
    with pytest.raises(RepeatedKeyError, match="the key stands twice in this object; send it once") as refused:
        parse_unique(text)
    assert refused.value.path == path


@pytest.mark.parametrize(
    "text",
    [
        r'{"a":"{\"b\":1,\"b\":2}"}',
        '{"a":{"a":{"a":1}},"b":[{"a":1},{"a":1}]}',
        r'{"a\\":1,"a":"\\\":","c":" : :"}',
        '{"é":1,"e\u0301":2}',
    ],
)
def test_what_only_looks_like_a_repeated_key_is_taken(text: str) -> None:
    """JSON in a string is data; the same key in other objects, and other letters, are no repetition."""
    assert parse_unique(text) == parse(text)


@pytest.mark.parametrize("size", [CHUNK - 3, CHUNK - 2, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK])
def test_long_texts_are_counted_in_parts(size: int) -> None:
    """A part may end within a string, an escape or a key."""
    filling = '\\":' * (size // 3) + ":" * (size % 3)
    assert not is_refused(f'{{"a":"{filling}","b":{{"c":1}}}}')
    assert is_refused(f'{{"a":"{filling}","b":{{"c":1,"c":2}}}}')


def test_a_value_that_is_nested_too_deep_and_lost_is_found_too() -> None:
    """The key after it hides it from the parser's depth."""
    assert is_refused('{"a":' + "[" * 1000 + "]" * 1000 + ',"a":1}')


def test_a_very_long_key_is_shortened() -> None:
    """An error is read by people."""
    with pytest.raises(RepeatedKeyError) as refused:
        parse_unique('{{"{}":1,"{}":2}}'.format("k" * 10_000, "k" * 10_000))
    assert len(str(refused.value)) < 200
