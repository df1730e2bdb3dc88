"""Which part of a log: by offset, by time, or by the manifest of an earlier run."""

import re
from datetime import UTC, datetime
from pathlib import Path

from streams.looking.kafka import Span
from streams.replaying.logs import FactLog, ReplayError, Spans
from streams.replaying.manifest import manifest_at

_OFFSET = re.compile(r"(?P<topic>[a-z0-9.-]+)/(?P<partition>\d+)@(?P<offset>\d+)")


async def bounded(log: FactLog, start: str | None, end: str | None, manifest: Path | None) -> Spans:
    """The part of the fact topics that is asked for; all of them without bounds."""
    spans = await log.spans()
    if manifest is not None:
        if start or end:
            raise ReplayError("--manifest says from where to where; leave --from and --to out")
        return _as_before(spans, manifest)
    if start:
        spans = await _cut(log, spans, start, first=True)
    if end:
        spans = await _cut(log, spans, end, first=False)
    return spans


async def _cut(log: FactLog, spans: Spans, where: str, *, first: bool) -> Spans:
    option = "--from" if first else "--to"
    offsets: dict[str, dict[int, int]]
    if "@" in where:
        offsets = {}
        for part in where.split(","):
            match = _OFFSET.fullmatch(part)
            if match is None or match["topic"] not in spans:
                raise ReplayError(
                    f"{option} {part}: write TOPIC/PARTITION@OFFSET with a fact topic, as in rollouts.agent-events.v1/0@1200"
                )
            offsets.setdefault(match["topic"], {})[int(match["partition"])] = int(match["offset"])
    else:
        offsets = await log.offsets_at(spans, _time(where, option))
    return {
        name: {number: _moved(span, offsets.get(name, {}).get(number), first=first) for number, span in parts.items()}
        for name, parts in spans.items()
    }


def _moved(span: Span, offset: int | None, *, first: bool) -> Span:
    if offset is None:
        return span
    inside = min(max(offset, span.start), span.end)
    return Span(inside, span.end) if first else Span(span.start, inside)


def _time(text: str, option: str) -> int:
    if text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ReplayError(
            f"{option} {text}: neither a time (2026-11-16T08:00:00Z, or milliseconds) nor TOPIC/PARTITION@OFFSET"
        ) from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _as_before(spans: Spans, manifest: Path) -> Spans:
    """The offsets that a manifest states. Raises ReplayError when the log does not hold them any more."""
    asked = {name: parts for name, parts in manifest_at(manifest).inputs.topics.items() if name in spans}
    if not asked:
        raise ReplayError(f"{manifest}: the manifest names no fact topics; give that of a replay or an archive")
    for name, parts in asked.items():
        for number, span in parts.items():
            there = spans[name].get(number, Span(0, 0))
            if span.start < span.end and (span.start < there.start or span.end > there.end):
                raise ReplayError(
                    f"{name}/{number}: the manifest asks for offsets {span.start} to {span.end}, the log holds {there.start} to "
                    f"{there.end}; replay what is left without --manifest"
                )
    return asked
