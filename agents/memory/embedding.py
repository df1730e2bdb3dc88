"""Texts as vectors. Any function from texts to vectors will do; the one here needs no model."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from hashlib import blake2b

from agents.memory.bm25 import words

Vector = Sequence[float]
Embed = Callable[[Sequence[str]], Sequence[Vector]]
"""Texts in, vectors of one length out, in the same order."""

DIMENSIONS = 1024


def hashed_words(texts: Sequence[str]) -> list[list[float]]:
    """Each word hashed to an index and a sign, counted on a logarithmic scale, normalised to length 1: the same on
    every machine.
    """
    return [_hashed(text) for text in texts]


def cosine(one: Vector, other: Vector) -> float:
    """Cosine of the angle of two vectors; 0 if one is zero."""
    if len(one) != len(other):
        raise ValueError(f"vectors of {len(one)} and {len(other)} numbers: was the embedding changed?")
    lengths = math.sqrt(math.fsum(x * x for x in one) * math.fsum(y * y for y in other))
    return math.fsum(x * y for x, y in zip(one, other, strict=True)) / lengths if lengths else 0.0


def _hashed(text: str) -> list[float]:
    vector = [0.0] * DIMENSIONS
    for word, count in sorted(Counter(words(text)).items()):
        mark = int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "big")
        vector[mark % DIMENSIONS] += (1 if mark >> 63 else -1) * (1 + math.log(count))
    length = math.sqrt(math.fsum(value * value for value in vector))
    return [value / length for value in vector] if length else vector
