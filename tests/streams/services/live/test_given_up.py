"""Rollouts of which nothing can be made: given up once, with the reason, and for good."""

import asyncio
from pathlib import Path

import pytest
from aiokafka import TopicPartition
from aiokafka.admin.records_to_delete import RecordsToDelete

from agents.facts.fact import Fact
from schemas.closures import Closure, RolloutSettled
from schemas.events import AgentEvent, AgentEvents
from schemas.lifecycle import Lifecycle, RolloutOpened
from schemas.verdicts import BuildVerdict
from streams.cluster.config import Settings
from streams.cluster.connections import partition_of, start_admin
from streams.jobs.letter_retry import NEVER, plan
from streams.log.kafka_reader import KafkaReader
from streams.log.kafka_writer import FactWriter
from streams.log.letter_list import Filters, read_letters
from streams.log.letters import Letter, read_letter
from streams.log.topic_setup import ensure_topics
from streams.log.topics import CLOSURES, DEAD_LETTERS, LIFECYCLE, RANKINGS
from tests.live import Worker, read_all, records_of, until, until_closed

pytestmark = pytest.mark.kafka

WIDE = 200
"""Branches that each lack ten thousand events: every one of them is named in the settling, which has 4 MiB."""


def opening(name: str, branches: int, deadline_ms: int) -> Lifecycle:
    opened = RolloutOpened(rollout_id=name, task="t", branches=branches, required=(), deadline_ms=deadline_ms)
    return Lifecycle(opened=opened)


def answer(name: str, branch: int = 0, seq: int = 0) -> AgentEvents:
    event = AgentEvent(channel="text", event="final_answer", data='{"answer":"yes"}')
    return AgentEvents(rollout_id=name, branch_index=branch, first_seq=seq, events=(event,))


def too_wide(name: str = "r", deadline_ms: int = 1000) -> list[Fact]:
    """A rollout that cannot settle."""
    return [opening(name, WIDE, deadline_ms), *(answer(name, branch, 9_999) for branch in range(WIDE))]


def settled_under_nonsense(name: str) -> list[Fact]:
    """A rollout that cannot close."""
    settled = RolloutSettled(
        settled_id="s", rollout_id=name, cause="complete", decided_at_ms=1, opened=True, branches=(), config="{", config_digest="0",
    )  # fmt: skip
    return [opening(name, 1, 600_000), Closure(settled=settled)]


async def write(settings: Settings, *facts: Fact) -> None:
    async with FactWriter(settings, "test") as writer:
        for fact in facts:
            await writer.write(fact)


async def letters_of(settings: Settings) -> list[Letter]:
    stored = await read_all(settings, settings.prefix + DEAD_LETTERS.name)
    return [read_letter(each.key, each.value, each.headers) for each in stored]


WHY = {b"wide": "4,194,304 are allowed", b"odd": "cannot be read"}
"""Of rollouts that are given up, by their names."""


async def test_what_was_given_up_stays_so(settings: Settings, tmp_path: Path) -> None:
    """One dead letter says why. A later fact becomes one, also after a restart, and makes no rollout of its own."""
    await ensure_topics(settings)
    await write(settings, *too_wide("wide"), *settled_under_nonsense("odd"))
    decided = len(await read_all(settings, settings.prefix + CLOSURES.name))

    async def buried(count: int) -> None:
        async def there() -> bool:
            return len(await letters_of(settings)) >= count

        await until(there, f"{count} dead letters")

    log, quick = tmp_path / "worker.log", {"BRAID_CLOSING__IDLE_MS": "500"}
    with Worker(settings, log, **quick) as worker:
        await buried(2)
        for name in ("wide", "odd"):
            await write(settings, answer(name, 1), opening(name, 1, 600_000))
        await buried(4)
        assert worker.stop()[0] == 0
    with Worker(settings, log, **quick) as worker:
        for name in ("wide", "odd"):
            verdict = BuildVerdict(rollout_id=name, branch_index=1, verdict_id="v", status="success", exit_code=0)
            await write(settings, verdict)
        await buried(6)
        await asyncio.sleep(1.5)  # what was opened by mistake would be idle by then
        await write(settings, opening("small", 1, 600_000), answer("small"))
        await until_closed(settings, {"small"})
        assert worker.stop()[0] == 0
    letters = await letters_of(settings)
    for key, why in WHY.items():
        first, *later = [letter for letter in letters if letter.key == key]
        assert (first.topic, first.reason) == (settings.prefix + LIFECYCLE.name, "given_up")
        assert why in first.message
        assert [letter.reason for letter in later] == ["given_up"] * 2
    assert log.read_bytes().count(b'"event": "broken"') == len(WHY)
    assert {ranking.rollout_id for ranking in await records_of(settings, RANKINGS)} == {"small"}  # type: ignore[attr-defined]
    assert len(await read_all(settings, settings.prefix + CLOSURES.name)) == decided + 2
    async with KafkaReader(settings) as looked:
        rows = {key: await looked.view_row(key.decode()) for key in WHY}
        outcomes = await plan(looked, await read_letters(looked, Filters()))
    assert {outcome.why for outcome in outcomes} == {NEVER["given_up"]}
    for key, row in rows.items():
        assert row is not None
        assert (row.status, WHY[key] in (row.why or "")) == ("broken", True)


async def test_a_letter_whose_original_is_gone_holds_nobody_up(settings: Settings, tmp_path: Path) -> None:
    """The log is trimmed between the reading and the giving up: there is nothing to keep, and everything goes on."""
    await ensure_topics(settings)
    log = tmp_path / "worker.log"
    with Worker(settings, log) as worker:
        await worker.ready()
        await write(settings, *too_wide(deadline_ms=5000))

        async def read() -> bool:
            async with KafkaReader(settings) as looked:
                return await looked.view_row("r") is not None

        await until(read, "the worker has read it")
        place = TopicPartition(settings.prefix + LIFECYCLE.name, partition_of("r", settings.partitions))
        admin = await start_admin(settings)
        try:
            await admin.delete_records({place: RecordsToDelete(before_offset=1)})
        finally:
            await admin.close()

        async def given_up() -> bool:
            return b"the original is gone" in log.read_bytes()

        await until(given_up, "it is given up")
        await write(settings, opening("small", 1, 600_000), answer("small"))
        await until_closed(settings, {"small"})
        assert worker.stop()[0] == 0
    assert await letters_of(settings) == []
