"""Records that follow from open rollouts: ended branches, decisions, judge requests, emissions, and rows of the view.

The records of a rollout are made by `agents/rollouts`; this module encodes and sends them.
"""

import time
from collections import Counter

import orjson
import structlog

from agents.evidence.signing import SigningKey
from agents.rollouts.branch_records import ended_branch
from agents.rollouts.broken_log import BrokenLogError
from agents.rollouts.emission import Emission, emit
from agents.rollouts.judge_requests import judge_requests
from agents.rollouts.pinned_config import pinned_config
from agents.rollouts.status import Status
from schemas.base import Record
from schemas.closures import Closure, RolloutClosed, RolloutSettled
from streams.cluster.config import Settings
from streams.cluster.judge_client import ASKED_BY_US
from streams.log.envelope import Envelope, TooLargeError
from streams.log.headers import identity
from streams.log.topics import BY_RECORD
from streams.log.wire import Codec
from streams.services.live.loop import Loop
from streams.services.live.open_rollout import OpenRollout
from streams.services.live.rollout_row import view_row
from streams.services.live.worker_metrics import WorkerMetrics

log = structlog.get_logger()


class Outbox:
    """Sends records through the loop. The loop's next checkpoint waits for them."""

    def __init__(
        self, loop: Loop, settings: Settings, codec: Codec, key: SigningKey | None, metrics: WorkerMetrics
    ) -> None:
        self._loop = loop
        self._settings = settings
        self._envelope = Envelope(codec, "worker", settings.partitions, settings.prefix)
        self._key = key
        self._metrics = metrics
        self._config_digest = settings.emission.digest
        self._written = {topic: metrics.written.labels(topic.name) for topic in BY_RECORD.values()}

    async def announce(self, opened: OpenRollout) -> None:
        """Write the records of branches that have just ended: verifiers wait for them."""
        rollout, emission = opened.rollout, self._settings.emission
        for index, number in rollout.newly_ended():
            try:
                ended = ended_branch(rollout, index, number, emission)
            except BrokenLogError as error:  # closing will meet it again, and give the rollout up for good
                log.warning("not announced", rollout=opened.rollout_id, branch=index, attempt=number, error=str(error))
                continue
            opened.ended[index] = ended
            redacted = rollout.redacting and emission.redact
            await self._write(opened, ended.record, ended.body, emission.version, redacted=redacted)

    async def decision(self, opened: OpenRollout, decision: RolloutSettled | RolloutClosed) -> None:
        """Write a decision; it takes effect when it is read back."""
        settling = isinstance(decision, RolloutSettled)
        closure = Closure(settled=decision) if isinstance(decision, RolloutSettled) else Closure(closed=decision)
        await self._write(opened, closure)
        log.debug(
            "settling" if settling else "closing",
            rollout=opened.rollout_id,
            partition=opened.partition,
            cause=decision.cause,
        )

    async def ask(self, opened: OpenRollout) -> None:
        """Write the judge's requests, once; after a restart they may be written again, with the same ids."""
        rollout, rollout_id, settled = opened.rollout, opened.rollout_id, opened.rollout.settled
        if rollout.status is not Status.SETTLED or settled is None or opened.was_asked:
            return
        if settled.judge_deadline_ms is None or not rollout.has_settled_facts():
            return
        opened.was_asked = True
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
            await self._write(opened, tie)
        for request in asking.requests:
            await self._write(opened, request, emission=config.version)
        log.info("asking", rollout=rollout_id, requests=len(asking.requests), ties=len(asking.ties))

    async def emit(self, opened: OpenRollout) -> None:
        """Write everything that a closed rollout becomes."""
        settled, closed = opened.rollout.settled, opened.rollout.closed
        # Another worker may have settled it under another configuration: then its records differ.
        same = settled is not None and settled.config_digest == self._config_digest
        emission = emit(opened.rollout, ended=opened.ended if same else None)
        version = emission.bodies.emission
        announced = {each.record.record_id for each in opened.ended.values()}
        branches = [branch for branch in emission.branches if branch.record_id not in announced]
        for record in (*branches, emission.ranking, *emission.compliance, *emission.rows, *emission.rejected):
            body = emission.bodies[identity(record)]
            await self._write(opened, record, body, version, redacted=emission.redacted)
        for evidence in emission.signed(self._key):
            await self._write(opened, evidence, emission=version)
        self.show(opened, emission)
        assert settled is not None
        assert closed is not None
        self._metrics.closed.labels(settled.cause, closed.cause).inc()
        if opened.last_read is not None:
            self._metrics.close_latency.observe(time.monotonic() - opened.last_read)
        log.info(
            "closed",
            rollout=opened.rollout_id,
            partition=opened.partition,
            settled=settled.cause,
            closed=closed.cause,
            rows=len(emission.rows),
        )

    def show(self, opened: OpenRollout, emission: Emission | None = None, broken: str | None = None) -> None:
        """Write the rollout's row of the view."""
        row = view_row(opened.rollout, emission.ranking if emission else None)
        if emission is not None:
            row["rows"] = dict(
                Counter(
                    type(each).__name__.removesuffix("Record").lower() for each in (*emission.rows, *emission.rejected)
                )
            )
        if broken is not None:
            row |= {"status": "broken", "why": broken}
        self._loop.view.put(opened.partition, opened.rollout_id, orjson.dumps(row), remember=False)

    async def _write(
        self, opened: OpenRollout, record: Record, body: bytes | None = None, emission: int | None = None,
        *, redacted: bool = False,
    ) -> None:  # fmt: skip
        try:
            outgoing = self._envelope.outgoing(record, body, emission, partition=opened.partition, redacted=redacted)
        except TooLargeError as error:
            what = f"a {type(record).__name__} of {error.size:,} bytes, and {error.limit:,} are allowed"
            raise BrokenLogError(f"rollout {opened.rollout_id}: it needs {what}") from None
        self._written[BY_RECORD[type(record)]].inc()
        await self._loop.send(outgoing)
