"""Send captures to the log, through the spool and in order; track the state of each branch."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Iterable
from typing import cast
from uuid import uuid4

import structlog
from aiokafka.errors import KafkaError
from prometheus_client import CollectorRegistry, Counter, Gauge

from agents.capture.lost_calls import lost_calls
from agents.capture.parts import in_parts
from schemas.captures import Capture
from schemas.errors import BraidError, DecodeError
from streams.cluster.broker import places
from streams.cluster.config import Settings
from streams.log.topics import CAPTURES
from streams.log.wire import Codec
from streams.services.gateway.sender import ACKNOWLEDGE_S, BrokerAwayError, Sender
from streams.services.proxy.identity import BranchId
from streams.services.proxy.spool import Spool

MAX_BRANCHES = 4096
"""Branches whose captured beginnings are cached; the next request of an evicted branch is stored whole."""

RESERVE = 4 * 1024 * 1024
"""Bytes of the spool beyond its limit, for notes of lost calls."""

STOP_S = 5.0
"""How long captures may still be sent when the proxy ends; the next process sends the rest."""

IN_FLIGHT_S = 10.0
"""How long the end of a branch waits for its calls under way."""

log = structlog.get_logger()


class ProxyMetrics:
    """Counts of captures, for Prometheus."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.calls = Counter("braid_proxy_calls_total", "Calls by what became of them", ["outcome"], registry=registry)
        self.dropped = Counter(
            "braid_proxy_captures_dropped_total", "Captures that found no room in the spool", registry=registry
        )
        self.spooled = Gauge(
            "braid_proxy_spool_bytes", "Bytes of captures that are not on the log yet", registry=registry
        )
        self.open = Gauge("braid_proxy_calls_open", "Calls under way", registry=registry)


class Outlet:
    """Takes captures of many branches."""

    def __init__(self, settings: Settings, sender: Sender, metrics: ProxyMetrics) -> None:
        folder = settings.proxy.spool or (settings.state_dir or places.state_dir()) / "proxy" / "spool"
        self.spool = Spool(folder, settings.proxy.spool_bytes, (BraidError, KafkaError, OSError))
        self._sender = sender
        self._codec = Codec()
        """The form of records in the spool: no registry is needed to write or read it."""
        self._metrics = metrics
        metrics.spooled.set_function(lambda: self.spool.used)
        self._known: OrderedDict[BranchId, set[bytes]] = OrderedDict()
        self._lost: dict[BranchId, None] = {}
        """Branches with lost calls whose note is not written yet."""
        self._told: OrderedDict[BranchId, None] = OrderedDict()
        """Branches whose note is written: one is enough."""
        self._open: dict[BranchId, int] = {}
        self._idle: dict[BranchId, asyncio.Event] = {}
        """Events of branches whose ends wait for their calls."""

    def start(self) -> None:
        """Open the spool and begin to send. Raises SpoolError."""
        self.spool.open()
        self.spool.start(self._deliver)

    async def stop(self) -> None:
        """Send the waiting captures and close the spool."""
        await self.spool.stop(STOP_S if self._sender.is_ready else 0.0)

    def known(self, branch: BranchId) -> set[bytes]:
        """Digests of the captured messages of a branch."""
        found = self._known.get(branch)
        if found is None:
            found = self._known[branch] = set()
            if len(self._known) > MAX_BRANCHES:
                self._known.popitem(last=False)
        self._known.move_to_end(branch)
        return found

    def put(self, captures: Iterable[Capture]) -> bool:
        """Write captures to the spool; if there is no room, count them and return False."""
        self._tell_lost()
        records = [self._codec.encode(part) for capture in captures for part in in_parts(capture)]
        if self.spool.append(records):
            return True
        self._metrics.dropped.inc()
        log.error("capture dropped: the spool is full", used=self.spool.used)
        return False

    def lose(self, branch: BranchId) -> None:
        """Record that a call was not captured: the branch is incomplete, and the log needs a note of it."""
        if branch not in self._told:
            self._lost[branch] = None
            self._tell_lost()

    def _tell_lost(self) -> None:
        """Write notes of lost calls into the spool's reserve; if it is full, with the next capture that finds room."""
        while self._lost:
            branch = next(iter(self._lost))
            note = self._codec.encode(lost_calls(*branch, f"lost-{uuid4().hex[:20]}", int(time.time() * 1000)))
            if not self.spool.append([note], beyond=RESERVE):
                return
            del self._lost[branch]
            self._told[branch] = None
            if len(self._told) > MAX_BRANCHES:
                self._told.popitem(last=False)

    async def write(self, captures: list[Capture]) -> None:
        """Write captures of one branch behind its calls; returns when the broker has them. Raises BrokerAwayError."""
        first = captures[0]
        if any(capture.kind == "end" for capture in captures):
            await self.idle(BranchId(first.rollout_id, first.branch_index, first.attempt))
        if not self.put(captures):
            raise BrokerAwayError("the spool is full")
        try:
            async with asyncio.timeout(ACKNOWLEDGE_S):
                await self.spool.delivered(self.spool.appended)
        except TimeoutError:
            raise BrokerAwayError("the broker did not acknowledge in time; the captures wait in the spool") from None

    async def _deliver(self, records: list[bytes]) -> None:
        if not self._sender.is_ready:
            raise BrokerAwayError(self._sender.trouble)
        captures = [capture for record in records if (capture := self._read(record)) is not None]
        sent = [await self._sender.send(self._sender.outgoing(capture, None)) for capture in captures]
        await self._sender.acknowledge(sent)
        for capture, record in zip(captures, sent, strict=True):
            if record.exception() is not None:  # a topic that another program created takes only shorter records
                log.error(
                    "capture dropped: the topic does not take it", rollout=capture.rollout_id, bytes=len(capture.body)
                )
                self._metrics.dropped.inc()
                self.lose(BranchId(capture.rollout_id, capture.branch_index, capture.attempt))

    def _read(self, record: bytes) -> Capture | None:
        """A record of the spool; None for one of another version that this version cannot read."""
        try:
            return cast("Capture", self._codec.decode(CAPTURES, record))
        except DecodeError as error:
            log.error("capture dropped: a record of the spool cannot be read", reason=str(error))  # noqa: TRY400 - no traceback
            self._metrics.dropped.inc()
            return None

    # -- calls under way -----------------------------------------------------------------------------------------------

    def begin(self, branch: BranchId) -> None:
        """Record that a call of a branch is under way."""
        self._open[branch] = self._open.get(branch, 0) + 1
        self._metrics.open.inc()

    def finish(self, branch: BranchId) -> None:
        """Record that a call has ended and its capture is written."""
        self._metrics.open.dec()
        self._open[branch] -= 1
        if not self._open[branch]:
            del self._open[branch]
            if branch in self._idle:
                self._idle.pop(branch).set()

    async def idle(self, branch: BranchId) -> None:
        """Return when no call of a branch is under way, or after a while."""
        try:
            async with asyncio.timeout(IN_FLIGHT_S):
                while branch in self._open:
                    await self._idle.setdefault(branch, asyncio.Event()).wait()
        except TimeoutError:
            log.warning(
                "a branch ends while its calls are under way", rollout=branch.rollout_id, branch=branch.branch_index
            )
