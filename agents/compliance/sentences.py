"""Count sentences as `ifeval/1` does: sentence ends, except after abbreviations, initials, numbers and ellipses.

The rules follow Punkt with its English parameters, without requiring them. The time is linear in the text.
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
"""Words after which a full stop does not end a sentence."""

_END: Final = re.compile(r"""([.?!](?<![.?!][.?!])[.?!]*+)["')\]}]*+(?:(?=(\*))|(?=\s++["')\]}\s]*+(\S)))""")
"""Matches a run of sentence ends with its closing marks, before whitespace or an asterisk, and captures the next
character."""

_NUMBER: Final = re.compile(r"-?[\d.,]*\d")
_CUT: Final = re.compile(r"""(?s:.*)["'(\[{*\u201c]""")
"""Matches up to the last character after which a word can begin."""

_LONG: Final = 6

_NEAR: Final = 24
"""Characters before a full stop that usually contain its word."""


def count_sentences(text: str) -> int:
    """Return the number of sentences."""
    text = text.strip()
    if not text:
        return 0
    found = 1
    for end in _END.finditer(text):
        run, star, after = end.groups()
        if run != ".":
            found += run[0] != "." or run.strip(".") != "" or not (after or star).islower()
        else:
            found += break_after_stop(text, end.start(), after or star)
    return found


def break_after_stop(text: str, start: int, following: str) -> bool:
    """Whether a single full stop separates sentences, given the character that follows."""
    if text[start - _LONG : start].isalpha() and start >= _LONG:
        return True  # no initial, abbreviation or number is that long
    word = word_before(text, start)
    if not word:
        return True
    if len(word) == 1 and word.isalpha():
        return not word.isupper() and following.isupper()
    lowered = word.lower()
    if lowered in ABBREVIATIONS or ("-" in lowered and lowered.rpartition("-")[2] in ABBREVIATIONS):
        return False
    return not (following.islower() and _NUMBER.fullmatch(word))


def word_before(text: str, end: int) -> str:
    """Return the word before a position: the text since the last whitespace, opening bracket, quote or asterisk."""
    size = _NEAR
    while True:
        start = max(0, end - size)
        near = text[start:end]
        if not near or near[-1].isspace():
            return ""
        word = near.rsplit(None, 1)[-1]
        found = _CUT.match(word)
        cut = word[found.end() :] if found else word
        if len(cut) < len(near) or start == 0:
            return cut
        size *= 8
