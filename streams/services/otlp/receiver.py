"""`POST /v1/traces` and `/v1/logs`: export requests become captures, and are answered when the broker has acknowledged them.

Nothing but ids is decoded on the way: a request is split by its traces and each part is written to the log unchanged.
Beyond the limits of the process a request gets 503 with Retry-After before anything of it is written.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from hashlib import sha256
from itertools import count
from secrets import token_hex
from typing import TYPE_CHECKING, Final

import structlog
from prometheus_client import CollectorRegistry, Counter
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from agents.capture.parts import in_parts
from agents.capture.span_fold import RECEIVED
from agents.importers.line_error import LineError, TooLargeError
from agents.importers.otlp.request_redaction import redacted
from agents.importers.otlp.request_split import LOGS, Signal, SplitRequest, split_json, split_proto
from schemas.captures import Capture, CaptureKind
from schemas.codec.maker import unchecked
from schemas.jsontext import parse
from streams.services.gateway.bodies import MAX_CONTAINERS, TOO_MANY_CONTAINERS, Item
from streams.services.gateway.fact_reader import FactReader, typed
from streams.services.gateway.gateway_metrics import REASONS
from streams.services.gateway.intake import Intake
from streams.services.gateway.limits import RETRY_AFTER, Budget, Hold, read_body
from streams.services.gateway.problems import BAD_CONTENT, FORBIDDEN, TOO_LARGE, Position, RefusedError
from streams.services.gateway.sender import BrokerAwayError
from streams.services.otlp.evaluation_checks import evaluation_checks
from streams.services.otlp.export_request import (
    JSON,
    PATHS,
    PROTOBUF,
    Form,
    failure,
    form_of,
    identity_of,
    success,
    unpacked,
)  # fmt: skip
from streams.services.web.auth import Caller

if TYPE_CHECKING:
    from streams.services.gateway.app import Gateway

LARGE = 256 * 1024
"""A body beyond this is unpacked, or read as JSON, in a thread."""

BODIES_AT_ONCE = 2
"""Bodies of full size that are in memory at once; accordingly more of smaller ones."""

WORK_BYTES = 16 * 1024 * 1024
"""Bytes of bodies that are split and written at once, and so copied. Others wait for their turn; a larger one is alone.
"""

PACKED = 12
"""The assumed expansion of a compressed body."""

MARK: Final = b"gen_ai."
"""Log records without it are not about a model."""

_capture: Final = unchecked(Capture)

log = structlog.get_logger()


class OtlpMetrics:
    """Counts of spans and log records."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.taken = Counter("braid_otlp_taken_total", "Members that are on the log", ["signal"], registry=registry)
        self.rejected = Counter("braid_otlp_rejected_total", "Members without ids", ["signal"], registry=registry)
        self.bytes = Counter("braid_otlp_bytes_total", "Bytes of bodies, unpacked", ["signal"], registry=registry)


class Gate:
    """Lets bodies pass while there is room for them."""

    def __init__(self, room: int) -> None:
        self._room = self._free = room
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def room(self, size: int) -> AsyncIterator[None]:
        """Wait for room, and reserve it."""
        taken = min(size, self._room)
        async with self._changed:
            await self._changed.wait_for(lambda: self._free >= taken)
            self._free -= taken
        try:
            yield
        finally:
            self._free += taken
            async with self._changed:
                self._changed.notify_all()


class Receiver:
    """Takes export requests for a gateway: its sender, its tokens, its limits."""

    def __init__(self, gateway: "Gateway") -> None:
        self._gateway = gateway
        self._metrics = OtlpMetrics(gateway.metrics.registry)
        self._budget = Budget(gateway.config.max_body_bytes, BODIES_AT_ONCE)
        self._gate = Gate(WORK_BYTES)
        self._name = token_hex(8)
        self._numbers = count()

    async def take(self, request: Request, signal: Signal, headers: Mapping[str, str]) -> bytes:
        """Write a request; returns the answer once the broker has it. Raises RefusedError."""
        gateway = self._gateway
        caller = await gateway.caller(request)
        form = form_of(headers)
        identity = identity_of(headers, caller)
        refusal = caller.refusal(Capture, caller.rollout, caller.branch)
        if refusal is not None and "verifier" not in caller.roles:
            raise RefusedError(FORBIDDEN, refusal)
        if not gateway.sender.is_ready:
            raise RefusedError(503, gateway.sender.trouble, headers=RETRY_AFTER)
        with self._budget.hold() as hold:
            body = await read_body(request, hold, gateway.config)
            async with self._gate.room(len(body) * (PACKED if form.is_packed else 1)):
                size, split = await self._split(body, form, signal, hold)
                del body
                await self._write(split, signal, caller if refusal is None else None, caller, identity)
        self._metrics.bytes.labels(signal.name).inc(size)
        self._metrics.taken.labels(signal.name).inc(split.members)
        if split.bad:
            self._metrics.rejected.labels(signal.name).inc(len(split.bad))
        return success(signal, form.media_type, split.bad)

    async def _split(self, body: bytes, form: Form, signal: Signal, hold: Hold) -> tuple[int, SplitRequest]:
        if form.is_packed:
            body = (
                await asyncio.to_thread(unpacked, body, hold.unpack)
                if len(body) > LARGE // 4
                else unpacked(body, hold.unpack)
            )
        try:
            if form.media_type == JSON or self._gateway.config.redact:
                heavy = len(body) > LARGE
                split = (
                    await asyncio.to_thread(self._read, body, form, signal) if heavy else self._read(body, form, signal)
                )
            else:
                split = split_proto(body, signal)
        except TooLargeError as error:
            raise RefusedError(TOO_LARGE, error.reason, field=error.field) from None
        except (LineError, ValueError, RecursionError) as error:
            raise RefusedError(400, f"{error}") from None
        return len(body), split

    def _read(self, body: bytes, form: Form, signal: Signal) -> SplitRequest:
        if form.media_type == PROTOBUF:
            return split_proto(redacted(body, signal), signal)
        if len(body) > MAX_CONTAINERS and body.count(b"[") + body.count(b"{") > MAX_CONTAINERS:
            raise TooLargeError("", TOO_MANY_CONTAINERS)
        return split_json(parse(body), redacting=self._gateway.config.redact)

    async def _write(
        self, split: SplitRequest, signal: Signal, writer: Caller | None, caller: Caller, identity: str | None
    ) -> None:
        """Hand all parts to the broker, and wait for it. Raises RefusedError (503)."""
        sender = self._gateway.sender
        bodies = split.bodies
        if signal is LOGS:
            bodies = {trace: body for trace, body in bodies.items() if MARK in body}
        checks = await self._check(bodies, caller, identity) if "verifier" in caller.roles else 0
        if writer is None:
            if not checks:
                reason = (
                    "a verifier's token writes evaluations, and there are none; spans need the role agent or operator"
                )
                raise RefusedError(FORBIDDEN, reason)
            return
        captures = self._captures(bodies, "log" if signal is LOGS else "span", writer, identity)
        try:
            sent = [
                await sender.send(sender.outgoing(part, None)) for capture in captures for part in in_parts(capture)
            ]
            await sender.acknowledge(sent)
        except BrokerAwayError as error:
            raise RefusedError(503, f"{error}; nothing is lost by sending it all again", headers=RETRY_AFTER) from None

    def _captures(
        self, bodies: Mapping[bytes, bytes], kind: CaptureKind, writer: Caller, identity: str | None
    ) -> Iterator[Capture]:
        received_ms = int(time.time() * 1000)
        for trace, body in bodies.items():
            name = trace.hex()
            yield _capture(
                rollout_id=own_trace(writer, name), branch_index=0, capture_id=f"{self._name}-{next(self._numbers)}", kind=kind,
                source=RECEIVED, trace_id=name, received_ms=received_ms, body=body, identity=identity,
            )  # fmt: skip

    async def _check(self, bodies: Mapping[bytes, bytes], caller: Caller, identity: str | None) -> int:
        """Write the checks that evaluations are; returns how many. Raises RefusedError."""
        gateway = self._gateway
        lines = list(evaluation_checks(bodies.values(), identity))
        if not lines:
            return 0
        items = (Item(Position(number), line) for number, line in enumerate(lines))
        reader = FactReader(
            typed("check", {}), caller, gateway.voucher, gateway.captured, redacting=gateway.config.redact
        )
        outcome = await Intake(gateway.sender, reader, traceparent=None).take(items, len(lines))
        for problem in outcome.problems:
            status = 503 if problem.status == 503 else BAD_CONTENT if problem.status != FORBIDDEN else FORBIDDEN
            headers = RETRY_AFTER if status == 503 else None
            raise RefusedError(status, f"an evaluation is no check: {problem.reason}", headers=headers)
        return len(lines)


def own_trace(caller: Caller, trace: str) -> str:
    """The id of a trace. A bound token's spans meet no other spans: it could pretend to be their parent."""
    if caller.rollout is None:
        return f"otel-{trace}"
    bound = sha256(f"{caller.branch}/{caller.rollout}".encode()).hexdigest()[:16]
    return f"otel-{trace}-{bound}"


class OtlpMount:
    """ASGI middleware around the gateway: the routes of OTLP, without the cost of the others."""

    def __init__(self, app: ASGIApp, *, receiver: Receiver, gateway: "Gateway") -> None:
        self._app = app
        self._receiver = receiver
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        signal = PATHS.get(scope["path"]) if scope["type"] == "http" else None
        if signal is None or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        media_type = PROTOBUF if headers.get("content-type", "").startswith(PROTOBUF) else JSON
        status, more = 200, {}
        try:
            body = await self._receiver.take(Request(scope, receive), signal, headers)
        except ClientDisconnect:
            raise
        except RefusedError as error:
            status, more, body = error.status, error.headers, failure(media_type, str(error))
            self._gateway.metrics.errors.labels(REASONS.get(status, "other")).inc()
        sent = [(b"content-type", media_type.encode()), (b"content-length", str(len(body)).encode())]
        sent += [(name.lower().encode(), value.encode()) for name, value in more.items()]
        await send({"type": "http.response.start", "status": status, "headers": sent})
        await send({"type": "http.response.body", "body": body})
