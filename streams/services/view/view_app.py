"""The pages over HTTP: access control, headers of every answer, and changes as server-sent events.

The pages and their contents are defined by the site (streams/views/web). Nothing is ever written: GET and HEAD only.
"""

import asyncio
import gzip
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple, Protocol
from urllib.parse import parse_qsl, unquote

import orjson
import structlog
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, generate_latest
from starlette.applications import Starlette
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from schemas.errors import BraidError
from streams.cluster.config import Role, Settings
from streams.services.view.follower import Follower
from streams.services.web.auth import Caller, Doors, browser_refusal, check_bind
from streams.services.web.guard import Served

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-cache, private",
    "Vary": "Accept-Encoding, Authorization",
}
"""Of every answer."""

PING_S = 15.0
"""Longest time between two messages to an open page."""

SMALL = 600
"""Bytes from which an answer is compressed."""

ICON = "braid.svg"

FIELDS = 20
"""Of a query."""

READERS: tuple[Role, ...] = ("viewer", "operator")

OPEN_PATHS = frozenset({"healthz", "readyz", "metrics", "static", "favicon.ico"})
"""First parts of paths that need no token."""

log = structlog.get_logger()


class Asked(NamedTuple):
    """A request for a page."""

    path: tuple[str, ...]
    """The parts between slashes, decoded one by one: an id may have a slash in it."""
    query: Mapping[str, str]
    bound: str | None = None
    """The only rollout that the caller may read."""
    known: str | None = None
    """The state that the caller has already."""


class Answer(NamedTuple):
    """A page, or the reason why there is none."""

    status: int
    kind: str
    body: bytes
    state: str | None = None
    """The version of the content; a caller that has it already gets 304."""
    packed: bool = False
    """Whether the body is compressed already: a page is compressed once, however many clients request it."""


class Site(Protocol):
    """All pages of a log."""

    async def answer(self, asked: Asked) -> Answer:
        """Return one page. Raises BraidError if the log cannot be read."""
        ...

    def failed(self, status: int, reason: str, path: tuple[str, ...]) -> Answer:
        """Return the page for a refusal."""
        ...

    def static(self, name: str) -> Answer:
        """Return a file of ours."""
        ...

    def needs(self, path: tuple[str, ...]) -> tuple[tuple[Role, ...], str | None]:
        """Return the roles, one of which a path needs, and the rollout that it is about."""
        ...


class ViewMetrics:
    """The metrics of the pages, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter("braid_view_requests_total", "Requests answered", ["status"], registry=self.registry)
        self.connections = Gauge("braid_view_connections", "Connections that are open", registry=self.registry)
        self.cut = Counter(
            "braid_view_connections_cut_total", "Connections that were closed", ["reason"], registry=self.registry
        )
        self.live = Gauge("braid_view_live_pages", "Pages that are told of changes", registry=self.registry)


class ViewDoor:
    """Answers every request: refusals first, then the page."""

    def __init__(self, site: Site, follower: Follower, settings: Settings, metrics: ViewMetrics) -> None:
        self._site = site
        self._follower = follower
        self._config = settings.view
        self._doors = Doors(settings.gateway.tokens)
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        path = parts_of(scope)
        headers = {name: value for name, value in scope["headers"] if name != b"authorization"}
        began = time.monotonic()
        try:
            response = await self._response(scope, path, headers)
        except BraidError as error:
            response = _plain(self._site.failed(503, str(error), path), headers)
        except Exception:
            # For any error, the reader gets an answer and the log the traceback.
            log.exception("bug", path=scope["path"])
            response = _plain(self._site.failed(500, "the server made a mistake; its log says more", path), headers)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        self._metrics.requests.labels(str(response.status_code)).inc()
        log.debug(
            "request", path=scope["path"], status=response.status_code, ms=round((time.monotonic() - began) * 1000, 1)
        )
        await response(scope, receive, send)

    async def _response(self, scope: Scope, path: tuple[str, ...], headers: Mapping[bytes, bytes]) -> Response:
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            return _plain(self._site.failed(*refusal, path), headers)
        if path[:1] and path[0] in OPEN_PATHS:
            return self._own(path, headers)
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        caller = self._doors.caller(given, browsers=True)
        if caller is None:
            response = _plain(self._site.failed(401, "a known token is needed", path), headers)
            response.headers["WWW-Authenticate"] = 'Basic realm="braid: the password is a token", charset="UTF-8"'
            return response
        return await self._page(scope, path, headers, caller)

    def _refusal(self, scope: Scope, headers: Mapping[bytes, bytes]) -> tuple[int, str] | None:
        if scope["method"] not in ("GET", "HEAD"):
            return 405, "the pages only read: GET and HEAD"
        if self._doors.are_open:
            host, origin = (
                headers[name].decode("latin-1") if name in headers else None for name in (b"host", b"origin")
            )
            reason = browser_refusal(host, origin)
            if reason is not None:
                return 403, reason
        return None

    def _own(self, path: tuple[str, ...], headers: Mapping[bytes, bytes]) -> Response:
        if path == ("healthz",):
            return Response(b"ok\n", media_type="text/plain")
        if path == ("readyz",):
            ready = self._follower.reader is not None
            return Response(
                b"ready\n" if ready else f"not ready: {self._follower.trouble}\n",
                200 if ready else 503,
                media_type="text/plain",
            )
        if path == ("metrics",):
            return Response(generate_latest(self._metrics.registry), media_type=CONTENT_TYPE_LATEST)
        return _plain(self._site.static(ICON if path[0] == "favicon.ico" else "/".join(path[1:])), headers)

    async def _page(
        self, scope: Scope, path: tuple[str, ...], headers: Mapping[bytes, bytes], caller: Caller
    ) -> Response:
        try:
            query = dict(
                parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True, max_num_fields=FIELDS)
            )
        except ValueError:
            return _plain(self._site.failed(400, f"a query has at most {FIELDS} fields", path), headers)
        roles, rollout_id = self._site.needs(path)
        if path == ("live",):
            rollout_id = query.get("rollout")
        refusal = caller.read_refusal(roles, rollout_id)
        if refusal is not None:
            return _plain(self._site.failed(403, refusal, path), headers)
        if path == ("live",):
            return self._live(rollout_id if rollout_id is not None else caller.rollout)
        known = headers.get(b"if-none-match", b"").decode("latin-1").strip('W/" ') or None
        return _plain(await self._site.answer(Asked(path, query, caller.rollout, known)), headers)

    def _live(self, rollout_id: str | None) -> Response:
        if len(self._follower.listeners) >= self._config.max_live:
            return Response(b"too many open pages\n", 503, media_type="text/plain")  # a page is static then
        return StreamingResponse(
            self._changes(rollout_id),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )

    async def _changes(self, rollout_id: str | None) -> AsyncGenerator[bytes, None]:
        with self._follower.listening(rollout_id) as listener:
            self._metrics.live.set(len(self._follower.listeners))
            try:
                yield b"retry: 2000\n\n"
                while not self._follower.ending:
                    if await listener.wait(PING_S):
                        tick = self._follower.index.tick if self._follower.index is not None else 0
                        yield b"event: change\ndata: " + orjson.dumps({"tick": tick}) + b"\n\n"
                    else:
                        yield b": still here\n\n"
            finally:
                self._metrics.live.set(len(self._follower.listeners) - 1)


def parts_of(scope: Scope) -> tuple[str, ...]:
    """The parts of a path, each decoded by itself."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    parts = raw.split(b"?", 1)[0].decode("latin-1").split("/")
    return tuple(unquote(part, errors="replace") for part in parts if part)


def _plain(answer: Answer, headers: Mapping[bytes, bytes]) -> Response:
    if answer.state is not None and headers.get(b"if-none-match", b"").decode("latin-1").strip('W/" ') == answer.state:
        return Response(b"", 304, {"ETag": f'W/"{answer.state}"'})
    body, more = answer.body, {}
    if answer.state is not None:
        more["ETag"] = f'W/"{answer.state}"'
    if b"gzip" not in headers.get(b"accept-encoding", b""):
        body = gzip.decompress(body) if answer.packed else body
    elif answer.packed or (len(body) >= SMALL and not answer.kind.startswith(("application/x-tar", "image/png"))):
        body, more["Content-Encoding"] = body if answer.packed else packed(body), "gzip"
    return Response(body, answer.status, more, answer.kind)


def packed(body: bytes) -> bytes:
    """Compress a body: the same bytes for the same body."""
    return gzip.compress(body, 5, mtime=0)


def create_view(site: Site, follower: Follower, settings: Settings) -> Starlette:
    """The application. Raises ConfigError if it would be open to others."""
    check_bind(settings.view, settings.gateway.tokens, "view")
    return _application(site, follower, settings)


def _application(site: Site, follower: Follower, settings: Settings) -> Starlette:
    metrics = ViewMetrics()
    door = ViewDoor(site, follower, settings, metrics)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        following = asyncio.create_task(follower.run())
        yield
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following

    app = Starlette(lifespan=lifespan)
    app.router.default = door
    full: ASGIApp = Response(
        b"all connections are in use; try again in a moment\n",
        503,
        {"Retry-After": "2", "Connection": "close"},
        "text/plain",
    )
    app.state.served = Served(settings.view, metrics, full, follower.end)
    return app


def mounted_view(site: Site, follower: Follower, settings: Settings) -> Starlette:
    """The same for a gateway, whose address and tokens were checked already."""
    return _application(site, follower, settings)
