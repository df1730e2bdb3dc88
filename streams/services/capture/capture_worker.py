"""The capture worker: folds captures into the events of their branches, in a consumer group of its own.

Branches live in memory only. The commit of a partition stays at the first capture of its oldest rollout that has not
settled, so after a crash the captures are simply read again: the fold gives the same slices, and those already in the
log are not written twice. A branch without an end is ended by a capture that this worker writes, decided in append
time; it counts once it has been read back.
"""

import asyncio
import time
from collections import defaultdict, deque
from typing import Any

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition

from agents.capture.capture_fold import CaptureFold, RefusedCaptureError
from schemas.captures import Capture
from schemas.closures import RolloutSettled
from schemas.events import AgentEvents
from schemas.jsontext import compact
from streams.cluster.config import Settings
from streams.log.headers import identity
from streams.log.kafka_writer import FactWriter
from streams.log.letters import bury, letter_of
from streams.log.record import consumed
from streams.log.topics import AGENT_EVENTS, CAPTURES, CLOSURES
from streams.services.group_worker import REMEMBERED, GroupWorker, Held, Recent, Role, run_in_group

LOOK_BACK_MS = 60_000
"""Events and closures are read from this long before the first capture on."""

VISIBLE_MS = 200
"""Safety margin: an end offset may miss records appended within the last 200 ms (replication)."""

LOOK_S = 0.5
"""How often branches are checked for their ends."""

WHOLE_MS = 2_000
"""A trace is over this long after its last span, when all of its spans are there and have ended."""

REPEATED_S = 120.0
"""Exporters stop sending a span again after this time."""

PARALLEL = 64

BranchKey = tuple[str, int, int]

log = structlog.get_logger()


class Branch:
    """One attempt of one branch, from its first capture until its rollout settles."""

    def __init__(self, key: BranchKey, at: int) -> None:
        self.fold = CaptureFold(*key)
        self.order = asyncio.Lock()
        """Slices are written in their order."""
        self.first_at = self.last_at = at
        self.decided: int | None = None
        """The offset up to which an end was decided: it is not written twice."""

    def due(self, settings: Settings, now: int) -> str | None:
        """Why the branch is over at a time; None while it is not."""
        config = settings.capture
        if self.fold.is_ended or self.fold.last_offset < 0 or self.decided == self.fold.last_offset:
            return None
        if self.fold.bytes > config.max_branch_bytes:
            return "size"
        spans = self.fold.spans
        if spans is not None and spans.is_whole and now >= self.last_at + WHOLE_MS:
            return "whole"
        if now >= self.last_at + (config.idle_s if spans is None else config.trace_idle_s) * 1000:
            return "idle"
        return "age" if now >= self.first_at + config.max_age_s * 1000 else None


class CaptureWorker(GroupWorker):
    """Folds the captures of its partitions."""

    def __init__(self, writer: FactWriter) -> None:
        settings = writer.settings
        role = Role(
            name="captures",
            topic=CAPTURES,
            known=(AGENT_EVENTS, CLOSURES),
            group=settings.capture_group,
            slot=settings.worker.slot,
            parallel=PARALLEL,
            grace_s=5.0,
            look_back_ms=LOOK_BACK_MS,
            ready="captures ready",  # the worker beside it reports when rollouts are folded
        )
        super().__init__(role, writer)
        self._branches: dict[Held, dict[str, dict[BranchKey, Branch]]] = defaultdict(dict)
        self._offsets: dict[Held, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        self._settled: dict[Held, dict[str, int]] = defaultdict(dict)
        self._over: dict[Held, Recent] = defaultdict(Recent)
        """Traces that have ended, and have no spans under their own ids."""
        self._leaving: dict[Held, deque[tuple[float, list[int]]]] = defaultdict(deque)
        """Their offsets, and when they are finished."""
        self._looked = 0.0
        self._ends: tuple[int, dict[TopicPartition, int]] = (0, {})
        """A time, and the ends of the partitions then. An end is decided as of that time, once everything up to it was
        read: if captures arrive without a pause, no reader ever reaches the current end.
        """

    async def do(self, held: Held, record: Capture, stored: Any) -> bool:
        """Fold a capture, and write the resulting slices. Nothing is waited for before it is folded: captures keep
        their order.
        """
        rollout_id, offset = record.rollout_id, stored.offset
        settled_at = self._settled[held].get(rollout_id)
        if settled_at is not None and stored.timestamp > settled_at:
            await self._refuse(stored, "late", "its rollout has settled")
            return True
        if settled_at is not None:
            # Read again, possibly from the middle: a fold of the rest would give another branch.
            return True
        if rollout_id in self._over[held]:
            if record.kind != "end":
                await self._refuse(stored, "late", "its trace has ended")
            return True
        key = (rollout_id, record.branch_index, record.attempt)
        branches = self._branches[held].setdefault(rollout_id, {})
        branch = branches.get(key)
        if branch is None:
            branch = branches[key] = Branch(key, stored.timestamp)
        self._offsets[held][rollout_id].append(offset)
        try:
            slices = branch.fold.take(record, offset)
        except RefusedCaptureError as error:
            await self._refuse(stored, error.reason, str(error))
            return False
        if branch.fold.last_offset == offset:
            branch.last_at = stored.timestamp
        async with branch.order:
            for each in slices:
                if identity(each) not in held.written and not held.lost:
                    await self.write(each)
        if branch.fold.is_ended and not any(isinstance(each, AgentEvents) for each in slices):
            self._release(held, rollout_id)
        return False  # the commit waits for the rollout to settle

    def _release(self, held: Held, rollout_id: str) -> None:
        """A trace whose spans all moved to other branches never settles: everything that follows from it is in the log.
        Its later spans are late.

        Its offsets are kept for a while: so it is known after a crash that it is over, and a repeated span begins no
        other.
        """
        branches = self._branches[held].get(rollout_id, {})
        if any(not each.fold.is_ended or each.fold.has_events for each in branches.values()):
            return
        self._leaving[held].append((time.monotonic() + REPEATED_S, self._offsets[held].pop(rollout_id, [])))
        self._over[held].add(rollout_id)
        self._branches[held].pop(rollout_id, None)

    def settled(self, held: Held, settled: RolloutSettled) -> None:
        """Drop a rollout: everything of it that counts is in the log, and later captures are late."""
        known = self._settled[held]
        known[settled.rollout_id] = settled.decided_at_ms
        if len(known) > REMEMBERED:
            del known[next(iter(known))]
        self._branches[held].pop(settled.rollout_id, None)
        for offset in self._offsets[held].pop(settled.rollout_id, ()):
            held.finish(offset)

    async def tick(self, consumer: AIOKafkaConsumer, decisions: AIOKafkaConsumer) -> None:
        """Write the ends of branches that are over."""
        if time.monotonic() - self._looked < LOOK_S:
            return
        self._looked = time.monotonic()
        await asyncio.sleep(0)  # everything that was taken is folded by now
        self._forget()
        asked_at, ends = self._ends
        due = [
            (held, branch, key, reason)
            for held, rollouts in self._branches.items()
            for branches in rollouts.values()
            for key, branch in branches.items()
            if key[0] not in self._settled[held] and (reason := branch.due(self.settings, asked_at)) is not None
        ]
        topic = self.settings.prefix + CAPTURES.name
        for held, branch, key, reason in due:
            tp = TopicPartition(topic, held.partition)
            if held.partition in self._held and tp in ends and await consumer.position(tp) >= ends[tp]:
                await self._decide(branch, key, reason, asked_at)
        tps = [TopicPartition(topic, held.partition) for held, rollouts in self._branches.items() if rollouts]
        now = int(time.time() * 1000) - VISIBLE_MS
        self._ends = now, await decisions.end_offsets(tps) if tps else {}

    def _forget(self) -> None:
        """Drop lost partitions."""
        for lost in [held for held in {*self._branches, *self._leaving} if held.lost]:
            self._branches.pop(lost, None)
            self._offsets.pop(lost, None)
            self._settled.pop(lost, None)
            self._over.pop(lost, None)
            self._leaving.pop(lost, None)
        for held, leaving in self._leaving.items():
            while leaving and leaving[0][0] <= self._looked:
                for offset in leaving.popleft()[1]:
                    held.finish(offset)

    async def _decide(self, branch: Branch, key: BranchKey, reason: str, now: int) -> None:
        read_to = branch.decided = branch.fold.last_offset
        rollout_id, index, attempt = key
        body = compact({"reason": reason, "read_to": read_to}).encode()
        log.info("branch over", rollout=rollout_id, branch=index, attempt=attempt, reason=reason)
        await self.write(
            Capture(
                rollout_id=rollout_id, branch_index=index, attempt=attempt, capture_id=f"{reason}-{read_to}", kind="end",
                source="fold", received_ms=now, body=body,
            )
        )  # fmt: skip

    async def _refuse(self, stored: Any, reason: str, message: str) -> None:
        letter = letter_of(stored.topic, stored.partition, consumed(stored), reason, message)
        await bury(letter, self.settings.prefix, self._writer.put)


async def run_capture_worker(settings: Settings, *, stop: asyncio.Event | None = None) -> None:
    """Fold captures until a signal (or `stop`) ends it."""
    async with FactWriter(settings, "captures") as writer:
        await run_in_group(CaptureWorker(writer), stop)
