"""The live worker on a real Kafka: rollouts close, dead workers cost nothing, and the log gives the same bytes."""

import asyncio
import signal
from pathlib import Path

import pytest

from schemas.evidence import AepRecord
from schemas.rankings import Ranking
from streams.cluster.config import Settings
from streams.jobs.ingest import ingest_files
from streams.log.input_lines import Rejected
from streams.log.topics import DEAD_LETTERS, EVIDENCE, RANKINGS
from tests.live import (
    Worker,
    assert_sinks_are_the_fold_of_the_log,
    marks_of,
    read_all,
    records_of,
    until_closed,
    until_records,
)
from tests.sample.sample_lines import sample_lines, write_sample

pytestmark = pytest.mark.kafka

ROLLOUTS = {str(line["rollout_id"]) for line in sample_lines() if line["type"] == "rollout"}


async def ingest_sample(settings: Settings, folder: Path) -> None:
    path = folder / "sample.ndjson"
    write_sample(path)
    done = await ingest_files([path], settings, Rejected(None), close=True)
    assert done.bad_lines == 0


async def test_the_sample_closes_and_the_log_gives_the_same_bytes(settings: Settings, tmp_path: Path) -> None:
    """A dozen rollouts close, every sink record is the fold of the log, and SIGTERM ends the worker with 0 in under 5 s."""
    await ingest_sample(settings, tmp_path)
    with Worker(settings, tmp_path / "worker.log", BRAID_EMISSION__JUDGE__KIND="external") as worker:
        await until_closed(settings, ROLLOUTS)
        code, seconds = worker.stop()
    assert (code, seconds < 5) == (0, True)
    await assert_sinks_are_the_fold_of_the_log(settings)
    rankings = {r.rollout_id: r for r in await records_of(settings, RANKINGS) if isinstance(r, Ranking)}
    assert rankings.keys() == ROLLOUTS
    assert rankings["lru-cache"].close_cause == "complete"
    closings = [r for r in await records_of(settings, EVIDENCE) if isinstance(r, AepRecord) and r.closing]
    assert {record.rollout_id for record in closings} == ROLLOUTS
    assert all(record.signature is not None for record in closings)


async def test_killed_workers_lose_nothing(settings: Settings, tmp_path: Path) -> None:
    """A worker killed again and again while it folds leaves the same sinks as one that was never killed."""
    await ingest_sample(settings, tmp_path)
    worker = Worker(settings, tmp_path / "worker.log", BRAID_EMISSION__JUDGE__KIND="external")
    for pause in (1.2, 1.5, 1.8, 2.1, 2.4):
        with worker:
            await asyncio.sleep(pause)
    with worker:
        await until_closed(settings, ROLLOUTS)
    await assert_sinks_are_the_fold_of_the_log(settings)
    assert all(len(marks) == 1 for marks in (await marks_of(settings)).values())


async def test_a_second_ingest_of_the_same_file_changes_nothing(settings: Settings, tmp_path: Path) -> None:
    """Facts of closed rollouts that only repeat what counted are ignored: no new record, no dead letter, no other mark."""
    await ingest_sample(settings, tmp_path)
    with Worker(settings, tmp_path / "worker.log", BRAID_EMISSION__JUDGE__KIND="external") as worker:
        await until_closed(settings, ROLLOUTS)
        before = await assert_sinks_are_the_fold_of_the_log(settings)
        letters = await read_all(settings, settings.prefix + DEAD_LETTERS.name)
        await ingest_sample(settings, tmp_path)
        line = {"type": "build", "rollout_id": "lru-cache", "branch_index": 0, "status": "failure", "exit_code": 9}
        await ingest_lines(settings, tmp_path, [line])
        await until_records(settings, DEAD_LETTERS, len(letters) + 1)
        assert worker.alive
    after = await assert_sinks_are_the_fold_of_the_log(settings)
    assert after.written == before.written
    new = (await read_all(settings, settings.prefix + DEAD_LETTERS.name))[-1]
    assert dict(new.headers)["__braid.errors.reason"] == b"late"
    assert all(len(marks) == 1 for marks in (await marks_of(settings)).values())


async def ingest_lines(settings: Settings, folder: Path, lines: list[dict[str, object]]) -> None:
    import orjson

    path = folder / "lines.ndjson"
    path.write_bytes(b"\n".join(orjson.dumps(line) for line in lines))
    assert (await ingest_files([path], settings, Rejected(None), close=False)).bad_lines == 0


async def test_a_branch_that_never_ends_is_unknown_at_the_deadline(settings: Settings, tmp_path: Path) -> None:
    """The rollout closes within a second of its deadline; the missing branch is unknown, in no pair, without a reward."""
    rollout = {
        "type": "rollout",
        "rollout_id": "slow",
        "task": "t",
        "branches": 2,
        "required": ["build"],
        "deadline_ms": 4000,
    }
    done = {"event": "final_answer", "data": {"answer": "done"}}
    lines: list[dict[str, object]] = [
        rollout,
        {"type": "event", "rollout_id": "slow", "branch_index": 0, "event": done},
        {"type": "build", "rollout_id": "slow", "branch_index": 0, "status": "success", "exit_code": 0},
        {
            "type": "event",
            "rollout_id": "slow",
            "branch_index": 1,
            "event": {"event": "run_start", "data": {"task": "t"}},
        },
    ]
    with Worker(settings, tmp_path / "worker.log") as worker:
        await worker.ready()
        await ingest_lines(settings, tmp_path, lines)
        await until_closed(settings, {"slow"})
    await assert_sinks_are_the_fold_of_the_log(settings)
    (stored,) = await read_all(settings, settings.prefix + RANKINGS.name)
    (ranking,) = await records_of(settings, RANKINGS)
    assert isinstance(ranking, Ranking)
    assert ranking.settle_cause == "deadline"
    assert 0 <= stored.at - ranking.closed_at_ms <= 1000
    assert {(b.branch_index, b.objective_status, b.rank) for b in ranking.branches} == {
        (0, "pass", 1),
        (1, "unknown", None),
    }
    from streams.log.topics import DPO, PPO

    assert await records_of(settings, DPO) == []
    assert [row.branch_index for row in await records_of(settings, PPO)] == [0]  # type: ignore[attr-defined]


async def test_a_worker_woken_after_its_rollout_was_closed_by_another_changes_nothing(
    settings: Settings, tmp_path: Path
) -> None:
    """SIGSTOP longer than the session, another worker takes over and closes, SIGCONT: one mark, the same bytes."""
    with Worker(settings, tmp_path / "one.log", slot=0) as sleeper:
        await ingest_lines(
            settings, tmp_path, [{"type": "rollout", "rollout_id": "z", "task": "t", "branches": 1, "required": []}]
        )
        await sleeper.ready()
        await asyncio.sleep(1)
        sleeper.signal(signal.SIGSTOP)
        with Worker(settings, tmp_path / "two.log", slot=1):
            answer = {"event": "final_answer", "data": {"answer": "yes"}}
            await ingest_lines(
                settings, tmp_path, [{"type": "event", "rollout_id": "z", "branch_index": 0, "event": answer}]
            )
            await until_closed(settings, {"z"})
            sleeper.signal(signal.SIGCONT)
            await asyncio.sleep(3)
    await assert_sinks_are_the_fold_of_the_log(settings)
    assert [len(marks) for marks in (await marks_of(settings)).values()] == [1]
