"""Shows bytes that could not be read: as text if they are text, else with unprintable bytes in hex.

Redacted as a whole before anything is truncated. In binary data a secret may follow a length byte that looks like a
letter of it, so every printable run is also checked without its first characters.
"""

import re
from typing import NamedTuple

from agents.redaction.redaction import redact
from streams.log.terminal_text import cut, visible
from streams.log.wire import CONFLUENT, CONFLUENT_HEADER, SINGLE_HEADER, SINGLE_OBJECT

PREVIEW = 2000
"""Characters that are shown."""

LENGTH_BYTES = 3
"""Avro writes a string's length before it, in at most so many bytes for any length of interest."""

_RUN = re.compile(rb"[\x20-\x7e]{4,}")


class Preview(NamedTuple):
    """Bytes, as far as they can be shown."""

    form: str
    """text, bytes, or empty."""
    header: str
    """The wire header in hex, if there is one: the magic byte and the schema's id or fingerprint."""
    text: str


def preview(value: bytes | None, limit: int = PREVIEW) -> Preview:
    """The part of a value that can be shown."""
    if not value:
        return Preview("empty", "", "")
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = None
    if text is not None and not _is_wire(value):
        return Preview("text", "", cut(visible(redact(text).text), limit))
    header = value[: CONFLUENT_HEADER if value[0] == CONFLUENT else SINGLE_HEADER] if _is_wire(value) else b""
    return Preview("bytes", header.hex(" "), cut(_spelled(value[len(header) :], limit), limit))


def _is_wire(value: bytes) -> bool:
    return value[0] == CONFLUENT or value.startswith(SINGLE_OBJECT)


def _spelled(value: bytes, enough: int) -> str:
    """The value, up to the end of the run that makes it long enough: redacted before it is truncated."""
    parts: list[str] = []
    at = length = 0
    for run in _RUN.finditer(value):
        parts += [_hex(value[at : run.start()][: enough + 1]), _cleaned(run[0].decode("ascii"))]
        length += len(parts[-1]) + len(parts[-2])
        at = run.end()
        if length > enough:
            return "".join(parts)
    return "".join([*parts, _hex(value[at:][: enough + 1])])


def _hex(value: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in value)


def _cleaned(run: str) -> str:
    for skipped in range(LENGTH_BYTES + 1):
        run = run[:skipped] + redact(run[skipped:]).text
    return run
