"""The index beside the log: it says where a rollout's records are, follows the log, and is rebuilt whenever it does not fit."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import orjson
import pytest

from schemas.events import AgentEvent, AgentEvents
from schemas.lifecycle import Lifecycle, RolloutOpened
from streams.cluster.config import Settings
from streams.jobs.run.run import run_files
from streams.log.file_reader import FileReader
from streams.log.index_queries import Wanted
from streams.log.kafka_reader import KafkaReader
from streams.log.kafka_writer import FactWriter
from streams.log.rollout_index import RolloutIndex
from streams.log.topic_setup import ensure_topics
from streams.log.topics import AGENT_EVENTS, TOPICS
from tests.sample.sample_lines import sample_lines


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("indexed")
    lines = [orjson.dumps(line) + b"\n" for line in sample_lines()]
    (folder / "s.ndjson").write_bytes(b"".join(lines))
    run_files([folder / "s.ndjson"], folder / "out", Settings(), None)
    return folder / "out"


Build = Callable[..., RolloutIndex]


@pytest.fixture
def built() -> Iterator[Build]:
    """Make indexes, which are closed in the end."""
    made: list[RolloutIndex] = []

    def build(path: Path, log: FileReader, identity: str | None = None) -> RolloutIndex:
        made.append(RolloutIndex(path, identity or log.identity))
        asyncio.run(made[-1].catch_up(log))
        return made[-1]

    yield build
    for index in made:
        index.close()


def test_it_names_every_record_of_a_rollout_and_no_other(built: Build, out: Path, tmp_path: Path) -> None:
    log = FileReader(out)
    index = built(tmp_path / "i.sqlite", log)

    async def check() -> None:
        for row in index.rollouts(Wanted(), 100)[1]:
            expected = [placed.ref async for placed in log.records(TOPICS, rollout_id=row.rollout_id)]
            places = index.places(row.rollout_id)
            assert [
                (topic.name, partition, at) for (topic, partition), offsets in places.items() for at in offsets
            ] == expected
            for (topic, partition), offsets in places.items():
                assert [record.offset for record in await log.at(topic, partition, offsets)] == offsets

    asyncio.run(check())


def test_an_index_that_is_there_is_used_and_one_that_is_gone_is_rebuilt(
    built: Build, out: Path, tmp_path: Path
) -> None:
    log, path = FileReader(out), tmp_path / "i.sqlite"
    first = built(path, log)
    rows, tick = first.rollouts(Wanted(), 100), first.tick
    first.close()
    again = built(path, log)
    assert (again.rollouts(Wanted(), 100), again.tick) == (rows, tick)
    again.close()
    path.unlink()
    assert [row._replace(changed=0) for row in built(path, log).rollouts(Wanted(), 100)[1]] == [
        row._replace(changed=0) for row in rows[1]
    ]


@pytest.mark.parametrize("spoil", ["garbage", "other log", "truncated"])
def test_an_index_that_does_not_fit_is_rebuilt(built: Build, out: Path, tmp_path: Path, spoil: str) -> None:
    log, path = FileReader(out), tmp_path / "i.sqlite"
    index = built(path, log)
    total = index.rollouts(Wanted(), 1)[0]
    index.close()
    if spoil == "garbage":
        path.write_bytes(b"no database at all" * 100)
    elif spoil == "truncated":
        path.write_bytes(path.read_bytes()[:3000])
    again = built(path, log, log.identity + (" other" if spoil == "other log" else ""))
    assert again.rollouts(Wanted(), 1)[0] == total


def test_a_log_that_became_shorter_is_another_log(built: Build, out: Path, tmp_path: Path) -> None:
    log = FileReader(out)
    index = built(tmp_path / "i.sqlite", log)
    index._database.execute("UPDATE reached SET next = next + 1000")
    asyncio.run(index.catch_up(log))
    assert index.rollouts(Wanted(), 1)[0] == 12
    assert index.row("lru-cache") is not None


def test_it_holds_no_secret_and_is_only_ours(built: Build, tmp_path: Path, out: Path) -> None:
    path = tmp_path / "deep" / "i.sqlite"
    built(path, FileReader(out)).close()
    assert path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0


def test_two_servers_of_one_log_do_not_count_twice(built: Build, out: Path, tmp_path: Path) -> None:
    """The second one keeps an index of its own, which is gone with it."""
    log, path = FileReader(out), tmp_path / "i.sqlite"
    first, second = built(path, log), built(path, log)
    assert first.path != second.path
    assert [row._replace(changed=0) for row in first.rollouts(Wanted(), 100)[1]] == [
        row._replace(changed=0) for row in second.rollouts(Wanted(), 100)[1]
    ]
    second.close()
    assert not second.path.exists()
    first.close()
    assert built(path, log).path == path


@pytest.mark.kafka
def test_it_follows_a_cluster_and_reads_records_by_their_offsets(settings: Settings, tmp_path: Path) -> None:
    """A record that is written while it is open is found by the next look, and nothing is read twice."""

    def events(rollout: str, seq: int) -> AgentEvents:
        event = AgentEvent(channel="text", event="thinking_delta", data='{"delta": "x"}')
        return AgentEvents(rollout_id=rollout, branch_index=0, first_seq=seq, events=(event,))

    async def run() -> None:
        await ensure_topics(settings)
        async with FactWriter(settings, "test") as writer, KafkaReader(settings) as log, AsyncExitStack() as stack:
            index = stack.enter_context(RolloutIndex(tmp_path / "i.sqlite", log.identity))
            assert await index.catch_up(log) == set()
            await writer.write(Lifecycle(opened=RolloutOpened(rollout_id="a", task="first", branches=1)))
            for seq in range(3):
                await writer.write(events("a", seq))
                await writer.write(events("b", seq))
            await writer.flush()
            assert await index.catch_up(log) == {"a", "b"}
            row = index.row("a")
            assert row is not None
            assert (row.task, row.status, row.slices) == ("first", "open", 3)
            await writer.write(events("a", 3))
            await writer.flush()
            assert await index.catch_up(log) == {"a"}
            ((topic, partition), offsets), *_ = [
                each for each in index.places("a").items() if each[0][0] is AGENT_EVENTS
            ]
            found = await log.at(topic, partition, offsets)
            assert [record.key for record in found] == [b"a"] * 4
            assert await index.catch_up(log) == set()

    asyncio.run(run())


def test_it_says_how_busy_the_last_minutes_of_the_log_were(built: Build, out: Path, tmp_path: Path) -> None:
    """Minute by minute to the end of the log, in its own time; a longer span holds everything."""
    index = built(tmp_path / "i.sqlite", FileReader(out))
    hour, day = index.activity(60), index.activity(24 * 60)
    assert hour is not None
    assert day is not None
    assert (len(hour.slices), len(hour.closings)) == (60, 60)
    assert hour.last == day.last
    assert day.slices[-60:] == hour.slices
    rows = index.rollouts(Wanted(), 100)[1]
    assert sum(day.slices) == sum(row.slices for row in rows)
    assert sum(day.closings) == len(rows)
    assert max(row.latest_at for row in rows) // 60_000 == day.last
