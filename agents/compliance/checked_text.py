"""A text under verification. Each view of it that rules share (words, sentences, language) is made once, when it is asked for.

Every view takes time linear in the text.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, Generic, TypeVar

from agents.compliance.capital_words import count_capital_words
from agents.compliance.language_adapter import detected_language
from agents.compliance.sentences import count_sentences

_WORDS: Final = re.compile(r"\w+")
_BEYOND: Final = re.compile(r"[^\x00-\x7f]+")
_FOLDS: Final = re.compile("[\u0130\u0131\u017f\u212a]")
"""Characters beyond ASCII that a pattern of ASCII letters matches when case is ignored."""

_NO_WORDS: Final = bytes(
    code if code < 128 and (chr(code).isalnum() or code == ord("_")) else 32 for code in range(256)
)
"""Maps every ASCII byte that `\\w` does not match to a space."""

View = TypeVar("View")


class _Lazy(Generic[View]):
    """A view that is made once. `functools.cached_property` takes a lock each time it makes one."""

    def __init__(self, make: Callable[[Any], View]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    def __set_name__(self, _owner: type, name: str) -> None:
        self._name = name

    def __get__(self, text: Any, _owner: type | None = None) -> View:
        made = text.__dict__[self._name] = self._make(text)
        return made


class CheckedText:
    """One text with its views."""

    def __init__(self, text: str) -> None:
        self.text = text

    @_Lazy
    def blank(self) -> bool:
        """Whether nothing is there but whitespace."""
        return not self.text or self.text.isspace()

    @_Lazy
    def stripped(self) -> str:
        """The text without whitespace around it."""
        return self.text.strip()

    @_Lazy
    def lower(self) -> str:
        """The text in lower case."""
        return self.text.lower()

    @_Lazy
    def folds_plainly(self) -> bool:
        """Whether ASCII words match it, ignoring case, exactly where they occur in its lower case."""
        return self.text.isascii() or _FOLDS.search(self.text) is None

    @_Lazy
    def words(self) -> int:
        """How many runs of `\\w` there are."""
        text = self.text
        if not text.isascii():
            beyond = set("".join(_BEYOND.findall(text)))
            if any(char.isalnum() for char in beyond):
                return len(_WORDS.findall(text))
        return len(text.encode("ascii", "replace").translate(_NO_WORDS).split())

    @_Lazy
    def sentences(self) -> int:
        """How many sentences there are."""
        return count_sentences(self.text)

    @_Lazy
    def capital_words(self) -> int:
        """How many words in capitals there are."""
        return count_capital_words(self.text)

    @_Lazy
    def language(self) -> str | None:
        """The language by langdetect with seed 0; None where it finds none."""
        return detected_language(self.text)

    def has(self, keyword: str) -> bool:
        """Whether the keyword occurs, ignoring case."""
        if keyword.isascii() and self.folds_plainly:
            return keyword.lower() in self.lower
        return re.search(re.escape(keyword), self.text, re.IGNORECASE) is not None

    def count(self, keyword: str) -> int:
        """Count occurrences that do not overlap, ignoring case."""
        if keyword.isascii() and self.folds_plainly:
            return self.lower.count(keyword.lower())
        return len(re.findall(re.escape(keyword), self.text, re.IGNORECASE))


LONGEST_KEPT: Final = 65_536
"""Characters of a text whose views are remembered: the modes of a run share drafts."""

_kept = lru_cache(maxsize=256)(CheckedText)


def checked_text(text: str) -> CheckedText:
    """Return a text with its views, those of the last texts as far as they are known."""
    return _kept(text) if len(text) <= LONGEST_KEPT else CheckedText(text)


def forget_texts() -> None:
    """Forget all views: for measurements."""
    _kept.cache_clear()
