"""The short fault run, in every test run: workers killed while rollouts come in, and the books must balance."""

from pathlib import Path

import pytest

from streams.config import Settings
from tests.faults.harness import Chaos, run, table
from tests.faults.load import make_load

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]


async def test_killed_and_sleeping_workers_lose_nothing(settings: Settings, tmp_path: Path) -> None:
    """Two workers, five kills and a zombie over 120 rollouts with deadlines: nothing lost, wrong, mixed or rewritten."""
    load = make_load(seed=1, rollouts=120)
    chaos = Chaos(settings, tmp_path, workers=2, seed=1)
    faults = [chaos.kill, chaos.kill, chaos.zombie, chaos.kill, chaos.kill, chaos.kill]
    account = await run(load, settings, chaos, faults, every_s=(1.5, 2.5), per_second=160, seed=1)
    assert account.clean, table({"short": account})
    assert any(expected.by_deadline for expected in load.ledger.values())
