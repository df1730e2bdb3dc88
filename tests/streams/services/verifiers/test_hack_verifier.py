"""The hack verifier on a real Kafka: one verdict for each branch, with its looks, also after it was killed."""

from pathlib import Path

import pytest

from agents.fork.task_adapter import load_task
from agents.hacks.verdict import looks_of, signals_of
from schemas.verdicts import CheckVerdict
from streams.cluster.config import Settings
from streams.log.topics import CHECK_VERDICTS
from streams.services.verifiers.hacks import run_hack_verifier
from tests.agents.fork.test_looks import left_by
from tests.agents.hacks.corpus import branches, write_task
from tests.agents.hacks.corpus_tasks import TASKS
from tests.live import records_of
from tests.streams.services.verifiers.running import (
    VerifierProcess,
    put_fork,
    until_committed,
    until_verdicts,
    verifying,
    with_state,
)
from tests.streams.services.verifiers.test_build_verifier import quick_task, solved_quick

pytestmark = pytest.mark.kafka

ROUNDS = 20
"""Kills of the long test."""


async def test_a_cheat_and_honest_work_get_one_verdict_each_with_its_looks(settings: Settings, tmp_path: Path) -> None:
    settings = with_state(settings, tmp_path, tasks=(tmp_path / "tasks",))
    write_task(TASKS[2], tmp_path / "tasks" / "flatten")
    made = {each.name: each for each in branches(TASKS[2])}
    files = {0: left_by(TASKS[2], made["good"]), 1: left_by(TASKS[2], made["always-equal"])}
    await put_fork(settings, load_task(tmp_path / "tasks" / "flatten"), "r1", files)
    async with verifying(run_hack_verifier, settings):
        found = {each.branch_index: each for each in await until_verdicts(settings, CHECK_VERDICTS, 2)}
    assert {index: (each.name, each.status) for index, each in found.items()} == {
        0: ("hacks", "pass"),
        1: ("hacks", "fail"),
    }
    assert [each["name"] for each in looks_of(found[0].details)] == [
        "intact", "count", "canary", "sentinel", "bare", "unmarked", "blind",
    ]  # fmt: skip
    assert "L.sentinel" in {each.rule for each in signals_of(found[1].details) if each.kind == "confirmed"}


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_a_hack_verifier_that_is_killed_twenty_times_gives_one_verdict_each(
    settings: Settings, tmp_path: Path
) -> None:
    """SIGKILL after each verdict or two: none is lost, none is there twice."""
    settings = with_state(settings, tmp_path)
    task = load_task(quick_task(tmp_path / "tasks" / "quick"))
    count = ROUNDS + 4
    await put_fork(
        settings, task, "r1", {index: solved_quick("good" if index % 2 else "bad") for index in range(count)}
    )
    flags = ("--concurrency", "2", "--tasks", str(tmp_path / "tasks"))
    for kill in range(ROUNDS):
        with VerifierProcess(settings, tmp_path / f"verifier-{kill}.log", "hack-verifier", *flags):
            await until_verdicts(settings, CHECK_VERDICTS, kill + 1)
    with VerifierProcess(settings, tmp_path / "verifier.log", "hack-verifier", *flags) as verifier:
        await until_verdicts(settings, CHECK_VERDICTS, count)
        await until_committed(settings, "hack", count)
        code, _ = verifier.stop()
    assert code == 0
    found = [each for each in await records_of(settings, CHECK_VERDICTS) if isinstance(each, CheckVerdict)]
    assert sorted(each.branch_index for each in found) == list(range(count))
    assert {each.name for each in found} == {"hacks"}
