"""The judge worker: takes requests from the log, asks the judge, writes one vote per call as soon as it is answered.

A call whose vote is in the log is never made again: a killed worker costs at most the running calls.
"""

import asyncio
import time
from contextlib import suppress
from typing import Any

import structlog

from agents.judge.judge import Judge, JudgeTroubleError
from agents.judge.votes import Call, calls_of, vote_id
from schemas.errors import DecodeError
from schemas.judging import JudgeRequest, JudgeVote
from streams.cluster.config import Settings
from streams.cluster.judge_client import Budget, ask, make_judge
from streams.cluster.judge_metrics import JudgeMetrics
from streams.log.kafka_reader import KafkaReader
from streams.log.kafka_writer import FactWriter
from streams.log.topics import CLOSURES, JUDGE_REQUESTS, JUDGE_VOTES
from streams.services.group_worker import GroupWorker, Held, Role, run_in_group
from streams.services.health import Health

HOUR_MS = 3_600_000

SHORTEST_LOOK_BACK_MS = HOUR_MS
"""Votes are read from this long before the first request on: the live worker may have written a request again."""

log = structlog.get_logger()


class JudgeWorker(GroupWorker):
    """Judges the requests of its partitions."""

    def __init__(self, writer: FactWriter, judge: Judge, metrics: JudgeMetrics) -> None:
        settings = writer.settings
        role = Role(
            name="judge",
            topic=JUDGE_REQUESTS,
            known=(JUDGE_VOTES, CLOSURES),
            group=settings.judge_group,
            slot=settings.judge.slot,
            parallel=settings.judge.concurrency,
            grace_s=settings.judge.grace_s,
            look_back_ms=max(SHORTEST_LOOK_BACK_MS, 2 * settings.closing.judge_deadline_ms),
        )
        super().__init__(role, writer)
        self._judge = judge
        self._metrics = metrics
        self._slots = asyncio.Semaphore(settings.judge.concurrency)
        self._calls: dict[str, asyncio.Task[bool]] = {}

    async def let_go(self) -> None:
        """Calls without a caller are cancelled."""
        for task in self._calls.values():
            task.cancel()
        await asyncio.gather(*self._calls.values(), return_exceptions=True)

    async def do(self, held: Held, record: JudgeRequest, stored: Any) -> bool:  # noqa: ARG002 - it has no use for its place
        """Make all calls of a request whose votes are not in the log yet."""
        calls = [call for call in calls_of(record) if vote_id(record, call, self._judge.name) not in held.written]
        voted = await asyncio.gather(*(self._voted(held, record, call) for call in calls))
        if all(voted):
            said = "too late" if record.rollout_id in held.closed else "judged"
            log.info(said, rollout=record.rollout_id, request=record.request_id, calls=len(calls))
        return all(voted)

    async def _voted(self, held: Held, request: JudgeRequest, call: Call) -> bool:
        """Whether the call's vote is in the log, or of no use. A running call for the same vote is awaited, not
        repeated.
        """
        name = vote_id(request, call, self._judge.name)
        while not (held.lost or self.stopping.is_set()):
            if request.rollout_id in held.closed:
                return True
            under_way = self._calls.get(name)
            if under_way is None:
                under_way = self._calls[name] = asyncio.create_task(self._vote(held, request, call))
                under_way.add_done_callback(lambda _: self._calls.pop(name, None))
            if await asyncio.shield(under_way):
                held.written.add(name)
                return True
        return False

    async def _vote(self, held: Held, request: JudgeRequest, call: Call) -> bool:
        async with self._slots:
            if held.lost or self.stopping.is_set() or request.rollout_id in held.closed:
                return False

            def say(trouble: JudgeTroubleError) -> None:
                log.warning("no answer", rollout=request.rollout_id, cause=trouble.cause, why=str(trouble))

            with self._metrics.under_way.track_inprogress():
                vote = await ask(self._judge, request, call, say)
            await self.write(vote)
            self._metrics.count(vote)
            return True


async def recent_calls(settings: Settings, judge: str, now_ms: int) -> list[float]:
    """How many seconds ago votes of the last hour were written, the oldest first. Each took a call, or more than one."""
    found = []
    async with KafkaReader(settings) as kafka:
        async for placed in kafka.records([JUDGE_VOTES], since=now_ms - HOUR_MS):
            with suppress(DecodeError):
                vote = await kafka.decode(placed)
                if isinstance(vote, JudgeVote) and vote.judge == judge and vote.cause != "budget":
                    found.append(max(0.0, (now_ms - placed.record.at) / 1000))
    return sorted(found, reverse=True)


async def run_judge_worker(settings: Settings, *, stop: asyncio.Event | None = None) -> None:
    """Run a judge worker until a signal (or `stop`) ends it."""
    budget = Budget(settings.judge.calls_per_hour)
    judge = make_judge(settings, budget.allow)
    metrics = JudgeMetrics(judge.name, budget)
    try:
        async with FactWriter(settings, "judge") as writer:
            for age_s in await recent_calls(writer.settings, judge.name, int(time.time() * 1000)):
                budget.remember(age_s)
            worker = JudgeWorker(writer, judge, metrics)
            place = (settings.judge.metrics_host, settings.judge.metrics_port)
            health = Health(*place, metrics.registry, lambda: worker.is_ready)
            try:
                await health.start()
                await run_in_group(worker, stop)
            finally:
                await health.stop()
    finally:
        await judge.close()
