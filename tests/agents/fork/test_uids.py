"""Users of the machine for sandboxes that root starts."""

import os

import pytest

from agents.fork.local_adapter import LocalSandboxes
from agents.fork.sandbox import Limits
from agents.fork.uid_adapter import FIRST_UID, PAIRS, claim, first_mapped

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="the suite does not run as root: there are no other users")


@needs_root
def test_living_sandboxes_never_share_a_user() -> None:
    """A pair is taken until it is given back, and no lock file is left."""
    ours = 2_100_000_000 + 2 * PAIRS * (os.getpid() % 1000)  # another run of this test may have the usual ones
    first, second = claim(ours), claim(ours)
    assert set(first.uids).isdisjoint(second.uids)
    first.release()
    again = claim(ours)
    assert again.uids == first.uids
    for users in (second, again):
        users.release()
        assert not users.place.exists()


@pytest.mark.parametrize(
    ("mapped", "first"),
    [
        ("0 0 4294967295", FIRST_UID),  # a machine
        ("0 100000 65536", 56320),  # a container
        ("0 1000 1\n1 100000 65536", 56321),  # one without root
        ("0 1000 1", None),  # a user namespace with one user
    ],
)
def test_a_range_is_found_where_few_users_exist(mapped: str, first: int | None) -> None:
    """The usual one where it exists, else one near the last."""
    assert first_mapped(FIRST_UID, [mapped, mapped]) == first


@needs_root
async def test_root_inside_is_another_user_outside(local: LocalSandboxes) -> None:
    """Two sandboxes run as two users, and neither is root."""
    seen = []
    for _ in range(2):
        sandbox = await local.create()
        await sandbox.run(["touch", "made"], Limits())
        seen.append((sandbox._workspace.path / "made").stat().st_uid)
    assert len(set(seen)) == 2
    assert all(uid >= FIRST_UID for uid in seen)
