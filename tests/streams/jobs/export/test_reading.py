"""Reading a partition: what is not whole stays for the next time, and nothing is read further than needed."""

import asyncio
from pathlib import Path

from streams.jobs.export.cursors import partition_cursors
from streams.jobs.export.whole_rollouts import ROWS, Contradicted, Incomplete, PartitionReader, Whole, short
from streams.log.file_reader import FileReader
from streams.log.topics import CLOSURES, EVIDENCE, PPO, RANKINGS, SFT
from tests.streams.jobs.export.test_export import rewritten


async def read(
    directory: Path, seen: dict[int, int], limit: int | None = None
) -> tuple[list[Whole | Incomplete], PartitionReader]:
    """The rollouts of a run, at most `limit`, and the reader as it stands then."""
    source = FileReader(directory)
    found: list[Whole | Incomplete] = []
    async with partition_cursors(source, 0, (EVIDENCE, CLOSURES, RANKINGS, *ROWS), {}) as cursors:
        reader = PartitionReader(cursors, source.codec, {"sft"}, seen)
        rollouts = reader.rollouts()
        async for each in rollouts:
            assert not isinstance(each, Contradicted)
            found.append(each)
            if len(found) == limit:
                break
        await rollouts.aclose()
    return found, reader


def test_offsets_stand_before_what_is_not_whole(ran: Path, tmp_path: Path) -> None:
    """The second rollout misses its SFT row: the next export begins with its records, and skips what was taken."""
    damaged = rewritten(ran, tmp_path / "in", lambda each, found: [found[0], found[2]] if each == SFT else found)
    seen: dict[int, int] = {}
    found, reader = asyncio.run(read(damaged, seen))
    assert [type(each) for each in found] == [Whole, Incomplete, Whole]
    assert seen.keys() == {short(b"r1"), short(b"r3")}
    offsets = reader.offsets()
    assert (offsets[EVIDENCE.name], offsets[RANKINGS.name], offsets[PPO.name]) == (4, 1, 3)
    assert offsets[SFT.name] == 2


def test_topics_are_read_only_as_far_as_needed(ran: Path) -> None:
    """After one rollout, each topic stands behind its rows: what waits in memory does not grow with the log."""
    (first,), reader = asyncio.run(read(ran, {}, 1))
    assert isinstance(first, Whole)
    assert (first.rollout_id, len(first.rows[SFT]), first.unlisted) == ("r1", 1, 0)
    offsets = reader.offsets()
    assert (offsets[EVIDENCE.name], offsets[SFT.name], offsets[PPO.name]) == (4, 1, 3)
    assert reader.open == 0


def test_a_rollout_without_closing_evidence_is_open(ran: Path, tmp_path: Path) -> None:
    """Branch evidence alone is not enough: the rollout waits, and is no failure."""
    cut = rewritten(ran, tmp_path / "in", lambda each, found: found[:-1] if each == EVIDENCE else found)
    found, reader = asyncio.run(read(cut, {}))
    assert [each.rollout_id for each in found] == ["r1", "r2"]
    assert reader.open == 1
    assert reader.offsets()[EVIDENCE.name] == 8
