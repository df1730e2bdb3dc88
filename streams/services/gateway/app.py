"""The routes: which fact each accepts, and from which role. Reading, packing and sending are next door.

`create_app` makes the whole gateway for some settings; it needs no broker to start.
"""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Annotated, Any, Literal, Protocol

from fastapi import Depends, FastAPI, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from fastapi_offline import FastAPIOffline
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from schemas.base import MAX_EXACT, MAX_ID, Record
from schemas.captures import Capture
from schemas.events import AgentEvents, EndStatus
from schemas.judging import JudgeVote
from schemas.lifecycle import Lifecycle
from schemas.verdicts import BuildVerdict, CheckVerdict, VisualVerdict
from streams.cluster.config import Settings
from streams.cluster.signing_keys import gateway_key, trusted_verifiers
from streams.services.gateway import pages
from streams.services.gateway.bodies import Item, form_of, read_items
from streams.services.gateway.capture_intake import Write, take_captures, write_directly
from streams.services.gateway.captured_branches import CapturedBranches
from streams.services.gateway.door import Door, answer, count_refusals, refused
from streams.services.gateway.fact_reader import Ending, EventShape, FactReader, LineShape, Shape, typed
from streams.services.gateway.gateway_metrics import GatewayMetrics
from streams.services.gateway.intake import Intake
from streams.services.gateway.limits import RETRY_AFTER, Budget, read_body
from streams.services.gateway.problems import FORBIDDEN, Position, Problem, RefusedError
from streams.services.gateway.sender import Sender
from streams.services.gateway.tracer_file import add_tracer
from streams.services.gateway.voucher import Voucher
from streams.services.web.auth import Caller, Doors, check_bind
from streams.services.web.guard import Served

TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
"""W3C Trace Context: a header that is not well-formed is ignored."""

OWN_PAGES = ("/docs", "/openapi.json", "/static-offline-docs", "/healthz", "/readyz", "/metrics")
"""Beginnings of paths that the gateway answers itself where pages are mounted."""

FULL = Problem(None, "", "all connections are in use; try again in a moment", 503)

VERDICTS: dict[str, type[Record]] = {"build": BuildVerdict, "visual": VisualVerdict, "check": CheckVerdict}

RolloutId = Annotated[str, Path(min_length=1, max_length=MAX_ID, description="The rollout.", examples=["r1"])]
BranchIndex = Annotated[int, Path(ge=0, le=99_999, description="The branch, from 0.", examples=[0])]


class Beside(Protocol):
    """A service in the process of the gateway."""

    async def start(self) -> None:
        """Begin."""

    async def stop(self) -> None:
        """Close everything."""


class Gateway:
    """The state that all requests share."""

    def __init__(self, settings: Settings) -> None:
        self.config = settings.gateway
        check_bind(self.config, self.config.tokens)
        self.doors = Doors(self.config.tokens)
        self.metrics = GatewayMetrics()
        self.sender = Sender(settings, self.metrics)
        self.budget = Budget(self.config.max_body_bytes)
        self.voucher = Voucher(gateway_key(settings), trusted_verifiers(settings))
        self.captured = CapturedBranches(settings)
        self.write_captures: Write = partial(write_directly, self.sender)
        self.beside: list[Beside] = []
        """Services in the same process, with the same lifetime."""

    async def caller(self, request: Request) -> Caller:
        """The sender of a request. Raises RefusedError (401)."""
        headers = [value for name, value in request.scope["headers"] if name == b"authorization"]
        caller = self.doors.caller(headers)
        if caller is None:
            raise RefusedError(
                401, "a known bearer token is needed", field="authorization", headers={"WWW-Authenticate": "Bearer"}
            )
        return caller

    async def take(
        self,
        request: Request,
        caller: Caller,
        shape: Shape,
        *,
        ending: Ending | None = None,
        without: dict[str, Any] | None = None,
    ) -> Response:
        """Take the facts of a request; `without` replaces an empty body."""
        form = form_of(request.headers.get("content-type"), request.headers)
        if not self.sender.is_ready:
            raise RefusedError(503, self.sender.trouble, headers=RETRY_AFTER)
        with self.budget.hold() as hold:
            body = await read_body(request, hold, self.config)
            nothing = [] if without is None else [Item(Position(0), without)]
            items = read_items(body, form, request.headers) if body.strip() else iter(nothing)
            reader = FactReader(shape, caller, self.voucher, self.captured, redacting=self.config.redact)
            intake = Intake(self.sender, reader, traceparent=traceparent(request), ending=ending)
            outcome = await intake.take(items, len(body))
        self.metrics.items.inc(outcome.accepted)
        for topic, records in Counter(record["topic"] for record in outcome.records).items():
            self.metrics.records.labels(topic).inc(records)
        for status, refusals in Counter(problem.status for problem in outcome.problems).items():
            count_refusals(self.metrics, status, refusals)
        return answer(outcome.status, outcome.plain(), RETRY_AFTER if outcome.status == 503 else None)

    async def take_captures(self, request: Request, place: dict[str, Any]) -> Response:
        """Take the captures of a tracer."""
        form = form_of(request.headers.get("content-type"), request.headers)
        if not self.sender.is_ready:
            raise RefusedError(503, self.sender.trouble, headers=RETRY_AFTER)
        with self.budget.hold() as hold:
            body = await read_body(request, hold, self.config)
            items = read_items(body, form, request.headers) if body.strip() else iter(())
            outcome = await take_captures(items, place, self.write_captures, redacting=self.config.redact)
        if outcome.accepted:
            self.captured.add(place["rollout_id"], place["branch_index"])
        self.metrics.items.inc(outcome.accepted)
        for status, refusals in Counter(problem.status for problem in outcome.problems).items():
            count_refusals(self.metrics, status, refusals)
        return answer(outcome.status, outcome.plain(), RETRY_AFTER if outcome.status == 503 else None)


def admit(caller: Caller, record: type[Record], path: dict[str, Any]) -> None:
    """Raises RefusedError (403), before any of the body is read, when this caller may not write such records there."""
    refusal = caller.refusal(record, path.get("rollout_id"), path.get("branch_index"))
    if refusal is not None:
        raise RefusedError(FORBIDDEN, refusal)


def traceparent(request: Request) -> str | None:
    """The trace context of a request."""
    given = request.headers.get("traceparent", "")
    return given if TRACEPARENT.fullmatch(given) else None


def create_app(settings: Settings, view: Starlette | None = None) -> FastAPI:
    """The gateway, with the pages of `braid view` if they are given. Raises ConfigError if it would be open to others."""
    gateway = Gateway(settings)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            if view is not None:
                await stack.enter_async_context(view.router.lifespan_context(view))
            await gateway.sender.start()
            stack.push_async_callback(gateway.sender.stop)
            for each in gateway.beside:
                await each.start()
                stack.push_async_callback(each.stop)
            following = asyncio.create_task(gateway.captured.follow())
            stack.callback(following.cancel)
            yield

    app: FastAPI = FastAPIOffline(
        title="Braidstream gateway", version="1", description=pages.DESCRIPTION, openapi_tags=pages.TAGS, lifespan=lifespan,
        redoc_url=None, redirect_slashes=False,
    )  # fmt: skip
    app.state.gateway = gateway
    full = refused(FULL, RETRY_AFTER | {"Connection": "close"})
    ending = {} if view is None else {"ending": view.state.served.ending}
    app.state.served = Served(gateway.config, gateway.metrics, full, **ending)
    if view is not None:
        app.add_middleware(Pages, view=view)
    app.add_middleware(Door, metrics=gateway.metrics, is_open=gateway.doors.are_open)
    _answer_errors(app, gateway)
    _add_writing(app, gateway)
    _add_operations(app, gateway)
    add_tracer(app)
    return app


class Pages:
    """ASGI middleware: GET requests go to the pages, except for the gateway's own routes."""

    def __init__(self, app: ASGIApp, *, view: ASGIApp) -> None:
        self._app = app
        self._view = view

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        own = scope["type"] != "http" or scope["method"] not in ("GET", "HEAD") or scope["path"].startswith(OWN_PAGES)
        await (self._app if own else self._view)(scope, receive, send)


def _add_writing(app: FastAPI, gateway: Gateway) -> None:
    bearer = HTTPBearer(
        auto_error=False, description="A token of the configuration; not needed where none are configured."
    )
    Known = Annotated[Caller, Depends(gateway.caller)]  # noqa: N806 - a type, made for this very gateway
    shared: dict[str, Any] = {"status_code": 202, "responses": pages.RESPONSES, "dependencies": [Depends(bearer)]}

    @app.post("/v1/rollouts", tags=["rollouts"], summary="Open a rollout", openapi_extra=pages.ROLLOUT_BODY, **shared)
    async def open_rollout(request: Request, caller: Known) -> Response:
        """Record that a task was forked, the required verdicts of its branches, and the deadline."""
        admit(caller, Lifecycle, {})
        return await gateway.take(request, caller, typed("rollout", {}))

    @app.post(
        "/v1/rollouts/{rollout_id:path}/cancel", tags=["rollouts"], summary="Give a rollout up",
        openapi_extra=pages.CANCEL_BODY, **shared,
    )  # fmt: skip
    async def cancel(request: Request, caller: Known, rollout_id: RolloutId) -> Response:
        """Branches and evidence are still written; training rows are not."""
        path = {"rollout_id": rollout_id}
        admit(caller, Lifecycle, path)
        return await gateway.take(request, caller, typed("cancel", path), without={})

    @app.post(
        "/v1/rollouts/{rollout_id:path}/close", tags=["rollouts"], summary="Settle a rollout now",
        openapi_extra=pages.CLOSE_BODY, **shared,
    )  # fmt: skip
    async def close(request: Request, caller: Known, rollout_id: RolloutId) -> Response:
        """Settle with the facts in the log before this request."""
        path = {"rollout_id": rollout_id}
        admit(caller, Lifecycle, path)
        return await gateway.take(request, caller, typed("close", path), without={})

    @app.post(
        "/v1/rollouts/{rollout_id:path}/branches/{branch_index}/events", tags=["events"], summary="Write events of a branch",
        openapi_extra=pages.EVENTS_BODY, **shared,
    )  # fmt: skip
    async def events(
        request: Request,
        caller: Known,
        rollout_id: RolloutId,
        branch_index: BranchIndex,
        attempt: Annotated[
            int | None, Query(ge=0, le=99_999, description="For events that do not say theirs; else 0.")
        ] = None,
        first_seq: Annotated[
            int | None,
            Query(ge=0, le=MAX_EXACT, description="The seq of the first item; needed when items carry none."),
        ] = None,
        ended: Annotated[bool, Query(description="The branch ends with this request.")] = False,
        status: Annotated[
            EndStatus | None, Query(description="With ended: how; answered unless there is an error.")
        ] = None,
        error: Annotated[str | None, Query(max_length=10_000, description="With ended: why it failed.")] = None,
    ) -> Response:
        """Each item is a bare event, or an object with `event`, `seq`, `attempt` and facts about the branch
        (`temperature`, `seed`, `session_id`, `agent`, `task`, `observed`). Contiguous events share a record of at most
        1 MiB.
        """
        path = {"rollout_id": rollout_id, "branch_index": branch_index}
        admit(caller, AgentEvents, path)
        if not ended and (status is not None or error is not None):
            raise RefusedError(422, "only together with ended=true", field="status" if status is not None else "error")
        shape = EventShape(path, attempt=attempt, first_seq=first_seq)
        ending = Ending(path, attempt=attempt, first_seq=first_seq, status=status, error=error) if ended else None
        return await gateway.take(request, caller, shape, ending=ending)

    @app.post(
        "/v1/rollouts/{rollout_id:path}/branches/{branch_index}/captures", tags=["events"], summary="Write captures of a branch",
        openapi_extra=pages.CAPTURES_BODY, **shared,
    )  # fmt: skip
    async def captures(
        request: Request,
        caller: Known,
        rollout_id: RolloutId,
        branch_index: BranchIndex,
        attempt: Annotated[int, Query(ge=0, le=99_999, description="The try at this branch.")] = 0,
    ) -> Response:
        """A tracer's records of a branch: model calls, other events, and its end. The fold of captures numbers the
        events, so items have no seq; an item with a known id is ignored.
        """
        path = {"rollout_id": rollout_id, "branch_index": branch_index}
        admit(caller, Capture, path)
        return await gateway.take_captures(request, path | {"attempt": attempt})

    @app.post(
        "/v1/rollouts/{rollout_id:path}/branches/{branch_index}/verdicts/{kind}", tags=["verdicts"], summary="Write a verdict",
        openapi_extra=pages.VERDICT_BODY, **shared,
    )  # fmt: skip
    async def verdicts(
        request: Request,
        caller: Known,
        rollout_id: RolloutId,
        branch_index: BranchIndex,
        kind: Literal["build", "visual", "check"],
    ) -> Response:
        """A verifier's verdict on a branch. Agents and operators cannot write here."""
        path = {"rollout_id": rollout_id, "branch_index": branch_index}
        admit(caller, VERDICTS[kind], path)
        return await gateway.take(request, caller, typed(kind, path))

    @app.post(
        "/v1/rollouts/{rollout_id:path}/votes", tags=["verdicts"], summary="Write votes of a judge",
        openapi_extra=pages.VOTES_BODY, **shared,
    )  # fmt: skip
    async def votes(request: Request, caller: Known, rollout_id: RolloutId) -> Response:
        """One judge call each, or why there is none (`cause`)."""
        path = {"rollout_id": rollout_id}
        admit(caller, JudgeVote, path)
        return await gateway.take(request, caller, typed("vote", path))

    @app.post("/v1/lines", tags=["lines"], summary="Write lines of any type", openapi_extra=pages.LINES_BODY, **shared)
    async def lines(request: Request, caller: Known) -> Response:
        """The lines that `braid ingest` reads. Events without a seq are numbered from 0 in the order of this body, so a
        branch that is sent in several requests must state it.
        """
        return await gateway.take(request, caller, LineShape())


def _add_operations(app: FastAPI, gateway: Gateway) -> None:
    @app.get("/healthz", tags=["operations"], summary="Whether the process answers", response_class=PlainTextResponse)
    async def healthz() -> str:
        return "ok\n"

    @app.get(
        "/readyz", tags=["operations"], summary="Whether the broker can be reached", response_class=PlainTextResponse
    )
    async def readyz() -> Response:
        if gateway.sender.is_ready:
            return PlainTextResponse("ready\n")
        return PlainTextResponse(f"not ready: {gateway.sender.trouble}\n", 503)

    @app.get("/metrics", tags=["operations"], summary="Metrics for Prometheus", response_class=PlainTextResponse)
    async def metrics() -> Response:
        return Response(generate_latest(gateway.metrics.registry), media_type=CONTENT_TYPE_LATEST)


def _answer_errors(app: FastAPI, gateway: Gateway) -> None:
    """Give every refusal the same shape as an answer."""

    def say(status: int, field: str, reason: str, headers: dict[str, str] | None = None) -> Response:
        count_refusals(gateway.metrics, status)
        return refused(Problem(None, field, reason, status), headers)

    @app.exception_handler(RefusedError)
    async def refuse(_request: Request, error: RefusedError) -> Response:
        return say(error.status, error.field, error.reason, error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(_request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        return say(422, ".".join(str(part) for part in first["loc"][1:]), str(first["msg"]))

    @app.exception_handler(HTTPException)
    async def other(_request: Request, error: HTTPException) -> Response:
        return say(error.status_code, "", str(error.detail), dict(error.headers or {}))
