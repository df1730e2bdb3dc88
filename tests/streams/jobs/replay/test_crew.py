"""The processes of a replay: started first, ended always, and missed by name when one is gone."""

import asyncio
from pathlib import Path

import psutil
import pytest

from streams.cluster.config import Settings
from streams.jobs.crew.crew import Crew
from streams.jobs.errors import ReplayError
from streams.jobs.replay.partition_job import Job
from streams.jobs.replay.processes import replay_place
from streams.jobs.replay.replay import Replayed, replay
from streams.log.file_reader import FileReader
from tests.conftest import Braid


def children() -> list[psutil.Process]:
    """The processes that were forked from this one: they have its command line."""
    this = psutil.Process()
    return [
        each for each in this.children() if each.status() == psutil.STATUS_ZOMBIE or each.cmdline() == this.cmdline()
    ]


async def replayed(log: Path, crew: Crew) -> Replayed:
    job = Job(directory=log, spans=await FileReader(log).spans(), sign=False)
    return await replay(job, Settings(), crew)


def test_a_crew_of_one_is_whoever_asks_for_it() -> None:
    with Crew(1, replay_place) as crew:
        assert crew.members == []
        assert children() == []


def test_more_processes_than_partitions_end_with_the_others(parted: Path) -> None:
    with Crew(5, replay_place) as crew:
        assert len(children()) == 5
        many = asyncio.run(replayed(parted, crew))
    assert children() == []
    with Crew(1, replay_place) as alone:
        assert asyncio.run(replayed(parted, alone)).digests == many.digests


def test_spare_processes_help_with_the_last_partitions_and_change_nothing(parted: Path) -> None:
    with Crew(2, replay_place, spare=3) as crew:
        assert len(children()) == 5
        many = asyncio.run(replayed(parted, crew))
    assert children() == []
    with Crew(1, replay_place) as alone:
        assert asyncio.run(replayed(parted, alone)).digests == many.digests


def test_processes_end_when_there_is_nothing_for_them(braid: Braid, tmp_path: Path) -> None:
    code, _, said = braid("replay", "--from-dir", tmp_path, "--dry-run", "--processes", 2)
    assert code == 1
    assert "holds no embedded log" in said
    assert children() == []


def test_a_process_that_is_gone_is_an_error_and_ends_the_others(parted: Path) -> None:
    with Crew(2, replay_place) as crew:
        for child in children()[:1]:
            child.kill()
        with pytest.raises(ReplayError, match=r"partition \d+: its process was killed by SIGKILL"):
            asyncio.run(replayed(parted, crew))
        assert [child for child in children() if child.status() != psutil.STATUS_ZOMBIE] == []
    assert children() == []
