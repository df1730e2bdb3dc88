"""The content of a body behind its Content-Encoding: decoded for the capture only, and never beyond a limit."""

import zlib
from collections.abc import Callable
from typing import Protocol

import cramjam
from backports import zstd

from schemas.errors import BraidError

MAX_MEMBERS = 1000
"""Most compressed members of one body: reading each copies the rest of the body."""


MAX_CODINGS = 4
"""Most nested codings: a header has room for thousands, and each may copy as many bytes as the limit."""


class CodingError(BraidError):
    """A body that cannot be decoded."""


def decoded(raw: bytes, encoding: str, limit: int) -> bytes:
    """Return the content of a body. Raises CodingError if it does not match its header or exceeds the limit."""
    names = [name for each in encoding.split(",") if (name := each.strip().lower()) not in ("", "identity")]
    if len(names) > MAX_CODINGS:
        raise CodingError(f"more than {MAX_CODINGS} encodings")
    for name in reversed(names):
        raw = _one(raw, name, limit)
    return raw


def _one(raw: bytes, name: str, limit: int) -> bytes:
    try:
        if name in ("gzip", "x-gzip"):
            return _inflated(raw, 31, limit)
        if name == "deflate":
            try:
                return _inflated(raw, 15, limit)
            except zlib.error:  # some servers leave the zlib header out
                return _inflated(raw, -15, limit)
        if name == "br":
            return _unbrotli(raw, limit)
        if name == "zstd":
            return _unzstd(raw, limit)
    except (zlib.error, zstd.ZstdError, cramjam.DecompressionError) as error:
        raise CodingError(f"not {name}: {error}") from None
    raise CodingError(f"the encoding {name} is not known")


def _inflated(raw: bytes, bits: int, limit: int) -> bytes:
    return _members(raw, lambda: zlib.decompressobj(bits), limit)


def _unbrotli(raw: bytes, limit: int) -> bytes:
    """Decompress into a buffer that grows up to the limit: the library has none, and 800 bytes can hold 1 GB."""
    size = min(limit, max(64 * 1024, 8 * len(raw)))
    while True:
        buffer = bytearray(size)
        try:
            return bytes(buffer[: cramjam.brotli.decompress_into(raw, buffer)])
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error):
                raise
            if size >= limit:
                raise CodingError(f"more than {limit} bytes") from None
        size = min(limit, 4 * size)


def _unzstd(raw: bytes, limit: int) -> bytes:
    return _members(raw, zstd.ZstdDecompressor, limit)


class _Unpacking(Protocol):
    """A decompressor with the interface of the standard library's."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def _members(raw: bytes, begin: Callable[[], _Unpacking], limit: int) -> bytes:
    """Decompress one member after the other, as clients do: a body may have several."""
    found: list[bytes] = []
    size, count = 0, 0
    while raw:
        count += 1
        if count > MAX_MEMBERS:
            raise CodingError(f"more than {MAX_MEMBERS} members")
        unpacking = begin()
        found.append(unpacking.decompress(raw, limit - size + 1))
        size += len(found[-1])
        if size > limit:
            raise CodingError(f"more than {limit} bytes")
        if not unpacking.eof:
            raise CodingError("the compressed body stops before its end")
        raw = unpacking.unused_data
    return b"".join(found)
