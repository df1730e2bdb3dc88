"""The driver of the live worker: folds facts into rollouts, writes decisions, and emits what is closed.

Nothing is decided here: `agents/rollouts` says when a rollout settles, what a closed one becomes, and what does not count.
"""

import heapq
import time
from collections import Counter

import orjson
import structlog
from faust.types.tuples import TP

from agents.evidence.signing import SigningKey
from agents.facts.fact import Fact
from agents.rollouts.branch_records import Ended, ended_branch
from agents.rollouts.broken_log import BrokenLogError
from agents.rollouts.closure import has_read, read_first
from agents.rollouts.decision import decide
from agents.rollouts.emission import Emission, emit
from agents.rollouts.judge_requests import judge_requests
from agents.rollouts.pinned_config import pinned_config
from agents.rollouts.rollout import Complaint, Rollout
from agents.rollouts.settlement import next_cutoff
from agents.rollouts.status import Status
from schemas.base import Record
from schemas.closures import Closure, RolloutSettled
from schemas.errors import DecodeError
from schemas.events import AgentEvents
from schemas.judging import JudgeVote
from streams.cluster.config import Settings
from streams.cluster.judge_client import ASKED_BY_US
from streams.log.envelope import Envelope, TooLargeError
from streams.log.facts import read_fact, rollout_of_key
from streams.log.headers import identity
from streams.log.topics import BY_RECORD, CLOSURES, FACTS, Topic
from streams.log.wire import Codec
from streams.services.live.forgetting import Forgetting
from streams.services.live.loop import TICK_S, Arrived, Loop
from streams.services.live.marks import mark_of, mark_of_given_up, read_mark, repeats
from streams.services.live.metrics import Metrics
from streams.services.live.refused import Refused
from streams.services.live.view import view_row

PATIENCE_MS = 5_000
"""How long pinned facts may take to be read before the log is asked whether they exist at all."""

log = structlog.get_logger()


class RolloutDriver:
    """Rollouts of this worker's partitions."""

    def __init__(self, loop: Loop, settings: Settings, codec: Codec, key: SigningKey | None, metrics: Metrics) -> None:
        self._loop = loop
        self._settings = settings
        self._codec = codec
        self._envelope = Envelope(codec, "worker", settings.partitions, settings.prefix)
        self._key = key
        self._metrics = metrics
        self._config_digest = settings.emission.digest
        self._topics = {settings.prefix + topic.name: topic for topic in FACTS}
        self._records = {topic: metrics.records.labels(topic.name) for topic in FACTS}
        self._written = {topic: metrics.written.labels(topic.name) for topic in BY_RECORD.values()}
        self._open: dict[str, Rollout] = {}
        self._partition: dict[str, int] = {}
        self._touched: dict[str, None] = {}
        self._refused = Refused(loop, settings, metrics)
        self._due: list[tuple[int, str]] = []
        self._scheduled: dict[str, int] = {}
        self._reading: dict[int, list[tuple[int, str]]] = {}
        """By partition, rollouts to look at when everything up to a time has been read: the earliest first."""
        self._awaited: dict[str, int] = {}
        """The time that is awaited for each of them."""
        self._closures_end: dict[int, int] | None = None
        self._fresh: dict[str, None] = {}
        self._last_read: dict[str, float] = {}
        self._ended: dict[str, dict[int, Ended]] = {}
        self._asked: dict[str, None] = {}
        self._forgetting = Forgetting(loop, settings)

    # -- taking facts in -----------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Forget everything: the log is read again from the commits."""
        for memory in (
            self._open,
            self._partition,
            self._touched,
            self._fresh,
            self._last_read,
            self._ended,
            self._asked,
            self._reading,
            self._awaited,
        ):
            memory.clear()
        self._refused.clear()
        self._due = []
        self._scheduled.clear()
        self._closures_end = None
        self._forgetting = Forgetting(self._loop, self._settings)

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
        return self._take_fact(record, rollout_id, fact)

    def _take_fact(self, record: Arrived, rollout_id: str, fact: Fact) -> str | None:
        rollout = self._open.get(rollout_id)
        fresh = rollout is None
        if rollout is None:
            rollout = Rollout(rollout_id, redacting=self._settings.emission.redact)
        self._count(fact)
        was = rollout.status
        ref = (record.topic, record.partition, record.offset)
        complaints = rollout.add(fact, record.at, ref)
        for complaint in complaints:
            if complaint.ref == ref:
                self._refused.add(record, complaint.reason, complaint.message)
            else:
                self._refused.add_stray(complaint)
        if fresh:
            if complaints:
                return None  # nothing of it counts: it opens no rollout
            self._open[rollout_id] = rollout
            self._partition[rollout_id] = record.partition
            self._fresh[rollout_id] = None
        if isinstance(fact, Closure):
            if rollout.status is Status.SETTLED and was is not Status.SETTLED:
                self._settled_read_back(rollout_id, rollout)
        else:
            self._last_read[rollout_id] = time.monotonic()
        self._touched[rollout_id] = None
        return rollout_id

    def _take_after_close(self, record: Arrived, topic: Topic, row: bytes) -> None:
        """A fact of a rollout that has closed or was given up: read again, said again, or too late."""
        mark = read_mark(row)
        if record.offset < mark.read_to.get(topic.name, 0):
            return
        try:
            fact = read_fact(self._codec, topic, record.value, rollout_of_key(record.key))
        except DecodeError as error:
            self._refused.add(record, "undecodable", str(error), type(error).__name__)
            return
        if repeats(mark, fact):
            self._metrics.repeated.inc()
        elif mark.given_up:
            self._refused.add(record, "given_up", "the rollout was given up; `braid show` says why")
        else:
            self._refused.add(record, "late", "the rollout has closed")

    def _count(self, fact: Fact) -> None:
        if isinstance(fact, AgentEvents):
            self._metrics.slices.inc()
            self._metrics.events.inc(len(fact.events))
        elif isinstance(fact, JudgeVote):
            self._metrics.votes.labels(fact.cause or fact.preferred or "score").inc()

    def _settled_read_back(self, rollout_id: str, rollout: Rollout) -> None:
        last = self._last_read.get(rollout_id)
        if last is not None:
            self._metrics.settle_latency.observe(time.monotonic() - last)
        if rollout.settled is not None and rollout.settled.judge_deadline_ms is not None:
            self._fresh[rollout_id] = None  # votes may take a while: people see that it has settled

    # -- what follows --------------------------------------------------------------------------------------------------

    async def advance(self) -> None:
        """Write dead letters, decisions and what is closed; wait for all of it."""
        await self._refused.write()
        await self._learn_ends()
        touched, self._touched = self._touched, {}
        finished: list[str] = []
        for rollout_id in touched:
            rollout = self._open.get(rollout_id)
            if rollout is not None and await self._advance_one(rollout_id, rollout):
                finished.append(rollout_id)
        for rollout_id in self._fresh:
            if rollout_id in self._open and rollout_id not in finished:
                self._show(rollout_id, self._open[rollout_id])
        self._fresh.clear()
        await self._refused.write()
        self._finish(finished)

    async def _learn_ends(self) -> None:
        """Ask once where the decisions ended when we began: see `_knows_decisions`."""
        assigned = self._loop.assigned()
        if self._closures_end is None and assigned:
            topic = self._settings.prefix + CLOSURES.name
            ends = await self._loop.end_offsets(TP(topic, partition) for partition in assigned)
            self._closures_end = {tp.partition: end for tp, end in ends.items()}

    def _knows_decisions(self, partition: int) -> bool:
        """Whether all earlier decisions have been read: a restart must not decide again what stands in the log."""
        position = self._loop.position(self._settings.prefix + CLOSURES.name, partition)
        return self._closures_end is not None and position >= self._closures_end.get(partition, 0)

    async def _advance_one(self, rollout_id: str, rollout: Rollout) -> bool:
        """Take a rollout as far as its facts lead; True when it is finished and everything about it has been written."""
        try:
            await self._announce(rollout_id, rollout)
            if rollout.has_closed_facts():
                await self._emit(rollout_id, rollout)
                return True
            await self._decide(rollout_id, rollout)
            await self._ask(rollout_id, rollout)
        except BrokenLogError as error:
            self._give_up(rollout_id, rollout, str(error))
            return True
        self._schedule(rollout_id, rollout)
        return False

    async def _announce(self, rollout_id: str, rollout: Rollout) -> None:
        """Write the records of branches that have just ended: verifiers wait for them."""
        for index, number in rollout.newly_ended():
            try:
                ended = ended_branch(rollout, index, number, self._settings.emission)
            except BrokenLogError as error:  # closing will meet it again, and give the rollout up for good
                log.warning("not announced", rollout=rollout_id, branch=index, attempt=number, error=str(error))
                continue
            self._ended.setdefault(rollout_id, {})[index] = ended
            redacted = rollout.redacting and self._settings.emission.redact
            version = self._settings.emission.version
            await self._write(
                ended.record, rollout_id, self._partition[rollout_id], ended.body, version, redacted=redacted
            )

    async def _decide(self, rollout_id: str, rollout: Rollout) -> None:
        partition = self._partition[rollout_id]
        if not self._knows_decisions(partition):
            self._touched[rollout_id] = None
            return
        # Only a closing says how far the log was read.
        read_to = self._read_to(partition) if rollout.status is Status.SETTLED else {}
        decision = decide(
            rollout, self._settings.emission, self._settings.closing, self._loop.watermark(partition), read_to
        )
        if decision is None:
            return
        settling = isinstance(decision, RolloutSettled)
        closure = Closure(settled=decision) if isinstance(decision, RolloutSettled) else Closure(closed=decision)
        await self._write(closure, rollout_id, partition)
        log.debug("settling" if settling else "closing", rollout=rollout_id, partition=partition, cause=decision.cause)

    def _read_to(self, partition: int) -> dict[str, int]:
        """By fact topic, the offset of the next record."""
        return {topic.name: self._loop.position(name, partition) for name, topic in self._topics.items()}

    async def _ask(self, rollout_id: str, rollout: Rollout) -> None:
        """Write what the judge is asked, once; after a restart it may be written again, with the same ids."""
        settled = rollout.settled
        if rollout.status is not Status.SETTLED or settled is None or rollout_id in self._asked:
            return
        if settled.judge_deadline_ms is None or not rollout.has_settled_facts():
            return
        self._asked[rollout_id] = None
        config = pinned_config(settled)
        judge = config.judge
        if judge.kind not in ASKED_BY_US:
            return
        try:
            asking = judge_requests(rollout)
        except BrokenLogError as error:  # closing will meet it again, and give the rollout up
            log.warning("nothing to ask", rollout=rollout_id, error=str(error))
            return
        if asking.own_model:
            log.warning("the judge is the model that made a branch", rollout=rollout_id, model=judge.model)
        for tie in asking.ties:
            await self._write(tie, rollout_id, self._partition[rollout_id])
        for request in asking.requests:
            await self._write(request, rollout_id, self._partition[rollout_id], emission=config.version)
        log.info("asking", rollout=rollout_id, requests=len(asking.requests), ties=len(asking.ties))

    async def _emit(self, rollout_id: str, rollout: Rollout) -> None:
        partition = self._partition[rollout_id]
        ended = self._ended.get(rollout_id, {})
        # Another worker may have settled it under another configuration: then its records say other things.
        same = rollout.settled is not None and rollout.settled.config_digest == self._config_digest
        emission = emit(rollout, ended=ended if same else None)
        version = emission.bodies.emission
        announced = {each.record.record_id for each in ended.values()}
        branches = [branch for branch in emission.branches if branch.record_id not in announced]
        for record in (*branches, emission.ranking, *emission.rows, *emission.rejected):
            body = emission.bodies[identity(record)]
            await self._write(record, rollout_id, partition, body, version, redacted=emission.redacted)
        for evidence in emission.signed(self._key):
            await self._write(evidence, rollout_id, partition, emission=version)
        self._show(rollout_id, rollout, emission)
        assert rollout.settled is not None
        assert rollout.closed is not None
        self._metrics.closed.labels(rollout.settled.cause, rollout.closed.cause).inc()
        last = self._last_read.get(rollout_id)
        if last is not None:
            self._metrics.close_latency.observe(time.monotonic() - last)
        log.info(
            "closed",
            rollout=rollout_id,
            partition=partition,
            settled=rollout.settled.cause,
            closed=rollout.closed.cause,
            rows=len(emission.rows),
        )

    def _finish(self, finished: list[str]) -> None:
        for rollout_id in finished:
            rollout, partition = self._open[rollout_id], self._partition[rollout_id]
            if rollout.settled and rollout.closed:
                mark = mark_of(rollout.settled, rollout.closed)
            else:
                mark = mark_of_given_up(self._loop.stream_time(partition), self._read_to(partition))
            self._loop.finish(partition, rollout_id, mark)
            self._forgetting.remember(partition, rollout_id, mark)
            for memory in (
                self._open, self._partition, self._last_read, self._scheduled, self._awaited, self._ended, self._asked,
            ):  # fmt: skip
                memory.pop(rollout_id, None)

    def _give_up(self, rollout_id: str, rollout: Rollout, why: str) -> None:
        """Nothing can be made of it, as what the log holds is: say so, keep nothing, hold nobody up.

        The first of its records becomes a dead letter that says why; those that come later become dead letters, too.
        """
        partition = self._partition[rollout_id]
        self._metrics.broken.inc()
        log.error("broken", rollout=rollout_id, partition=partition, error=why)
        self._show(rollout_id, rollout, broken=why)
        first = self._loop.first(partition, rollout_id)
        if first is not None:
            self._refused.add_stray(Complaint((first[0], partition, first[1]), "given_up", why))

    # -- deadlines -----------------------------------------------------------------------------------------------------

    def _schedule(self, rollout_id: str, rollout: Rollout) -> None:
        """Look at a rollout again when its next deadline is due. A deadline that moves later is found when it comes up."""
        self._schedule_reading(rollout_id, rollout)
        at = self._next_look(rollout)
        if at is not None and at < self._scheduled.get(rollout_id, at + 1):
            self._scheduled[rollout_id] = at
            heapq.heappush(self._due, (at, rollout_id))

    def _schedule_reading(self, rollout_id: str, rollout: Rollout) -> None:
        """Look at a rollout again when everything up to its release, or its settling, has been read."""
        if rollout.status is not Status.OPEN and rollout.status is not Status.SETTLED:
            return
        partition, unread = self._partition[rollout_id], read_first(rollout)
        if unread is None or has_read(rollout, self._loop.watermark(partition)):
            return
        if self._awaited.get(rollout_id) != unread:
            self._awaited[rollout_id] = unread
            heapq.heappush(self._reading.setdefault(partition, []), (unread, rollout_id))

    def _next_look(self, rollout: Rollout) -> int | None:
        if rollout.status is Status.OPEN:
            return next_cutoff(rollout, self._settings.closing).at
        if rollout.settled is not None and not rollout.has_settled_facts():
            return rollout.settled.decided_at_ms + PATIENCE_MS
        if rollout.status is Status.SETTLED and rollout.settled is not None:
            return rollout.settled.judge_deadline_ms
        if rollout.closed is not None:
            return rollout.closed.decided_at_ms + PATIENCE_MS
        return None

    async def tick(self) -> None:
        """Look at the rollouts whose deadline has come."""
        await self._learn_ends()
        now = int(time.time() * 1000)
        due: list[str] = []
        while self._due and self._due[0][0] <= now:
            at, rollout_id = heapq.heappop(self._due)
            if self._scheduled.get(rollout_id) == at:  # else an earlier look was taken instead
                del self._scheduled[rollout_id]
                if rollout_id in self._open:
                    due.append(rollout_id)
        if due:
            await self._loop.refresh_ends({self._partition[rollout_id] for rollout_id in due})
        await self._look_at_read()
        finished = []
        for rollout_id in due:
            rollout = self._open[rollout_id]
            if self._is_broken(rollout_id, rollout):
                self._give_up(rollout_id, rollout, "facts that were pinned are not in the log any more")
                finished.append(rollout_id)
                continue
            try:
                await self._decide(rollout_id, rollout)
            except BrokenLogError as error:
                self._give_up(rollout_id, rollout, str(error))
                finished.append(rollout_id)
                continue
            look = self._next_look(rollout)
            if look is not None:
                # Still waiting: for a later deadline, or for topics that have not been read up to this one.
                again = max(look, now + int(TICK_S * 1000))
                self._scheduled[rollout_id] = again
                heapq.heappush(self._due, (again, rollout_id))
        await self._refused.write()
        self._finish(finished)
        if self._touched:
            await self.advance()
        await self._forgetting.forget()
        self._gauges()

    async def _look_at_read(self) -> None:
        """Touch the rollouts for which everything that they waited for has been read."""
        waiting = {partition: heap for partition, heap in self._reading.items() if heap}
        if not waiting:
            return
        await self._loop.refresh_ends(waiting)
        for partition, heap in waiting.items():
            watermark = self._loop.watermark(partition)
            while heap and watermark is not None and heap[0][0] <= watermark:
                at, rollout_id = heapq.heappop(heap)
                if self._awaited.get(rollout_id) == at:  # else it was held again, or waits for its settling
                    del self._awaited[rollout_id]
                    if rollout_id in self._open:
                        self._touched[rollout_id] = None

    def _is_broken(self, rollout_id: str, rollout: Rollout) -> bool:
        """Whether something was pinned that is still missing although everything up to the decision has been read."""
        waiting = (rollout.settled is not None and not rollout.has_settled_facts()) or (
            rollout.closed is not None and not rollout.has_closed_facts()
        )
        if not waiting or rollout.settled is None:
            return False
        decided = (rollout.closed or rollout.settled).decided_at_ms
        watermark = self._loop.watermark(self._partition[rollout_id])
        return watermark is not None and watermark >= decided + PATIENCE_MS

    def _gauges(self) -> None:
        counts = Counter(rollout.status.value for rollout in self._open.values())
        for status in Status:
            self._metrics.open.labels(status.value).set(counts.get(status.value, 0))
        self._metrics.trail.set(self._loop.trail())
        self._metrics.lag.set(self._loop.unread())

    # -- writing -------------------------------------------------------------------------------------------------------

    async def _write(
        self, record: Record, rollout_id: str, partition: int, body: bytes | None = None, emission: int | None = None,
        *, redacted: bool = False,
    ) -> None:  # fmt: skip
        try:
            outgoing = self._envelope.outgoing(record, body, emission, partition=partition, redacted=redacted)
        except TooLargeError as error:
            what = f"a {type(record).__name__} of {error.size:,} bytes, and {error.limit:,} are allowed"
            raise BrokenLogError(f"rollout {rollout_id}: it needs {what}") from None
        self._written[BY_RECORD[type(record)]].inc()
        await self._loop.send(outgoing)

    # -- the view ------------------------------------------------------------------------------------------------------

    def _show(
        self, rollout_id: str, rollout: Rollout, emission: Emission | None = None, broken: str | None = None
    ) -> None:
        row = view_row(rollout, emission.ranking if emission else None)
        if emission is not None:
            row["rows"] = dict(
                Counter(
                    type(each).__name__.removesuffix("Record").lower() for each in (*emission.rows, *emission.rejected)
                )
            )
        if broken is not None:
            row |= {"status": "broken", "why": broken}
        self._loop.view.put(self._partition[rollout_id], rollout_id, orjson.dumps(row), remember=False)
