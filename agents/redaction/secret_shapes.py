"""The form of a redaction rule, and the tests by which rules distinguish a secret from words, names and numbers.

A rule is found by a literal (`anchors`) and then decided by `locate`, which sees the text around that literal and
answers which characters to remove. Every pattern is bounded up to the point where it can still fail, and the text after
a match is consumed once, so the time is always linear in the text.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from pydantic_core import SchemaValidator, core_schema

Span = tuple[int, int]
Locate = Callable[[str, int, int], Span | list[Span] | None]
"""(text, place of the anchor, end of the last removal) -> spans to remove, in order."""
Accept = Callable[[str], bool]

LONGEST_LOOK = 256
"""Characters of a candidate that are examined before it is accepted; the rest of an accepted one is removed with it."""


class Test:
    """A question to a whole text: does this pattern match anywhere?

    The regular expressions of pydantic are those of Rust: they search for a dozen literals at once in a fiftieth of the
    time of a chain of `in`, so that every text of the live path can be tested.
    """

    def __init__(self, pattern: str) -> None:
        schema = core_schema.str_schema(pattern=pattern, regex_engine="rust-regex")
        self.matches: Callable[[str], bool] = SchemaValidator(schema).isinstance_python
        """Never true for a text with lone surrogates: that is no Unicode."""


class Rule(NamedTuple):
    """One kind of secret."""

    kind: str
    """Its name in the placeholder and the counts."""
    anchors: tuple[str, ...]
    """Literals, one of which is in every such secret, and where to search from them."""
    locate: Locate
    """Decides at an anchor."""
    literals: tuple[str, ...] = ()
    """Literals, one of which must be in the text; by default the anchors, unless those are many or common."""
    shape: str | None = None
    """A pattern that must match somewhere, if literals alone let too many texts through."""


# A letter or digit before a key means that it is the middle of a word, unless it ends an escape: "\n" and "\u003d" of
# JSON, "%3D" of a URL, "ESC[31m" of a terminal.
_ESCAPE_BEFORE = re.compile(r"(?:\\[abfnrtv0]|\\u[0-9A-Fa-f]{4}|\\x[0-9A-Fa-f]{2}|%[0-9A-Fa-f]{2}|\[[0-9;]{0,8}m)\Z")


def starts_word(text: str, at: int, floor: int) -> bool:
    """Whether a match that begins at `at` is not in the middle of a word."""
    if at in {floor, 0}:
        return True
    before = text[at - 1]
    if not (before.isascii() and before.isalnum()):
        return True
    return _ESCAPE_BEFORE.search(text, max(floor, at - 12), at) is not None


_ESCAPE = re.compile(r"[abfnrtv]|u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}")


def after_escape(text: str, at: int) -> int:
    """`at`, or behind the rest of an escape ("n" of "\\n") if one begins before it: escapes are not cut in two."""
    return end_of(_ESCAPE, text, at) if text[max(0, at - 1) : at] == "\\" else at


_PIECE = re.compile(r"[A-Za-z0-9]+")
_HUMP = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_DIGIT = re.compile(r"[0-9]")
_UPPER = re.compile(r"[A-Z]")
_LOWER = re.compile(r"[a-z]")
_WORDLIKE = re.compile(r"[A-Za-z]{1,64}[0-9]{0,4}|[0-9]+|[0-9]{1,3}[A-Za-z]{1,3}|[a-z]{3,}[0-9][a-z]{3,}[0-9]{0,2}")
_LONGEST_WORD, _LONGEST_NUMBERED = 24, 14
_NOT_JUST_WORDS = re.compile(r"[A-Za-z][0-9]|[0-9][A-Za-z]|[a-z][A-Z]|[A-Za-z]{25}")


def random_length(text: str) -> int:
    """How many characters of a text are in pieces that no person would write as words, names or numbers."""
    if not _NOT_JUST_WORDS.search(text):
        return 0
    return sum(len(piece) for piece in _PIECE.findall(text) if not _wordlike(piece))


def _wordlike(piece: str) -> bool:
    if not _WORDLIKE.fullmatch(piece):
        return False
    letters = piece.rstrip("0123456789")
    if letters.islower() or letters.isupper() or not letters.isalpha():
        return len(letters) <= (_LONGEST_WORD if letters is piece else _LONGEST_NUMBERED)
    return len(letters) >= 3 * len(_HUMP.findall(letters))


def is_random(least: int) -> Accept:
    """Accepts a value with at least so many characters that are not words."""
    return lambda body: random_length(body) >= least


def is_unbroken(least: int) -> Accept:
    """Accepts a value with a run of so many letters and digits, or of half as many among characters that are not words."""
    return lambda body: max(map(len, _PIECE.findall(body)), default=0) >= least or random_length(body) >= least // 2


def three_classes(body: str) -> bool:
    """Digits, capitals and small letters, all of them."""
    return bool(_DIGIT.search(body) and _UPPER.search(body) and _LOWER.search(body))


def has_digit(body: str) -> bool:
    """Whether there is a digit, which keys have and most identifiers lack; a value longer than any identifier passes
    without one.
    """
    return len(body) >= 24 or _DIGIT.search(body) is not None


def anything(body: str) -> bool:  # noqa: ARG001 - an Accept
    """For prefixes that occur nowhere else."""
    return True


_PLACEHOLDER = Test(
    r"\$[{(]|^\$(?:[A-Za-z_][0-9A-Za-z_]*|[0-9])$|\{\{|\{%|#\{|\{[A-Za-z_][0-9A-Za-z_.]*\}|%\(|%[sdr]$|^%[0-9A-Za-z_]+%$|^<|>$"
    r"|\*{3}|\.{3}|…|REDACTED|os\.environ|process\.env|getenv|://|^[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"|(?i-u:x{4}|your|change[_ -]?me|example|placeholder|dummy|insert|replace|required|todo)"
)
"""Templates, placeholders, expressions, and dates."""


def is_placeholder(value: str) -> bool:
    """Whether a value is a placeholder that is filled in later."""
    return _PLACEHOLDER.matches(value)


def nothing_until(at: int) -> Span:
    """The result of a `locate` that searched beyond its anchor and found nothing: continue there."""
    return at, at


def token(kind: str, prefixes: str, body: str, least: int, accept: Accept = anything, *, literals: str = "") -> Rule:
    """A rule for keys of a prefix (one of several, separated by spaces) and at least `least` characters of `body`."""
    anchors = tuple(prefixes.split())
    pattern = re.compile(f"(?:{'|'.join(map(re.escape, anchors))})([{body}]{{{least},{LONGEST_LOOK}}})")
    rest = re.compile(rf"[{body}A-Za-z0-9_\-]*")

    def locate(text: str, at: int, floor: int) -> Span | None:
        found = pattern.match(text, at)
        if found is None or not starts_word(text, at, floor):
            return None
        if not accept(found[1]):
            return nothing_until(at + len(found[1]) // 2)
        return at, end_of(rest, text, found.end())

    return Rule(kind, anchors, locate, tuple(literals.split()))


def context(
    kind: str,
    anchors: str,
    pattern: str,
    accept: Accept = anything,
    rest: str = r"[A-Za-z0-9_\-]*",
    *,
    whole: bool = False,
) -> Rule:
    """A rule for the group `secret` of a pattern that begins at the anchor; the rest of the match stays.

    `rest` matches the part of a secret beyond the bounded one; `whole` requires that a word begins at the anchor.
    """
    compiled, tail = re.compile(pattern), re.compile(rest)

    def locate(text: str, at: int, floor: int) -> Span | None:
        if whole and not starts_word(text, at, floor):
            return None
        found = compiled.match(text, at)
        if found is None:
            return None
        if not accept(found["secret"]):
            return nothing_until(at + len(found["secret"]) // 2)
        return found.start("secret"), end_of(tail, text, found.end("secret"))

    return Rule(kind, tuple(anchors.split()), locate)


def end_of(rest: re.Pattern[str], text: str, at: int) -> int:
    """The end of a match of a pattern at `at`; `at` if it does not match."""
    found = rest.match(text, at)
    return at if found is None else found.end()
