"""Topics read in step: everything once, in order, and nothing far ahead of the slowest topic."""

from collections.abc import AsyncIterator

from hypothesis import given
from hypothesis import strategies as st

from streams.log.interleaving import in_step
from streams.log.record import LogRecord
from streams.log.topics import FACTS, Topic

TIMES = st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=6), max_size=5)
"""Of one topic: blocks, and the times of the records in each, in no order."""


def records(blocks: list[list[int]]) -> list[list[LogRecord]]:
    offsets = iter(range(1000))
    return [[LogRecord(next(offsets), at, None, None, ()) for at in block] for block in blocks]


async def source(blocks: list[list[LogRecord]], begun: list[LogRecord]) -> AsyncIterator[list[LogRecord]]:
    for block in blocks:
        begun += block
        yield block


@given(st.lists(TIMES, min_size=1, max_size=3))
async def test_every_record_comes_once_and_in_its_topics_order(times: list[list[list[int]]]) -> None:
    given_blocks = {topic: records(blocks) for topic, blocks in zip(FACTS, times, strict=False)}
    begun: dict[Topic, list[LogRecord]] = {topic: [] for topic in given_blocks}
    found: dict[Topic, list[LogRecord]] = {topic: [] for topic in given_blocks}
    async for topic, ready in in_step({each: source(given_blocks[each], begun[each]) for each in given_blocks}):
        assert ready
        found[topic] += ready
        held = {each: begun[each][len(found[each]) :] for each in found}
        for each, waiting in held.items():  # no more than the block that was begun last
            assert len(waiting) <= max(map(len, given_blocks[each]), default=0)
    assert found == {topic: [record for block in blocks for record in block] for topic, blocks in given_blocks.items()}


@given(st.lists(TIMES, min_size=2, max_size=3))
async def test_nothing_goes_on_that_is_newer_than_all_that_another_topic_has_shown(
    times: list[list[list[int]]],
) -> None:
    given_blocks = {topic: records(blocks) for topic, blocks in zip(FACTS, times, strict=False) if blocks}
    begun: dict[Topic, list[LogRecord]] = {topic: [] for topic in given_blocks}
    gone: dict[Topic, int] = dict.fromkeys(given_blocks, 0)
    async for topic, ready in in_step({each: source(given_blocks[each], begun[each]) for each in given_blocks}):
        for other, blocks in given_blocks.items():
            if gone[other] < sum(map(len, blocks)):
                assert max(record.at for record in ready) <= max(record.at for record in begun[other])
        gone[topic] += len(ready)
