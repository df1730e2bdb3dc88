"""A partition of requests that is ours: what is under way in it, how far it is finished, which votes are there already."""

from collections.abc import Iterable
from contextlib import suppress

from aiokafka import TopicPartition

from schemas.closures import Closure
from schemas.errors import DecodeError
from schemas.judging import JudgeVote
from streams.config import Settings
from streams.looking.kafka import KafkaLog
from streams.looking.log import Stored
from streams.topics import CLOSURES, JUDGE_VOTES, Topic

HOUR_MS = 3_600_000

SHORTEST_LOOK_BACK_MS = HOUR_MS
"""Votes are looked for from this long before the first request on: the live worker may have written a request again."""


class Held:
    """One partition, from the moment it is assigned until it is taken away."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.lost = False
        """It belongs to somebody else now: no new call is made for it."""
        self.is_loaded = False
        self.votes: set[str] = set()
        """Ids of votes that are in the log."""
        self.closed: set[str] = set()
        """Rollouts that closed before we came: their votes would come too late."""
        self._under_way: dict[int, None] = {}
        self._next: int | None = None

    def begin(self, offset: int) -> None:
        """A request is being judged."""
        self._under_way[offset] = None
        self._next = offset + 1

    def finish(self, offset: int) -> None:
        """All of its votes are acknowledged."""
        self._under_way.pop(offset, None)

    @property
    def commit_point(self) -> int | None:
        """The offset up to which everything is finished; None before anything has come."""
        return next(iter(self._under_way), self._next)


async def load(settings: Settings, held: Iterable[Held], since: int) -> None:
    """Read which votes and closings partitions hold, so that nothing is paid for twice or in vain."""
    by_partition = {each.partition: each for each in held}
    look_back = max(SHORTEST_LOOK_BACK_MS, 2 * settings.closing.judge_deadline_ms)
    async with KafkaLog(settings) as log:
        topics = {log.name(topic): topic for topic in (JUDGE_VOTES, CLOSURES)}
        places = [TopicPartition(name, partition) for name in topics for partition in by_partition]
        async for record in log.read(await log.spans(places, since - look_back)):
            await _take(log, topics[record.topic], record, by_partition[record.partition])
    for each in by_partition.values():
        each.is_loaded = True


async def recent_calls(settings: Settings, judge: str, now_ms: int) -> list[float]:
    """How many seconds ago votes of the last hour were written, the oldest first. Each took a call, or more than one."""
    found = []
    async with KafkaLog(settings) as log:
        async for stored in log.records([JUDGE_VOTES], since=now_ms - HOUR_MS):
            with suppress(DecodeError):
                vote = await log.decode(stored)
                if isinstance(vote, JudgeVote) and vote.judge == judge and vote.cause != "budget":
                    found.append(max(0.0, (now_ms - stored.at) / 1000))
    return sorted(found, reverse=True)


async def _take(log: KafkaLog, topic: Topic, record: object, held: Held) -> None:
    stored = Stored(topic, held.partition, 0, 0, None, getattr(record, "value", None), ())
    try:
        found = await log.decode(stored)
    except DecodeError:
        return  # the live worker makes a dead letter of it
    if isinstance(found, JudgeVote):
        held.votes.add(found.vote_id)
    elif isinstance(found, Closure) and found.closed is not None:
        held.closed.add(found.closed.rollout_id)
