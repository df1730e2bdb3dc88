"""Counting sentences as `ifeval/1` does: ends of sentences, less those after abbreviations, initials, numbers and ellipses.

It follows Punkt with its English parameters without needing them. Linear in the text.
"""

import re
from typing import Final

ABBREVIATIONS: Final = frozenset(
    [
        "mr",
        "mrs",
        "ms",
        "dr",
        "prof",
        "gen",
        "col",
        "capt",
        "lt",
        "maj",
        "sen",
        "rep",
        "gov",
        "st",
        "jr",
        "sr",
        "inc",
        "ltd",
        "co",
        "corp",
        "bros",
        "vs",
        "u.s",
        "u.k",
        "u.n",
        "u.s.a",
        "a.m",
        "p.m",
        "d.c",
        "ph.d",
        "jan",
        "feb",
        "aug",
        "sept",
        "oct",
        "nov",
        "dec",
    ]
)
"""Words after which a full stop ends no sentence."""

_END: Final = re.compile(r"""(?<![.?!])([.?!]++)(["')\]}]*+)(?=[\s*])""")
"""A run of sentence ends with its closers, before whitespace or an asterisk."""

_FOLLOWING: Final = re.compile(r"""\s*+(["')\]}\s]*+)""")
_NUMBER: Final = re.compile(r"-?[\d.,]*\d")


def count_sentences(text: str) -> int:
    """Return the number of sentences."""
    text = text.strip()
    if not text:
        return 0
    return 1 + sum(1 for found in _END.finditer(text) if _breaks(text, found))


def _breaks(text: str, found: "re.Match[str]") -> bool:
    """Whether a sentence ends here and another one begins."""
    start, end = found.start(1), found.end()
    rest = _FOLLOWING.match(text, end)
    if rest is None or rest.end() == len(text):
        return False
    following = text[rest.start(1)]
    return break_before(text, start, found[1], following)


def break_before(text: str, start: int, run: str, following: str) -> bool:
    """Whether a run of sentence ends at `start` separates sentences, before this character."""
    if not run.startswith("."):
        return True
    if len(run) > 1:
        return run.strip(".") != "" or not following.islower()
    word = word_before(text, start)
    if len(word) == 1 and word.isalpha() and (word.isupper() or not following.isupper()):
        return False
    lowered = word.lower()
    if lowered in ABBREVIATIONS or lowered.rpartition("-")[2] in ABBREVIATIONS:
        return False
    return not (following.islower() and _NUMBER.fullmatch(word))


_CUTS: Final = frozenset("\"'([{*\u201c")


def word_before(text: str, end: int) -> str:
    """Return what stands before a place, since the last whitespace, opening bracket, quote or asterisk."""
    start = end
    while start and not (char := text[start - 1]).isspace() and char not in _CUTS:
        start -= 1
    return text[start:end]
