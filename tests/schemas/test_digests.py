"""SHA-256 by the compiled module is hashlib's, whatever the parts."""

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.compiled import compiled
from schemas.digests import _digest, sha256_of

PARTS = st.lists(st.binary(max_size=300), max_size=8)


@given(PARTS)
def test_the_digest_of_parts_is_that_of_all_of_them_together(parts: list[bytes]) -> None:
    expected = sha256(b"".join(parts)).digest()
    assert sha256_of(*parts) == expected
    assert _digest(*parts) == expected


@pytest.mark.parametrize("size", [55, 56, 63, 64, 65, 127, 128, 1_000_003])
def test_the_edges_of_blocks_are_right(size: int) -> None:
    data = bytes(range(251)) * (size // 251 + 1)
    assert sha256_of(data[:size]) == sha256(data[:size]).digest()


@pytest.mark.skipif(compiled("schemas._records") is None, reason="no compiled module")
def test_what_is_not_bytes_is_refused() -> None:
    with pytest.raises(TypeError, match="bytes are expected, not str"):
        sha256_of("text")
    with pytest.raises(TypeError, match="at most 8"):
        sha256_of(*[b""] * 9)
