"""One process in a slot: the second is refused while the first lives, and a killed one does not block its successor."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from streams.cluster.config import Settings
from streams.services.slot import SlotTakenError, claimed, members_of
from tests.live import Worker, until
from tests.streams.services.judge.running import JudgeProcess
from tests.streams.services.verifiers.running import VerifierProcess, with_state

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]

Start = Callable[[Path, Path], Worker]
"""A worker of a kind: its log, its state directory."""


def starter(kind: str, settings: Settings) -> tuple[str, Start]:
    """The group of a kind of worker, and how one is made."""
    if kind == "worker":
        return settings.group, lambda log, state: Worker(settings, log, BRAID_STATE_DIR=str(state))
    if kind == "judge":
        rules = {"BRAID_EMISSION__JUDGE__KIND": "scripted", "BRAID_JUDGE__RULES": str(settings.fork.snapshots)}
        return settings.judge_group, lambda log, state: JudgeProcess(settings, log, BRAID_STATE_DIR=str(state), **rules)
    return settings.verifier_group(kind), lambda log, state: VerifierProcess(
        settings, log, f"{kind}-verifier", BRAID_STATE_DIR=str(state)
    )


async def refused(worker: Worker, host: str = "") -> None:
    """Wait until a worker has ended because of its slot."""
    with worker:

        async def ended() -> bool:
            return not worker.alive

        await until(ended, "the second worker ends")
        assert worker.process is not None
        assert worker.process.wait(1) == 1
    said = worker.log.read_text()
    assert f"braid: slot 0 is taken by {host}" in said
    assert "; use --slot 1" in said
    assert "Traceback" not in said


async def test_a_slot_is_held_by_one_process_at_a_time(settings: Settings, tmp_path: Path) -> None:
    """The holder is named, with the first slot that is free; another slot and another group are not concerned."""
    settings = settings.model_copy(update={"state_dir": tmp_path})
    async with claimed(settings, "group", 0), claimed(settings, "group", 2), claimed(settings, "other", 0):
        with pytest.raises(
            SlotTakenError, match=rf"^slot 0 is taken by \S+; use --slot 1 \(process {os.getpid()} holds it\)$"
        ):
            async with claimed(settings, "group", 0):
                pass
    async with claimed(settings, "group", 0):
        pass


@pytest.mark.long
@pytest.mark.parametrize("kind", ["worker", "judge", "build", "visual"])
async def test_the_second_worker_of_a_slot_is_refused_and_a_killed_one_is_followed_at_once(
    kind: str, settings: Settings, tmp_path: Path
) -> None:
    """The first one's membership is as it was; after SIGKILL the next one does not wait for the group to forget it."""
    settings = with_state(settings, tmp_path)
    (tmp_path / "snapshots").write_text('[[rule]]\nprefer = "longest"\n')  # the judge's rules
    group, start = starter(kind, settings)
    with start(tmp_path / "first.log", tmp_path) as first:
        await first.ready()
        before = await members_of(settings, group)
        await refused(start(tmp_path / "second.log", tmp_path))
        assert first.alive
        assert await members_of(settings, group) == before
        assert len(before) == 1
        first.kill()
    with start(tmp_path / "third.log", tmp_path) as third:
        await third.ready()
        assert third.stop()[0] == 0
    assert b"waiting" not in third.log.read_bytes()


@pytest.mark.long
async def test_a_slot_is_not_taken_from_a_living_worker_of_another_machine(settings: Settings, tmp_path: Path) -> None:
    """Another state directory stands for another machine: it waits for a session, then is refused; after a death it gets in."""
    group, start = starter("worker", settings)
    here, there = tmp_path / "here", tmp_path / "there"
    with start(tmp_path / "first.log", here) as first:
        await first.ready()
        before = await members_of(settings, group)
        await refused(start(tmp_path / "second.log", there), "127.0.0.1")
        assert await members_of(settings, group) == before
        first.kill()
    with start(tmp_path / "third.log", there) as third:
        await third.ready()
        assert third.stop()[0] == 0
