"""The driver of the live worker: folds facts into rollouts, writes decisions, and emits closed rollouts.

It decides nothing itself: `agents/rollouts` decides when a rollout settles, what a closed one becomes, and which facts
count.
"""

import time
from collections import Counter

import structlog
from faust.types.tuples import TP

from agents.evidence.signing import SigningKey
from agents.facts.fact import Fact
from agents.rollouts.broken_log import BrokenLogError
from agents.rollouts.closure import has_read, read_first
from agents.rollouts.decision import decide
from agents.rollouts.rollout import Complaint, Rollout
from agents.rollouts.status import Status
from agents.trust.trusted_keys import UNTRUSTED, TrustedKeys, untrusted
from agents.verdicts.meaning import Verdict
from schemas.closures import Closure
from schemas.errors import DecodeError
from streams.cluster.config import Settings
from streams.log.facts import read_fact, rollout_of_key
from streams.log.text_spill import process_texts
from streams.log.topics import CLOSURES, FACTS, Topic
from streams.log.wire import Codec
from streams.services.live.deadlines import Deadlines
from streams.services.live.loop import TICK_S, Arrived, Loop
from streams.services.live.mark_expiry import MarkExpiry
from streams.services.live.marks import mark_of, mark_of_given_up, read_mark, repeats
from streams.services.live.open_rollout import OpenRollout
from streams.services.live.outbox import Outbox
from streams.services.live.refused import Refused
from streams.services.live.worker_metrics import WorkerMetrics

log = structlog.get_logger()


class RolloutDriver:
    """Rollouts of this worker's partitions."""

    def __init__(
        self,
        loop: Loop,
        settings: Settings,
        codec: Codec,
        key: SigningKey | None,
        metrics: WorkerMetrics,
        trusted: TrustedKeys | None = None,
    ) -> None:
        self._loop = loop
        self._settings = settings
        self._trusted = trusted
        """The keys whose verdicts count; None: all verdicts count."""
        self._codec = codec
        self._metrics = metrics
        self._topics = {settings.prefix + topic.name: topic for topic in FACTS}
        self._records = {topic: metrics.records.labels(topic.name) for topic in FACTS}
        self._open: dict[str, OpenRollout] = {}
        self._touched: list[OpenRollout] = []
        self._deadlines = Deadlines(self._open)
        self._refused = Refused(loop, settings, metrics)
        self._outbox = Outbox(loop, settings, codec, key, metrics)
        self._closures_end: dict[int, int] | None = None
        self._expiry = MarkExpiry(loop, settings)

    # -- taking facts in -----------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Forget everything: the log is read again from the commits."""
        self._open.clear()
        self._touched.clear()
        self._deadlines.clear()
        self._refused.clear()
        self._closures_end = None
        self._expiry = MarkExpiry(self._loop, self._settings)

    async def prepare(self, values: list[bytes | None]) -> None:
        """Look up schemas that were never seen, before anything is decoded."""
        await self._codec.prepare(values)

    def take(self, record: Arrived) -> str | None:
        """Fold a record in; returns its rollout while that is open."""
        topic = self._topics[record.topic]
        self._records[topic].inc()
        try:
            rollout_id = rollout_of_key(record.key)
            row = self._loop.marks.rows().get(rollout_id)
            if row is not None:
                self._take_after_close(record, topic, row)
                return None
            fact = read_fact(self._codec, topic, record.value, rollout_id)
        except DecodeError as error:
            self._refused.add(record, "undecodable", str(error), type(error).__name__)
            return None
        return self._take_fact(record, rollout_id, fact) if self._lets_in(record, fact) else None

    def _lets_in(self, record: Arrived, fact: Fact) -> bool:
        """Whether a fact may count: of verdicts only those that a trusted key has signed; the others are dead letters."""
        if self._trusted is None or not isinstance(fact, Verdict):
            return True
        why = untrusted(fact, self._trusted)
        if why is not None:
            self._refused.add(record, UNTRUSTED, why)
        return why is None

    def _take_fact(self, record: Arrived, rollout_id: str, fact: Fact) -> str | None:
        opened = self._open.get(rollout_id)
        is_new = opened is None
        if opened is None:
            rollout = Rollout(rollout_id, redacting=self._settings.emission.redact, texts=process_texts())
            opened = OpenRollout(rollout, record.partition, is_news=True)
        rollout = opened.rollout
        self._metrics.count(fact)
        was = rollout.status
        ref = (record.topic, record.partition, record.offset)
        complaints = rollout.add(fact, record.at, ref)
        for complaint in complaints:
            if complaint.ref == ref:
                self._refused.add(record, complaint.reason, complaint.message)
            else:
                self._refused.add_stray(complaint)
        if is_new:
            if complaints:
                return None  # nothing of it counts: it opens no rollout
            self._open[rollout_id] = opened
        if not isinstance(fact, Closure):
            opened.last_read = time.monotonic()
        elif rollout.status is Status.SETTLED and was is not Status.SETTLED:
            self._settled_read_back(opened)
        self._touch(opened)
        return rollout_id

    def _take_after_close(self, record: Arrived, topic: Topic, row: bytes) -> None:
        """Handle a fact of a rollout that has closed or was given up: read again, repeated, or late."""
        mark = read_mark(row)
        if record.offset < mark.read_to.get(topic.name, 0):
            return
        try:
            fact = read_fact(self._codec, topic, record.value, rollout_of_key(record.key))
        except DecodeError as error:
            self._refused.add(record, "undecodable", str(error), type(error).__name__)
            return
        if not self._lets_in(record, fact):
            return
        if repeats(mark, fact):
            self._metrics.repeated.inc()
        elif mark.given_up:
            self._refused.add(record, "given_up", "the rollout was given up; `braid show` says why")
        else:
            self._refused.add(record, "late", "the rollout has closed")

    def _settled_read_back(self, opened: OpenRollout) -> None:
        if opened.last_read is not None:
            self._metrics.settle_latency.observe(time.monotonic() - opened.last_read)
        settled = opened.rollout.settled
        if settled is not None and settled.judge_deadline_ms is not None:
            opened.is_news = True  # votes may take a while: people see that it has settled

    def _touch(self, opened: OpenRollout) -> None:
        """Mark a rollout for the next `advance`."""
        if not opened.is_touched:
            opened.is_touched = True
            self._touched.append(opened)

    # -- what follows --------------------------------------------------------------------------------------------------

    async def advance(self) -> None:
        """Write dead letters, decisions and the output of closed rollouts; wait for all of it."""
        await self._refused.write()
        await self._learn_ends()
        touched, self._touched = self._touched, []
        finished: list[OpenRollout] = []
        for opened in touched:
            opened.is_touched = False
            if opened.rollout_id not in self._open:
                continue  # given up since
            if await self._advance_one(opened):
                finished.append(opened)
            elif opened.is_news:
                self._outbox.show(opened)
            opened.is_news = False
        await self._refused.write()
        self._finish(finished)

    async def _learn_ends(self) -> None:
        """Fetch once the end of the decisions at our start: see `_knows_decisions`."""
        assigned = self._loop.assigned()
        if self._closures_end is None and assigned:
            topic = self._settings.prefix + CLOSURES.name
            ends = await self._loop.end_offsets(TP(topic, partition) for partition in assigned)
            self._closures_end = {tp.partition: end for tp, end in ends.items()}

    def _knows_decisions(self, partition: int) -> bool:
        """Whether all earlier decisions have been read: a restart must not decide again what is in the log."""
        position = self._loop.position(self._settings.prefix + CLOSURES.name, partition)
        return self._closures_end is not None and position >= self._closures_end.get(partition, 0)

    async def _advance_one(self, opened: OpenRollout) -> bool:
        """Take a rollout as far as its facts lead; True when it is finished and everything about it has been written."""
        try:
            await self._outbox.announce(opened)
            if opened.rollout.has_closed_facts():
                await self._outbox.emit(opened)
                return True
            await self._decide(opened)
            await self._outbox.ask(opened)
        except BrokenLogError as error:
            self._give_up(opened, str(error))
            return True
        self._schedule(opened)
        return False

    async def _decide(self, opened: OpenRollout) -> None:
        rollout, partition = opened.rollout, opened.partition
        if not self._knows_decisions(partition):
            self._touch(opened)
            return
        # Only a closing records how far the log was read.
        read_to = self._read_to(partition) if rollout.status is Status.SETTLED else {}
        decision = decide(
            rollout, self._settings.emission, self._settings.closing, self._loop.watermark(partition), read_to
        )
        if decision is not None:
            await self._outbox.decision(opened, decision)

    def _read_to(self, partition: int) -> dict[str, int]:
        """By fact topic, the offset of the next record."""
        return {topic.name: self._loop.position(name, partition) for name, topic in self._topics.items()}

    def _finish(self, finished: list[OpenRollout]) -> None:
        for opened in finished:
            rollout, partition = opened.rollout, opened.partition
            if rollout.settled and rollout.closed:
                mark = mark_of(rollout.settled, rollout.closed)
            else:
                mark = mark_of_given_up(self._loop.stream_time(partition), self._read_to(partition))
            self._loop.finish(partition, opened.rollout_id, mark)
            self._expiry.remember(partition, opened.rollout_id, mark)
            del self._open[opened.rollout_id]

    def _give_up(self, opened: OpenRollout, why: str) -> None:
        """Give up a rollout that cannot be made from the facts in the log.

        The first of its records becomes a dead letter with the reason; later ones become dead letters, too.
        """
        self._metrics.broken.inc()
        log.error("broken", rollout=opened.rollout_id, partition=opened.partition, error=why)
        self._outbox.show(opened, broken=why)
        first = self._loop.first(opened.partition, opened.rollout_id)
        if first is not None:
            self._refused.add_stray(Complaint((first[0], opened.partition, first[1]), "given_up", why))

    # -- deadlines -----------------------------------------------------------------------------------------------------

    def _schedule(self, opened: OpenRollout) -> None:
        """Look at a rollout again when its next deadline is due, or its partition has been read far enough."""
        rollout = opened.rollout
        if rollout.status in (Status.OPEN, Status.SETTLED):
            unread = read_first(rollout)
            if unread is not None and not has_read(rollout, self._loop.watermark(opened.partition)):
                self._deadlines.await_reading(opened, unread)
        at = opened.next_look(self._settings.closing)
        if at is not None:
            self._deadlines.look(opened, at)

    async def tick(self) -> None:
        """Check the rollouts whose deadline has come."""
        await self._learn_ends()
        now = int(time.time() * 1000)
        due = self._deadlines.due(now)
        if due:
            await self._loop.refresh_ends({opened.partition for opened in due})
        await self._look_at_read()
        given_up = [opened for opened in due if await self._look_at_due(opened, now)]
        await self._refused.write()
        self._finish(given_up)
        if self._touched:
            await self.advance()
        await self._expiry.forget()
        self._gauges()

    async def _look_at_due(self, opened: OpenRollout, now: int) -> bool:
        """Decide about a rollout whose deadline has come; return True if it was given up."""
        if opened.is_broken(self._loop.watermark(opened.partition)):
            untrusted_too = "" if self._trusted is None else ", or verdicts that trusted_verifiers does not let in"
            self._give_up(opened, f"facts that were pinned are not in the log any more{untrusted_too}")
            return True
        try:
            await self._decide(opened)
        except BrokenLogError as error:
            self._give_up(opened, str(error))
            return True
        look = opened.next_look(self._settings.closing)
        if look is not None:
            # Still waiting: for a later deadline, or for topics that have not been read up to this one.
            self._deadlines.look(opened, max(look, now + int(TICK_S * 1000)))
        return False

    async def _look_at_read(self) -> None:
        """Touch the rollouts for which everything that they waited for has been read."""
        waiting = self._deadlines.unread()
        if not waiting:
            return
        await self._loop.refresh_ends(waiting)
        for partition in waiting:
            for opened in self._deadlines.read(partition, self._loop.watermark(partition)):
                self._touch(opened)

    def _gauges(self) -> None:
        counts = Counter(opened.rollout.status.value for opened in self._open.values())
        for status in Status:
            self._metrics.open.labels(status.value).set(counts.get(status.value, 0))
        self._metrics.trail.set(self._loop.trail())
        self._metrics.lag.set(self._loop.unread())
