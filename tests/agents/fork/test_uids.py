"""Users of the machine for sandboxes that root starts."""

import os

import pytest

from agents.fork.local_adapter import LocalSandboxes
from agents.fork.sandbox import Limits
from agents.fork.uid_adapter import FIRST_UID, claim, first_usable

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the suite does not run as root: there are no other users")


def test_living_sandboxes_never_share_a_user() -> None:
    """A pair is taken until it is given back, and no lock file is left."""
    first, second = claim(FIRST_UID), claim(FIRST_UID)
    assert set(first.uids).isdisjoint(second.uids)
    first.release()
    again = claim(FIRST_UID)
    assert again.uids == first.uids
    for users in (second, again):
        users.release()
        assert not users.place.exists()


def test_a_range_is_found_where_few_users_exist() -> None:
    """The wanted one where it exists; this machine has it."""
    assert first_usable(FIRST_UID) == FIRST_UID


async def test_root_inside_is_another_user_outside(local: LocalSandboxes) -> None:
    """Two sandboxes run as two users, and neither is root."""
    seen = []
    for _ in range(2):
        sandbox = await local.create()
        await sandbox.run(["touch", "made"], Limits())
        seen.append((sandbox._workspace.path / "made").stat().st_uid)
    assert len(set(seen)) == 2
    assert all(uid >= FIRST_UID for uid in seen)
