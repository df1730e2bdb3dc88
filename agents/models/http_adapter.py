"""The part that all services share: a limit on the size of an answer, and the meaning of everything that goes wrong.

The SDKs of Anthropic and OpenAI come from one generator: they share names and the HTTP library. `calling` translates
the errors of either. SDK retries are off (`max_retries=0`).
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, NamedTuple

import httpx2

from agents.models.model_error import ErrorKind, ModelError
from schemas.retry_after import seconds_until

MAX_ANSWER = 32 * 1024 * 1024
"""Bytes of one answer, streamed or not. The longest that models write are below one; a server that never ends its line is cut off here."""

PLAIN = {"accept-encoding": "identity"}
"""Compressed answers could be larger than the bytes that are counted."""

SETUP_STATUSES = frozenset({401, 402, 403, 404})

STATUSES: Mapping[int, ErrorKind] = {408: "timeout", 429: "rate_limited"}

UNPAID = re.compile(r"credit balance|billing", re.IGNORECASE)
"""The words of a 400 that is about the account, not about the question."""

STREAMED: Mapping[str, ErrorKind] = {
    "overloaded_error": "overloaded", "rate_limit_error": "rate_limited", "api_error": "http_5xx", "timeout_error": "timeout",
}  # fmt: skip
"""Errors of the Messages API in a stream whose headers had status 200."""


class _TooLargeError(Exception):
    """The answer is longer than `MAX_ANSWER`."""


class _Counted(httpx2.AsyncByteStream):
    """A body that is cut off at the limit."""

    def __init__(self, body: httpx2.AsyncByteStream) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for piece in self._body:
            size += len(piece)
            if size > MAX_ANSWER:
                raise _TooLargeError
            yield piece

    async def aclose(self) -> None:
        await self._body.aclose()


async def limited(response: httpx2.Response) -> None:
    """Limit the size of a response: a hook of the HTTP client."""
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    response.stream = _Counted(response.stream)


class Sent(NamedTuple):
    """A running request."""

    digest: str
    began: float

    @property
    def latency_ms(self) -> int:
        """Milliseconds since it was sent."""
        return round((time.monotonic() - self.began) * 1000)


@asynccontextmanager
async def calling(sdk: Any, digest: str, timeout_s: float, clock: Callable[[], float]) -> AsyncIterator[Sent]:
    """Limit the time of one call, and convert every failure to a ModelError with the request."""
    sent = Sent(digest, time.monotonic())
    try:
        with _translated(sdk, timeout_s, clock):
            async with asyncio.timeout(timeout_s):
                yield sent
    except ModelError as error:
        error.request_digest, error.latency_ms = digest, sent.latency_ms
        raise


@contextmanager
def _translated(sdk: Any, timeout_s: float, clock: Callable[[], float]) -> Iterator[None]:
    try:
        yield
    except (TimeoutError, sdk.APITimeoutError, httpx2.TimeoutException):
        raise ModelError("timeout", f"no answer within {timeout_s:g} s") from None
    except sdk.APIStatusError as error:
        raise _of_status(error, clock()) from None
    except sdk.APIConnectionError as error:
        raise _of_connection(error.__cause__ or error) from None
    except (_TooLargeError, httpx2.HTTPError, httpx2.StreamError) as error:
        raise _of_connection(error) from None
    except sdk.APIError as error:  # a stream of chat completions reports an error
        raise _of_stream(error) from None
    except ValueError as error:
        raise ModelError("unparseable", f"the service's answer is not JSON: {error}") from None
    except (AttributeError, LookupError, TypeError) as error:  # JSON of another shape, found while reading
        raise ModelError(
            "unparseable", f"the service's answer has another form than the protocol's: {error!r}"
        ) from None


def _of_connection(error: BaseException) -> ModelError:
    if isinstance(error, _TooLargeError):
        return ModelError("too_large", f"the answer is longer than {MAX_ANSWER // 1024 // 1024} MiB")
    if isinstance(error, httpx2.ReadError | httpx2.RemoteProtocolError | httpx2.StreamError):
        return ModelError("cut_stream", f"the answer was cut off: {error}")
    return ModelError("connection", f"no connection: {error}")


def _of_status(error: Any, now: float) -> ModelError:
    """The meaning of an HTTP status, or of an error event of the Messages API (status 200)."""
    status, words = int(error.status_code), _words(error)
    kind = _kind(status, str(_inner(error).get("type")), str(_inner(error).get("code")), error.message)
    after = seconds_until(error.response.headers.get("retry-after"), now)
    return ModelError(kind, f"HTTP {status}: {words}", retry_after_s=after, status=status)


def _kind(status: int, said: str, code: str, message: str) -> ErrorKind:
    unpaid = code == "insufficient_quota" or (status == 400 and UNPAID.search(f"{said} {message}"))
    if status < 300:
        return STREAMED.get(said, "cut_stream")
    if unpaid or status in SETUP_STATUSES:
        return "setup"
    if status == 529 or said == "overloaded_error":
        return "overloaded"
    return "http_5xx" if status >= 500 else STATUSES.get(status, "bad_request")


def _of_stream(error: Any) -> ModelError:
    """The meaning of an error inside a stream of chat completions; vLLM gives the status as its code."""
    inner = _inner(error)
    code = inner.get("code")
    status = code if isinstance(code, int) and 400 <= code < 600 else 500
    kind = _kind(status, str(inner.get("type")), str(code), error.message)
    return ModelError(kind, f"error in the stream: {error.message}", status=status)


def _inner(error: Any) -> dict[str, Any]:
    body = error.body if isinstance(error.body, dict) else {}
    inner = body.get("error", body)
    return inner if isinstance(inner, dict) else {}


def _words(error: Any) -> str:
    """The service's own message, without its number for the call, so that the same error has the same text."""
    words = _inner(error).get("message")
    return words if isinstance(words, str) and words else str(error.message)


def count_of(value: Any) -> int | None:
    """A count of tokens from a service; None if it is not a valid count."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def clean(text: str) -> str:
    """Text that has a UTF-8 form: models have been seen to break surrogate pairs."""
    return text.encode("utf-8", "replace").decode()
