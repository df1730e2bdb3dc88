"""The rollouts of a log, one by one, with all their facts: superseded verdicts too.

Topics of a partition are read in step with their times, and a closed rollout is passed on when every topic has been
read past its closing: memory holds only the rollouts open at one moment. Rollouts that never closed come last.
"""

from collections.abc import AsyncGenerator, Callable, Sequence

from agents.rollouts.rollout import Rollout
from streams.log.fold import Fold
from streams.log.interleaving import in_step, partition_blocks
from streams.log.progress import Say, quiet
from streams.log.reader import LogReader
from streams.log.record import LogRecord
from streams.log.topics import FACTS, Topic

Observe = Callable[[Topic, Sequence[LogRecord]], None]
"""Called with the records of facts before they are folded."""


async def log_rollouts(
    log: LogReader, say: Say = quiet, observe: Observe | None = None
) -> AsyncGenerator[Rollout, None]:
    """Read all rollouts of a log."""
    spans = await log.spans(FACTS)
    partitions = sorted({number for parts in spans.values() for number in parts})
    total = sum(span.end - span.start for parts in spans.values() for span in parts.values()) or 1
    done = 0
    for partition in partitions:
        fold, rounds = Fold(log.codec, partition, lambda _rollout: True), _Rounds()
        async for topic, records in partition_blocks(log, partition, FACTS, spans, in_step):
            for rollout_id in rounds.begin(topic):
                yield fold.rollouts[rollout_id]
                fold.leave(rollout_id)
            if observe is not None:
                observe(topic, records)
            for record in records:
                said = fold.read(topic, record)
                if said is not None and fold.add(topic, record, said).closed is not None:
                    rounds.close(said.rollout_id)
            done += len(records)
            say("reading", min(1.0, done / total))
        for rollout_id in sorted(fold.rollouts):
            yield fold.rollouts[rollout_id]


class _Rounds:
    """Closed rollouts that wait until all topics have been read past their closings: two whole rounds of the interleaving."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._young: dict[str, None] = {}
        self._old: dict[str, None] = {}

    def begin(self, topic: Topic) -> list[str]:
        """Begin a block of a topic; return the rollouts for which no more records follow."""
        if topic.name not in self._seen:
            self._seen.add(topic.name)
            return []
        self._seen = {topic.name}
        ready, self._old, self._young = list(self._old), self._young, {}
        return ready

    def close(self, rollout_id: str) -> None:
        """Queue a rollout until every topic has been read past its closing."""
        if rollout_id not in self._old:
            self._young[rollout_id] = None
