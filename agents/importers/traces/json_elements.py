"""Read JSON of any size, one element at a time.

A few numpy passes over each block find the structure: which quotes open a text, and how deep each bracket is. Only the
brackets and commas of the outer two levels are read one by one, and only one element is in memory.

Most elements of an array begin alike. The end of an element is guessed at the point where the next one seems to begin.
The guess is right if the bytes before it are a complete JSON value: no object is a prefix of another.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from orjson import loads

from schemas.jsontext import parse_unique

MAX_ELEMENT = 256 * 1024 * 1024
"""Maximum bytes of one element. A longer one is skipped and reported with its position."""

_COMMA, _COLON, _ARRAY, _ARRAY_END, _OBJECT, _OBJECT_END = b",:[]{}"
_QUOTE = ord('"')
_SPACE = b" \t\r\n"

BLOCK = 64 * 1024
"""Bytes whose structure is read in one pass."""

_HEAD = re.compile(rb'[ \t\r\n]{0,64}\{[ \t\r\n]{0,64}"[^"\\]{1,64}"')
"""The beginning of an object up to the end of its first key."""

_TRIES = 3
"""Maximum number of guessed ends for one element. Guessing stops after as many elements in a row with wrong guesses."""

UNREAD: Final = object()
"""Placeholder for a value that was not read yet."""


class Element(NamedTuple):
    """One value."""

    key: str
    """The top-level object's member with the element's array. Empty in an array or a sequence of values."""
    number: int
    text: bytes
    too_long: bool = False
    value: Any = UNREAD
    """Its value, if it was already read."""

    @property
    def position(self) -> str:
        """Return the position for display: `[3]`, `simulations[3]`."""
        return f"{self.key}[{self.number}]"


class Rest(NamedTuple):
    """A top-level object without the elements of its streamed members."""

    text: bytes


class Structure:
    """The brackets and commas of the outer levels, chunk by chunk."""

    def __init__(self, depth: int = 0) -> None:
        self._depth = depth
        self._in_text = False
        self._escaped = False

    def marks(self, chunk: bytes) -> list[tuple[int, int, int]]:
        """Return (position, byte, depth before it) of brackets, commas and colons outside texts at depth 2 or less."""
        plain = self._unescaped(chunk)
        codes = np.frombuffer(plain, dtype=np.uint8)
        quotes = codes == _QUOTE
        inside = np.bitwise_xor.accumulate(quotes) if len(codes) else quotes
        if self._in_text:
            inside = ~inside
        if len(codes):
            self._in_text = bool(inside[-1])
        outside = ~(inside | quotes)
        opening = ((codes == _ARRAY) | (codes == _OBJECT)) & outside
        closing = ((codes == _ARRAY_END) | (codes == _OBJECT_END)) & outside
        places = np.flatnonzero(opening | closing | (((codes == _COMMA) | (codes == _COLON)) & outside))
        steps = opening[places].astype(np.int64) - closing[places].astype(np.int64)
        after = self._depth + np.cumsum(steps)
        before = after - steps
        if len(after):
            self._depth = int(after[-1])
        near = np.flatnonzero((before <= 2) | (after <= 2))
        kept = places[near]
        return list(zip(kept.tolist(), codes[kept].tolist(), before[near].tolist(), strict=True))

    def _unescaped(self, chunk: bytes) -> bytes:
        """Return the chunk with escaped characters overwritten, at the same length."""
        if self._escaped and chunk:
            chunk = b"_" + chunk[1:]
            self._escaped = False
        if b"\\" not in chunk:
            return chunk
        plain = chunk.replace(b"\\\\", b"__").replace(b'\\"', b"__")
        self._escaped = plain.endswith(b"\\")
        return plain


def elements(chunks: Iterable[bytes], streamed: frozenset[str] = frozenset()) -> Iterator[Element | Rest]:
    """Yield the elements of a top-level array, of an object's streamed members, or the values of a sequence.

    An object with streamed members yields the rest of itself last, as `Rest`. An object without them is one element.
    Text after invalid structure becomes one element that cannot be parsed.
    """
    cutter = _Cutter(streamed)
    for number, chunk in enumerate(chunks):
        yield from cutter.cut(chunk.removeprefix(b"\xef\xbb\xbf") if number == 0 else chunk)
    yield from cutter.end()


class _Cutter:
    """Cuts elements out of chunks at the marks of their structure."""

    def __init__(self, streamed: frozenset[str]) -> None:
        self._streamed = streamed
        self._buffer = bytearray()
        self._start = 0
        """The buffer position of the next element or of the next piece of the rest."""
        self._structure = Structure()
        self._seen = 0
        """The buffer position up to which the structure was read."""
        self._too_long = False
        self._rest = bytearray()
        self._mode: Callable[[int, int, int], Element | Rest | None] = self._begin
        self._key = ""
        self._awaited = False
        """Whether the next array is a streamed member."""
        self._index = 0
        self._wrong = 0
        """Number of consecutive elements whose end was not guessed."""

    def cut(self, chunk: bytes) -> Iterator[Element | Rest]:
        """Yield the elements that end in a chunk."""
        self._buffer += chunk
        while self._seen < len(self._buffer):
            while (guessed := self._guessed()) is not None:
                yield guessed
            base = self._seen
            block = bytes(self._buffer[base : base + BLOCK])
            self._seen = base + len(block)
            for place, code, depth in self._structure.marks(block):
                made = self._mode(base + place, code, depth)
                if made is not None:
                    yield made
                    if self._can_guess():  # read the following structure again
                        self._seen, self._structure = self._start, Structure(depth)
                        break
        del self._buffer[: self._start]
        self._seen -= self._start
        self._start = 0
        if len(self._buffer) > MAX_ELEMENT:
            self._buffer.clear()
            self._seen = 0
            self._too_long = True

    def _can_guess(self) -> bool:
        """Return whether an array element other than the first begins here."""
        is_array = self._mode in (self._in_array, self._in_member)
        return is_array and self._index > 0 and self._wrong < _TRIES and not self._too_long

    def _guessed(self) -> Element | None:
        """Return the next element if it begins here and ends before another element with the same beginning."""
        if self._seen != self._start or not self._can_guess():
            return None
        head = _HEAD.match(self._buffer, self._start)
        if head is None:
            return None
        border, place = b"}," + head[0], self._start
        self._wrong += 1
        for _ in range(_TRIES):
            place = self._buffer.find(border, place + 1)
            if place < 0:
                break
            text = bytes(self._buffer[self._start : place + 1]).strip(_SPACE)
            try:
                value = parse_unique(text)
            except ValueError:
                continue
            self._wrong, self._start, self._seen = 0, place + 2, place + 2
            self._index += 1
            return Element(self._key, self._index - 1, text, value=value)
        return None

    def end(self) -> Iterator[Element | Rest]:
        """Yield the rest at the end of the input: a truncated element."""
        left = self._take(len(self._buffer))
        if left.text or left.too_long:
            yield left
        if self._rest:
            yield Rest(bytes(self._rest) + b"}")

    def _begin(self, place: int, code: int, _depth: int) -> Element | None:
        if code == _ARRAY:
            self._mode, self._start = self._in_array, place + 1
        elif code == _OBJECT and self._streamed:
            self._mode, self._start, self._rest = self._in_object, place + 1, bytearray(b"{")
        else:
            self._mode = self._in_sequence
            return self._in_sequence(place, code, _depth)
        return None

    def _in_array(self, place: int, code: int, depth: int) -> Element | None:
        if depth == 1 and code == _COMMA:
            return self._take(place, 1)
        if depth == 1 and code == _ARRAY_END:
            self._mode = self._in_sequence
            found = self._take(place, 1)
            return found if found.text or found.too_long else None
        return None

    def _in_sequence(self, place: int, code: int, depth: int) -> Element | None:
        return self._take(place + 1) if depth == 1 and code in (_OBJECT_END, _ARRAY_END) else None

    def _in_object(self, place: int, code: int, depth: int) -> Rest | None:
        if depth != 1:
            return None
        if code == _COLON:
            self._key = key_of(bytes(self._buffer[self._start : place]))
            self._awaited = self._key in self._streamed
        elif code == _ARRAY and self._awaited and not self._buffer[self._start : place].strip(_SPACE):
            self._mode, self._index, self._start = self._in_member, 0, place + 1
            self._rest += b"["
            return None
        elif code not in (_COMMA, _OBJECT_END):
            return None
        self._rest += self._buffer[self._start : place + 1]
        self._start = place + 1
        if code != _OBJECT_END:
            return None
        rest, self._rest = Rest(bytes(self._rest)), bytearray()
        self._mode, self._key, self._index = self._in_sequence, "", 0
        return rest

    def _in_member(self, place: int, code: int, depth: int) -> Element | None:
        if depth != 2 or code not in (_COMMA, _ARRAY_END):
            return None
        found = self._take(place, 1)
        if code == _ARRAY_END:
            self._mode, self._awaited = self._in_object, False
            self._rest += b"]"
            return found if found.text or found.too_long else None
        return found

    def _take(self, place: int, after: int = 0) -> Element:
        text = bytes(self._buffer[self._start : place]).strip(_SPACE)
        found = Element(self._key, self._index, b"" if self._too_long else text, self._too_long)
        self._start, self._too_long = place + after, False
        self._index += 1
        return found


def key_of(text: bytes) -> str:
    """Return a quoted key without its quotes, or an empty text if it is not a key."""
    try:
        found = loads(text)
    except ValueError:
        return ""
    return found if isinstance(found, str) else ""
