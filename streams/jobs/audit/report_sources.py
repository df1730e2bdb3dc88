"""The sources of an audit report: a log in topics or files, the output of a run, a dataset, or files of evidence."""

from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

from agents.audit.report import AuditReport
from agents.audit.rollout_facts import facts_of
from agents.evidence.build import json_view
from agents.evidence.verification import Evidence
from agents.rollouts.broken_log import BrokenLogError
from agents.rollouts.emission import Emission, emit
from agents.rollouts.rollout import Rollout
from schemas.emission import EmissionConfig
from schemas.errors import BraidError, DecodeError
from schemas.evidence import AepRecord
from streams.jobs.audit.log_rollouts import log_rollouts
from streams.jobs.verify.evidence_sources import evidence_of
from streams.log.json_lines import SINK_FILES
from streams.log.manifest import PROVENANCE
from streams.log.progress import Say, quiet
from streams.log.reader import LogReader
from streams.log.record import LogRecord
from streams.log.topics import AGENT_EVENTS, EVIDENCE, Topic

FINISH = (b'"finishReason"', b'"finish_reason"')


class ReportError(BraidError):
    """A source from which no report can be made."""


class _Traces:
    """Rollouts whose records have a trace context, and rollouts whose events record why a model stopped."""

    def __init__(self) -> None:
        self.traced: set[bytes | None] = set()
        self.finishes: set[bytes | None] = set()

    def observe(self, topic: Topic, records: Sequence[LogRecord]) -> None:
        """Note the trace contexts of raw records."""
        if topic is not AGENT_EVENTS:
            return
        for record in records:
            if any(name == "traceparent" for name, _ in record.headers):
                self.traced.add(record.key)
            if record.value is not None and any(each in record.value for each in FINISH):
                self.finishes.add(record.key)

    def leave(self, rollout_id: str) -> tuple[bool, bool]:
        """Whether a rollout is in each of the two sets; it is removed from them."""
        key = rollout_id.encode()
        found = key in self.traced, key in self.finishes
        self.traced.discard(key)
        self.finishes.discard(key)
        return found


async def add_log(report: AuditReport, log: LogReader, unpinned: EmissionConfig, say: Say = quiet) -> None:
    """Add the rollouts of a log."""
    traces = _Traces()
    async for rollout in log_rollouts(log, say, traces.observe):
        traced, finishes = traces.leave(rollout.rollout_id)
        gaps = rollout.settled is not None and any(pin.gaps for pin in rollout.settled.branches)
        report.add(facts_of(rollout, unpinned), _emission(rollout), gaps=gaps, traced=traced, finishes=finishes)


def _emission(rollout: Rollout) -> Emission | None:
    if not rollout.has_closed_facts():
        return None
    try:
        return emit(rollout, evidence=False)
    except BrokenLogError:
        return None


async def stored_evidence(log: LogReader) -> AsyncIterator[Evidence]:
    """The evidence of a log."""
    async for placed in log.records((EVIDENCE,)):
        place = f"{placed.topic.name}/{placed.partition}@{placed.record.offset}"
        try:
            record = await log.decode(placed)
        except DecodeError as error:
            yield Evidence(place, None, str(error))
            continue
        assert isinstance(record, AepRecord)
        yield Evidence(place, json_view(record))


def evidence_files(path: Path) -> list[Path]:
    """The files of evidence at a path: the file itself, the output of a run, or the provenance of a dataset; empty for
    a log alone.
    """
    if path.is_file():
        return [path]
    lines = path / SINK_FILES[AepRecord]
    if lines.is_file():
        return [lines]
    return sorted((path / PROVENANCE).glob("evidence-*.jsonl"))


def read_evidence(paths: Sequence[Path]) -> Iterator[Evidence]:
    """The records of files."""
    for path in paths:
        yield from evidence_of(path, lambda _count: None)
