"""A text under verification. Each view that rules share (words, sentences, language) is computed once, on first use.

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
_FOLDS: Final = {0x130: "i", 0x131: "i", 0x17F: "s", 0x212A: "k"}
"""Non-ASCII characters that a pattern of ASCII letters matches when case is ignored."""

_UNPLAIN: Final = re.compile("[\u0130\u0131\u017f\u212a]")

_NO_WORDS: Final = bytes(
    code if code < 128 and (chr(code).isalnum() or code == ord("_")) else 32 for code in range(256)
)
"""Maps every ASCII byte that `\\w` does not match to a space."""

View = TypeVar("View")


class _Cases(dict[int, int]):
    """Maps a character to one representative of all characters that `re` treats as equal when case is ignored: those
    whose lower cases share one upper case.
    """

    def __init__(self) -> None:
        super().__init__()
        self._first: dict[str, int] = {}

    def __missing__(self, code: int) -> int:
        lower = chr(code).lower()
        found = self._first.setdefault((lower if len(lower) == 1 else lower[0]).upper(), code)
        self[code] = found
        return found


_CASES: Final = _Cases()


class _Lazy(Generic[View]):
    """A view that is computed once. `functools.cached_property` takes a lock on each computation."""

    def __init__(self, make: Callable[[Any], View]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    def __set_name__(self, _owner: type, name: str) -> None:
        self._name = name

    def __get__(self, text: Any, _owner: type | None = None) -> View:
        made = text.__dict__[self._name] = self._make(text)
        return made


class CheckedText:
    """A text with its cached views."""

    def __init__(self, text: str) -> None:
        self.text = text

    @_Lazy
    def blank(self) -> bool:
        """Whether the text is empty or whitespace."""
        return not self.text or self.text.isspace()

    @_Lazy
    def stripped(self) -> str:
        """The text without leading and trailing whitespace."""
        return self.text.strip()

    @_Lazy
    def lower(self) -> str:
        """The text in lower case."""
        return self.text.lower()

    @_Lazy
    def ascii_folded(self) -> str:
        """The text with case folded for ASCII keywords, at the same length: a lower-case ASCII keyword occurs here
        exactly where it occurs in the text, ignoring case.
        """
        plain = self.text.isascii() or _UNPLAIN.search(self.text) is None
        return self.lower if plain else self.text.translate(_FOLDS).lower()

    @_Lazy
    def folded(self) -> str:
        """The text with one character for all cases of a letter, as `re` ignores case, at the same length."""
        return self.text.translate(_CASES)

    @_Lazy
    def first_places(self) -> dict[str, int]:
        """The first position of each run of `\\w` in `ascii_folded`."""
        places: dict[str, int] = {}
        for run in _WORDS.finditer(self.ascii_folded):
            places.setdefault(run[0], run.start())
        return places

    @_Lazy
    def words(self) -> int:
        """The number of runs of `\\w`."""
        text = self.text
        if not text.isascii():
            beyond = set("".join(_BEYOND.findall(text)))
            if any(char.isalnum() for char in beyond):
                return len(_WORDS.findall(text))
        return len(text.encode("ascii", "replace").translate(_NO_WORDS).split())

    @_Lazy
    def sentences(self) -> int:
        """The number of sentences."""
        return count_sentences(self.text)

    @_Lazy
    def capital_words(self) -> int:
        """The number of words in capitals."""
        return count_capital_words(self.text)

    @_Lazy
    def language(self) -> str | None:
        """The language by langdetect with seed 0; None if it finds none."""
        return detected_language(self.text)

    def has(self, keyword: str) -> bool:
        """Whether the keyword occurs, ignoring case."""
        word, view = self._folded(keyword)
        return word in view

    def count(self, keyword: str) -> int:
        """Count occurrences that do not overlap, ignoring case."""
        word, view = self._folded(keyword)
        return view.count(word)

    def place_of(self, keyword: str) -> int | None:
        """Return the first position of the keyword, ignoring case; None without one."""
        word, view = self._folded(keyword)
        place = view.find(word)
        return None if place < 0 else place

    def place_of_word(self, keyword: str) -> int | None:
        """Return the first position of the keyword between word boundaries, ignoring case; None without one."""
        word, view = self._folded(keyword)
        if word not in view:
            return None
        if len(self.text) > LONGEST_KEPT and keyword.isascii() and _WORDS.fullmatch(word):
            return self.first_places.get(word)
        found = re.search(rf"\b{re.escape(word)}\b", view)
        return None if found is None else found.start()

    def _folded(self, keyword: str) -> tuple[str, str]:
        """Return a keyword in folded form, and the view to search for it."""
        if keyword.isascii():
            return keyword.lower(), self.ascii_folded
        return keyword.translate(_CASES), self.folded


LONGEST_KEPT: Final = 65_536
"""Maximum characters of a text whose views are cached. The modes of a run share drafts."""

_kept = lru_cache(maxsize=256)(CheckedText)


def checked_text(text: str) -> CheckedText:
    """Return a text with its views, from the cache if it is there."""
    return _kept(text) if len(text) <= LONGEST_KEPT else CheckedText(text)


def forget_texts() -> None:
    """Clear the cache of views, for measurements."""
    _kept.cache_clear()
