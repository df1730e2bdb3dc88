"""Numbers in a model's text: their values, and the answer that a text states.

Values are exact fractions and are compared exactly. Patterns take linear time, because texts are hostile.
"""

import re
from fractions import Fraction
from functools import lru_cache
from typing import Final, NamedTuple

NUMBER: Final = r"(?<![A-Za-z0-9_.,])[-\u2212]?[$€£]?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?"
"""The pattern N of the contract."""

_NUMBER: Final = re.compile(NUMBER)
_HASH: Final = re.compile(rf"####\s*(?:\*+\s*)?({NUMBER})")
_BOXED: Final = re.compile(r"\\boxed\{([^{}]*)\}")
_ANSWER: Final = re.compile(rf"\b[Aa]nswer\s*(?:is|:|=)[:*\s]*({NUMBER})")
_PLAIN: Final = re.compile(r"[-\u2212]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)?")
_CURRENCY: Final = re.compile(r"[$€£\s]+")
LONGEST_VALUE: Final = 400
"""Maximum characters of a number that is read. No answer is that long, and its exact fraction is slow."""


CACHED_TO: Final = 24
"""Maximum characters of a number whose value is cached: the same short numbers occur often."""


class Stated(NamedTuple):
    """The answer that a text states."""

    value: Fraction | None
    marker_end: int | None
    """The end of its marker in the plain text; None if the answer is only the last number."""


def plain(text: str) -> str:
    r"""Return the text without the escapes of LaTeX: `\$` is `$`, `{,}` is `,`, and `\,` is nothing."""
    return text.replace(r"\$", "$").replace("{,}", ",").replace(r"\,", "")


def value_of(text: str | None) -> Fraction | None:
    """The value of a text that is a number (a currency, thousands commas and a percent sign are allowed); else None."""
    if text is None:
        return None
    return _value(text) if len(text) <= CACHED_TO else _read(text)


def _read(text: str) -> Fraction | None:
    bare = _CURRENCY.sub("", plain(text)).rstrip(".%")
    if len(bare) > LONGEST_VALUE or not bare or _PLAIN.fullmatch(bare) is None or not any(map(str.isdigit, bare)):
        return None
    return Fraction(bare.replace(",", "").replace("\u2212", "-"))


_value = lru_cache(maxsize=16_384)(_read)


class Placed(NamedTuple):
    """A number in a text, with its end position."""

    end: int
    value: Fraction


def placed_numbers(text: str) -> list[Placed]:
    """Return every number of a plain text with its position."""
    found = ((match.end(), value_of(match[0])) for match in _NUMBER.finditer(text))
    return [Placed(end, value) for end, value in found if value is not None]


def numbers_in(text: str) -> list[Fraction]:
    """Every number of a plain text."""
    return [number.value for number in placed_numbers(text)]


def stated(text: str) -> Stated:
    """Return the stated answer of a plain text: the first `#### N`, else the last \\boxed{}, else the last "answer is
    N", else the last number.
    """
    marked = _HASH.search(text)
    if marked is not None:
        return Stated(value_of(marked[1]), marked.end())
    for boxed in reversed(list(_BOXED.finditer(text))):
        inner = numbers_in(boxed[1])
        if inner:
            return Stated(inner[-1], boxed.end())
    told = list(_ANSWER.finditer(text))
    if told:
        return Stated(value_of(told[-1][1]), told[-1].end())
    numbers = numbers_in(text)
    return Stated(numbers[-1] if numbers else None, None)
