"""The capturing proxy: finds caller and branch of a request and captures the call."""

import re
import time
from asyncio import Future, ensure_future, shield, sleep, timeout, to_thread
from collections.abc import Callable, Coroutine, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs
from uuid import uuid4

import structlog
from pydantic import ValidationError

from agents.capture.call_body import CallBody, Exchanged, call_body
from agents.capture.capture_item import capture_of
from agents.capture.event_stream import is_event_stream
from agents.capture.keys_of_calls import KEY_HEADERS, keys_of
from agents.capture.parts import MAX_BYTES
from agents.capture.protocol import Protocol, protocol_of
from agents.capture.token_request import with_token_ids
from agents.importers.line_error import LineError
from schemas.captures import Capture
from schemas.errors import BraidError
from schemas.jsontext import parse_object
from streams.cluster.config import ConfigError, Settings, Upstream
from streams.services.gateway.bodies import form_of, read_items
from streams.services.gateway.capture_intake import take_captures
from streams.services.gateway.captured_branches import CapturedBranches
from streams.services.gateway.gateway_metrics import GatewayMetrics
from streams.services.gateway.problems import FORBIDDEN, Problem, RefusedError
from streams.services.gateway.sender import Sender
from streams.services.proxy.adoption import Adoption
from streams.services.proxy.content_coding import CodingError, decoded
from streams.services.proxy.exchange import ClientGoneError, Exchange, WholeBody, answer
from streams.services.proxy.forwarder import BodyCopy, Forwarder, Passage, Room, forwarded, upstream_key
from streams.services.proxy.identity import (
    HOW,
    POLICY_VERSION,
    BranchId,
    Target,
    branch_id,
    decoded_id,
    identity_of,
    own_headers,
    read_target,
)
from streams.services.proxy.outlet import Outlet, ProxyMetrics
from streams.services.web.auth import Caller, Doors, browser_refusal, is_loopback

DEFAULTS = {
    "openai": Upstream(url="https://api.openai.com", key_variable="OPENAI_API_KEY"),
    "anthropic": Upstream(url="https://api.anthropic.com", key_variable="ANTHROPIC_API_KEY", key_header="x-api-key"),
}

LARGE = 256 * 1024
"""Bytes of both bodies from which on a capture is made in a thread, so that other calls need not wait."""

BODIES_AT_ONCE = 16
"""Captures of the largest size in memory. A call beyond that passes without being captured."""

MAX_VERSION = 256
"""Characters of a policy's version."""

MAX_END_BYTES = 1024 * 1024
MAX_CAPTURES_BYTES = 16 * 1024 * 1024

BODY_S = 30.0
"""Time for the body of a request that is not forwarded."""

CAPTURES_PATH = re.compile(r"/v1/rollouts/([^/]+)/branches/([^/]+)/captures")

log = structlog.get_logger()


class Proxy:
    """State that all calls share."""

    def __init__(
        self, settings: Settings, metrics: GatewayMetrics, sender: Sender | None = None, captured: CapturedBranches | None = None
    ) -> None:  # fmt: skip
        """The owner of `sender` starts and stops it. `captured` gets each branch before its first call is answered."""
        self.config = settings.proxy
        self._redacting = settings.gateway.redact
        self._doors = Doors(settings.gateway.tokens)
        self._upstreams = self.config.upstreams or DEFAULTS
        self._sender = sender or Sender(settings, metrics, "proxy")
        self._owns_sender = sender is None
        self._metrics = ProxyMetrics(metrics.registry)
        self.outlet = Outlet(settings, self._sender, self._metrics)
        self._forwarder = Forwarder(self.config)
        self._captured = captured
        self._adoption: Adoption | None = None
        self._calls = 0
        self._room = Room(BODIES_AT_ONCE * self.config.max_body_bytes)

    async def start(self) -> None:
        """Open the spool, and begin to connect. Raises SpoolError."""
        self.outlet.start()
        if self.config.adopt:
            self._adoption = Adoption(self.outlet.spool.folder / "adopted")
        await self._forwarder.start()
        if self._owns_sender:
            await self._sender.start()

    async def stop(self) -> None:
        """Send the waiting captures and close everything."""
        await self._forwarder.stop()
        await self.outlet.stop()
        if self._owns_sender:
            await self._sender.stop()

    @property
    def is_ready(self) -> bool:
        """Whether the broker accepts captures."""
        return self._sender.is_ready

    def takes(self, path: str) -> bool:
        """Whether a path belongs to the proxy."""
        first = path.split("/", 2)[1] if path.startswith("/") else ""
        return first == "r" or first in self._upstreams

    async def handle(self, exchange: Exchange) -> None:
        """Answer one request."""
        try:
            await self._handle(exchange)
        except RefusedError as error:
            problem = Problem(None, error.field, error.reason, error.status).plain()
            body = {"error": {"type": "braid_proxy", "message": str(error)}, "accepted": 0, "errors": [problem]}
            with suppress(ClientGoneError):
                await answer(exchange, error.status, body, tuple(error.headers.items()))
        except ClientGoneError:
            return

    async def _handle(self, exchange: Exchange) -> None:
        headers = own_headers(exchange.headers)
        if self._doors.are_open:
            refusal = browser_refusal(headers.get("host"), headers.get("origin"))
            if refusal is not None:
                raise RefusedError(403, refusal)
        if "websocket" in headers.get("upgrade", "").lower():
            # Codex first asks for a WebSocket. After 426 it uses HTTP at once, after 404 it retries for seven seconds.
            raise RefusedError(426, "WebSockets are not captured: use HTTP")
        caller, secret_headers = self._caller(exchange)
        captured = CAPTURES_PATH.fullmatch(exchange.target.partition("?")[0])
        if captured is not None:
            await self._captures(exchange, captured, headers, caller)
            return
        target = read_target(exchange.target)
        if target.upstream == "end" and target.branch is not None and not target.path:
            await self._end(exchange, target.branch, caller)
            return
        upstream = self._upstreams.get(target.upstream)
        if upstream is None:
            known = ", ".join(sorted(self._upstreams))
            raise RefusedError(404, f"no upstream has the name {target.upstream!r}; there are: {known}", field="path")
        protocol = protocol_of(exchange.method, target.path)
        branch = self._branch(target, headers, caller, protocol)
        sending = [(name, value) for name, value in forwarded(exchange.headers) if name.lower() not in secret_headers]
        if secret_headers and not any(name.lower() in KEY_HEADERS for name, _ in sending):
            sending.append(upstream_key(upstream))  # the upstream gets a caller's own key if one comes beside the token
        if self._calls >= self.config.max_calls:
            raise RefusedError(503, "too many calls at once; try again in a moment", headers={"Retry-After": "2"})
        self._calls += 1
        try:
            if branch is None and protocol is not None and self._adoption is not None:
                body = await self._whole(exchange, self.config.max_body_bytes)
                encoding = headers.get("content-encoding", "")
                branch = self._adoption.assign(protocol, decoded(body, encoding, self.config.max_body_bytes))
                self._admit(caller, branch)
                exchange = WholeBody(exchange, body)
            await self._pass(exchange, upstream, target, sending, protocol, branch)
        finally:
            self._calls -= 1

    # -- who, and which branch -----------------------------------------------------------------------------------------

    def _caller(self, exchange: Exchange) -> tuple[Caller, set[str]]:
        """The caller, and the names of headers whose key is a token of ours. Raises RefusedError (401)."""
        if self._doors.are_open:
            caller = self._doors.caller(())
            assert caller is not None
            return caller, set()
        found: Caller | None = None
        secret: set[str] = set()
        for name, value in exchange.headers:
            lower = name.lower()
            given = value.strip()
            if lower == "authorization" and given[:7].lower() == "bearer ":
                given = given[7:]
            if lower in KEY_HEADERS or lower == "x-braid-token":
                caller = self._doors.known(given.encode("utf-8", "surrogateescape"))
                if caller is not None:
                    found = found or caller
                    secret.add(lower)
        if found is None:
            raise RefusedError(
                401, "a known token is needed: as the API key, or in the header X-Braid-Token", field="authorization"
            )
        return found, secret - {"x-braid-token"}

    def _branch(
        self, target: Target, headers: Mapping[str, str], caller: Caller, protocol: Protocol | None
    ) -> BranchId | None:
        """The branch of a call; None if the request is not captured. Raises RefusedError (400, 403)."""
        branch = identity_of(target, headers, caller)
        if branch is None:
            if protocol is not None and self._adoption is None:
                raise RefusedError(400, HOW, field="path")
            refusal = caller.refusal(Capture, None, None)  # only agents may use the upstream's key
            if refusal is not None:
                raise RefusedError(FORBIDDEN, refusal)
            return None
        self._admit(caller, branch)
        return branch if protocol is not None else None

    def _admit(self, caller: Caller, branch: BranchId) -> None:
        refusal = caller.refusal(Capture, branch.rollout_id, branch.branch_index)
        if refusal is not None:
            raise RefusedError(FORBIDDEN, refusal)

    # -- calls ---------------------------------------------------------------------------------------------------------

    async def _pass(
        self, exchange: Exchange, upstream: Upstream, target: Target, headers: list[tuple[str, str]],
        protocol: Protocol | None, branch: BranchId | None,
    ) -> None:  # fmt: skip
        path = target.path + (f"?{target.query}" if target.query else "")
        passage = Passage(self.config.max_body_bytes, self._room)
        # The agent's own token is among the former, the upstream's own key among the latter.
        passage.keys = keys_of([*exchange.headers, *headers], target.query)
        passage.policy_version = own_headers(exchange.headers).get(POLICY_VERSION, "")[:MAX_VERSION]
        passage.request_encoding = next((value for name, value in headers if name.lower() == "content-encoding"), "")
        if branch is None or protocol is None:
            try:
                await self._forwarder.forward(exchange, upstream, path, headers, passage, _nothing)
            finally:
                passage.release()
            return
        if self.config.token_ids and protocol == "openai-chat" and not passage.request_encoding:
            exchange, headers = await self._asking(exchange, headers, passage)
        full = self.outlet.spool.is_full
        beside = [("X-Braid-Captured", "no")] if full else []
        keep = _Once(lambda: self._keep(passage, protocol, branch, dropped=full))
        self.outlet.begin(branch)
        if self._captured is not None:
            self._captured.add(branch.rollout_id, branch.branch_index)
        try:
            await self._forwarder.forward(exchange, upstream, path, headers, passage, keep, beside)
        finally:
            if not keep.is_begun:
                passage.cut = passage.cut or "the client hung up"
            if keep.is_over:  # nearly always; then no task that outlives this one is needed
                self._let_go(passage, branch)
            else:
                await shield(ensure_future(self._finish(keep, passage, branch)))

    async def _asking(
        self, exchange: Exchange, headers: list[tuple[str, str]], passage: Passage
    ) -> tuple[Exchange, list[tuple[str, str]]]:
        """The request with the fields that ask for token ids, and its headers. Raises RefusedError (408, 413)."""
        body = await self._whole(exchange, self.config.max_body_bytes)
        asked = with_token_ids(body)
        if asked is None:
            return WholeBody(exchange, body), headers
        passage.asked, passage.added = body, asked.added
        kept = [(name, value) for name, value in headers if name.lower() not in ("content-length", "accept-encoding")]
        return WholeBody(exchange, asked.body), [*kept, ("Accept-Encoding", "identity")]

    async def _finish(self, keep: "_Once", passage: Passage, branch: BranchId) -> None:
        try:
            await keep(passage)
        finally:
            self._let_go(passage, branch)

    def _let_go(self, passage: Passage, branch: BranchId) -> None:
        passage.release()
        self.outlet.finish(branch)

    async def _keep(self, passage: Passage, protocol: Protocol, branch: BranchId, *, dropped: bool) -> None:
        """Capture a call that has ended, before its client can see the end and send the next one."""
        try:
            await self._capture(passage, protocol, branch, dropped=dropped)
        finally:
            if self._adoption is not None:
                answered = passage.cut is None and passage.status is not None and passage.status < 300
                self._adoption.finish(branch, answered=answered)

    async def _capture(self, passage: Passage, protocol: Protocol, branch: BranchId, *, dropped: bool) -> None:
        """Write the capture of a call to the spool before returning."""
        if dropped:
            self._metrics.dropped.inc()
            self.outlet.lose(branch)
            return
        await sleep(0)  # waiting bytes are forwarded first
        try:
            made = await self._made(passage, protocol, branch)
        except Exception as error:  # noqa: BLE001 - a failing capture must not stop the call
            reason = str(error) if isinstance(error, BraidError) else type(error).__name__
            log.warning("a call could not be captured", rollout=branch.rollout_id, reason=reason)
            self._metrics.dropped.inc()
            self.outlet.lose(branch)
            return
        capture = Capture(
            **branch._asdict(), capture_id=uuid4().hex[:20], kind="call", source="proxy", received_ms=passage.started_ms, body=made.body,
        )  # fmt: skip
        if not self.outlet.put([capture]):
            self.outlet.lose(branch)
        elif len(made.body) <= MAX_BYTES:  # the log has only the digest of a longer one
            self.outlet.known(branch).update(made.digests)
        outcome = "cut" if passage.cut else str(passage.status)
        self._metrics.calls.labels(outcome).inc()

    async def _made(self, passage: Passage, protocol: Protocol, branch: BranchId) -> CallBody:
        known = self.outlet.known(branch)
        if passage.request.size + passage.response.size > LARGE:
            return await to_thread(self._body, passage, protocol, frozenset(known))
        return self._body(passage, protocol, known)

    def _body(self, passage: Passage, protocol: Protocol, known: AbstractSet[bytes]) -> CallBody:
        limit = self.config.max_body_bytes
        request, response, cut = passage.request.whole(), passage.response.whole(), passage.cut
        if request is None:
            raise CodingError("there is no room for its request")
        request = decoded(request, passage.request_encoding, limit) if passage.asked is None else passage.asked
        if response is not None:
            try:
                response = decoded(response, passage.response_encoding, limit)
            except CodingError as error:
                response, cut = None, cut or f"the response could not be decoded: {error}"
        call = Exchanged(
            protocol, request, response, passage.status, is_event_stream(passage.content_type, response or b""), cut, passage.started_ms,
            passage.first_byte_ms, passage.latency_ms, self._redacting, passage.keys, passage.policy_version,
        )  # fmt: skip
        return call_body(call, known)

    # -- ends ----------------------------------------------------------------------------------------------------------

    async def _end(self, exchange: Exchange, branch: BranchId, caller: Caller) -> None:
        """End a branch, once its calls under way are captured."""
        if exchange.method != "POST":
            raise RefusedError(405, "POST {status?, answer?} ends a branch", headers={"Allow": "POST"})
        self._admit(caller, branch)
        told = _object(await self._whole(exchange, MAX_END_BYTES))
        try:
            capture = capture_of(
                {**told, "kind": "end", "id": f"end-{uuid4().hex[:20]}"}, branch._asdict(), int(time.time() * 1000),
                redacting=self._redacting, source="proxy",
            )  # fmt: skip
        except LineError as error:
            raise RefusedError(422, error.reason, field=error.field) from None
        await self.outlet.idle(branch)
        if not self.outlet.put([capture]):
            raise RefusedError(
                503, "the spool is full; try again when the broker is back", headers={"Retry-After": "5"}
            )
        await answer(exchange, 202, {"accepted": 1})

    async def _captures(
        self, exchange: Exchange, path: re.Match[str], headers: Mapping[str, str], caller: Caller
    ) -> None:
        """Take the captures of a tracer."""
        if exchange.method != "POST":
            raise RefusedError(405, "POST an array or lines of captures", headers={"Allow": "POST"})
        attempt = parse_qs(exchange.target.partition("?")[2]).get("attempt", ["0"])[-1]
        branch = branch_id(decoded_id(path[1]), path[2], attempt)
        self._admit(caller, branch)
        form = form_of(headers.get("content-type"), headers)
        body = await self._whole(exchange, MAX_CAPTURES_BYTES)
        items = read_items(body, form, headers) if body.strip() else iter(())
        outcome = await take_captures(items, branch._asdict(), self.outlet.write, redacting=self._redacting)
        await answer(exchange, outcome.status, outcome.plain())

    async def _whole(self, exchange: Exchange, limit: int) -> bytes:
        """Read a whole body before it is used. Raises RefusedError (408, 413, 503)."""
        if not exchange.has_body:
            return b""
        body = BodyCopy(limit, self._room)
        try:
            async with timeout(BODY_S):
                async for piece in exchange.body():
                    body.add(piece)
                    if body.size > limit:
                        raise RefusedError(413, f"the body has more than {limit} bytes", field="body")
                    if body.is_gone:
                        raise RefusedError(
                            503, "too many large bodies at once; try again", headers={"Retry-After": "2"}
                        )
            return body.whole() or b""
        except TimeoutError:
            raise RefusedError(408, f"the body took longer than {BODY_S:g} s", field="body") from None
        finally:
            body.release()


class _Once:
    """Runs the capture of a call once, to its end, whatever happens to the call."""

    def __init__(self, capture: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._capture = capture
        self._running: Future[None] | None = None

    @property
    def is_begun(self) -> bool:
        return self._running is not None

    @property
    def is_over(self) -> bool:
        return self._running is not None and self._running.done()

    async def __call__(self, _passage: Passage) -> None:
        if self._running is None:
            self._running = ensure_future(self._capture())
        if not self._running.done():
            await shield(self._running)


async def _nothing(_passage: Passage) -> None:
    """Drop the copy of a call that is not captured."""


def _object(body: bytes) -> dict[str, object]:
    if not body.strip():
        return {}
    try:
        return parse_object(body)
    except ValueError as error:
        raise RefusedError(400, f"not a JSON object: {error}", field="body") from None


def check_proxy_bind(settings: Settings) -> None:
    """Raises ConfigError for an address that others can reach when there are no tokens."""
    if not settings.gateway.tokens and not is_loopback(settings.proxy.host):
        raise ConfigError(
            f"proxy: {settings.proxy.host or 'every address'} can be reached by others, and no tokens are configured; "
            "set gateway.tokens (BRAID_GATEWAY__TOKENS), or listen on 127.0.0.1"
        )


def named_upstreams(given: list[str] | None) -> dict[str, Upstream] | None:
    """Upstreams as NAME=URL. Raises ConfigError."""
    if not given:
        return None
    found: dict[str, Upstream] = {}
    for each in given:
        name, sign, url = each.partition("=")
        if not sign or not name:
            raise ConfigError(f"--upstream {each}: expected NAME=URL, as in openai=http://127.0.0.1:8000")
        base = DEFAULTS.get(name)
        try:
            found[name] = Upstream.model_validate({**(base.model_dump() if base else {}), "url": url})
        except ValidationError:
            raise ConfigError(
                f"--upstream {each}: expected an http(s) address without user, query and fragment"
            ) from None
    return found
