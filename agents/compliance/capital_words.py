"""Count words in capitals, with the word boundaries of NLTK 3.10's word tokenizer.

Only boundaries that can change the count are computed. Punctuation has no case, so a mark attached to a word
changes nothing. A clitic in capitals is a separate word (DON'T is two). The time is linear in the text.
"""

import re
from functools import lru_cache
from typing import Final

from agents.compliance.sentences import break_after_stop

_MARKS: Final = re.compile("[«»“”\u2018\u2019„`\";@#$%&*?!()\\[\\]{}<>\u2012-\u2015]|''|--|\\.\\.+|[:,](?!\\d)")
"""Marks that are separate tokens wherever they occur."""

_OPENING: Final = re.compile(r"(?<!\w)'(?!(?:re|ve|ll|m|t|s|d|n)\b)(?=\w)", re.IGNORECASE)
"""Matches a quote that begins a word, as in key='VALUE'."""

_POSSESSIVE: Final = re.compile(r"(?<=[^'])('[sSmMdD]|')$")
_CLITIC: Final = re.compile(r"(?<=[^'])('ll|'LL|'re|'RE|'ve|'VE|n't|N'T)$")
_JOINED: Final = re.compile(
    r"\b(?:(can)(not)|(d)('ye)|(gim)(me)|(gon)(na)|(got)(ta)|(lem)(me)|(more)('n))\b", re.IGNORECASE
)
_WANNA: Final = re.compile(r"\b(wan)(na)$", re.IGNORECASE)

_JOINED_WORDS: Final = frozenset({"cannot", "gimme", "gonna", "gotta", "lemme", "wanna"})
"""The contractions that consist of letters only."""

_CLITIC_STOP: Final = re.compile(
    r"""(?:'[sSmMdD]?|'LL|'RE|'VE|'ll|'re|'ve|N'T|n't|(?i:wanna))(\.)(["')\]}]*+)(?:\s+|$)"""
)
"""Matches a full stop after a clitic that is split off only at the end of a sentence."""

_LONGEST_KEPT: Final = 40


def count_capital_words(text: str) -> int:
    """Return the number of words whose letters are all capitals."""
    found = 0
    for chunk in _apart(text).split():
        if chunk.islower():
            continue
        if chunk.isalpha() and chunk.lower() not in _JOINED_WORDS:
            found += chunk.isupper()
        else:
            found += _kept(chunk) if len(chunk) <= _LONGEST_KEPT else _in_chunk(chunk)
    return found


def _apart(text: str) -> str:
    """Insert a space before full stops that end a sentence after a clitic."""
    if "'." not in text and not _CLITIC_STOP.search(text):
        return text
    pieces, start = [], 0
    for stop in _CLITIC_STOP.finditer(text):
        following = text[stop.end() : stop.end() + 1]
        if not following or break_after_stop(text, stop.start(1), following):
            pieces.append(text[start : stop.start(1)])
            start = stop.start(1)
    return " ".join([*pieces, text[start:]])


def _in_chunk(chunk: str) -> int:
    """Count the capital words in the text between two spaces."""
    return sum(_in_piece(piece) for piece in _MARKS.split(chunk) if piece and not piece.islower())


_kept = lru_cache(maxsize=16_384)(_in_chunk)


def _in_piece(piece: str) -> int:
    """Count the capital words in the text between two marks."""
    if piece.isalnum() and piece.lower() not in _JOINED_WORDS:
        return piece.isupper()
    words = (
        [word for part in _OPENING.sub("' ", piece).split(" ") for word in _unclitic(part)] if "'" in piece else [piece]
    )
    return sum(word.isupper() for each in words for word in _unjoined(each).split())


def _unclitic(part: str) -> list[str]:
    first, *rest = _POSSESSIVE.sub(r" \1", part).split(" ")
    return [*_CLITIC.sub(r" \1", first).split(" "), *rest]


def _unjoined(word: str) -> str:
    word = _JOINED.sub(lambda found: " " + " ".join(part for part in found.groups() if part) + " ", word)
    return _WANNA.sub(r" \1 \2", word)
