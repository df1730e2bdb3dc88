"""Archived captures, read with today's fold into other rollouts; an archive of before there were captures has none."""

from pathlib import Path

import pytest

from schemas.base import MAX_ID, Record
from schemas.events import AgentEvents
from schemas.lifecycle import Lifecycle
from streams.cluster.config import Settings
from streams.jobs.captured_again import Again, AgainError, fold_again
from streams.log.readers import reader_of
from streams.log.topics import AGENT_EVENTS

ROOT = Path(__file__).parents[3]
REAL = ROOT / "tests/real_agents/log/archive"
OLD = ROOT / "tests/same_bytes/v1/archive"


async def again(archive: Path, *rollouts: str, prefix: str = "again-") -> tuple[Again, list[Record]]:
    written: list[Record] = []

    async def put(record: Record) -> None:
        written.append(record)

    async with reader_of(Settings(), archive, unfinished=False, say=lambda _: None) as log:
        return await fold_again(log, rollouts, prefix, put), written


async def events_in(archive: Path) -> list[AgentEvents]:
    async with reader_of(Settings(), archive, unfinished=False, say=lambda _: None) as log:
        return [await log.decode(placed) async for placed in log.records([AGENT_EVENTS])]  # type: ignore[misc]


async def test_archived_captures_give_the_same_events_under_other_names() -> None:
    found, written = await again(REAL)
    slices = [each for each in written if isinstance(each, AgentEvents)]
    opened = [each.opened.rollout_id for each in written if isinstance(each, Lifecycle) and each.opened is not None]
    renamed = [each.model_copy(update={"rollout_id": f"again-{each.rollout_id}"}) for each in await events_in(REAL)]
    assert (found.rollouts, found.branches, found.unended, found.refused) == (2, 8, 0, 0)
    assert sorted(opened) == ["again-claude-hello", "again-codex-hello"]
    assert sorted(each.model_dump_json() for each in slices) == sorted(each.model_dump_json() for each in renamed)


async def test_an_older_archive_has_no_captures() -> None:
    assert await again(OLD) == (Again(), [])
    with pytest.raises(AgainError, match="no captures of forked"):
        await again(OLD, "forked")


async def test_a_prefix_that_makes_an_id_too_long_is_refused_before_anything_is_written() -> None:
    with pytest.raises(AgainError, match="shorter prefix"):
        await again(REAL, prefix="x" * MAX_ID)
