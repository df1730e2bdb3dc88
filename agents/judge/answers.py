"""A judge's answer: one strict JSON object, read by a JSON parser. Any other answer is unusable, and is reported as
such.

A pair: {"preferred": "a" | "b" | "tie", "reasoning": "..."}; a score: {"score": 0..10, "reasoning": "..."}. The letters
name the sides shown first and second; `preferred` maps them back to the request's a and b.
"""

import json
from math import isfinite
from typing import Any, Literal, NamedTuple

from schemas.errors import BraidError
from schemas.jsontext import kind_of, parse
from schemas.judging import HIGHEST_SCORE, Order, Preference, Usage

Letter = Literal["a", "b", "tie"]
"""`a` is the text shown first, `b` the one shown second."""

LETTERS: tuple[Letter, ...] = ("a", "b", "tie")


class UnusableAnswerError(BraidError):
    """An answer of another form than requested: never guessed at, never turned into a tie."""


class Answer(NamedTuple):
    """A usable answer."""

    letter: Letter | None
    """None when a score was asked for."""
    score: float | None
    """None when a pair was asked about."""
    reasoning: str
    usage: Usage | None = None
    """The usage of all calls for it."""


def read_text(text: str, *, scalar: bool) -> Answer:
    """The answer in a text that is one JSON object and has no other content."""
    try:
        value = parse(text)
        json.loads(text, object_pairs_hook=_unique)
    except ValueError as error:
        raise UnusableAnswerError(f"not a JSON object: {error}") from None
    return read_value(value, scalar=scalar)


def read_value(value: Any, *, scalar: bool) -> Answer:
    """The answer in a parsed JSON value."""
    wanted = {"score", "reasoning"} if scalar else {"preferred", "reasoning"}
    if not isinstance(value, dict):
        raise UnusableAnswerError(f"expected a JSON object, found {kind_of(value)}")
    if value.keys() != wanted:
        raise UnusableAnswerError(f"expected the fields {sorted(wanted)}, found {sorted(map(str, value))[:10]}")
    reasoning = value["reasoning"]
    if not isinstance(reasoning, str):
        raise UnusableAnswerError(f"reasoning: expected a string, found {kind_of(reasoning)}")
    if scalar:
        return Answer(None, _score(value["score"]), reasoning)
    letter = value["preferred"]
    for known in LETTERS:
        if letter == known:
            return Answer(known, None, reasoning)
    raise UnusableAnswerError("preferred: expected a, b or tie")


def preferred(letter: Letter, order: Order) -> Preference:
    """The branch that a letter names: with order `ba` the request's b was shown first, as A."""
    if letter == "tie" or order == "ab":
        return letter
    return "b" if letter == "a" else "a"


def _score(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UnusableAnswerError(f"score: expected a number, found {kind_of(value)}")
    if not isfinite(value) or not 0 <= value <= HIGHEST_SCORE:
        raise UnusableAnswerError(f"score: expected 0 to {HIGHEST_SCORE}")
    return float(value)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A repeated field has two values: which one counts must not depend on the parser."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a field is there twice")
    return found
