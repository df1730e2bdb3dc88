"""The judge worker: takes requests from the log, asks the judge, writes one vote per call as it comes.

A plain consumer in a group of its own, not an agent of the live worker's framework: nothing is folded here and there is no
table, but calls take seconds and finish in any order, and an offset may only be committed when all votes of its request are
acknowledged. Polling goes on while a model is slow (partitions are paused, the group is not held up). A call whose vote is
in the log is never made again: a killed worker costs at most the calls that were under way.
"""

import asyncio
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import IllegalStateError, KafkaError

from agents.judge.answers import Answer
from agents.judge.judge import Judge, JudgeTroubleError
from agents.judge.prompt import prompt_of
from agents.judge.votes import Asked, Call, answered, calls_of, missing, vote_id
from schemas.errors import DecodeError
from schemas.judging import JudgeRequest, JudgeVote
from streams.cluster import (
    ClusterError,
    client_options,
    ensure_topics,
    partition_of,
    registry_of,
    resolve,
    start_producer,
)
from streams.codec import Codec
from streams.config import Settings
from streams.headers import cloud_event
from streams.health import Health
from streams.judging.held import Held, load, recent_calls
from streams.judging.judges import Budget, make_judge
from streams.judging.metrics import JudgeMetrics
from streams.letters import Letter
from streams.topics import DEAD_LETTERS, JUDGE_REQUESTS, JUDGE_VOTES

POLL_MS = 200
IN_HAND = 4
"""Requests in hand for each call that may be under way; with more, partitions are paused."""

log = structlog.get_logger()


class JudgeWorker(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    """Judges the requests of its partitions until `stopping` is set."""

    def __init__(self, settings: Settings, judge: Judge, codec: Codec, producer: Any, metrics: JudgeMetrics) -> None:
        self.settings = settings
        self.stopping = asyncio.Event()
        self.is_ready = False
        """Whether the group has given us our share."""
        self._metrics = metrics
        self._judge = judge
        self._codec = codec
        self._producer = producer
        self._held: dict[int, Held] = {}
        self._slots = asyncio.Semaphore(settings.judge.concurrency)
        self._requests: set[asyncio.Task[None]] = set()
        self._calls: dict[str, asyncio.Task[bool]] = {}
        self._committed: dict[int, int] = {}
        self._failure: BaseException | None = None

    # -- the group -----------------------------------------------------------------------------------------------------

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """Calls under way are finished and their votes written; new ones are the next owner's."""
        self.is_ready = False
        for tp in revoked:
            held = self._held.pop(tp.partition, None)
            self._committed.pop(tp.partition, None)
            if held is not None:
                held.lost = True

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """Partitions are ours, from their commits on."""
        for tp in assigned:
            self._held[tp.partition] = Held(tp.partition)
        self.is_ready = True
        log.info("ready", partitions=sorted(self._held), judge=self._judge.name)

    async def run(self, consumer: AIOKafkaConsumer) -> None:
        """Poll, judge, commit. Raises what made a request fail unexpectedly."""
        while not self.stopping.is_set():
            found = await consumer.getmany(timeout_ms=POLL_MS)
            ours = [(self._held[tp.partition], records) for tp, records in found.items() if tp.partition in self._held]
            fresh = [held for held, _ in ours if not held.is_loaded]
            if fresh:
                await load(self.settings, fresh, min(records[0].timestamp for _, records in ours))
            for held, records in ours:
                for record in records:
                    await self._take(held, record)
            self._hold_back(consumer)
            await self._commit(consumer)
        if self._requests:
            await asyncio.wait(self._requests, timeout=self.settings.judge.grace_s)
        await self._commit(consumer)
        for task in (*self._requests, *self._calls.values()):
            task.cancel()
        await asyncio.gather(*self._requests, *self._calls.values(), return_exceptions=True)
        if self._failure is not None:
            raise self._failure

    def _hold_back(self, consumer: AIOKafkaConsumer) -> None:
        """Stop fetching while enough is in hand. Polling goes on, so the group never waits for a model."""
        assigned = consumer.assignment()
        with suppress(IllegalStateError):  # taken away at this very moment
            if len(self._requests) >= IN_HAND * self.settings.judge.concurrency:
                consumer.pause(*assigned)
            elif consumer.paused():
                consumer.resume(*assigned)

    async def _commit(self, consumer: AIOKafkaConsumer) -> None:
        due = {partition: held.commit_point for partition, held in self._held.items()}
        changed = {
            TopicPartition(self.settings.prefix + JUDGE_REQUESTS.name, partition): offset
            for partition, offset in due.items()
            if offset is not None and self._committed.get(partition) != offset
        }
        if not changed:
            return
        try:
            await consumer.commit(changed)
        except KafkaError as error:  # a late commit is always safe: what is judged already is skipped
            log.warning("not committed", error=str(error))
            return
        self._committed.update({tp.partition: offset for tp, offset in changed.items()})

    # -- requests ------------------------------------------------------------------------------------------------------

    async def _take(self, held: Held, record: Any) -> None:
        held.begin(record.offset)
        try:
            unknown = self._codec.unknown_id(record.value)
            if unknown is not None:
                await self._codec.learn([unknown])
            request = self._codec.decode(JUDGE_REQUESTS, record.value)
        except DecodeError as error:
            await self._bury(record, error)
            held.finish(record.offset)
            return
        assert isinstance(request, JudgeRequest)
        if request.rollout_id in held.closed:
            log.info("too late", rollout=request.rollout_id, request=request.request_id)
            held.finish(record.offset)
            return
        task = asyncio.create_task(self._judge_request(held, record.offset, request))
        self._requests.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._requests.discard(task)
        if not task.cancelled() and task.exception() is not None and self._failure is None:
            self._failure = task.exception()
            self.stopping.set()

    async def _judge_request(self, held: Held, offset: int, request: JudgeRequest) -> None:
        calls = [call for call in calls_of(request) if vote_id(request, call, self._judge.name) not in held.votes]
        voted = await asyncio.gather(*(self._voted(held, request, call) for call in calls))
        if all(voted):
            held.finish(offset)
            log.info("judged", rollout=request.rollout_id, request=request.request_id, calls=len(calls))

    async def _voted(self, held: Held, request: JudgeRequest, call: Call) -> bool:
        """Whether the call's vote is in the log. One that is under way for the same vote is waited for, not repeated."""
        name = vote_id(request, call, self._judge.name)
        while not (held.lost or self.stopping.is_set()):
            under_way = self._calls.get(name)
            if under_way is None:
                under_way = self._calls[name] = asyncio.create_task(self._vote(held, request, call))
                under_way.add_done_callback(lambda _: self._calls.pop(name, None))
            if await asyncio.shield(under_way):
                held.votes.add(name)
                return True
        return False

    async def _vote(self, held: Held, request: JudgeRequest, call: Call) -> bool:
        async with self._slots:
            if held.lost or self.stopping.is_set():
                return False

            def say(trouble: JudgeTroubleError) -> None:
                log.warning("no answer", rollout=request.rollout_id, cause=trouble.cause, why=str(trouble))

            with self._metrics.under_way.track_inprogress():
                vote = await ask(self._judge, request, call, say)
            await self._write(vote)
            self._metrics.count(vote)
            return True

    # -- writing -------------------------------------------------------------------------------------------------------

    async def _write(self, vote: JudgeVote) -> None:
        await self._producer.send_and_wait(
            self.settings.prefix + JUDGE_VOTES.name,
            self._codec.encode(vote),
            key=vote.rollout_id.encode(),
            partition=partition_of(vote.rollout_id, self.settings.partitions),
            headers=cloud_event(vote, "judge"),
        )

    async def _bury(self, record: Any, error: DecodeError) -> None:
        letter = Letter(
            record.key, record.value, tuple(record.headers), record.topic, record.partition, record.offset,
            "undecodable", type(error).__name__, str(error),
        )  # fmt: skip
        log.warning("dead letter", reason=letter.reason, origin=letter.origin, message=letter.message)
        await self._producer.send_and_wait(
            self.settings.prefix + DEAD_LETTERS.name,
            letter.value,
            key=letter.key,
            partition=letter.partition,
            headers=letter.wire_headers(),
        )


async def ask(
    judge: Judge, request: JudgeRequest, call: Call, say: Callable[[JudgeTroubleError], None] = lambda _: None
) -> JudgeVote:
    """One call, as a vote: the answer, or why there is none; `say` hears the whole trouble."""
    prompt = prompt_of(request, call)
    began = time.monotonic()
    answer: Answer | None = None
    trouble: JudgeTroubleError | None = None
    try:
        answer = await judge.ask(prompt)
    except JudgeTroubleError as error:
        trouble = error
        say(error)
    usage = answer.usage if answer is not None else trouble.usage if trouble is not None else None
    asked = Asked(call, judge.name, prompt.hash, usage, round((time.monotonic() - began) * 1000))
    if answer is not None:
        return answered(request, asked, answer)
    assert trouble is not None
    return missing(request, asked, trouble.cause)


async def run_judge_worker(settings: Settings, *, stop: asyncio.Event | None = None) -> None:
    """Run a judge worker until a signal (or `stop`) ends it."""
    settings = resolve(settings)
    budget = Budget(settings.judge.calls_per_hour)
    judge = make_judge(settings, budget.allow)
    await ensure_topics(settings)
    for age_s in await recent_calls(settings, judge.name, int(time.time() * 1000)):
        budget.remember(age_s)
    registry = registry_of(settings)
    codec = Codec(registry, prefix=settings.prefix)
    await codec.register()
    producer = await start_producer(settings)
    metrics = JudgeMetrics(judge.name, budget)
    worker = JudgeWorker(settings, judge, codec, producer, metrics)
    health = Health(settings.judge.metrics_host, settings.judge.metrics_port, metrics.registry, lambda: worker.is_ready)
    running = asyncio.get_running_loop()
    if stop is not None:
        worker.stopping = stop
    for number in (signal.SIGTERM, signal.SIGINT) if stop is None else ():
        with suppress(NotImplementedError, RuntimeError):
            running.add_signal_handler(number, worker.stopping.set)
    consumer = AIOKafkaConsumer(
        **client_options(settings),
        group_id=settings.judge_group,
        group_instance_id=f"{settings.judge_group}-{settings.judge.slot}",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=round(settings.worker.session_timeout_s * 1000),
        heartbeat_interval_ms=round(min(3.0, settings.worker.session_timeout_s / 5) * 1000),
        max_poll_records=IN_HAND * settings.judge.concurrency,
    )
    log.info("judge starting", kafka=settings.kafka, judge=judge.name, group=settings.judge_group)
    try:
        await health.start()
        consumer.subscribe([settings.prefix + JUDGE_REQUESTS.name], listener=worker)
        await consumer.start()
        await worker.run(consumer)
        log.info("judge stopped")
    except KafkaError as error:
        raise ClusterError(
            f"Kafka at {settings.kafka}: {error}; is another judge worker running with slot {settings.judge.slot}?"
        ) from error
    finally:
        await health.stop()
        await consumer.stop()
        await producer.stop()
        await judge.close()
        if registry is not None:
            await registry.close()
