"""Tool outputs, truncated to a length that a model can read: the first lines, a note of what was left out, the last
lines.

Guarantees: never more than `max_bytes` UTF-8 bytes; a text that fits is unchanged, so summarizing twice changes
nothing; cuts are at character boundaries only; the same bytes on every machine. An `Excerpt` has enough of an output
for any limits up to `MAX_SUMMARY_BYTES`, so megabytes are not stored until the limits are known.
"""

from typing import Any, final

from schemas.emission import MAX_SUMMARY_BYTES, SummaryLimits
from schemas.jsontext import compact

DEFAULT_LIMITS = SummaryLimits()


@final
class Excerpt:
    """The two ends of a text, and how long all of it is."""

    __slots__ = ("head", "n_bytes", "n_lines", "tail")

    def __init__(self, head: str, tail: str | None, n_bytes: int, n_lines: int) -> None:
        self.head = head
        """Its beginning; all of it if `tail` is None."""
        self.tail = tail
        """Its end."""
        self.n_bytes = n_bytes
        """UTF-8 bytes of all of it."""
        self.n_lines = n_lines
        """Lines of all of it."""


def summarize(
    output: Any,
    max_bytes: int = DEFAULT_LIMITS.max_bytes,
    keep_first_lines: int = DEFAULT_LIMITS.keep_first_lines,
    keep_last_lines: int = DEFAULT_LIMITS.keep_last_lines,
) -> str | None:
    """The kept part of a tool's output. Objects, arrays, numbers and booleans become compact JSON; null stays null."""
    text = render(output)
    if text is None:
        return None
    limits = SummaryLimits.model_construct(
        max_bytes=max_bytes, keep_first_lines=keep_first_lines, keep_last_lines=keep_last_lines
    )
    return shorten(excerpt(text, max(max_bytes, MAX_SUMMARY_BYTES)), limits)


def render(output: Any) -> str | None:
    """An output as text."""
    return output if output is None or isinstance(output, str) else compact(output)


def excerpt(text: str, window: int = MAX_SUMMARY_BYTES) -> Excerpt:
    """The part of a text from which `shorten` works for any limits up to `window` bytes."""
    n_bytes = byte_length(text)
    n_lines = text.count("\n") + (not text.endswith("\n"))
    if n_bytes <= 2 * window:
        return Excerpt(text, None, n_bytes, n_lines)
    raw = text.encode()
    return Excerpt(_first(raw, window), _last(raw, window), n_bytes, n_lines)


def shorten(part: Excerpt, limits: SummaryLimits) -> str:
    """The summary of the text that `part` was taken from."""
    if part.n_bytes <= limits.max_bytes:
        return part.head
    by_lines = _whole_lines(part, limits)
    return by_lines if by_lines is not None else _cut_lines(part, limits)


def byte_length(text: str) -> int:
    """UTF-8 bytes of a text."""
    return len(text) if text.isascii() else len(text.encode())


def _ends(part: Excerpt, limits: SummaryLimits) -> tuple[str, str]:
    """The first and the last lines that are kept (each of them the whole excerpt if there are too few lines to choose
    from).
    """
    tail_source = part.head if part.tail is None else part.tail
    n_first, n_last = limits.keep_first_lines, limits.keep_last_lines
    if part.n_lines <= n_first + n_last:
        return part.head, tail_source
    first = "\n".join(part.head.split("\n", n_first)[:n_first])
    body, newline = (tail_source[:-1], "\n") if tail_source.endswith("\n") else (tail_source, "")
    last = "\n".join(body.rsplit("\n", n_last)[-n_last:]) + newline if n_last else ""
    return first, last


def _whole_lines(part: Excerpt, limits: SummaryLimits) -> str | None:
    """First lines, marker, last lines; None if they are too long, or if there are too few lines to leave any out."""
    omitted = part.n_lines - limits.keep_first_lines - limits.keep_last_lines
    if omitted <= 0:
        return None
    first, last = _ends(part, limits)
    summary = "\n".join(piece for piece in (first, f"[...{omitted} lines omitted...]", last) if piece)
    return summary if byte_length(summary) <= limits.max_bytes else None


def _cut_lines(part: Excerpt, limits: SummaryLimits) -> str:
    """The beginning of the first lines and the end of the last ones, cut to fit."""
    first, last = (end.encode() for end in _ends(part, limits))
    room = limits.max_bytes - len(f"[...{part.n_bytes} bytes omitted...]")
    if room < 0:
        return _first(first, limits.max_bytes)
    for_last = min(len(last), max(room // 2, room - len(first)))
    head, tail = _first(first, room - for_last), _last(last, for_last)
    kept = byte_length(head) + byte_length(tail)
    return f"{head}[...{part.n_bytes - kept} bytes omitted...]{tail}"


def _first(raw: bytes, size: int) -> str:
    return raw[:size].decode(errors="ignore")


def _last(raw: bytes, size: int) -> str:
    if size <= 0:
        return ""
    start = max(0, len(raw) - size)
    while start < len(raw) and raw[start] & 0xC0 == 0x80:  # inside a character: move to the next one
        start += 1
    return raw[start:].decode()
