"""Our interventions in Faust, and why: every private name that the live loop needs, in one file, each with a test.

Unchanged, Faust loses messages when it restarts: it resumes source partitions before it has moved to the committed
offsets and emptied its queues, and its own acknowledging can run past unprocessed messages. Therefore source partitions
are held back until the flow resumes, offsets are committed by us, and tables are written with acknowledgements that can
be awaited. Passing a message through Faust's queues costs more than folding it, so all messages that one poll returns
for a source partition pass as one. faust-streaming, aiokafka and mode-streaming are pinned exactly because of this
file.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from typing import Any, cast

import faust
from faust.transport.drivers import aiokafka as driver
from faust.types.tuples import TP, ConsumerMessage

POLL_S = 0.25
"""A poll may wait this long for messages; rebalances and shutdown wait for polls."""


class SafeConsumer(driver.Consumer):
    """A consumer that starts every source partition exactly at its committed offset."""

    _held_back: frozenset[TP] = frozenset()
    start_at: dict[TP, int] = {}  # noqa: RUF012 - replaced as a whole, never changed in place
    """The start of each source partition after a rebalance."""

    def is_source(self, tp: TP) -> bool:
        """Whether a partition is read by the loop, not by a table's recovery."""
        return tp.topic not in self.app.tables.changelog_topics

    def resume_partitions(self, tps: Iterable[TP]) -> None:
        """Resume tables at once, sources only when the flow resumes: by then they are at their offsets."""
        resumed = set(tps)
        late = frozenset(tp for tp in resumed if self.is_source(tp))
        self._held_back = late or self._held_back
        super().resume_partitions(resumed - late)

    def resume_flow(self) -> None:
        """Let messages through again."""
        late, self._held_back = self._held_back, frozenset()
        if late:
            super().resume_partitions(set(late))
        super().resume_flow()

    def stop_flow(self) -> None:
        """Hold messages back."""
        self._held_back = frozenset()
        super().stop_flow()

    async def _getmany(self, active_partitions: set[TP] | None, timeout: float) -> Any:
        # The set changes under the poll during a rebalance: poll with a copy.
        frozen = active_partitions if active_partitions is None else set(active_partitions)
        found = await super()._getmany(frozen, min(timeout, POLL_S))
        return {tp: [records] if records and self.is_source(tp) else records for tp, records in found.items()}

    def _to_message(self, tp: TP, record: Any) -> ConsumerMessage:
        if not isinstance(record, list):
            return super()._to_message(tp, record)
        last = record[-1]
        return ConsumerMessage(
            tp.topic, tp.partition, last.offset, last.timestamp / 1000, last.timestamp_type, None, None, cast("Any", record), None,
            0, 0, tp, generation_id=self.app.consumer_generation_id,
        )  # fmt: skip

    async def seek_to_committed(self) -> Mapping[TP, int]:
        """Move to the committed offsets; aiokafka leaves partitions without one where they are, so those are moved
        here.
        """
        found = await super().seek_to_committed()
        at = {TP(*tp): offset for tp, offset in found.items() if self.is_source(TP(*tp))}
        unset = [tp for tp, offset in at.items() if not offset]
        if unset:
            for tp, offset in (await self.earliest_offsets(*unset)).items():
                await self.seek(TP(*tp), offset)
                at[TP(*tp)] = offset
        self.start_at = at
        return at

    async def commit_offsets(self, offsets: dict[TP, int]) -> bool:
        """Commit exactly these offsets."""
        return bool(await self._commit(offsets))


class SafeTransport(driver.Transport):
    """The transport that uses the safe consumer."""

    Consumer = SafeConsumer


class DisklessApp(faust.App):
    """An app without a directory: its tables are in memory, and one for each slot would stay behind in /tmp."""

    def _create_directories(self) -> None:
        pass


class AckedTable(faust.Table[str, bytes]):
    """A table whose changelog writes can be waited for; read again as a whole after every rebalance."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._unsettled: list[Awaitable[Any]] = []

    def put(self, partition: int, key: str, value: bytes, *, remember: bool = True) -> None:
        """Set a row (its value must not be empty). `remember=False` writes it without keeping it in memory."""
        if remember:
            self.rows()[key] = value
        self._unsettled.append(self.send_changelog(partition, key, value))

    def drop(self, partition: int, key: str) -> None:
        """Remove a row."""
        self.rows().pop(key, None)
        self._unsettled.append(self.send_changelog(partition, key, None, value_serializer="raw"))

    def rows(self) -> dict[str, bytes]:
        """The rows in memory, without the bookkeeping of Faust's own mapping."""
        rows: Any = self.data.data
        return cast("dict[str, bytes]", rows)

    async def settle(self) -> None:
        """Wait until the broker has every write; a failed one raises."""
        waiting, self._unsettled = self._unsettled, []
        if waiting:
            await asyncio.gather(*waiting)

    async def on_rebalance(
        self, assigned: set[TP], revoked: set[TP], newly_assigned: set[TP], generation_id: int = 0
    ) -> None:
        """Drop everything, so that recovery reads the whole (small) changelog: no row of a lost partition survives."""
        self.rows().clear()
        cast("Any", self.app.tables).recovery.active_offsets.clear()
        await super().on_rebalance(assigned, revoked, newly_assigned, generation_id)
