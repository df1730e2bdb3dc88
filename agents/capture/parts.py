"""Captures that are too long for one record: numbered parts, and beyond a limit only the digest."""

from hashlib import sha256
from typing import NamedTuple

from schemas.captures import Capture

PART_BYTES = 4 * 1024 * 1024 - 64 * 1024
"""Largest body of one record: the topic takes 4 MiB."""

MAX_BYTES = 32 * 1024 * 1024
"""Largest body that is stored."""

MAX_OPEN = 16
"""Most captures of a branch with missing parts; beyond that, the oldest is dropped."""


def in_parts(capture: Capture) -> list[Capture]:
    """Return the records of a capture."""
    body = capture.body
    if len(body) <= PART_BYTES:
        return [capture]
    named = {"size": len(body), "digest": sha256(body).hexdigest()}
    if len(body) > MAX_BYTES:
        return [capture.model_copy(update={"body": b"", "parts": 0, **named})]
    pieces = [body[start : start + PART_BYTES] for start in range(0, len(body), PART_BYTES)]
    return [
        capture.model_copy(update={"body": piece, "part": number, "parts": len(pieces), **named})
        for number, piece in enumerate(pieces)
    ]


class _Open(NamedTuple):
    bodies: dict[int, bytes]
    parts: int
    digest: str | None


class PartJoin:
    """The captures of a branch that are split into parts."""

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}

    def whole(self, capture: Capture) -> bytes | None:
        """Return the whole body when the last part arrives; None while parts are missing, or if they do not fit
        together.
        """
        if capture.parts == 1:
            return capture.body
        name = capture.capture_id
        waiting = self._open.setdefault(name, _Open({}, capture.parts, capture.digest))
        if (capture.parts, capture.digest) != waiting[1:] or capture.part >= capture.parts:
            return None
        waiting.bodies[capture.part] = capture.body
        if len(self._open) > MAX_OPEN:
            del self._open[next(iter(self._open))]
        if len(waiting.bodies) < waiting.parts:
            return None
        self._open.pop(name, None)
        body = b"".join(waiting.bodies[number] for number in range(waiting.parts))
        return body if sha256(body).hexdigest() == capture.digest else None
