"""Long texts of open rollouts, kept whole until rows are made of them.

Most texts are short and stay strings. A longer one goes through a `TextStore`, so that a worker can bound its memory; the one in
memory is the default, and a store that spills to a scratch file is the worker's (streams). A text is always returned
unchanged.
"""

from typing import Final, Protocol

LONG: Final = 32 * 1024
"""Characters from which a text goes through the store."""


class HeldText(Protocol):
    """A text that a store keeps."""

    def text(self) -> str:
        """Return the whole text."""
        ...


class TextStore(Protocol):
    """Keeps long texts."""

    def hold(self, text: str) -> str | HeldText:
        """Store a text; return it, or a handle that reads it back."""
        ...


class InMemory:
    """Keeps every text in memory."""

    def hold(self, text: str) -> str | HeldText:
        """Return the text."""
        return text


IN_MEMORY: Final = InMemory()


def held(text: str, texts: TextStore) -> str | HeldText:
    """Store a long text; return a short one unchanged."""
    return text if len(text) < LONG else texts.hold(text)


def whole(text: str | HeldText) -> str:
    """Return a kept text."""
    return text if isinstance(text, str) else text.text()
