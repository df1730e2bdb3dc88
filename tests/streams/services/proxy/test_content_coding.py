"""Packed bodies as clients unpack them: all members, to their ends, and never beyond a limit."""

import gzip
import zlib
from collections.abc import Callable

import cramjam
import pytest
from backports import zstd

from streams.services.proxy.content_coding import MAX_CODINGS, MAX_MEMBERS, CodingError, decoded

LIMIT = 1_000_000
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress, "deflate": zlib.compress, "br": lambda raw: bytes(cramjam.brotli.compress(raw)), "zstd": zstd.compress,
}  # fmt: skip


@pytest.mark.parametrize("name", PACKERS)
def test_a_body_comes_back_and_a_part_of_it_is_none(name: str) -> None:
    packed = PACKERS[name](b"what was said" * 1000)
    assert decoded(packed, name, LIMIT) == b"what was said" * 1000
    for end in (len(packed) // 2, len(packed) - 1):
        with pytest.raises(CodingError):
            decoded(packed[:end], name, LIMIT)


@pytest.mark.parametrize("name", PACKERS)
def test_more_than_the_limit_is_refused(name: str) -> None:
    assert len(decoded(PACKERS[name](bytes(LIMIT)), name, LIMIT)) == LIMIT
    with pytest.raises(CodingError):
        decoded(PACKERS[name](bytes(LIMIT + 1)), name, LIMIT)


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_all_members_count_and_their_number_is_limited(name: str) -> None:
    one = PACKERS[name](b"ab")
    assert decoded(one * 3, name, LIMIT) == b"ababab"
    assert decoded(one * 3, name, 6) == b"ababab"
    for packed, limit in ((one * 3, 5), (PACKERS[name](b"") * (MAX_MEMBERS + 1), LIMIT), (one + b"rest", LIMIT)):
        with pytest.raises(CodingError):
            decoded(packed, name, limit)


def test_encodings_are_taken_off_in_their_order() -> None:
    assert decoded(gzip.compress(zlib.compress(b"a")), "deflate, gzip", LIMIT) == b"a"
    with pytest.raises(CodingError):
        decoded(b"a", "unheard", LIMIT)


def test_the_number_of_encodings_is_limited() -> None:
    packed = b"a"
    for _ in range(MAX_CODINGS + 1):
        packed = gzip.compress(packed)
    assert len(decoded(packed, "identity," + "gzip," * MAX_CODINGS, LIMIT)) > 1
    with pytest.raises(CodingError):
        decoded(packed, "gzip," * (MAX_CODINGS + 1), LIMIT)
