"""BM25 over short texts, as a share of the score of the query itself: 0 nothing in common, 1 the same words.

Lucene's form of the weights (never negative), computed as if there were at least a thousand texts: in a small store
every word is rare, so that only the share of common words counts. Ties are broken by id: the same texts and the same
query give the same order on every machine.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping
from unicodedata import normalize

from schemas.numbers import nine

K1 = 1.2
B = 0.75
FEWEST = 1000
"""Least number of texts that weights are computed for."""

COMMON = frozenset({
    "a", "an", "and", "are", "as", "at", "be", "by", "can", "do", "each", "every", "for", "from",
    "has", "have", "if", "in", "into", "is", "it", "its", "must", "no", "not", "of", "on", "one",
    "only", "or", "so", "that", "the", "their", "then", "there", "they", "this", "to", "with", "you", "your",
})  # fmt: skip
"""Words that have no meaning for a task."""

_WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    """The words of a text: folded, with the parts of snake_case and camelCase names besides."""
    found = []
    for word in _WORD.findall(normalize("NFKC", text)):
        parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+", word)
        found += [word, *parts] if len(parts) > 1 else [word]
    return [folded for word in found if (folded := word.casefold()) not in COMMON]


class Bm25:
    """An index of texts."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._counts = {name: Counter(words(text)) for name, text in sorted(texts.items())}
        self._lengths = {name: counts.total() for name, counts in self._counts.items()}
        self._mean = sum(self._lengths.values()) / len(self._lengths) if self._lengths else 0.0
        self._places: dict[str, list[str]] = {}
        for name, counts in self._counts.items():
            for word in counts:
                self._places.setdefault(word, []).append(name)

    def search(self, query: str) -> list[tuple[str, float]]:
        """All texts that share a word with the query, best first."""
        asked = Counter(words(query))
        best, scores = 0.0, dict[str, float]()
        for word, count in sorted(asked.items()):
            weight = self._weight(word)
            best += weight * self._saturated(count, asked.total())
            for name in self._places.get(word, ()):
                found_here = self._saturated(self._counts[name][word], self._lengths[name])
                scores[name] = scores.get(name, 0.0) + weight * found_here
        found = [(name, nine(min(1.0, score / best))) for name, score in scores.items()]
        return sorted(found, key=lambda each: (-each[1], each[0]))

    def _weight(self, word: str) -> float:
        n = len(self._places.get(word, ()))
        return math.log(1 + (max(FEWEST, len(self._counts)) - n + 0.5) / (n + 0.5))

    def _saturated(self, count: int, length: int) -> float:
        return count * (K1 + 1) / (count + K1 * (1 - B + B * length / (self._mean or 1.0)))
