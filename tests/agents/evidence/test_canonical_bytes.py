"""Canonical bytes: one form for every value, the form that JavaScript prints."""

import enum
import http
import json
import math
import struct
import uuid
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.evidence.canonical import (
    MAX_DEPTH,
    CanonicalError,
    canonical_bytes,
    canonical_json_text,
    digest,
    in_python,
    javascript_number,
    parse_json,
    written_alike,
)

# Printed by Node 20: JSON.stringify(JSON.parse(text)).
JAVASCRIPT_NUMBERS = [
    ("1e21", "1e+21"),
    ("1e-7", "1e-7"),
    ("5e-324", "5e-324"),
    ("0.30000000000000004", "0.30000000000000004"),
    ("-0.0", "0"),
    ("-0", "0"),
    ("1.0", "1"),
    ("1", "1"),
    ("123456789012345680000.0", "123456789012345680000"),
    ("1e20", "100000000000000000000"),
    ("999999999999999900000.0", "999999999999999900000"),
    ("1e-6", "0.000001"),
    ("1.5e-6", "0.0000015"),
    ("1.5e-7", "1.5e-7"),
    ("0.000001234", "0.000001234"),
    ("123456789.125", "123456789.125"),
    ("-1e21", "-1e+21"),
    ("-1.5e-9", "-1.5e-9"),
    ("1.7976931348623157e308", "1.7976931348623157e+308"),
    ("2.2250738585072014e-308", "2.2250738585072014e-308"),
    ("4.35", "4.35"),
    ("1e15", "1000000000000000"),
    ("1e16", "10000000000000000"),
    ("1e17", "100000000000000000"),
    ("12345678901234567.0", "12345678901234568"),
    ("9007199254740992", "9007199254740992"),
    ("-9007199254740992", "-9007199254740992"),
    ("9007199254740993.0", "9007199254740992"),
    ("1.25e25", "1.25e+25"),
    ("-123e-20", "-1.23e-18"),
    ("1E5", "100000"),
    ("0.00001", "0.00001"),
    ("0.0001", "0.0001"),
    ("1234567890123456.7", "1234567890123456.8"),
    ("123456789012345.67", "123456789012345.67"),
    ("-2.5e-5", "-0.000025"),
    ("1e23", "1e+23"),
    ("6.02214076e23", "6.02214076e+23"),
]

# Printed by Node 20: keys sorted with Array.prototype.sort, values with JSON.stringify.
JAVASCRIPT_OBJECTS = [
    ('{"b":1,"a":2}', '{"a":2,"b":1}'),
    ('{"10":1,"9":2,"a":{"z":[],"y":{}}}', '{"10":1,"9":2,"a":{"y":{},"z":[]}}'),
    ('{"a":1,"a":2}', '{"a":2}'),
    ('{"":0,"\\u0000":1," ":2}', '{"":0,"\\u0000":1," ":2}'),
    ('{"\u00e9":1,"e\u0301":2,"z":3}', '{"e\u0301":2,"z":3,"\u00e9":1}'),
    ('{"\U0001f600":1,"\uff21":2,"a":3}', '{"a":3,"\U0001f600":1,"\uff21":2}'),
    (
        '{"\\ud83d\\ude00":1,"\\ufb01":2,"\\ue000":3,"\\ud7ff":4}',
        '{"\ud7ff":4,"\U0001f600":1,"\ue000":3,"\ufb01":2}',
    ),
    (
        '{"x":"\\u0001\\u001F\\b\\t\\n\\f\\r\\"\\\\\\/\x7f\u2028\u2029\u00e9\U0001f600"}',
        '{"x":"\\u0001\\u001f\\b\\t\\n\\f\\r\\"\\\\/\x7f\u2028\u2029\u00e9\U0001f600"}',
    ),
    (
        '{"__proto__":{"x":1},"a":[1.0,-0,1e2,null,true,false]}',
        '{"__proto__":{"x":1},"a":[1,0,100,null,true,false]}',
    ),
    (' { "a" : [ 1 , 2 ] } ', '{"a":[1,2]}'),
]

strings = st.text(st.characters(codec="utf-8"))
integers = st.integers(-(2**53), 2**53)
numbers = integers | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | strings,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(strings, inner, max_size=5),
    max_leaves=20,
)


@pytest.mark.parametrize(("text", "printed"), JAVASCRIPT_NUMBERS)
def test_numbers_have_their_javascript_form(text: str, printed: str) -> None:
    """A number is printed as JavaScript prints it, however it was written."""
    assert canonical_json_text(text) == printed.encode()


@pytest.mark.parametrize(("text", "printed"), JAVASCRIPT_OBJECTS)
def test_objects_are_what_javascript_would_print(text: str, printed: str) -> None:
    """Keys are in UTF-16 order, the last of repeated keys counts, escapes are minimal, spaces are gone."""
    assert canonical_json_text(text.encode()) == printed.encode()
    assert canonical_json_text(text) == printed.encode()


def test_every_control_character_is_escaped_as_json_stringify_does() -> None:
    """Five controls have a short escape, the others are \\u00xx in lower case, DEL is left alone."""
    short = {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r"}
    expected = "".join(short.get(code, f"\\u{code:04x}") for code in range(32))
    assert canonical_bytes("".join(map(chr, range(32))) + "\x7f") == f'"{expected}\x7f"'.encode()


def test_a_sum_of_floats_keeps_all_its_digits() -> None:
    """0.1 + 0.2 is not 0.3."""
    assert canonical_bytes([0.1 + 0.2, -0.0, 5e-324]) == b"[0.30000000000000004,0,5e-324]"


def plainly_written(value: Any) -> str:
    """Write the canonical form in the plainest way, as the definition to compare with."""
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: key.encode("utf-16-be"))
        return "{" + ",".join(f"{plainly_written(key)}:{plainly_written(value[key])}" for key in keys) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(plainly_written, value)) + "]"
    if isinstance(value, float):
        return javascript_number(value)
    return json.dumps(value, ensure_ascii=False)


@given(values)
def test_every_value_is_written_by_the_definition(value: object) -> None:
    """No value shows whether it was rewritten on the way."""
    assert canonical_bytes(value) == plainly_written(value).encode()


class Word(str):
    """A string that is not only one."""

    __slots__ = ()


ODD = st.recursive(
    values | st.integers() | st.floats() | st.just(Word("w")) | st.just(b"") | st.tuples(values),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.just(Word("k")) | st.integers(0, 2), inner),
    max_leaves=8,
)


@given(ODD, st.sampled_from([0, 1, MAX_DEPTH - 1, MAX_DEPTH]))
def test_the_walk_in_c_says_what_the_one_in_python_says(value: object, depth: int) -> None:
    def outcome(walk: Any) -> object:
        try:
            return walk(value, depth)
        except TypeError:
            return TypeError

    assert outcome(written_alike) == outcome(in_python)


@given(st.dictionaries(st.text("ab\ue000\uffff\U00010000\U0001f600", max_size=3), integers, max_size=8))
def test_keys_beyond_the_basic_plane_come_in_utf16_order(value: dict[str, int]) -> None:
    """Emoji sort before the last characters of the basic plane, as they do in JavaScript."""
    assert canonical_bytes(value) == plainly_written(value).encode()


@given(st.floats(min_value=1e-4, max_value=1e15) | st.floats(min_value=-1e15, max_value=-1e-4))
def test_fractions_of_usual_size_print_as_in_javascript(number: float) -> None:
    """The range of floats that is left to orjson holds no surprise."""
    assert canonical_bytes({"x": number}) == plainly_written({"x": number}).encode()


@given(values)
def test_the_text_of_a_value_has_the_bytes_of_the_value(value: object) -> None:
    """Parsing what a writer wrote gives the same canonical bytes, whatever its spacing and escapes."""
    text = json.dumps(value, indent=1, ensure_ascii=True)
    assert canonical_json_text(text) == canonical_bytes(value)


@given(values)
def test_canonical_bytes_are_json_with_the_same_value(value: object) -> None:
    """Nothing is lost: a reader whose numbers are doubles gets the value back."""
    assert json.loads(canonical_bytes(value), parse_int=float) == value


@given(values)
def test_canonical_bytes_are_their_own_canonical_form(value: object) -> None:
    """Making bytes canonical twice changes nothing."""
    once = canonical_bytes(value)
    assert canonical_json_text(once, big_integers="exact") == once


@given(st.integers(0, 2**64 - 1))
def test_a_printed_float_reads_back_as_the_same_float(bits: int) -> None:
    """The shortest digits that identify the number are printed, for every finite double."""
    (number,) = struct.unpack("<d", bits.to_bytes(8, "little"))
    if math.isfinite(number):
        assert float(javascript_number(number)) == number


@pytest.mark.parametrize("number", [2**53 + 1, -(2**53) - 1, 2**63, 2**64, 10**20, 10**400])
def test_an_integer_beyond_2_to_53_is_refused(number: int) -> None:
    """It has no exact JavaScript form, so it is never rounded in silence."""
    with pytest.raises(CanonicalError, match=r"a\[0\]: an integer beyond 2\^53"):
        canonical_bytes({"a": [number]})
    with pytest.raises(CanonicalError, match=r"beyond 2\^53"):
        canonical_json_text(f'{{"a":[{number}]}}')


@pytest.mark.parametrize("number", [2**53 + 1, -(2**63) - 1, 2**64, 10**20, 10**400])
def test_raw_events_keep_the_digits_of_big_integers(number: int) -> None:
    """With exact integers every digit is printed."""
    assert canonical_json_text(f'{{"b":{number},"a":1.0}}', big_integers="exact") == f'{{"a":1,"b":{number}}}'.encode()


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_lacks_are_refused(number: float) -> None:
    """NaN and infinities raise, they do not become null."""
    with pytest.raises(CanonicalError, match=r"x: .* is not a JSON number"):
        canonical_bytes({"x": number})


@pytest.mark.parametrize(
    "text",
    [b"NaN", b'{"a":Infinity}', b"1e400", b"", b"{", b"[1,]", b'{"a":1}x', b"\xef\xbb\xbf1", b'"\xff"', b"01", b"'a'"],
)
def test_text_that_is_not_json_is_refused(text: bytes) -> None:
    """Strict JSON in strict UTF-8, or an error."""
    with pytest.raises(CanonicalError):
        canonical_json_text(text)


@pytest.mark.parametrize("value", ["\ud800", {"a": "x\udc00"}, {"\ud800": 1}, ["\ud83d"]])
def test_half_a_surrogate_pair_is_refused(value: object) -> None:
    """There is no UTF-8 for it."""
    with pytest.raises(CanonicalError, match="half a surrogate pair"):
        canonical_bytes(value)
    with pytest.raises(CanonicalError, match="half a surrogate pair"):
        canonical_json_text(json.dumps(value))


@pytest.mark.parametrize("value", [{1: "a"}, {None: 1}, {True: 1}, {b"a": 1}, {http.HTTPMethod.GET: 1}])
@pytest.mark.parametrize("beside", [1, 1.0])
def test_a_key_that_is_no_plain_string_is_refused(value: object, beside: float) -> None:
    """It is not turned into one, whatever stands beside it."""
    with pytest.raises(CanonicalError, match=r"x: the key .* is not a plain string"):
        canonical_bytes({"x": value, "y": beside})


@pytest.mark.parametrize("value", [b"x", {1}, object(), uuid.UUID(int=1), 1j])
def test_what_is_not_json_is_refused(value: object) -> None:
    """Types that orjson would write in its own way are refused too."""
    with pytest.raises(CanonicalError, match=r"a: .* is not a JSON type"):
        canonical_bytes({"a": value})


def test_tuples_and_string_enums_are_what_they_stand_for() -> None:
    """Values of models need no conversion first."""

    class Colour(enum.StrEnum):
        RED = "red"

    class Rank(enum.IntEnum):
        FIRST = 1

    assert canonical_bytes({"b": (1, 2), "a": Colour.RED, "c": Rank.FIRST}) == b'{"a":"red","b":[1,2],"c":1}'
    assert canonical_bytes({"a": [1.0, {"z": 1, "b": Colour.RED}]}) == b'{"a":[1,{"b":"red","z":1}]}'


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 2_000, 200_000])
def test_too_deep_values_are_an_error_and_not_a_crash(opening: bytes, depth: int) -> None:
    """Nesting beyond the limit is refused, however far beyond."""
    closing = b"]" if opening == b"[" else b"}"
    with pytest.raises(CanonicalError, match="nested deeper"):
        canonical_json_text(opening * depth + b"1" + closing * depth)


@pytest.mark.parametrize("inner", [b"1", b"1e-7"])
def test_the_deepest_allowed_value_is_written(inner: bytes) -> None:
    """The limit itself is inside, whether the value must be rewritten or not."""
    text = b"[" * MAX_DEPTH + inner + b"]" * MAX_DEPTH
    assert canonical_json_text(text) == text


def test_an_integer_with_absurdly_many_digits_is_an_error() -> None:
    """The interpreter's own limit shows as an error of ours."""
    with pytest.raises(CanonicalError, match="too many digits"):
        canonical_json_text(b"9" * 10_000, big_integers="exact")


def test_parsing_keeps_integers_that_orjson_would_round() -> None:
    """An integer beyond 64 bits stays an integer."""
    assert orjson.loads(b"18446744073709551617") != 18446744073709551617
    assert parse_json(b"[18446744073709551617]") == [18446744073709551617]


def test_digest_is_sha256_in_hex() -> None:
    """The digest of nothing is the well-known one."""
    assert digest(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
