"""A text under verification. Each view of it that rules share (words, sentences, language) is made once, when it is asked for.

Every view takes time linear in the text.
"""

import re
from functools import cached_property
from typing import Final

from agents.compliance.language_adapter import detected_language
from agents.compliance.sentences import count_sentences

_WORDS: Final = re.compile(r"\w+")
_NO_WORDS: Final = bytes(code if chr(code).isalnum() or code == ord("_") else 32 for code in range(128)) + bytes(
    [32] * 128
)
"""Maps every ASCII byte that `\\w` does not match to a space."""


class CheckedText:
    """One text with its views."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def blank(self) -> bool:
        """Whether nothing is there but whitespace."""
        return not self.text or self.text.isspace()

    @cached_property
    def stripped(self) -> str:
        """The text without whitespace around it."""
        return self.text.strip()

    @cached_property
    def lower(self) -> str:
        """The text in lower case."""
        return self.text.lower()

    @cached_property
    def ascii(self) -> bool:
        """Whether every character is ASCII: case then folds in one way only."""
        return self.text.isascii()

    @cached_property
    def words(self) -> int:
        """How many runs of `\\w` there are."""
        if self.ascii:
            return len(self.text.encode().translate(_NO_WORDS).split())
        return len(_WORDS.findall(self.text))

    @cached_property
    def sentences(self) -> int:
        """How many sentences there are."""
        return count_sentences(self.text)

    @cached_property
    def language(self) -> str | None:
        """The language by langdetect with seed 0; None where it finds none."""
        return detected_language(self.text)

    def has(self, keyword: str) -> bool:
        """Whether the keyword occurs, ignoring case."""
        if self.ascii and keyword.isascii():
            return keyword.lower() in self.lower
        return re.search(re.escape(keyword), self.text, re.IGNORECASE) is not None

    def count(self, keyword: str) -> int:
        """Count occurrences that do not overlap, ignoring case."""
        if self.ascii and keyword.isascii():
            return self.lower.count(keyword.lower())
        return len(re.findall(re.escape(keyword), self.text, re.IGNORECASE))
