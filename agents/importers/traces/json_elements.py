"""JSON of any size, one element at a time.

The structure is found with a few passes of numpy over each chunk (which quotes open a text, how deep each bracket is); only the
brackets and commas of the outer two levels are looked at one by one, and only one element is in memory.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
from orjson import loads

MAX_ELEMENT = 256 * 1024 * 1024
"""Bytes of one element; one that is longer is skipped, with its position."""

_COMMA, _COLON, _ARRAY, _ARRAY_END, _OBJECT, _OBJECT_END = b",:[]{}"
_QUOTE = ord('"')
_SPACE = b" \t\r\n"


class Element(NamedTuple):
    """One value."""

    key: str
    """The member of the top-level object whose array it is in; empty in an array or a sequence of values."""
    number: int
    text: bytes
    too_long: bool = False

    @property
    def position(self) -> str:
        """For people: `[3]`, `simulations[3]`."""
        return f"{self.key}[{self.number}]"


class Rest(NamedTuple):
    """A top-level object without the elements of its streamed members."""

    text: bytes


class Structure:
    """The brackets and commas of the outer levels, chunk by chunk."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_text = False
        self._escaped = False

    def marks(self, chunk: bytes) -> list[tuple[int, int, int]]:
        """(position, byte, depth before it) of brackets, commas and colons outside of texts at depth 2 or less."""
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
        """The chunk with escaped characters blotted out, at the same length."""
        if self._escaped and chunk:
            chunk = b"_" + chunk[1:]
            self._escaped = False
        if b"\\" not in chunk:
            return chunk
        plain = chunk.replace(b"\\\\", b"__").replace(b'\\"', b"__")
        self._escaped = plain.endswith(b"\\")
        return plain


def elements(chunks: Iterable[bytes], streamed: frozenset[str] = frozenset()) -> Iterator[Element | Rest]:
    """The elements of a top-level array, of the streamed members of a top-level object, or the values of a sequence.

    An object with streamed members gives its rest last, as `Rest`. One without is one element. What follows a break in the
    structure comes as one element that cannot be parsed.
    """
    structure, cutter = Structure(), _Cutter(streamed)
    for number, chunk in enumerate(chunks):
        piece = chunk.removeprefix(b"\xef\xbb\xbf") if number == 0 else chunk
        yield from cutter.cut(piece, structure.marks(piece))
    yield from cutter.end()


class _Cutter:
    """Cuts elements out of chunks at the marks of their structure."""

    def __init__(self, streamed: frozenset[str]) -> None:
        self._streamed = streamed
        self._buffer = bytearray()
        self._start = 0
        """Where in the buffer the next element, or the next piece of the rest, begins."""
        self._too_long = False
        self._rest = bytearray()
        self._mode: Callable[[int, int, int], Element | Rest | None] = self._begin
        self._key = ""
        self._awaited = False
        """Whether the next array is a streamed one."""
        self._index = 0

    def cut(self, chunk: bytes, marks: list[tuple[int, int, int]]) -> Iterator[Element | Rest]:
        """The elements that end in a chunk."""
        base = len(self._buffer)
        self._buffer += chunk
        for place, code, depth in marks:
            made = self._mode(base + place, code, depth)
            if made is not None:
                yield made
        del self._buffer[: self._start]
        self._start = 0
        if len(self._buffer) > MAX_ELEMENT:
            self._buffer.clear()
            self._too_long = True

    def end(self) -> Iterator[Element | Rest]:
        """What is left when the input ends: an element that was cut off."""
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
    """A key in its quotes; empty where that is none."""
    try:
        found = loads(text)
    except ValueError:
        return ""
    return found if isinstance(found, str) else ""
