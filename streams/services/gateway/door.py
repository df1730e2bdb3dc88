"""The checks that every request passes first and last: its sender is checked, it is counted, and no answer shows a
traceback."""

import time
from typing import Any
from urllib.parse import unquote_to_bytes

import orjson
import structlog
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streams.services.gateway.gateway_metrics import REASONS, GatewayMetrics
from streams.services.gateway.problems import Problem
from streams.services.web.auth import browser_refusal

log = structlog.get_logger()


class Door:
    """ASGI middleware around the whole gateway."""

    def __init__(self, app: ASGIApp, *, metrics: GatewayMetrics, is_open: bool) -> None:
        self._app = app
        self._metrics = metrics
        self._is_open = is_open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()
        status = 0

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            refusal = self._refusal(scope)
            await (self._app if refusal is None else refusal)(scope, receive, noted)
        except ClientDisconnect:
            status = 499
        except Exception:
            # For any error, the sender gets an answer and the log the traceback.
            log.exception("bug", path=scope["path"])
            if not status:
                reason = "the gateway made a mistake; its log says more"
                await refused(Problem(None, "", reason, 500))(scope, receive, noted)
        self._note(scope, status, time.monotonic() - began)

    def _refusal(self, scope: Scope) -> Response | None:
        if self._is_open:
            headers = {
                name: value.decode("latin-1") for name, value in scope["headers"] if name in (b"host", b"origin")
            }
            reason = browser_refusal(headers.get(b"host"), headers.get(b"origin"))
            if reason is not None:
                return refused(Problem(None, "", reason, 403))
        try:
            unquote_to_bytes(scope.get("raw_path") or b"").decode()
        except UnicodeDecodeError:
            return refused(Problem(None, "path", "the path is not UTF-8", 400))
        return None

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path_format", None) or "none"
        self._metrics.requests.labels(scope["method"], route, str(status)).inc()
        say = log.warning if status >= 500 else log.info if status >= 400 else log.debug
        say("request", method=scope["method"], path=scope["path"], status=status, ms=round(seconds * 1000, 1))


def answer(status: int, content: dict[str, Any], headers: dict[str, str] | None = None) -> Response:
    """A JSON answer."""
    return Response(orjson.dumps(content), status, headers, "application/json")


def refused(problem: Problem, headers: dict[str, str] | None = None) -> Response:
    """The answer to a request that was refused entirely, for one reason."""
    return answer(problem.status, {"accepted": 0, "records": [], "errors": [problem.plain()], "warnings": []}, headers)


def count_refusals(metrics: GatewayMetrics, status: int, count: int = 1) -> None:
    """Count refused items or requests by the kind of reason."""
    metrics.errors.labels(REASONS.get(status, "other")).inc(count)
