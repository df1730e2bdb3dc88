"""The long run of `braid fork` under SIGKILL: twenty random moments, half of them on Kafka."""

import random
from pathlib import Path

import pytest

from streams.cluster.config import Settings
from tests.fork_kills import Killed, kill_and_resume

pytestmark = [pytest.mark.faults, pytest.mark.kafka, pytest.mark.timeout(1200)]


@pytest.mark.parametrize("place", ["file", "kafka"])
async def test_ten_random_moments(
    place: str, settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every rollout completes, attempts are not mixed, no process or directory is left."""
    killed, chance = (
        Killed(tmp_path, settings if place == "kafka" else None),
        random.Random(20 if place == "file" else 21),
    )
    again = 0
    for number in range(10):
        moment = await kill_and_resume(killed, f"r{number}", chance)
        attempts = {(one.branch_index, one.attempt) for one in await killed.slices(f"r{number}")}
        again += sum(attempt > 0 for _, attempt in attempts)
        with capsys.disabled():
            print(f"{place} {number}: killed {moment}, {len(attempts)} attempts of 4 branches")
    assert again > 0, "no kill hit a running branch"
