"""Canonical bytes: the one byte string that a JSON value has, whatever program wrote it.

Decides the bytes that are signed, hashed and linked: keys sorted by UTF-16 code units at every level, no spaces, UTF-8,
non-ASCII unescaped, only the escapes that `JSON.stringify` makes, numbers in their JavaScript form (1 for 1.0, 1e-7,
1e+21). Guarantees that equal values give equal bytes, and that a value without an exact form (NaN, an integer beyond
2^53, half a surrogate pair, a key that is no string) raises `CanonicalError` instead of being rounded or dropped.

orjson does the writing. A value that orjson would write differently (other number forms, keys beyond ASCII) is first
rewritten into one that it writes correctly; a walk over the value decides which.
"""

import json
import math
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any, Final, Literal, NoReturn

import orjson

from schemas.errors import BraidError
from schemas.repeated_keys import RepeatedKeyError, refuse_repeated_keys

try:
    from agents.evidence._canonical import written_alike as in_c
except ImportError:
    COMPILED = False
else:
    COMPILED = True

BigIntegers = Literal["error", "exact"]
"""The treatment of an integer beyond 2^53: refused (evidence), or printed digit by digit (digests of raw events)."""

# The largest integer up to which every integer is a JavaScript number.
MAX_INTEGER: Final = 9007199254740992  # 2**53; a literal is compiled in
# Deeper values are refused: parsers disagree about them, and some fall over.
MAX_DEPTH: Final = 200

# orjson and JavaScript print fractions between these two alike, without an exponent.
_SAME_FRACTION_FROM: Final = 1e-4
_SAME_FRACTION_BELOW: Final = 1e15
_KEPT_DEPTH: Final = 2


class CanonicalError(BraidError):
    """A value, or a JSON text, that has no canonical bytes."""


def canonical_bytes(value: Any, *, big_integers: BigIntegers = "error") -> bytes:
    """Return the canonical bytes of a JSON value made of dicts, lists, strings, numbers, booleans and None."""
    exact = big_integers == "exact"
    try:
        if written_alike(value):
            return _dumps(value)
        return _dumps(_rewritten(value, 0, exact))
    except (TypeError, ValueError):
        raise CanonicalError(_first_fault(value, exact)) from None


def canonical_json_text(text: bytes | str, *, big_integers: BigIntegers = "error") -> bytes:
    """Return the canonical bytes of a JSON text; of repeated keys the last one counts, as in JavaScript."""
    return canonical_bytes(parse_json(text), big_integers=big_integers)


def parse_json(text: bytes | str) -> Any:
    """Parse a JSON text without losing anything: integers of any size stay exact, NaN and Infinity are refused."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return _exact_parse(text)
    # orjson turns integers beyond 64 bits into floats, so a value with unusual numbers is parsed again.
    return value if written_alike(value) else _exact_parse(text)


def parse_evidence(text: bytes | str) -> Any:
    """As `parse_json`; refuses repeated keys, so that every reader reads the same record."""
    value = parse_json(text)
    try:
        refuse_repeated_keys(text if isinstance(text, str) else text.decode(), value)
    except RepeatedKeyError as error:
        raise CanonicalError(f"repeated key: {error}") from None
    return value


def digest(data: bytes) -> str:
    """Return the SHA-256 of the bytes as lower-case hex."""
    return sha256(data).hexdigest()


def javascript_number(number: float) -> str:
    """Print a float as JavaScript does (ECMAScript Number::toString, radix 10)."""
    if not math.isfinite(number):
        raise ValueError(f"{number} is not a JSON number")
    text = repr(number)
    if "e" not in text:
        text = text.removesuffix(".0")
        return "0" if text == "-0" else text
    # Both languages print the shortest digits that read back as the same number; only their layout differs.
    mantissa, _, exponent = text.partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    digits = mantissa.removeprefix("-").replace(".", "")
    point = int(exponent) + 1
    if len(digits) <= point <= 21:
        return sign + digits + "0" * (point - len(digits))
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{fraction}e{point - 1:+d}"


def in_python(value: Any, depth: int = 0) -> bool:
    """Whether orjson, with sorted keys, writes a value in canonical form. Raises TypeError for a key that is not a
    string.
    """
    return _all_alike((value,), depth)


def _all_alike(children: Iterable[Any], depth: int) -> bool:
    for child in children:
        kind = type(child)
        if kind is str or kind is bool or child is None:
            continue
        if kind is int:
            if child > MAX_INTEGER or child < -MAX_INTEGER:
                return False
        elif kind is dict:
            # ASCII keys have one order in UTF-8 and UTF-16.
            if depth == MAX_DEPTH or not "".join(child).isascii() or not _all_alike(child.values(), depth + 1):
                return False
        elif kind is list or kind is tuple:
            if depth == MAX_DEPTH or not _all_alike(child, depth + 1):
                return False
        elif kind is not float or not _same_fraction(child):
            return False
    return True


written_alike: Final[Callable[..., bool]] = in_c if COMPILED else in_python
"""The same function, in C if it was compiled. A value that orjson writes so it has read exactly, too."""


def _same_fraction(number: float) -> bool:
    return _SAME_FRACTION_FROM <= abs(number) < _SAME_FRACTION_BELOW and not number.is_integer()


def _rewritten(value: Any, depth: int, exact: bool) -> Any:
    """Return a value that orjson writes in canonical form; TypeError or ValueError if there is no such form."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (int, float)):
        return _rewritten_number(value, exact)
    if depth < MAX_DEPTH and isinstance(value, (list, tuple)):
        return [_kept_or_rewritten(item, depth + 1, exact) for item in value]
    if depth < MAX_DEPTH and isinstance(value, dict) and {*map(type, value)} <= {str}:
        written = {key: _kept_or_rewritten(item, depth + 1, exact) for key, item in value.items()}
        return written if "".join(written).isascii() else _in_utf16_order(written)
    raise TypeError


def _kept_or_rewritten(value: Any, depth: int, exact: bool) -> Any:
    """Keep values that need no rewriting; checked only near the top, so that deep values are not walked many times."""
    if type(value) is str or (depth <= _KEPT_DEPTH and written_alike(value, depth)):
        return value
    return _rewritten(value, depth, exact)


def _rewritten_number(value: Any, exact: bool) -> float | orjson.Fragment:
    if isinstance(value, float):
        number = float(value)
        return number if _same_fraction(number) else orjson.Fragment(javascript_number(number))
    if -MAX_INTEGER <= value <= MAX_INTEGER:
        return int(value)
    if exact:
        return orjson.Fragment(str(int(value)))
    raise TypeError


def _in_utf16_order(written: dict[str, Any]) -> orjson.Fragment:
    """Return an object whose keys orjson would sort otherwise, as finished text."""
    members = (_dumps(key) + b":" + _dumps(written[key]) for key in sorted(written, key=_utf16))
    return orjson.Fragment(b"{%b}" % b",".join(members))


def _dumps(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def _utf16(key: str) -> bytes:
    return key.encode("utf-16-be")


def _first_fault(value: Any, exact: bool) -> str:
    """Return the place of the first value without canonical bytes, and why."""
    todo: list[tuple[Any, str, int]] = [(value, "", 0)]
    while todo:
        found, where, depth = todo.pop()
        if depth == MAX_DEPTH and isinstance(found, (dict, list, tuple)):
            return f"nested deeper than {MAX_DEPTH} levels"
        if isinstance(found, dict):
            inner = list(found.items())
        elif isinstance(found, (list, tuple)):
            inner = list(enumerate(found))
        else:
            inner = []
            if why := _scalar_fault(found, exact):
                return f"{where.removeprefix('.')}: {why}" if where else why
        for name, child in reversed(inner):
            if isinstance(found, dict) and (why := _key_fault(name)):
                return f"{where.removeprefix('.')}: {why}" if where else why
            step = f".{_shown(name)}" if isinstance(found, dict) else f"[{name}]"
            todo.append((child, where + step, depth + 1))
    return "the value has no canonical form"


def _scalar_fault(value: Any, exact: bool) -> str | None:
    if isinstance(value, str):
        return "a string with half a surrogate pair" if _has_half_a_pair(value) else None
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, float):
        return None if math.isfinite(value) else f"{value} is not a JSON number"
    if isinstance(value, int):
        if -MAX_INTEGER <= value <= MAX_INTEGER:
            return None
        return "an integer with too many digits" if exact else "an integer beyond 2^53 has no exact JavaScript form"
    return f"{type(value).__name__} is not a JSON type"


def _key_fault(key: Any) -> str | None:
    if type(key) is not str:
        return f"the key {key!r} is not a plain string"
    return "a key with half a surrogate pair" if _has_half_a_pair(key) else None


_HALVES = (chr(0xD800), chr(0xDFFF))


def _has_half_a_pair(text: str) -> bool:
    return any(_HALVES[0] <= character <= _HALVES[1] for character in text)


def _shown(key: str) -> str:
    return key if key.isprintable() else ascii(key)


def _exact_parse(text: bytes | str) -> Any:
    try:
        decoded = text if isinstance(text, str) else text.decode("utf-8")
        value = json.loads(decoded, parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise CanonicalError(f"not UTF-8: byte {error.start}") from error
    except RecursionError as error:
        raise CanonicalError(f"nested deeper than {MAX_DEPTH} levels") from error
    except json.JSONDecodeError as error:
        raise CanonicalError(f"not JSON: {error}") from error
    except ValueError as error:  # the interpreter's limit on the digits of one integer
        raise CanonicalError("an integer with too many digits") from error
    if _too_deep(value):
        raise CanonicalError(f"nested deeper than {MAX_DEPTH} levels")
    return value


def _too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [child for parent in level for child in _children(parent)]
        if not level:
            return False
    return True


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _refuse_constant(name: str) -> NoReturn:
    raise CanonicalError(f"not JSON: {name} is not a JSON number")
