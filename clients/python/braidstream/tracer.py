"""Record an agent's branches on Braidstream: one file, standard library only, Python 3.9 and newer.

    from braidstream import Braid
    with Braid("http://127.0.0.1:8790").rollout("fix-42", task="Make the tests pass", branches=4) as r:
        with r.branch(0) as run:
            client = OpenAI(base_url=run.base_url("openai"), api_key=key)   # every call is captured by the proxy
            out = run.tool(bash)(command="make test")                       # the call, and its result or error
            run.answer("done")                                              # an exception ends the branch, too
        r.check(0, "tests", passed=True)                                    # needs a verifier token

A thread sends in the background. Recording never blocks and never raises: records that could not be sent are counted (`run.lost`) and
reported once on the logger `braidstream`. A branch with lost records ends as `infra_error`: it is unknown, and nothing is trained on it.
"""

from __future__ import annotations

import asyncio
import atexit
import dataclasses
import functools
import hashlib
import http.client
import inspect
import json
import logging
import math
import os
import random
import threading
import time
import uuid
import weakref
from collections import deque
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Callable, NamedTuple, TypeVar, cast
from urllib.parse import quote, urlsplit

__all__ = ["Braid", "Rollout", "Run", "current_run"]

MAX_EVENT = 1024 * 1024
"""Bytes of an event. Larger fields are replaced by their length and digest."""
MAX_CALL = 15 * 1024 * 1024
"""Bytes of a model call, which holds a whole request: a body of the gateway has at most 16 MiB."""
MAX_QUEUED_ITEMS = 20_000
MAX_QUEUED_BYTES = 64 * 1024 * 1024
"""Limits of the queue in memory while the server is away. Items beyond these are lost, and counted."""
MAX_ANSWER = 256 * 1024
"""Characters of an answer; a longer one is left out, and its digest told."""
BATCH_ITEMS = 500
BATCH_BYTES = 4 * 1024 * 1024
TIMEOUT_S = 30.0
"""Seconds until a request that gets no answer is given up and sent again."""
RETRIES_S = (0.25, 15.0)
"""The first and the longest pause between two attempts; each is twice the one before, give or take a half."""
BRANCH_FLUSH_S = 2.0
"""The longest wait at the end of a branch or rollout. Nothing is waited for while the server is known to be away."""
EXIT_FLUSH_S = 5.0
"""The longest wait at the end of the process."""

_jitter = random.SystemRandom()
"""Not the generator of the module `random`: an agent that seeds that one gets the numbers it would get without this client."""
_log = logging.getLogger("braidstream")
_current: ContextVar[Run | None] = ContextVar("braidstream", default=None)
_Call = TypeVar("_Call", bound=Callable[..., Any])


class Braid:
    """A Braidstream gateway. Unset arguments come from BRAID_URL, BRAID_TOKEN and BRAID_PROXY_URL.

    Raises ValueError for an address or token that cannot be used.
    """

    def __init__(self, url: str | None = None, token: str | None = None, proxy_url: str | None = None) -> None:
        self.url = _address(url or os.environ.get("BRAID_URL") or "http://127.0.0.1:8790")
        self.proxy_url = _address(proxy_url or os.environ.get("BRAID_PROXY_URL") or self.url)
        self._token = _header_text(token or os.environ.get("BRAID_TOKEN") or "")
        self._sender = _Sender()

    def __repr__(self) -> str:
        return f"Braid({self.url!r})"

    def rollout(self, rollout_id: str, task: str | None = None, **options: Any) -> Rollout:
        """A rollout. With a task it is opened, which needs an operator token; without one it was opened elsewhere.

        `options` are the fields of POST /v1/rollouts: branches, required, labels, deadline_ms, system_prompt, tools, ...
        """
        return Rollout(self, rollout_id, task, options)

    def flush(self, timeout_s: float = EXIT_FLUSH_S) -> bool:
        """Wait until everything was sent; whether it was, in time."""
        return self._sender.flush(timeout_s)

    @property
    def lost(self) -> int:
        """How many records could not be sent, so far."""
        return self._sender.lost

    def _post(
        self,
        owner: Any,
        path: str,
        item: Mapping[str, Any],
        limit: int = MAX_EVENT,
        *,
        token: str = "",
        force: bool = False,
    ) -> None:
        """Queue an item for a path. Captures of one branch are sent together; `force` is for the end, which finds room always.

        Captures go to the proxy, which has the same route: it lets the end of a branch follow the calls that it has under way.
        """
        url = self.proxy_url if "/captures?" in path else self.url
        try:
            token = _header_text(token) or self._token
            body = _encoded(item)
            if len(token) >= 16:  # a tool may print the environment
                body = body.replace(json.dumps(token)[1:-1].encode("utf-8"), b"[BRAID_TOKEN]")
            reason = f"over {limit} bytes" if len(body) > limit else ""
        except Exception as error:  # noqa: BLE001 - recording never raises into the agent
            body, reason = b"", f"it has no JSON form ({type(error).__name__})"
        self._sender.put(_Item(owner, url, path, token, body), reason, force=force)


class Rollout:
    """One task, run in several branches."""

    def __init__(self, braid: Braid, rollout_id: str, task: str | None, options: Mapping[str, Any]) -> None:
        if not isinstance(rollout_id, str) or rollout_id in ("", ".", ".."):
            raise ValueError(f"{rollout_id!r} is no rollout id: it is a part of a path, and neither empty nor dots")
        self.braid, self.id, self.task, self.lost = braid, rollout_id, task, 0
        self._path = f"/v1/rollouts/{quote(rollout_id, safe='')}"
        if task is not None:
            braid._post(self, "/v1/rollouts", {"rollout_id": rollout_id, "task": task, **options}, MAX_CALL)

    def __repr__(self) -> str:
        return f"Rollout({self.id!r})"

    def branch(self, index: int, attempt: int = 0) -> Run:
        """One run of the task; `attempt` counts the retries of the same branch."""
        return Run(self, int(index), int(attempt))

    def check(
        self,
        branch: int,
        name: str,
        passed: bool | None = None,
        *,
        score: float | None = None,
        hint: str | None = None,
        attempt: int = 0,
        token: str = "",
        produced_by: str = "braidstream-client",
    ) -> None:
        """Write the verdict of a check: passed, failed, or unknown (None). It needs a token with the role verifier."""
        status = "unknown" if passed is None else "pass" if passed else "fail"
        verdict = {"name": name, "status": status, "attempt": attempt, "score": score, "hint": hint}
        kept = {key: value for key, value in verdict.items() if value is not None}
        path = f"{self._path}/branches/{int(branch)}/verdicts/check"
        self.braid._post(self, path, {**kept, "verdict_id": uuid.uuid4().hex, "produced_by": produced_by}, token=token)

    def close(self) -> None:
        """Settle the rollout with what was sent before. It needs an operator token."""
        self.braid._post(self, f"{self._path}/close", {})

    def __enter__(self) -> Rollout:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.braid._sender.flush(BRANCH_FLUSH_S, patient=False)

    async def __aenter__(self) -> Rollout:
        return self

    async def __aexit__(self, *_raised: object) -> None:
        await _aside(self.__exit__)


class Run:
    """One branch, from its first event to its end."""

    def __init__(self, rollout: Rollout, index: int, attempt: int) -> None:
        self.rollout, self.index, self.attempt, self.lost = rollout, index, attempt, 0
        self.before_end: dict[Any, Callable[[float], None]] = {}
        """Functions that wait, at most so many seconds, for reports that the end has to follow."""
        self._outer: Run | None = None
        self._answer: str | None = None
        self.ended = False

    def __repr__(self) -> str:
        return f"Run({self.rollout.id!r}, branch={self.index}, attempt={self.attempt})"

    def base_url(self, provider: str = "openai") -> str:
        """The address for an SDK (`openai` or `anthropic`): its calls pass through the proxy, which records them for this branch."""
        place = f"/r/{quote(self.rollout.id, safe='')}/b/{self.index}" + (f"/a/{self.attempt}" if self.attempt else "")
        version = "" if provider == "anthropic" else "/v1"  # the SDK of Anthropic adds it
        return f"{self.rollout.braid.proxy_url}{place}/{quote(provider, safe='')}{version}"

    def headers(self, token: str = "") -> dict[str, str]:
        """Headers for an SDK (`default_headers`), where the proxy asks for tokens: give it an agent's token."""
        return {"X-Braid-Token": _header_text(token)} if token else {}

    def environment(self, token: str = "") -> dict[str, str]:
        """Variables for a program that is a branch: this process's own, but its SDKs use the proxy, and its hooks know the branch.

        This process's token is left out: agents get a token of their own, or none.
        """
        tokens = (
            {"BRAID_TOKEN": token, "ANTHROPIC_CUSTOM_HEADERS": f"X-Braid-Token: {_header_text(token)}"} if token else {}
        )
        return {
            **{name: value for name, value in os.environ.items() if name != "BRAID_TOKEN"},
            **tokens,
            "OPENAI_BASE_URL": self.base_url("openai"),
            "ANTHROPIC_BASE_URL": self.base_url("anthropic"),
            "BRAID_URL": self.rollout.braid.url,
            "BRAID_PROXY_URL": self.rollout.braid.proxy_url,
            "BRAID_ROLLOUT": self.rollout.id,
            "BRAID_BRANCH": str(self.index),
            "BRAID_ATTEMPT": str(self.attempt),
        }

    def tool(self, function: _Call, *, name: str | None = None, call_id: str | None = None) -> _Call:
        """The same function, recorded: each call with its arguments, then its result or its exception.

        `call_id` is the id that the model gave the call, where it is known. Works with coroutine functions, too.
        """
        named = str(name or getattr(function, "__name__", type(function).__name__))

        def begin(given: tuple[Any, ...], options: dict[str, Any]) -> Callable[..., None]:
            return self.tool_call(named, _arguments(function, given, options), call_id)

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(*given: Any, **options: Any) -> Any:
                end = begin(given, options)
                try:
                    output = await function(*given, **options)
                except BaseException as error:
                    end(error=error)
                    raise
                end(output)
                return output

            return cast("_Call", awaited)

        @functools.wraps(function)
        def called(*given: Any, **options: Any) -> Any:
            end = begin(given, options)
            try:
                output = function(*given, **options)
            except BaseException as error:
                end(error=error)
                raise
            end(output)
            return output

        return cast("_Call", called)

    def tool_call(self, name: str, args: Mapping[str, Any], call_id: str | None = None) -> Callable[..., None]:
        """Record that a tool is called; returns a function that records its result: `end(output)` or `end(error=exception)`."""
        began, call = time.monotonic(), call_id or uuid.uuid4().hex
        self.event("tool_call", toolName=name, args=args, callId=call)

        def end(output: Any = None, error: Any = None) -> None:
            result: dict[str, Any] = {"error": _error(error, "code")} if error is not None else {"output": output}
            took = int((time.monotonic() - began) * 1000)
            self.event("tool_result", callId=call, toolName=name, durationMs=took, **result)

        return end

    def model_call(
        self,
        request: Any,
        response: Any = None,
        *,
        error: Any = None,
        protocol: str | None = None,
        status: int | None = None,
        started_ms: int | None = None,
        latency_ms: int = 0,
    ) -> None:
        """Record one request to a model that did not pass through the proxy, and its whole response or its error.

        Both are dicts or objects of an SDK. `protocol` is openai-chat, openai-responses, openai-completions or
        anthropic-messages; it is told by the objects where it is left out.
        """
        try:
            sent = {name: value for name, value in _dumped(request).items() if type(value).__name__ not in _UNSET}
            came = None if response is None else _dumped(response)
            status = status or _status_of(error) or (None if came is None else 200)
            protocol = protocol or _protocol(sent, came or {})
            failed = None if error is None else _error(error, "kind")
            started = int(started_ms if started_ms is not None else _now_ms() - latency_ms)
        except Exception as fault:  # noqa: BLE001 - recording never raises into the agent
            self.rollout.braid._sender.lose(self, f"a model call could not be read ({type(fault).__name__})")
            return
        told = {"protocol": protocol, "request": sent, "response": came, "status": status, "error": failed}
        self._send("call", MAX_CALL, **told, started_ms=started, latency_ms=int(latency_ms))

    def user(self, text: str) -> None:
        """Record a message of the user, for an agent whose model calls are not recorded."""
        self.event("user_message", text=text)

    def event(self, kind: str, /, **data: Any) -> None:
        """Record an event of any kind (docs/events.md). Fields that are too large are replaced by their length and digest."""
        self._send("event", MAX_EVENT, at_ms=_now_ms(), event={"event": kind, "data": _fitting(data, self._left_out)})

    def answer(self, text: Any) -> None:
        """State the answer of the branch; it is written when the branch ends, and the last one counts."""
        try:
            self._answer = text if isinstance(text, str) else _encoded(text).decode("utf-8")
        except Exception as error:  # noqa: BLE001 - recording never raises into the agent
            self.rollout.braid._sender.lose(self, f"the answer has no JSON form ({type(error).__name__})")

    def end(self, status: str = "answered", error: str = "") -> None:
        """End the branch: answered, failed, aborted or infra_error, and why. Only the first call counts."""
        if self.ended:
            return
        self.ended = True
        for wait in self.before_end.values():
            wait(BRANCH_FLUSH_S)
        if self.lost:  # a verdict about the whole run says nothing of the part that is known
            self.event("content_left_out", reason="not_recorded", count=self.lost)
            status = "infra_error"
        told: dict[str, str] = {"error": error} if error else {}
        if self._answer is not None and len(self._answer) > MAX_ANSWER:
            self._left_out({**_reference("text", self._answer.encode("utf-8", "backslashreplace")), "field": "answer"})
        elif self._answer is not None:
            told["answer"] = self._answer
        self._send("end", MAX_CALL, status=status, **told)

    def __enter__(self) -> Run:
        self._outer = _current.get()
        _current.set(self)
        return self

    def __exit__(self, _kind: object, raised: BaseException | None, _trace: object) -> None:
        _current.set(self._outer)
        self.end(ending(raised), _reason(raised))
        self.rollout.braid._sender.flush(BRANCH_FLUSH_S, patient=False)

    async def __aenter__(self) -> Run:
        return self.__enter__()

    async def __aexit__(self, kind: object, raised: BaseException | None, trace: object) -> None:
        _current.set(self._outer)
        await _aside(self.__exit__, kind, raised, trace)

    def _send(self, kind: str, limit: int, **fields: Any) -> None:
        path = f"{self.rollout._path}/branches/{self.index}/captures?attempt={self.attempt}"
        item = {"kind": kind, "id": uuid.uuid4().hex, **fields}
        self.rollout.braid._post(self, path, item, limit, force=kind == "end")

    def _left_out(self, reference: dict[str, Any]) -> None:
        self.event("content_left_out", reason="too_large", count=1, media=[reference])


def current_run() -> Run | None:
    """The branch in whose `with` block this code runs; a new thread has none."""
    return _current.get()


# -- how a branch ended ----------------------------------------------------------------------------------------------------

PROVIDER = frozenset(
    "RateLimitError APIConnectionError APITimeoutError InternalServerError ServiceUnavailableError OverloadedError "
    "AuthenticationError PermissionDeniedError BadGatewayError APIResponseValidationError ThrottlingException "
    "ResourceExhausted ServiceUnavailable DeadlineExceeded TooManyRequests".split()
)
"""Exceptions of model SDKs that tell nothing about the agent."""
HTTP_CLIENTS = frozenset(
    "httpx httpcore httpx2 httpcore2 aiohttp requests urllib3 http urllib websockets grpc botocore".split()
)
CONNECTION = ("timeout", "connect", "network", "protocol", "disconnected", "readerror", "writeerror", "poolerror", "urlerror",
              "incompleteread", "chunkedencoding", "sslerror", "proxyerror", "dnserror", "payloaderror")  # fmt: skip
"""Parts of the names of an HTTP client's exceptions that mean the connection, not the answer."""
_UNSET = frozenset({"NotGiven", "Omit"})


def ending(raised: BaseException | None) -> str:
    """The status of a branch that ended with this exception, or without one.

    A failure of the provider or the connection is `infra_error`, also where the agent raised its own exception from it.
    """
    if raised is None or (isinstance(raised, SystemExit) and raised.code in (None, 0)):
        return "answered"
    if isinstance(raised, (KeyboardInterrupt, asyncio.CancelledError, GeneratorExit)):
        return "aborted"
    seen: set[int] = set()
    cause: BaseException | None = raised
    while cause is not None and id(cause) not in seen:
        if any(map(_is_outside, (cause, *getattr(cause, "exceptions", ())))):
            return "infra_error"
        seen.add(id(cause))
        cause = cause.__cause__
    return "failed"


def _reason(raised: BaseException | None) -> str:
    """The exception in a line, for people."""
    if raised is None or ending(raised) == "answered":
        return ""
    said = f"{type(raised).__name__}: {_text(raised)}"
    return said if len(said) <= 2000 else f"{said[:2000]} ... ({len(said)} characters)"


def _is_outside(error: BaseException) -> bool:
    status = _status_of(error)
    if status is not None and not isinstance(error, SystemExit):
        return status in (401, 402, 403, 407, 408, 425, 429) or status >= 500
    for kind in type(error).__mro__:
        name, module = kind.__name__, kind.__module__.partition(".")[0]
        if name in PROVIDER or "overloaded" in name.lower():
            return True
        if module in HTTP_CLIENTS and any(part in name.lower() for part in CONNECTION):
            return True
    return isinstance(error, ConnectionError)


def _status_of(error: Any) -> int | None:
    """The HTTP status that an exception carries."""
    for holder in (error, getattr(error, "response", None)):
        for name in ("status_code", "status", "code"):
            value = getattr(holder, name, None)
            if isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599:
                return value
    return None


# -- values as JSON --------------------------------------------------------------------------------------------------------


def _encoded(value: Any) -> bytes:
    try:
        return json.dumps(value, default=_plain, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode(
            "utf-8"
        )
    except (TypeError, ValueError):  # NaN, keys that are no text, half of a surrogate pair
        return json.dumps(_clean(value), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8")


def _plain(value: Any) -> Any:
    """An object without a JSON form as one that has it."""
    for name, options in (("to_dict", {}), ("model_dump", {"mode": "json", "by_alias": True, "exclude_unset": True})):
        method = getattr(value, name, None)
        if callable(method) and not isinstance(value, type):
            try:
                return method(**options)
            except Exception:  # noqa: BLE001, S112 - the next form may work
                continue
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=repr)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _reference("bytes", bytes(value))
    return str(value)


def _clean(value: Any) -> Any:
    """The value with everything spelled out that JSON cannot say: numbers that are none, odd keys, broken text."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, Mapping):
        return {_clean(key if isinstance(key, str) else str(key)): _clean(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(each) for each in value]
    return _clean(_plain(value))


def _dumped(value: Any) -> dict[str, Any]:
    found = value if isinstance(value, Mapping) else _plain(value)
    if not isinstance(found, Mapping):
        raise TypeError(f"a {type(value).__name__} is neither a dict nor an object of an SDK")
    return dict(found)


def _reference(kind: str, content: bytes) -> dict[str, Any]:
    return {"type": kind, "bytes": len(content), "digest": f"sha256:{hashlib.sha256(content).hexdigest()}"}


def _fitting(data: dict[str, Any], left_out: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """The fields of an event; large ones as references, where all of them together would not fit."""
    try:
        sizes = {name: _encoded(value) for name, value in data.items()}
    except Exception:  # noqa: BLE001 - the sender counts it
        return data
    if sum(map(len, sizes.values())) <= MAX_EVENT - 4096:
        return data
    fitting = dict(data)
    for name, encoded in sizes.items():
        if len(encoded) > 64 * 1024:
            text = data[name].encode("utf-8", "backslashreplace") if isinstance(data[name], str) else encoded
            fitting[name] = _reference("text" if isinstance(data[name], str) else "json", text)
            left_out({**fitting[name], "field": name})
    return fitting


def _error(error: Any, name: str) -> dict[str, str]:
    if isinstance(error, Mapping):
        return {_text(key): _text(value) for key, value in error.items()}
    kind = type(error).__name__ if isinstance(error, BaseException) else "error"
    return {name: kind, "message": _text(error)}


def _text(value: Any) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - an exception whose text cannot be made
        return f"<{type(value).__name__}>"


def _arguments(function: Callable[..., Any], given: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
    """Arguments by name, positional ones too."""
    if not given:
        return dict(options)
    try:
        bound = inspect.signature(function).bind(*given, **options)
    except (TypeError, ValueError):
        return {"args": list(given), **options}
    named = dict(bound.arguments)
    for each in bound.signature.parameters.values():
        if each.kind is each.VAR_KEYWORD:
            named.update(named.pop(each.name, {}))
    return named


def _protocol(request: Mapping[str, Any], response: Mapping[str, Any]) -> str:
    kind = response.get("object") or response.get("type")
    known = {"chat.completion": "openai-chat", "response": "openai-responses", "text_completion": "openai-completions",
             "message": "anthropic-messages"}  # fmt: skip
    if kind in known:
        return known[kind]
    if "input" in request:
        return "openai-responses"
    if "prompt" in request:
        return "openai-completions"
    is_anthropic = "system" in request or "stop_reason" in response or str(request.get("model")).startswith("claude")
    return "anthropic-messages" if is_anthropic and "choices" not in response else "openai-chat"


def _now_ms() -> int:
    return int(time.time() * 1000)


def _address(url: str) -> str:
    parts = urlsplit(url.rstrip("/"))
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query or parts.fragment:
        raise ValueError("a Braidstream address is http://HOST:PORT or https://HOST, without user, query or fragment")
    return url.rstrip("/")


def _header_text(token: str) -> str:
    if not token.isascii() or not token.isprintable() or token != token.strip():
        raise ValueError("the token has characters that a header cannot carry")
    return token


async def _aside(function: Callable[..., None], *given: Any) -> None:
    """Wait in a thread, so that the event loop goes on."""
    try:
        await asyncio.get_running_loop().run_in_executor(None, function, *given)
    except RuntimeError:  # the loop is ending, and starts no threads
        function(*given)


# -- sending ---------------------------------------------------------------------------------------------------------------


class _Item(NamedTuple):
    owner: Any
    """The run or rollout that counts it when it is lost."""
    url: str
    """The server."""
    path: str
    token: str
    body: bytes

    def joins(self, other: _Item) -> bool:
        """Whether both go into one array."""
        return (self.url, self.path, self.token) == (other.url, other.path, other.token) and "/captures?" in self.path


class _BusyError(Exception):
    """The server cannot take this now."""

    def __init__(self, pause_s: float) -> None:
        super().__init__()
        self.pause_s = pause_s


class _Sender:
    """A bounded queue and the thread that empties it."""

    def __init__(self) -> None:
        self.lost = 0
        self._said = False
        self.reset()
        _senders.add(self)

    def reset(self) -> None:
        """Begin anew: at first, and in the child of a fork, whose parent sends the items that were waiting."""
        self._changed = threading.Condition()
        self._queue: deque[_Item] = deque()
        self._bytes = 0
        self._under_way = 0
        self._is_away = False
        self._hurry = False
        self._thread: threading.Thread | None = None
        self._connections: dict[str, http.client.HTTPConnection] = {}

    def put(self, item: _Item, reason: str = "", *, force: bool = False) -> None:
        """Queue an item, or count it as lost for this reason, or because the queue is full."""
        try:
            with self._changed:
                full = len(self._queue) >= MAX_QUEUED_ITEMS or self._bytes + len(item.body) > MAX_QUEUED_BYTES
                if full and not force:
                    reason = reason or "the queue is full"
                if not reason:
                    self._queue.append(item)
                    self._bytes += len(item.body)
                    if self._thread is None:
                        self._thread = threading.Thread(target=self._work, name="braidstream", daemon=True)
                        self._thread.start()
                    self._changed.notify_all()
        except RuntimeError as error:  # no thread can be started any more
            reason = str(error)
        if reason:
            self.lose(item.owner, reason)

    def lose(self, owner: Any, reason: str) -> None:
        """Count a lost record; the first reason is logged."""
        with self._changed:
            self.lost += 1
            owner.lost += 1
            said, self._said = self._said, True
        if not said:
            _log.warning("not recorded: %r: %s; further losses are counted in `lost`", owner, reason)

    def flush(self, timeout_s: float, patient: bool = True) -> bool:
        """Wait until all was sent; an impatient caller does not wait for a server that is away."""
        with self._changed:
            self._hurry = patient
            self._changed.notify_all()
            done = self._changed.wait_for(lambda: self._is_idle() or (self._is_away and not patient), timeout_s)
            self._hurry = False
            if not done:
                self._is_away = True  # it hangs: the next branch need not wait for it, too
            return self._is_idle()

    def give_up(self) -> None:
        """Count everything that is still waiting as lost, and report the number."""
        with self._changed:
            waiting, self._queue = list(self._queue), deque()
        for item in waiting:
            self.lose(item.owner, "the process ended before it was sent")
        if self.lost:
            _log.warning("%d records did not reach Braidstream", self.lost)

    def _is_idle(self) -> bool:
        return not self._queue and not self._under_way

    def _work(self) -> None:
        pause, changed = 0.0, self._changed
        while True:
            with changed:
                changed.wait_for(lambda: False, min(pause, RETRIES_S[0]))
                changed.wait_for(lambda: self._hurry, max(0.0, pause - RETRIES_S[0]))
                changed.wait_for(lambda: bool(self._queue))
                batch = self._take()
            try:
                self._post(batch)
                pause = 0.0
            except Exception as error:  # noqa: BLE001 - the thread goes on, whatever happens
                longer = max(getattr(error, "pause_s", 0.0), min(max(RETRIES_S[0], 2 * pause), RETRIES_S[1]))
                pause = longer * _jitter.uniform(0.75, 1.25)
            with changed:
                if pause:
                    self._queue.extendleft(reversed(batch))
                else:
                    self._bytes -= sum(len(item.body) for item in batch)
                self._under_way = 0
                self._is_away = pause > 0
                changed.notify_all()

    def _take(self) -> list[_Item]:
        """The first items that go into one request."""
        batch = [self._queue.popleft()]
        size = len(batch[0].body)
        while self._queue and len(batch) < BATCH_ITEMS and batch[0].joins(self._queue[0]):
            size += len(self._queue[0].body) + 1
            if size > BATCH_BYTES:
                break
            batch.append(self._queue.popleft())
        self._under_way = len(batch)
        return batch

    def _post(self, batch: list[_Item]) -> None:
        """Send a batch; items that the server refuses for good are lost. Raises an exception when it has to be sent again."""
        first = batch[0]
        body = b"[" + b",".join(item.body for item in batch) + b"]" if first.joins(first) else first.body
        headers = {"Content-Type": "application/json", "User-Agent": "braidstream-client"}
        if first.token:
            headers["Authorization"] = f"Bearer {first.token}"
        status, said, retry_after = self._request(first.url, first.path, body, headers)
        if status in (408, 425, 429) or status >= 500:
            raise _BusyError(min(float(retry_after), 60.0) if retry_after.isdigit() else 0.0)
        if status == 413 and batch[1:]:  # the server's limit is lower than that of a batch
            for item in batch:
                self._post([item])
            return
        errors = _errors(said)
        why = next((f": {error.get('field')}: {error.get('reason')}"[:300] for error in errors), "").replace("\n", " ")
        refused = {error.get("index") for error in errors}
        for index, item in enumerate(batch):
            if index in refused or not 200 <= status < 300:
                self.lose(item.owner, f"the server answered {status}{why}")

    def _request(self, url: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes, str]:
        """The status, body and Retry-After of an answer. Connections are kept; redirects are not followed."""
        kept = self._connections.pop(url, None)
        for connection in filter(None, (kept, _connect(url))):
            try:
                connection.request("POST", urlsplit(url).path + path, body, headers)
                answer = connection.getresponse()
                said = answer.read(MAX_EVENT)
                if answer.isclosed() and not answer.will_close:
                    self._connections[url] = connection
                else:
                    connection.close()
                return answer.status, said, answer.headers.get("Retry-After", "")
            except BaseException as error:
                connection.close()
                if connection is not kept or not isinstance(error, (ConnectionError, http.client.HTTPException)):
                    raise  # a kept connection may have been closed by the server meanwhile
        raise AssertionError("unreachable")


def _connect(url: str) -> http.client.HTTPConnection:
    """A connection that is opened when it is used."""
    parts = urlsplit(url)
    if parts.scheme == "https":
        return http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
    return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT_S)


def _errors(said: bytes) -> list[dict[str, Any]]:
    try:
        return [error for error in json.loads(said).get("errors", []) if isinstance(error, dict)]
    except (ValueError, AttributeError, TypeError):
        return []


_senders: weakref.WeakSet[_Sender] = weakref.WeakSet()


@atexit.register
def _finish() -> None:
    """Send the rest when the process ends, for a limited time, then report the loss."""
    deadline = time.monotonic() + EXIT_FLUSH_S
    for sender in list(_senders):
        sender.flush(max(0.0, deadline - time.monotonic()))
        sender.give_up()


def _after_fork() -> None:
    for sender in list(_senders):
        sender.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
