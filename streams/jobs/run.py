"""`braid run`: the whole job on the embedded log, for people who have files and no broker.

The input is spread over partitions on disk, then one partition is folded at a time: memory does not grow with the input.
Times in the log are those of the events themselves, so the same files give the same bytes. What is still open when the input
ends closes with cause end_of_input; what it misses is unknown. The signed manifest is written last: a run that was killed has
none, and is run again.
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from agents.evidence.signing import SigningKey
from agents.evidence.structure import printable
from agents.facts.fact import Fact, rollout_of
from agents.formats import FORMATS
from agents.importers.line_error import LineError
from agents.importers.lines import LineReader
from agents.importers.slices import Slicer
from agents.judge.requests import Asking
from agents.judge.votes import calls_of
from agents.rollouts.broken_log import BrokenLogError
from agents.rollouts.closure import close_now
from agents.rollouts.emission import emit
from agents.rollouts.judge_requests import judge_requests
from agents.rollouts.rollout import Complaint, Ref, Rollout
from agents.rollouts.settlement import settle_now
from schemas.base import Record
from schemas.closures import Closure
from schemas.jsontext import parse_object
from schemas.judging import JudgeVote
from streams.cluster.config import Settings
from streams.jobs.counts import Counts
from streams.jobs.judge.asker import VOTES_FILE
from streams.jobs.judge.inline import InlineJudge
from streams.jobs.spool import partitions_for, spooled, spread
from streams.log.directory_lock import RUN_LOCK, held
from streams.log.file_writer import SUFFIX, LogWriter
from streams.log.files import LOG, SPOOL
from streams.log.headers import cloud_event, domain_time, identity
from streams.log.input_lines import (
    SIDECAR,
    Doubted,
    InputError,
    Line,
    Rejected,
    read_lines,
    require_inputs,
    total_bytes,
)
from streams.log.json_lines import SINK_FILES, Outputs
from streams.log.letters import NOT_COUNTED, Letter
from streams.log.manifest import (
    LOG_MANIFEST,
    ManifestError,
    datasets_of,
    described,
    is_dataset,
    read_manifest,
    require_no_log_of_others,
    seal,
)
from streams.log.progress import Say, quiet
from streams.log.record import LogRecord
from streams.log.topics import BY_RECORD, DEAD_LETTERS
from streams.log.wire import Codec

STREAM_PARTITIONS = 32
"""For standard input, whose length nobody knows."""

RUN = "run"
"""The kind of a run's manifest."""

"""Progress: what is being done, and how much of it (0..1)."""


def run_files(
    files: Sequence[Path],
    out: Path,
    settings: Settings,
    key: SigningKey | None,
    say: Say = quiet,
    judge: InlineJudge | None = None,
    beside: Sequence[str] = (),
    formats: Sequence[str] = (),
) -> Counts:
    """Fold files into rankings, evidence and training rows under `out`; `judge` is asked where settings name one.

    The manifest is signed with `key`. It also lists the files in the folders `beside`, which the caller wrote to `out` before,
    and the datasets (`formats`) that the caller makes of the result.
    """
    require_inputs(files)
    with held(out, RUN_LOCK, "run", InputError):
        _clear(out)
        counts, inputs = _folded(files, out, settings, key, say, judge)
        written = [*_written(out), *(path for name in beside for path in (out / name).rglob("*") if path.is_file())]
        members = _members(counts, inputs) | {"formats": list(formats)}
        seal(out, RUN, described(out, [*written, *_inside(out, files)]), key, members)
    return counts


def _clear(out: Path) -> None:
    """Remove the results of an earlier run: a run that is cut off must not pass for it.

    Raises ManifestError for a log of another command, and for a dataset that no run made: it would say what is no longer there.
    """
    require_no_log_of_others(out)
    made = datasets_of(read_manifest(out))
    for name in FORMATS:
        if name not in made and is_dataset(out / name):
            raise ManifestError(
                f"{out / name} was exported from the results that would be replaced; move it away, or give another directory"
            )
    (out / LOG_MANIFEST).unlink(missing_ok=True)
    for name in SINK_FILES.values():
        (out / name).unlink(missing_ok=True)
    for left in (*out.glob(f"{SPOOL}*"), out / LOG, *(out / name for name in made)):
        shutil.rmtree(left, ignore_errors=True)


def _written(out: Path) -> list[Path]:
    """The files of a run."""
    names = (*SINK_FILES.values(), SIDECAR, VOTES_FILE)
    return [*(out / LOG).glob(f"*/*{SUFFIX}"), *(path for name in names if (path := out / name).is_file())]


def _inside(out: Path, files: Iterable[Path]) -> list[Path]:
    """The files that were read, as far as they lie in the directory of the results."""
    within = (path.resolve() for path in files if path.is_file())
    home = out.resolve()
    return [
        out / path.relative_to(home)
        for path in within
        if path.is_relative_to(home) and printable(str(path)) == str(path)
    ]


def _members(counts: Counts, inputs: list[dict[str, Any]]) -> dict[str, Any]:
    """The members of a run's manifest, beside its files."""
    return {
        "config_digests": dict(sorted(counts.configs.items())),
        "inputs": {"kind": "lines", "files": inputs},
        "counts": {name: value for name, value in counts.plain().items() if name not in ("seconds", "out")},
        "rollouts": sorted(counts.made),
    }


def _folded(
    files: Sequence[Path], out: Path, settings: Settings, key: SigningKey | None, say: Say, judge: InlineJudge | None
) -> tuple[Counts, list[dict[str, Any]]]:
    """Write everything but the manifest; returns the counts, and what was read of each file."""
    began = time.monotonic()
    counts, inputs = Counts(out=str(out)), list[dict[str, Any]]()
    size = total_bytes(files)
    partitions = STREAM_PARTITIONS if size is None else partitions_for(size)
    rejected, doubted = Rejected(out / SIDECAR), Doubted()
    with tempfile.TemporaryDirectory(prefix=SPOOL, dir=out) as spool, LogWriter(out / LOG) as log:
        lines = read_lines(files, inputs)
        spread(lines, Path(spool), partitions, rejected, lambda share: say("reading", share), size)
        with Outputs(out, SINK_FILES) as outputs:
            for partition in range(partitions):
                say("folding", partition / partitions)
                folder = _Folder(partition, settings, key, log, outputs, counts, rejected, doubted)
                folder.fold(spooled(Path(spool), partition))
                if judge is not None:
                    folder.ask(judge, partial(_say_part, say, partition, partitions))
                folder.close()
                log.publish(partition=partition)
    rejected.close()
    counts.judge = None if judge is None else judge.plain()
    counts.bad_lines, counts.first_bad = rejected.count, rejected.first
    counts.warnings, counts.first_warning = doubted.count, doubted.first
    counts.seconds = time.monotonic() - began
    return counts, inputs


def _say_part(say: Say, partition: int, partitions: int, what: str, share: float) -> None:
    say(what, (partition + share) / partitions)


def _say_votes(say: Say, judge: InlineJudge, share: float) -> None:
    say(f"judging, {judge.spent.asked:,} votes", share)


class _Folder:
    """Folds one partition."""

    def __init__(
        self,
        partition: int,
        settings: Settings,
        key: SigningKey | None,
        log: LogWriter,
        outputs: Outputs,
        counts: Counts,
        rejected: Rejected,
        doubted: Doubted,
    ) -> None:
        self._partition = partition
        self._settings = settings
        self._key = key
        self._log = log
        self._outputs = outputs
        self._counts = counts
        self._rejected = rejected
        self._doubted = doubted
        self._codec = Codec()
        self._rollouts: dict[str, Rollout] = {}
        # What turns out not to count when a rollout settles is kept as it came: until then its bytes are held.
        self._stored: dict[str, dict[Ref, LogRecord]] = {}

    def fold(self, lines: Iterator[Line]) -> None:
        reader, slicer = LineReader(), Slicer()
        for line in lines:
            try:
                facts = reader.read_object(parse_object(line.text))  # an object without repeated keys, or not spooled
            except LineError as error:
                self._rejected.add(line, error)
                continue
            self._doubted.note(line, facts)
            for fact in facts:
                for ready in slicer.add(fact):
                    self._take(ready)
        for ready in slicer.flush():
            self._take(ready)
        for rollout_id in sorted(self._rollouts):
            self._settle(rollout_id)

    def ask(self, judge: InlineJudge, say: Say) -> None:
        """Ask a judge about what has settled, many rollouts at once; its votes are facts as any other."""
        waiting: list[tuple[Rollout, Asking]] = []
        calls = 0
        for number, rollout_id in enumerate(sorted(self._rollouts), start=1):
            rollout = self._rollouts[rollout_id]
            asking = judge_requests(rollout)
            judge.spent.own_work += asking.own_model
            waiting.append((rollout, asking))
            calls += sum(len(calls_of(request)) for request in asking.requests)
            if calls >= judge.calls_at_once or number == len(self._rollouts):
                share = number / len(self._rollouts)
                self._answer(judge, waiting, partial(_say_votes, say, judge, share))
                waiting, calls = [], 0

    def _answer(self, judge: InlineJudge, waiting: list[tuple[Rollout, Asking]], say: Callable[[], None]) -> None:
        paid = {
            name: each.fact
            for rollout, _ in waiting for name, each in rollout.votes.items() if isinstance(each.fact, JudgeVote)
        }  # fmt: skip
        answers = iter(judge.votes([request for _, asking in waiting for request in asking.requests], paid, say))
        for rollout, asking in waiting:
            for request in asking.requests:
                self._write(request, rollout, emission=self._settings.emission.version)
            for vote in (*asking.ties, *(vote for _ in asking.requests for vote in next(answers))):
                if vote.vote_id not in rollout.votes:
                    self._take(vote)

    def close(self) -> None:
        """Close everything, and write what follows."""
        for rollout_id in sorted(self._rollouts):
            self._close(self._rollouts.pop(rollout_id))
            del self._stored[rollout_id]

    def _take(self, fact: Fact) -> None:
        """Append a fact to the log and fold it. A rollout's time in the log is that of its newest event so far."""
        rollout_id = rollout_of(fact)
        rollout = self._rollouts.get(rollout_id)
        if rollout is None:
            rollout = self._rollouts[rollout_id] = Rollout(rollout_id, redacting=self._settings.emission.redact)
        at = max(rollout.latest, domain_time(fact) or 0)
        value, topic = self._codec.encode(fact), BY_RECORD[type(fact)].name
        stored = self._log.append(
            topic, self._partition, rollout_id.encode(), value, at, tuple(cloud_event(fact, "run"))
        )
        for complaint in rollout.add(fact, at, (topic, self._partition, stored.offset)):
            self._bury(complaint, stored)
        self._stored.setdefault(rollout_id, {})[topic, self._partition, stored.offset] = stored

    def _bury(self, complaint: Complaint, stored: LogRecord) -> None:
        self._counts.dead_letters += 1
        letter = Letter(
            stored.key, stored.value, stored.headers, *complaint.ref, complaint.reason, NOT_COUNTED, complaint.message
        ).fitted()
        self._log.append(
            DEAD_LETTERS.name, self._partition, letter.key, letter.value, stored.at, tuple(letter.wire_headers())
        )

    def _settle(self, rollout_id: str) -> None:
        rollout = self._rollouts[rollout_id]
        if not rollout.branches and not rollout.verdicts and rollout.opened is None:
            del self._rollouts[rollout_id], self._stored[rollout_id]  # nothing but votes: there is nothing to close
            return
        self._decided(rollout, Closure(settled=settle_now(rollout, self._settings.emission, self._settings.closing)))

    def _close(self, rollout: Rollout) -> None:
        self._decided(rollout, Closure(closed=close_now(rollout)))
        try:
            emission = emit(rollout)
        except BrokenLogError as error:
            self._counts.broken.append(str(error))
            return
        evidence = emission.signed(self._key)
        version = emission.bodies.emission
        for record in (*emission.branches, emission.ranking, *emission.rows, *emission.rejected, *evidence):
            self._write(record, rollout, emission.bodies.get(identity(record)), version, redacted=emission.redacted)
            self._outputs.write(record)
        self._counts.add(emission)

    def _decided(self, rollout: Rollout, closure: Closure) -> None:
        stored = self._write(closure, rollout)
        for stray in rollout.add(closure, stored.at, (BY_RECORD[Closure].name, self._partition, stored.offset)):
            self._bury(stray, self._stored[rollout.rollout_id][stray.ref])

    def _write(
        self,
        record: Record,
        rollout: Rollout,
        body: bytes | None = None,
        emission: int | None = None,
        *,
        redacted: bool = False,
    ) -> LogRecord:
        value = self._codec.encode(record, body, emission)
        return self._log.append(
            BY_RECORD[type(record)].name, self._partition, rollout.rollout_id.encode(), value, rollout.latest,
            tuple(cloud_event(record, "run", redacted=redacted)),
        )  # fmt: skip
