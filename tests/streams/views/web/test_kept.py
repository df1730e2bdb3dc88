"""Things that are made once for all who ask."""

import pytest

from streams.views.web.sights import Kept, NotFoundError


async def test_what_cannot_be_made_leaves_nothing_behind() -> None:
    """Addresses of branches that are not there come without end."""
    kept = Kept(2)

    async def none() -> int:
        raise NotFoundError("there is no such branch")

    async def one() -> int:
        return 1

    for number in range(50):
        with pytest.raises(NotFoundError):
            await kept.get_or_make(f"branch {number}", 1, none)
        assert await kept.get_or_make(f"page {number}", 1, one) == 1
    assert len(kept) == len(kept._order) == len(kept._locks) == 2
