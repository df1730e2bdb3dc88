"""`braid verify`: files, output directories, embedded logs and clusters, through the same inspection.

Files of one call are one body of evidence: a chain may go on in the next file. A directory is checked as one body of
evidence: the lines in the output directory of `braid run` with its rows, and the log next to them as a second copy that
must agree. A log has the record of a branch when it ends, before anything is signed: one that evidence does not list is
compared with the events of the log.
"""

import asyncio
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, cast

from pydantic import ValidationError

from agents.evidence.build import json_view
from agents.evidence.verification import Evidence, read_record
from schemas.base import Record
from schemas.branches import BranchRecord
from schemas.codec.body import first_problem
from schemas.errors import BraidError, DecodeError
from schemas.evidence import AepRecord
from schemas.jsontext import parse_unique
from schemas.repeated_keys import RepeatedKeyError
from streams.cluster.config import Settings
from streams.jobs.replay.explanation import Announced, Events
from streams.jobs.verify.directory_check import DirectoryCheck, Manifest
from streams.jobs.verify.evidence_sources import (
    Entry,
    Text,
    differs_in_avro,
    differs_in_json,
    evidence_of,
    lines_of,
    stored_in,
)
from streams.jobs.verify.findings import Finding, Outcome, Tell
from streams.jobs.verify.inspection import ROW_TOPICS, Claims, Inspection, Row
from streams.log.container import place_of
from streams.log.file_reader import FileReader
from streams.log.file_writer import SUFFIX
from streams.log.files import LOG, home_of, schemas_of
from streams.log.headers import identity
from streams.log.json_lines import SINK_FILES
from streams.log.kafka_reader import KafkaReader
from streams.log.manifest import ARCHIVE, DATASET_MANIFEST, LOG_MANIFEST, datasets_of, is_dataset, listed
from streams.log.progress import Say
from streams.log.reader import LogReader
from streams.log.record import Placed
from streams.log.topics import CLOSURES, EVIDENCE, Topic
from streams.log.wire import Codec, body_of

EVIDENCE_FILE = SINK_FILES[AepRecord]
ROW_FILES: dict[str, Topic] = {SINK_FILES[topic.record]: topic for topic in ROW_TOPICS if topic.record is not None}
NOWHERE = -1
"""The partition of a file whose name is not that of a log file."""

NO_MANIFEST = (
    "it is missing: the command that wrote here was cut off or is older than manifests, or the file was removed; run it again, "
    "or give --unfinished to verify the rest"
)

SAY_EVERY = 256 * 1024
"""Bytes read between two words about progress."""


class NothingToVerifyError(BraidError):
    """A path that cannot be read, or that has no evidence."""


@dataclass
class Verified(Outcome):
    """The result of a call of `braid verify`."""

    empty: int = 0
    """Directories whose manifest can be trusted and lists no evidence: they are empty, or have facts alone."""

    @property
    def nothing(self) -> bool:
        """Whether there was nothing to verify."""
        return not self.records and not self.empty

    @property
    def ok(self) -> bool:
        """Whether every check passed; False if there was nothing to check."""
        return not self.nothing and not self.not_ok and all(chain.ok for chain in self.chains)


class Folder:
    """A directory to verify: which parts are lines, and which a log."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_output = any((path / name).is_file() for name in (EVIDENCE_FILE, *ROW_FILES))
        self.home = home_of(path)
        """The directory with the manifest: the parent, if a log folder was given."""
        logs = (path / LOG, path)
        self.log = next((folder for folder in logs if (folder / EVIDENCE.name).is_dir()), None)
        self.facts = next((folder for folder in logs if (folder / CLOSURES.name).is_dir()), None)
        self.has_manifest = (self.home / LOG_MANIFEST).is_file()
        # Among the results of a run, a dataset is recognised by its manifest: other files that look like one are not
        # listed.
        self.is_dataset = is_dataset(path) and (not self.has_manifest or (path / DATASET_MANIFEST).is_file())
        if not self.is_output and not self.is_dataset and self.log is None and not self.has_manifest:
            raise NothingToVerifyError(
                f"{path}: no evidence here; give an output directory of `braid run` (with {EVIDENCE_FILE}) or `braid export` (with "
                f"{DATASET_MANIFEST}), an archive, an embedded log, or a file"
            )

    def lines(self) -> dict[Path, Topic]:
        """The existing files of rows."""
        return (
            {self.path / name: topic for name, topic in ROW_FILES.items() if (self.path / name).is_file()}
            if self.is_output
            else {}
        )

    def containers(self, topic: Topic) -> list[Path]:
        """The files of a topic in the log."""
        return sorted((self.log / topic.name).glob(f"*{SUFFIX}")) if self.log is not None else []

    def files(self) -> Iterator[Path]:
        """Everything that will be read."""
        own = [self.path / EVIDENCE_FILE, *self.lines()] if self.is_output else []
        if self.is_dataset:
            from streams.jobs.verify.export_check import files_of  # Arrow, which other commands do not load

            yield from (path for path in files_of(self.path) if path not in own)
        yield from (path for path in own if path.is_file())
        for topic in (EVIDENCE, *ROW_TOPICS):
            yield from self.containers(topic)


class _Suspect(NamedTuple):
    """A branch record of a log that evidence does not list, without its content."""

    row: Row
    partition: int
    events: Events
    digest: bytes


class Verification:
    """One call of `braid verify`: findings are reported as they are made and add up in `outcome`."""

    def __init__(
        self, keys: Mapping[str, bytes], *, allow_unsigned: bool, tell: Tell, say: Say, unfinished: bool = False
    ) -> None:
        self.outcome = Verified()
        self._unfinished = unfinished
        self._keys = keys
        self._allow_unsigned = allow_unsigned
        self._tell = tell
        self._say = say
        self._codec = Codec()
        self._suspects: list[_Suspect] = []
        self._total = self._done = self._said = 0

    def paths(self, paths: Sequence[Path]) -> None:
        """Verify files and directories."""
        files = [path for path in paths if not path.is_dir()]
        for path in files:
            _check_file(path)
        folders = [Folder(path) for path in paths if path.is_dir()]
        read = [*files, *(file for folder in folders for file in folder.files())]
        self._total = sum(path.stat().st_size for path in read if path.is_file())
        try:
            if files:
                inspection = self._inspection()
                for path in files:
                    self._evidence_file(inspection, path)
                inspection.finish(())
            for folder in folders:
                self._folder(folder)
        except OSError as error:
            if error.filename is None:  # not a file of ours: the reader of our output went away
                raise
            raise NothingToVerifyError(f"{error.filename}: {error.strerror}") from error

    async def cluster(self, settings: Settings) -> None:
        """Verify the current content of a cluster's topics."""
        inspection = self._inspection()
        async with KafkaReader(settings, lambda _step, share: self._say("verifying", share)) as log:
            self._codec = log.codec
            for topic in (EVIDENCE, *ROW_TOPICS):
                log.require(topic)
            # A worker may be writing. It writes rows before the evidence that lists them, so rows present at this first
            # look must be listed by evidence that is read later; rows added since are read if needed, but may be
            # missing.
            first_look = await log.spans(ROW_TOPICS)
            async for placed in log.records((EVIDENCE,)):
                await log.learn([placed.record])
                self._stored_evidence(inspection, _entry(log, placed))
            async for placed in log.records(ROW_TOPICS):
                topic, partition, record = placed
                await log.learn([record])
                if record.offset < first_look[topic.name][partition].end or inspection.has_closing(record.key):
                    self._stored_row(inspection, topic, _entry(log, placed), partition)
            if self._suspects:
                await self._explain(inspection, log)
        inspection.finish(ROW_TOPICS)

    async def rollout(self, log: LogReader, records: Iterable[Placed]) -> int:
        """Verify the evidence and rows of one rollout; returns how many branch records evidence does not list.

        Unlisted branch records are not compared with the log here: that would take the whole partition.
        """
        inspection, self._codec = self._inspection(), log.codec
        for topic, partition, record in sorted(records, key=lambda placed: placed.topic is not EVIDENCE):
            await log.learn([record])
            entry = Entry(f"{topic.name}/{partition}@{record.offset}", record.key, record.value)
            if topic is EVIDENCE:
                self._stored_evidence(inspection, entry)
            else:
                self._stored_row(inspection, topic, entry, partition)
        inspection.finish(ROW_TOPICS)
        unlisted, self._suspects = len(self._suspects), []
        return unlisted

    # -- bodies of evidence --------------------------------------------------------------------------------------------

    def _folder(self, folder: Folder) -> None:
        """Verify a directory by its manifests, then everything in it, including subdirectories with a manifest of their
        own.
        """
        check = DirectoryCheck(folder.home, self._found, None if folder.home == folder.path else folder.path.resolve())
        manifest = self._log_manifest(folder, check)
        if folder.is_dataset:
            self._dataset(folder, check)
        present = self._evidence(folder)
        if manifest is not None:
            if manifest.said.get("kind") == ARCHIVE:
                present = self._decided(folder)
            check.rollouts(manifest, present)
            self.outcome.empty += manifest.trusted and (folder.log is None or not manifest.rollouts)
        if manifest is not None or not (folder.is_output or folder.log):
            for path in check.others():
                self._folder(Folder(path))

    def _log_manifest(self, folder: Folder, check: DirectoryCheck) -> Manifest | None:
        """Check the manifest of a run, a replay or an archive, and the files that it lists; None if there is none."""
        if not folder.has_manifest and (self._unfinished or not (folder.is_output or folder.log)):
            return None
        unsigned = self._allow_unsigned or self._unfinished
        manifest = Manifest(folder.home / LOG_MANIFEST, self._keys, allow_unsigned=unsigned)
        if not folder.has_manifest:
            manifest.faults = [NO_MANIFEST]
        check.manifest(manifest)
        check.files(listed(manifest.said))
        for name in datasets_of(manifest.said):
            if not is_dataset(folder.home / name):
                check.tell(str(folder.home / name), ["file: it is missing: the manifest lists this dataset"])
        return manifest if folder.has_manifest else None

    def _dataset(self, folder: Folder, check: DirectoryCheck) -> None:
        from streams.jobs.verify.export_check import DatasetCheck

        manifest = Manifest(folder.path / DATASET_MANIFEST, self._keys, allow_unsigned=self._allow_unsigned)
        found = DatasetCheck(folder.path, manifest, self._inspection(), check, self._read)
        found.run()
        self.outcome.empty += found.empty

    def _evidence(self, folder: Folder) -> dict[str, str]:
        """Verify lines and log; returns where the closing record of each rollout is."""
        lines = log = None
        if folder.is_output:
            lines = self._inspection(repetitions=False)
            self._output(folder, lines)
        if folder.log is not None:
            self._codec = Codec(stored=schemas_of(folder.home))
            log = self._inspection(copy=lines is not None)
            for path in folder.containers(EVIDENCE):
                self._evidence_file(log, path)
            for topic in ROW_TOPICS:
                for path in folder.containers(topic):
                    _, partition = place_of(path) or (topic.name, NOWHERE)
                    for stored in stored_in(path, self._read):
                        self._stored_row(log, topic, stored, partition)
            if self._suspects:
                asyncio.run(self._explain(log, FileReader(folder.path, unfinished=True, tolerant=True)))
            log.finish(ROW_TOPICS)
        if lines is not None and log is not None:
            lines.compare(log, str(folder.log))
        return {name: at for each in (log, lines) if each is not None for name, at in each.closings().items()}

    def _decided(self, folder: Folder) -> dict[str, str]:
        """The rollouts of an archive, by its decisions: open ones have no closing record."""
        found: dict[str, str] = {}
        for path in sorted((folder.facts / CLOSURES.name).glob(f"*{SUFFIX}")) if folder.facts is not None else ():
            for stored in stored_in(path, self._read):
                if stored.key:
                    found.setdefault(stored.key.decode(errors="backslashreplace"), stored.position)
        return found

    def _found(self, finding: Finding) -> None:
        self.outcome.not_ok += not finding.ok
        self._tell(finding)

    def _output(self, folder: Folder, inspection: Inspection) -> None:
        evidence = folder.path / EVIDENCE_FILE
        if evidence.is_file():
            self._evidence_file(inspection, evidence)
        else:
            inspection.evidence(Evidence(str(evidence), None, "the file is missing"))
        for path, topic in folder.lines().items():
            with path.open("rb") as source:
                for line in lines_of(source, str(path), self._read):
                    _row(inspection, topic, line)
        inspection.finish(ROW_TOPICS)

    def _inspection(self, *, repetitions: bool = True, copy: bool = False) -> Inspection:
        return Inspection(
            self._keys,
            self.outcome,
            self._tell,
            allow_unsigned=self._allow_unsigned,
            repetitions=repetitions,
            copy=copy,
        )

    # -- records -------------------------------------------------------------------------------------------------------

    def _evidence_file(self, inspection: Inspection, path: Path) -> None:
        if path.suffix == SUFFIX:
            for stored in stored_in(path, self._read):
                self._stored_evidence(inspection, stored)
        elif str(path) == "-":
            for position, text in lines_of(sys.stdin.buffer, "<stdin>", self._read):
                inspection.evidence(read_record(text, position))
        else:
            for evidence in evidence_of(path, self._read):
                inspection.evidence(evidence)

    def _stored_evidence(self, inspection: Inspection, stored: Entry) -> None:
        try:
            record = cast("AepRecord", self._decode(EVIDENCE, stored))
        except DecodeError as error:
            inspection.evidence(Evidence(stored.position, None, str(error)))
            return
        claims = Claims(record.record_id, record.rollout_id, stored.key)
        inspection.evidence(Evidence(stored.position, json_view(record)), claims)

    def _stored_row(self, inspection: Inspection, topic: Topic, stored: Entry, partition: int) -> None:
        try:
            record = self._decode(topic, stored)
        except DecodeError as error:
            inspection.bad_row(stored.position, topic, str(error))
            return
        body = body_of(stored.value or b"")
        row = Row(stored.position, topic, _rollout_id(record), identity(record), differs_in_avro(body), stored.key)
        if isinstance(record, BranchRecord) and inspection.is_unlisted(row):
            self._suspects.append(_Suspect(row, partition, Events.of(record), sha256(body).digest()))
        else:
            inspection.row(row)

    async def _explain(self, inspection: Inspection, log: LogReader) -> None:
        """Check whether the branches of unlisted records have ended in the log; the others are judged as rows."""
        suspects, self._suspects = self._suspects, []
        for partition in sorted({suspect.partition for suspect in suspects}):
            here = [suspect for suspect in suspects if suspect.partition == partition]
            announced = await Announced.of(log, partition, [suspect.events for suspect in here])
            for row, _, events, digest in here:
                if announced.has(events):
                    inspection.explained(row, exactly=announced.exactly(digest))
                else:
                    inspection.row(row)

    def _decode(self, topic: Topic, stored: Entry) -> Record:
        if stored.problem:
            raise DecodeError(stored.problem)
        return self._codec.decode(topic, stored.value)

    def _read(self, count: int) -> None:
        self._done += count
        if self._total and self._done - self._said >= min(SAY_EVERY, self._total / 100):
            self._said = self._done
            self._say("verifying", self._done / self._total)


def _check_file(path: Path) -> None:
    if str(path) == "-":
        return
    if not path.is_file():
        raise NothingToVerifyError(f"{path}: there is no such file or directory; is the path right?")
    if path.name in ROW_FILES or (path.suffix == SUFFIX and path.parent.name in {topic.name for topic in ROW_TOPICS}):
        folder = path.parent if path.name in ROW_FILES else path.parent.parent
        raise NothingToVerifyError(
            f"{path}: holds rows, which are verified by the evidence beside them; give the directory, {folder}"
        )


def _entry(log: KafkaReader, placed: Placed) -> Entry:
    topic, partition, record = placed
    return Entry(f"{log.name(topic)}/{partition}@{record.offset}", record.key, record.value)


def _row(inspection: Inspection, topic: Topic, line: Text) -> None:
    assert topic.record is not None
    try:
        # Strict: a number as text would be the same record to us, and another value to a trainer.
        record = topic.record.model_validate_json(line.text, strict=True)
        parse_unique(line.text)
    except RepeatedKeyError as error:
        inspection.bad_row(line.position, topic, f"repeated key: {error}")
        return
    except ValidationError as error:
        inspection.bad_row(line.position, topic, f"not a row: {first_problem(error)}")
        return
    inspection.row(Row(line.position, topic, _rollout_id(record), identity(record), differs_in_json(record)))


def _rollout_id(record: Record) -> str:
    return str(getattr(record, "rollout_id", ""))
