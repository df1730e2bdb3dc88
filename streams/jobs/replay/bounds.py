"""Which part of a log: by offset, by time, or by the manifest of an earlier run."""

import re
from datetime import UTC, datetime
from pathlib import Path

from streams.jobs.errors import ReplayError, require_topics
from streams.jobs.replay.replay_manifest import manifest_at
from streams.log.losses import Offsets
from streams.log.reader import LogReader
from streams.log.record import NOTHING, Span, Spans

_OFFSET = re.compile(r"(?P<topic>[a-z0-9.-]+)/(?P<partition>[0-9]+)@(?P<offset>[0-9]+)")
LAST_MS = 253_402_300_799_999
"""The end of the year 9999."""


async def bounded(log: LogReader, start: str | None, end: str | None, manifest: Path | None) -> Spans:
    """The requested part of the fact topics; all of them without bounds."""
    require_bounds(start, end, manifest)
    spans = await log.spans()
    if log.kind == "kafka":
        require_topics(spans, log.place)
    if manifest is not None:
        return _as_before(spans, manifest)
    first = {} if start is None else await _offsets(log, spans, start, "--from")
    last = {} if end is None else await _offsets(log, spans, end, "--to")
    if not (_is_time(start) and _is_time(end)):  # times are compared as such: those of records may be out of order
        _require_order(first, last)
    return {
        name: {number: _cut(span, _at(first, name, number), _at(last, name, number)) for number, span in parts.items()}
        for name, parts in spans.items()
    }


def require_bounds(start: str | None, end: str | None, manifest: Path | None) -> None:
    """Raises ReplayError for bounds that cannot be, whatever is in the log."""
    if manifest is not None and (start or end):
        raise ReplayError("--manifest says from where to where; leave --from and --to out")
    times = []
    for text, option in ((start, "--from"), (end, "--to")):
        if text is not None and _is_time(text):
            times.append(_time(text, option))
        elif text is not None:
            _parsed(text, option)
    if times != sorted(times):
        raise ReplayError(f"--from {start} is later than --to {end}; nothing lies between them")


def offsets_asked(start: str | None) -> Offsets:
    """The first offsets that the caller gives; empty if it gives a time, or nothing."""
    return {} if start is None or _is_time(start) else _parsed(start, "--from")


async def _offsets(log: LogReader, spans: Spans, where: str, option: str) -> Offsets:
    if _is_time(where):
        later = await log.spans(since=_time(where, option))
        return {name: {number: later[name][number].start for number in parts} for name, parts in spans.items()}
    offsets = _parsed(where, option)
    for name, parts in offsets.items():
        for number in parts:
            if number not in spans.get(name, {}):
                raise ReplayError(
                    f"{option} {name}/{number}: there is no such partition of a fact topic; {_partitions(spans, name)}"
                )
    return offsets


def _partitions(spans: Spans, name: str) -> str:
    known = ", ".join(str(number) for number in sorted(spans.get(name, {})))
    return f"{name} has {known}" if known else f"there are {', '.join(topic for topic in spans if spans[topic])}"


def _is_time(where: str | None) -> bool:
    return where is not None and "@" not in where


def _parsed(where: str, option: str) -> Offsets:
    offsets: Offsets = {}
    for part in where.split(","):
        match = _OFFSET.fullmatch(part)
        if match is None:
            raise ReplayError(
                f"{option} {part}: write TOPIC/PARTITION@OFFSET with a fact topic, as in rollouts.agent-events.v1/0@1200"
            )
        offsets.setdefault(match["topic"], {})[int(match["partition"])] = int(match["offset"])
    return offsets


def _require_order(first: Offsets, last: Offsets) -> None:
    for name, parts in first.items():
        for number, offset in parts.items():
            end = _at(last, name, number)
            if end is not None and offset > end:
                raise ReplayError(
                    f"{name}/{number}: --from is offset {offset}, --to is offset {end}; nothing lies between them"
                )


def _at(offsets: Offsets, name: str, number: int) -> int | None:
    return offsets.get(name, {}).get(number)


def _cut(span: Span, first: int | None, last: int | None) -> Span:
    start = span.start if first is None else min(max(first, span.start), span.end)
    return Span(start, span.end if last is None else min(max(last, start), span.end))


def _time(text: str, option: str) -> int:
    try:
        if text.isascii() and text.isdigit():
            at = int(text)
        else:
            moment = datetime.fromisoformat(text)
            at = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        at = -1
    if not 0 <= at <= LAST_MS:
        raise ReplayError(
            f"{option} {text}: neither a time (2026-11-16T08:00:00Z, or milliseconds) nor TOPIC/PARTITION@OFFSET"
        )
    return at


def _as_before(spans: Spans, manifest: Path) -> Spans:
    """The offsets that a manifest states. Raises ReplayError if the log no longer has them."""
    asked = {name: parts for name, parts in manifest_at(manifest).inputs.topics.items() if name in spans}
    if not asked:
        raise ReplayError(f"{manifest}: the manifest names no fact topics; give that of a replay or an archive")
    for name, parts in asked.items():
        for number, span in parts.items():
            there = spans[name].get(number, NOTHING)
            if span.start < span.end and (span.start < there.start or span.end > there.end):
                raise ReplayError(
                    f"{name}/{number}: the manifest asks for offsets {span.start} to {span.end}, the log holds {there.start} to "
                    f"{there.end}; replay what is left without --manifest"
                )
    return asked
