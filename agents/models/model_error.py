"""Why a call of a model gave no response. A cut, empty or unreadable answer is an error, never an empty answer."""

from typing import Literal

from schemas.errors import BraidError

ErrorKind = Literal[
    "rate_limited", "overloaded", "http_5xx", "connection", "timeout", "cut_stream", "empty_stream", "unparseable",
    "too_large", "bad_request", "refused", "setup",
]  # fmt: skip
"""`refused`: a scripted refusal. `setup`: a key, an unpaid bill, a permission, the name of a model. Every call would end so."""

PERMANENT: frozenset[ErrorKind] = frozenset({"too_large", "bad_request", "refused", "setup"})


class ModelSetupError(BraidError):
    """The model cannot be asked at all: no key, a bad address, a bad script."""


class ModelError(BraidError):
    """One call without a response, with everything that a record of it needs."""

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        *,
        retry_after_s: float | None = None,
        status: int | None = None,
        request_digest: str = "",
        latency_ms: int = 0,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.retry_after_s = retry_after_s
        """Seconds after which the service asks for a retry, if it does."""
        self.status = status
        """The HTTP status, if there was one."""
        self.request_digest = request_digest
        """Empty if no request was sent."""
        self.latency_ms = latency_ms

    @property
    def retry(self) -> bool:
        """Whether another call may succeed."""
        return self.kind not in PERMANENT
