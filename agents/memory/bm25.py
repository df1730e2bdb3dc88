"""BM25 over short texts, as a share of the best that a query could score: 0 nothing in common, towards 1 the same words.

Lucene's form of the weights (never negative), so one text alone can be found, too. Ties are broken by id: the same texts
and the same query give the same order on every machine.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping
from unicodedata import normalize

from schemas.numbers import nine

K1 = 1.2
B = 0.75

_WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    """The words of a text: folded, with the parts of snake_case and camelCase names besides."""
    found = []
    for word in _WORD.findall(normalize("NFKC", text)):
        parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+", word)
        found.append(word.casefold())
        found += [part.casefold() for part in parts] if len(parts) > 1 else []
    return found


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
        asked = sorted(set(words(query)))
        best = sum(self._weight(word) * (K1 + 1) for word in asked)
        scores: dict[str, float] = {}
        for word in asked:
            for name in self._places.get(word, ()):
                scores[name] = scores.get(name, 0.0) + self._weight(word) * self._saturated(name, word)
        found = [(name, nine(score / best)) for name, score in scores.items()] if best else []
        return sorted(found, key=lambda each: (-each[1], each[0]))

    def _weight(self, word: str) -> float:
        n = len(self._places.get(word, ()))
        return math.log(1 + (len(self._counts) - n + 0.5) / (n + 0.5))

    def _saturated(self, name: str, word: str) -> float:
        count = self._counts[name][word]
        length = self._lengths[name] / self._mean
        return count * (K1 + 1) / (count + K1 * (1 - B + B * length))
