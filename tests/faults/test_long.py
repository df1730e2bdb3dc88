"""The long fault run (`make faults`): thousands of rollouts, a hundred kills, zombies, a broker that dies, and the control."""

import asyncio
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from streams.cluster import broker
from streams.cluster.broker import places
from streams.cluster.config import Settings
from tests.faults.harness import Account, Chaos, run, table
from tests.faults.load import make_load

pytestmark = [pytest.mark.faults, pytest.mark.kafka, pytest.mark.timeout(3600)]

SCALE = float(os.environ.get("BRAID_FAULTS_SCALE", "1"))
"""1 is the whole run; smaller is quicker and proves less."""

ROWS: dict[str, Account] = {}


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Settings, Path]]:
    """A broker that may be killed: it is this test's own."""
    state = tmp_path_factory.mktemp("faults-broker")
    endpoint = broker.start(state, places.cache_dir())
    try:
        yield Settings(kafka=endpoint.bootstrap, registry=endpoint.registry or ""), state
    finally:
        broker.stop(state, wipe=True)
        print("\n" + table(ROWS))


def fresh(settings: Settings) -> Settings:
    return settings.model_copy(update={"prefix": f"f{uuid.uuid4().hex[:8]}.", "partitions": 4})


async def test_one_worker_killed_again_and_again(own_broker: tuple[Settings, Path], tmp_path: Path) -> None:
    """Sixty kills of the only worker."""
    settings = fresh(own_broker[0])
    load = make_load(seed=11, rollouts=int(3000 * SCALE))
    chaos = Chaos(settings, tmp_path, workers=1, seed=11)
    kills = max(3, int(60 * SCALE))
    rate = len(load.facts) / (kills * 5.0)
    ROWS["one worker"] = account = await run(
        load, settings, chaos, [chaos.kill] * kills, every_s=(3.0, 6.0), per_second=rate, seed=11, patience_s=300
    )
    assert account.clean, table({"one worker": account})


async def test_two_workers_killed_and_stopped(own_broker: tuple[Settings, Path], tmp_path: Path) -> None:
    """Forty kills and six zombies among two workers that take over from each other."""
    settings = fresh(own_broker[0])
    load = make_load(seed=12, rollouts=int(1800 * SCALE), awaiting=0.2)
    chaos = Chaos(settings, tmp_path, workers=2, seed=12)
    kills, zombies = max(3, int(40 * SCALE)), max(1, int(6 * SCALE))
    faults = [chaos.kill] * kills
    for number in range(zombies):
        faults.insert((number + 1) * len(faults) // (zombies + 1), chaos.zombie)
    rate = len(load.facts) / (kills * 5.0 + zombies * 13)
    ROWS["two workers"] = account = await run(
        load, settings, chaos, faults, every_s=(3.0, 6.0), per_second=rate, seed=12, patience_s=300
    )
    assert account.clean, table({"two workers": account})


async def test_the_broker_dies_and_comes_back(own_broker: tuple[Settings, Path], tmp_path: Path) -> None:
    """The broker is killed and started again, once after more than 30 seconds; workers that give up are started again."""
    base, state = own_broker
    settings = fresh(base)
    load = make_load(seed=13, rollouts=int(400 * SCALE) or 20, deadline_ms=90_000)
    chaos = Chaos(settings, tmp_path, workers=1, seed=13)
    pause = asyncio.Event()

    def crash(down_s: float) -> object:
        async def fault() -> None:
            chaos.counts["broker SIGKILL"] = chaos.counts.get("broker SIGKILL", 0) + 1
            pause.set()
            await asyncio.to_thread(broker.kill_kafka, state)
            await asyncio.sleep(down_s)
            await asyncio.to_thread(broker.start, state, places.cache_dir())
            pause.clear()

        return fault

    faults = [crash(1), crash(2), crash(35)]
    rate = len(load.facts) / 60
    ROWS["broker"] = account = await run(
        load,
        settings,
        chaos,
        faults,
        every_s=(6.0, 9.0),
        per_second=rate,
        seed=13,
        pause=pause,
        patience_s=400,  # type: ignore[arg-type]
    )
    assert account.clean, table({"broker": account})


async def test_the_control_loses_rollouts(own_broker: tuple[Settings, Path], tmp_path: Path) -> None:
    """The same faults on Faust's own consumer without the offset check: if this loses nothing, the harness proves nothing."""
    for attempt in range(3):  # whether a kill meets the moment in which messages are lost is chance
        settings = fresh(own_broker[0])
        load = make_load(seed=14 + attempt, rollouts=150)
        chaos = Chaos(settings, tmp_path, workers=1, seed=14 + attempt, module="tests.faults.control")
        rate = len(load.facts) / (6 * 4.5)
        ROWS["control: stock consumer"] = account = await run(
            load, settings, chaos, [chaos.kill] * 6, every_s=(3.0, 5.0), per_second=rate, seed=14, patience_s=25
        )
        assert account.lost < account.rollouts, "the control did not run at all"
        if account.lost + account.wrong + account.mixed + account.unlike_refold > 0:
            return
    raise AssertionError(table({"control": account}))
