"""Train on preference pairs while they come: `training.dpo.v1` as a torch IterableDataset that can be resumed.

    stream = DpoStream(Settings())
    stream.load_state_dict(saved)                                  # after a restart
    for row in DataLoader(stream, batch_size=None, num_workers=2):
        train(row)
        stream.done(row)                                           # then save stream.state_dict() with the model

The stream goes on with the first pair that was not done, whatever workers had fetched ahead, and with any number of them. A
pair that a restarted worker wrote twice is handed out once. Without torch it is an ordinary iterable.
"""

# ruff: noqa: INP001
import asyncio
import time
from collections.abc import Iterator
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from agents.formats.chat import messages, tool_text
from schemas.training import DpoRecord
from streams.cluster.config import Settings
from streams.cluster.connections import registry_of, resolve, start_consumer
from streams.log.topics import DPO
from streams.log.wire import Codec

try:
    from torch.utils.data import IterableDataset, get_worker_info
except ImportError:
    IterableDataset, get_worker_info = object, lambda: None

REMEMBERED = 10_000
"""Ids of the last pairs: repetitions stand close to each other in the log."""


class DpoStream(IterableDataset):  # type: ignore[type-arg, misc]
    """Pairs in the shape that TRL loads, as they come; each worker of a DataLoader reads its own partitions."""

    def __init__(self, settings: Settings, *, stop_after_idle_s: float | None = None):
        self._settings = resolve(settings)
        self._stop_after_idle_s = stop_after_idle_s
        self._offsets: dict[int, int] = {}
        self._recent: dict[str, None] = {}

    def done(self, row: dict[str, Any]) -> None:
        """Note that a pair was trained on; pairs of one partition come in its order."""
        self._offsets[row["partition"]] = row["offset"] + 1
        _remember(self._recent, row["record_id"])

    def state_dict(self) -> dict[str, Any]:
        """Where the training stands: the next offset of each partition, and the last pairs that were done."""
        return {"offsets": dict(self._offsets), "recent": list(self._recent)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self._offsets = {int(partition): offset for partition, offset in state["offsets"].items()}
        self._recent = dict.fromkeys(state["recent"])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The pairs, without an end; or until none has come for a while."""
        recent = dict(self._recent)
        with asyncio.Runner() as runner:
            registry = registry_of(self._settings)
            codec = Codec(registry, prefix=self._settings.prefix)
            consumer = runner.run(self._consumer())
            try:
                moved = time.monotonic()
                while self._stop_after_idle_s is None or time.monotonic() - moved < self._stop_after_idle_s:
                    found = runner.run(consumer.getmany(timeout_ms=500, max_records=500))
                    records = [record for each in found.values() for record in each]
                    runner.run(codec.prepare([record.value for record in records]))
                    for record in records:
                        moved = time.monotonic()
                        pair = codec.decode(DPO, record.value)
                        assert isinstance(pair, DpoRecord)
                        if _remember(recent, pair.record_id):
                            yield row_of(pair, record)
            finally:
                runner.run(consumer.stop())
                if registry is not None:
                    runner.run(registry.close())

    async def _consumer(self) -> AIOKafkaConsumer:
        """A client in no group: where it goes on is what the stream remembers, and nothing else."""
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        consumer = await start_consumer(self._settings)
        name, numbers = self._settings.prefix + DPO.name, range(first, self._settings.partitions, step)
        consumer.assign([TopicPartition(name, number) for number in numbers])
        for number in numbers:
            consumer.seek(TopicPartition(name, number), self._offsets.get(number, 0))
        return consumer


def _remember(recent: dict[str, None], record_id: str) -> bool:
    """Whether a pair is new; the last ones are remembered."""
    if record_id in recent:
        return False
    recent[record_id] = None
    if len(recent) > REMEMBERED:
        del recent[next(iter(recent))]
    return True


def row_of(pair: DpoRecord, record: ConsumerRecord) -> dict[str, Any]:
    """A pair as `braid export --format trl-dpo` writes it, with its place in the log."""
    said = (*pair.prompt, *pair.chosen, *pair.rejected)
    return {
        "prompt": messages(pair.prompt),
        "chosen": messages(pair.chosen),
        "rejected": messages(pair.rejected),
        "tools": tool_text(pair.tools, said),
        "margin": pair.margin,
        "basis": pair.basis,
        "rollout_id": pair.rollout_id,
        "record_id": pair.record_id,
        "partition": record.partition,
        "offset": record.offset,
    }
