"""Language detection by langdetect with seed 0: the same result for a text in every process.

The profiles, the random draws and the arithmetic are langdetect's, in the same order. N-grams are computed word by
word and cached. The draws between two convergence checks are multiplied in one step.
"""

import re
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any, Final

from schemas.extras import needs

_SPACES: Final = re.compile(" {2,}")
_FOREIGN: Final = re.compile("[\u0300-\U0010ffff]")
_LATIN: Final = re.compile("[A-z]")

MOST_CHARS: Final = 10_000
"""Maximum characters that langdetect reads."""

ITERATIONS: Final = 1000
TRIALS: Final = 7


class _Letters(dict[int, str]):
    """A cache of characters as langdetect normalizes them."""

    def __init__(self, normalize: Any) -> None:
        super().__init__()
        self._normalize = normalize

    def __missing__(self, code: int) -> str:
        found: str = self._normalize(chr(code))
        self[code] = found
        return found


class _Detector:
    """One set of language profiles."""

    def __init__(self) -> None:
        with needs("language", "detecting a text's language"):
            import numpy as np
            from langdetect import detector_factory
            from langdetect.detector import Detector
            from langdetect.utils.ngram import NGram

        detector_factory.init_factory()
        self._factory = detector_factory._factory
        self._whole = Detector
        self._ngram = NGram
        self._letters = _Letters(NGram.normalize)
        known: dict[str, list[float]] = self._factory.word_lang_prob_map
        self._rows = {word: row for row, word in enumerate(known)}
        self._shares = np.array(list(known.values()))
        self._numpy = np
        self._grams = lru_cache(maxsize=65_536)(self._of_word)

    def detect(self, text: str) -> str | None:
        """Return the most probable language; None if the text has no known n-grams."""
        grams = self._ngrams(self._cleaned(text))
        if not grams:
            return None
        detector = self._whole(self._factory)
        return self._decided(detector, grams)

    def _cleaned(self, text: str) -> str:
        whole = self._whole
        if "http" in text:
            text = whole.URL_RE.sub(" ", text)
        if "@" in text:
            text = whole.MAIL_RE.sub(" ", text)
        text = _SPACES.sub(" ", self._ngram.normalize_vi(text)[:MOST_CHARS])
        foreign = len(_FOREIGN.findall(text))
        if foreign <= 2 * len(_LATIN.findall(text)):
            return text  # text with enough Latin letters is never cleaned
        detector = whole(self._factory)
        detector.text = text
        detector.cleaning_text()
        cleaned: str = detector.text
        return cleaned

    def _ngrams(self, text: str) -> list[int]:
        """Return the known n-grams of a text in order, as row numbers."""
        words = text.translate(self._letters).split(" ")
        found: list[int] = []
        for word in words[:-1]:
            if word:
                found += self._grams(word + " ")
        return found + list(self._grams(words[-1])) if words[-1] else found

    def _of_word(self, word: str) -> tuple[int, ...]:
        """Return the known n-grams of a normalized word. A trailing space marks the end of the word."""
        found: list[int] = []
        rows = self._rows
        grams, capital, last = " ", False, " "
        for char in word:
            grams = grams[-2:] + char
            capital = char.isupper() and (capital or last.isupper())
            last = char
            if capital:
                continue
            for size in range(1, min(len(grams), 3) + 1):
                gram = grams[-size:]
                if gram != " " and gram in rows:
                    found.append(rows[gram])
        return tuple(found)

    def _decided(self, detector: Any, grams: Sequence[int]) -> str:
        draws, count = detector.random, len(detector.langlist)
        sums = [0.0] * count
        draws.seed(0)
        for _ in range(TRIALS):
            alpha = detector.alpha + draws.gauss(0.0, 1.0) * detector.ALPHA_WIDTH
            chances = self._trial(draws, grams, alpha / detector.BASE_FREQ, detector.CONV_THRESHOLD, count)
            sums = [total + chance / TRIALS for total, chance in zip(sums, chances, strict=True)]
        found = detector._sort_probability(sums)
        return str(found[0].lang) if found else str(detector.UNKNOWN_LANG)

    def _trial(self, draws: Any, grams: Sequence[int], weight: float, converged: float, count: int) -> list[float]:
        """Draw n-grams until one language is nearly certain. Convergence is checked after the first draw, then after
        every fifth.
        """
        shares, multiply = self._shares, self._numpy.multiply
        size, bits, draw = len(grams), len(grams).bit_length(), draws.getrandbits
        chances = self._numpy.full(count, 1.0 / count)
        found, total = [1.0], 1.0
        for wanted in (1, *(5,) * (ITERATIONS // 5)):
            rows: list[int] = []
            while len(rows) < wanted:  # the same draws as random.choice
                row = draw(bits)
                if row < size:
                    rows.append(grams[row])
            factors = shares.take(rows, 0)
            factors += weight
            factors[0] *= chances
            chances = multiply.reduce(factors, 0) if wanted > 1 else factors[0]
            found = chances.tolist()
            total = sum(found)
            if max(found) / total > converged:
                break
            chances /= total
        return [chance / total for chance in found]


@cache
def _detector() -> _Detector:
    return _Detector()


@lru_cache(maxsize=256)
def detected_language(text: str) -> str | None:
    """Return the language code; None if the text has no known n-grams."""
    return _detector().detect(text)
