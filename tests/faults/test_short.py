"""The short fault run, in every test run: workers killed while rollouts come in, and the books must balance."""

import asyncio
from pathlib import Path

import pytest

from streams.cluster.config import Settings
from tests.conftest import Braid
from tests.faults.harness import Chaos, run, table
from tests.faults.load import make_load

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]


async def test_killed_and_sleeping_workers_lose_nothing(
    settings: Settings, tmp_path: Path, braid: Braid, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers, five kills and a zombie over 120 rollouts with deadlines: nothing lost, wrong, mixed or rewritten.

    A third of them awaits verdicts `hacks` that come late, or never: none settles before them or its deadline.
    A replay of the log then gives every byte that they emitted.
    """
    load = make_load(seed=1, rollouts=120, awaiting=0.33)
    chaos = Chaos(settings, tmp_path, workers=2, seed=1)
    faults = [chaos.kill, chaos.kill, chaos.zombie, chaos.kill, chaos.kill, chaos.kill]
    account = await run(load, settings, chaos, faults, every_s=(1.5, 2.5), per_second=160, seed=1)
    assert account.clean, table({"short": account})
    ends = {(bool(expected.awaited), expected.by_deadline) for expected in load.ledger.values()}
    assert ends == {(False, False), (False, True), (True, False), (True, True)}
    for name in ("kafka", "registry", "prefix", "partitions"):
        monkeypatch.setenv(f"BRAID_{name.upper()}", str(getattr(settings, name)))
    code, found, said = await asyncio.to_thread(braid, "replay", "--dry-run", "--verify", "--json", "--processes", 1)
    assert (code, found["verified"]["ok"], found["rollouts"]) == (0, True, 120), said
    assert found["verified"]["identical"] == sum(found["records"].values())
