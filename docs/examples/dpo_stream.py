"""Train on preference pairs while they come: `training.dpo.v1` as a torch IterableDataset that can be resumed.

`DpoStream` needs no torch. Save `state_dict()` with the model and give it to `load_state_dict()` after a restart: the stream
goes on with the first pair that was not handed out. A pair that a restarted worker wrote twice is handed out once.
"""

# ruff: noqa: INP001
import asyncio
import time
from collections.abc import Iterator
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

from agents.training.formats.chat import messages, tool_text
from schemas.training import DpoRecord
from streams.cluster import registry_of, resolve, start_consumer
from streams.codec import Codec
from streams.config import Settings
from streams.topics import DPO

REMEMBERED = 10_000
"""Ids of the last pairs: repetitions stand close to each other in the log."""


class DpoStream:
    """Pairs in the shape that TRL loads, as they come."""

    def __init__(
        self, settings: Settings, *, stop_after_idle_s: float | None = None, worker: int = 0, workers: int = 1
    ):
        self._settings = resolve(settings)
        self._stop_after_idle_s = stop_after_idle_s
        self._worker, self._workers = worker, workers
        self._offsets: dict[int, int] = {}
        self._recent: dict[str, None] = {}

    def state_dict(self) -> dict[str, Any]:
        """Where the stream stands: the next offset of each partition, and the pairs handed out last."""
        return {"offsets": dict(self._offsets), "recent": list(self._recent)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self._offsets = {int(partition): offset for partition, offset in state["offsets"].items()}
        self._recent = dict.fromkeys(state["recent"])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The pairs, without an end; or until none has come for a while."""
        with asyncio.Runner() as runner:
            registry = registry_of(self._settings)
            codec = Codec(registry, prefix=self._settings.prefix)
            consumer = runner.run(self._consumer())
            try:
                moved = time.monotonic()
                while self._stop_after_idle_s is None or time.monotonic() - moved < self._stop_after_idle_s:
                    found = runner.run(consumer.getmany(timeout_ms=500, max_records=500))
                    for record in (record for records in found.values() for record in records):
                        moved = time.monotonic()
                        unknown = codec.unknown_id(record.value)
                        if unknown is not None:
                            runner.run(codec.learn([unknown]))
                        pair = codec.decode(DPO, record.value)
                        self._offsets[record.partition] = record.offset + 1
                        assert isinstance(pair, DpoRecord)
                        if self._is_new(pair.record_id):
                            yield row(pair)
            finally:
                runner.run(consumer.stop())
                if registry is not None:
                    runner.run(registry.close())

    async def _consumer(self) -> AIOKafkaConsumer:
        """A client in no group: where it goes on is what the stream remembers, and nothing else."""
        consumer = await start_consumer(self._settings)
        name, numbers = self._settings.prefix + DPO.name, range(self._worker, self._settings.partitions, self._workers)
        consumer.assign([TopicPartition(name, number) for number in numbers])
        for number in numbers:
            consumer.seek(TopicPartition(name, number), self._offsets.get(number, 0))
        return consumer

    def _is_new(self, record_id: str) -> bool:
        if record_id in self._recent:
            return False
        self._recent[record_id] = None
        if len(self._recent) > REMEMBERED:
            del self._recent[next(iter(self._recent))]
        return True


def row(pair: DpoRecord) -> dict[str, Any]:
    """A pair as `braid export --format trl-dpo` writes it."""
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
    }


def torch_dataset(settings: Settings) -> Any:
    """The stream for a DataLoader: each of its workers reads its own partitions."""
    from torch.utils.data import IterableDataset, get_worker_info

    class Pairs(IterableDataset):  # type: ignore[type-arg, misc]
        def __iter__(self) -> Iterator[dict[str, Any]]:
            info = get_worker_info()
            number, count = (info.id, info.num_workers) if info else (0, 1)
            return iter(DpoStream(settings, worker=number, workers=count))

    return Pairs()
