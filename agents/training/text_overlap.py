"""How much of a question a text repeats: the three measures of contamination, and the form in which texts are compared.

Decides by overlap after both sides were folded to one form (`folded`), so that a copy with invisible characters,
look-alike letters, full-width letters or other case is still a copy:

- `token_jaccard`: the sets of 8-grams of words have a Jaccard similarity of at least 0.2,
- `containment`: at least 0.8 of the item's 8-grams are in the text, however long that is,
- `char_jaccard`: the sets of 5-grams of characters have a Jaccard similarity of at least 0.7.
"""

import re
import unicodedata
from collections.abc import Iterator
from enum import StrEnum
from itertools import chain
from typing import NamedTuple

WORDS = 8
"""Words of a gram; items with fewer words are compared by their characters."""
CHARACTERS = 5
"""Characters of a gram."""
SHORTEST_ITEM = 40
"""Characters an item of fewer than `WORDS` words must have: shorter questions are found in texts by chance."""
TOKEN_JACCARD, CONTAINMENT, CHAR_JACCARD = (1, 5), (4, 5), (7, 10)
"""The thresholds 0.2, 0.8 and 0.7, as fractions: compared in integers, a tie is never decided by rounding."""


class OverlapRule(StrEnum):
    """Which measure a match was found by."""

    TOKEN_JACCARD = "token_jaccard"  # noqa: S105 - a name
    CONTAINMENT = "containment"
    CHAR_JACCARD = "char_jaccard"


class Grams(NamedTuple):
    """The sets by which a text is compared."""

    words: frozenset[tuple[str, ...]]
    characters: frozenset[str]


INVISIBLE = dict.fromkeys(
    chain(
        [0x00AD, 0x034F, 0x061C, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFEFF, 0xFFA0],
        *(range(first, last + 1) for first, last in [
            (0x180B, 0x180F), (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0xFE00, 0xFE0F), (0xFFF9, 0xFFFB),
            (0xE0000, 0xE007F), (0xE0100, 0xE01EF),
        ]),
    )
)  # fmt: skip
"""Soft hyphens, joiners, marks of direction, variation selectors and tags, all of which are invisible."""

_LOOK_ALIKES = {
    ord(other): latin
    for latin, others in {
        "a": "аαɑ", "b": "вβ", "c": "с", "d": "ԁ", "e": "еεҽ", "g": "ɡ", "h": "нһհ", "i": "іιıɩ", "j": "ј",  # noqa: RUF001
        "k": "кκ", "l": "ӏ", "m": "м", "n": "ηո", "o": "оοօ", "p": "рρ", "q": "ԛ", "s": "ѕ", "t": "тτ",  # noqa: RUF001
        "u": "υս", "v": "ν", "w": "ԝω", "x": "хχ", "y": "уγү", "z": "ζ",  # noqa: RUF001
    }.items()
    for other in others
}  # fmt: skip
"""Small letters of other alphabets, by the Latin letter that they or their capitals pass for. Both sides of a comparison
are folded, so a text that really is Russian or Greek still equals its copy."""
_WORD = re.compile(r"\w+")
_CHUNK = 256


def folded(text: str) -> str:
    """A text in the form in which it is compared: NFKC, no invisible characters, look-alikes as Latin letters, no case,
    single spaces.
    """
    if text.isascii():
        return " ".join(text.lower().split())
    text = unicodedata.normalize("NFKC", text.translate(INVISIBLE)).translate(INVISIBLE)
    # decomposed in between, so that a look-alike with an accent becomes the Latin letter with that accent
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKD", text.casefold()).translate(_LOOK_ALIKES))
    return " ".join(text.split())


def is_long_enough(question: str) -> bool:
    """Whether a question is long enough to rule out a match by chance."""
    form = folded(question)
    return len(form) >= SHORTEST_ITEM or len(_WORD.findall(form)) >= WORDS


def grams(text: str, most: int | None = None) -> Grams:
    """The 8-grams of words and 5-grams of characters of a text, folded.

    A text with more than `most` different 5-grams is too long to be similar to any item as a whole, and gets none.
    """
    form = folded(text)
    words = _WORD.findall(form)
    characters: set[str] = set()
    for start in range(0, len(form) - CHARACTERS + 1, _CHUNK):
        last = min(start + _CHUNK, len(form) - CHARACTERS + 1)
        characters.update([form[i : i + CHARACTERS] for i in range(start, last)])
        if most is not None and len(characters) > most:
            characters.clear()
            break
    return Grams(frozenset(zip(*(words[i:] for i in range(WORDS)), strict=False)), frozenset(characters))


def overlap(item: Grams, text: Grams) -> tuple[OverlapRule, float] | None:
    """The highest of the measures that reach their thresholds; None if none does. This is the whole rule."""
    best: tuple[OverlapRule, float] | None = None
    for rule, (least, of), shared, total in _measures(item, text):
        if shared and of * shared >= least * total and (best is None or shared / total > best[1]):
            best = rule, shared / total
    return best


def _measures(item: Grams, text: Grams) -> Iterator[tuple[OverlapRule, tuple[int, int], int, int]]:
    """(rule, threshold, grams shared, of how many) for each measure."""
    shared = len(item.words & text.words)
    yield OverlapRule.TOKEN_JACCARD, TOKEN_JACCARD, shared, len(item.words) + len(text.words) - shared
    yield OverlapRule.CONTAINMENT, CONTAINMENT, shared, len(item.words)
    if _comparable(len(item.characters), len(text.characters)):
        shared = len(item.characters & text.characters)
        yield OverlapRule.CHAR_JACCARD, CHAR_JACCARD, shared, len(item.characters) + len(text.characters) - shared


def _comparable(one: int, other: int) -> bool:
    """Whether sets of these sizes can be similar enough at all: the similarity is at most the ratio of the sizes."""
    least, of = CHAR_JACCARD
    return least * max(one, other) <= of * min(one, other)
