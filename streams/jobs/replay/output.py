"""The directory that a replay writes to: its owner, the files that may be replaced in it, and the finished partitions.

Everything is checked before anything is changed, and once more under the lock.
"""

import shutil
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import ValidationError

from agents.formats import FORMATS
from streams.jobs.errors import ReplayError
from streams.jobs.replay.partition_job import Job, Result
from streams.jobs.replay.replay_manifest import REPLAY, ReplayManifest, manifest_at, other_options
from streams.log.directory_lock import REPLAY_LOCK as LOCK
from streams.log.directory_lock import held
from streams.log.durable_files import PARTIAL, write_whole
from streams.log.files import LOG, log_folder
from streams.log.manifest import LOG_MANIFEST, read_manifest

NOTES = ".replay"
"""Results of the partitions that are done, until all of them are."""
JOB = "job.json"


@dataclass
class _Found:
    """The content of a directory."""

    finished: ReplayManifest | None = None
    begun: Job | None = None
    """The replay that was cut off."""
    formats: list[str] = field(default_factory=list)
    """The exports that were made with it."""


class Output:
    """A replay's output directory, locked while it runs. Without a directory no files are written."""

    def __init__(self, job: Job, *, resume: bool) -> None:
        self.job = job
        """The log that is replayed: when resumed, the part of the log that was set out for, however much it has grown
        since."""
        self.results: dict[int, Result] = {}
        """The partitions that were done before."""
        self.finished: ReplayManifest | None = None
        """A finished replay with the same options: nothing is to be done."""
        self._resume = resume
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Make ready. Raises ReplayError if the directory cannot be used; then it was not changed."""
        out = self.job.out
        if out is None:
            return self
        require_apart(out, self.job.directory)
        self._decide(out)
        if self.finished is None:
            with self._stack as stack:
                stack.enter_context(held(out, LOCK, "replay", ReplayError))
                self._decide(out)  # again: another replay may have finished just now
                if self.finished is None:
                    self._begin(out)
                    self._stack = stack.pop_all()
        return self

    def _decide(self, out: Path) -> None:
        """Check that nothing forbids the replay, and whether there is anything to do."""
        found = _look(out)
        if not self._resume or (found.begun is None and found.finished is None):
            _require_no_other_dataset(out, found, self.job)
        elif found.begun is not None:
            if _made_by(found.begun) != _made_by(self.job):
                raise ReplayError(
                    f"{out} holds a replay that was cut off and was made by {_made_by(found.begun)}; this is {_made_by(self.job)}, and "
                    "what both make need not be the same: leave --resume out to begin anew"
                )
            if self.job.model_copy(update={"spans": found.begun.spans, "lost": found.begun.lost}) != found.begun:
                raise ReplayError(
                    f"{out} holds another replay that was cut off; give its options again, or leave --resume out to begin anew"
                )
        elif found.finished is not None:
            if other := other_options(self.job, found.finished):
                raise ReplayError(
                    f"{out} holds a finished replay with other options ({'; '.join(other)}); give another directory, or leave "
                    "--resume out to replace it"
                )
            self.finished = found.finished

    def _begin(self, out: Path) -> None:
        found = _look(out)
        notes = out / NOTES
        if self._resume and found.begun is not None:
            self.job = found.begun
            for note in sorted(notes.glob("[0-9]*.json")):
                result = Result.model_validate_json(note.read_bytes())
                self.results[result.partition] = result
            return
        for name in (LOG, NOTES, *found.formats):
            shutil.rmtree(out / name, ignore_errors=True)
        (out / LOG_MANIFEST).unlink(missing_ok=True)
        notes.mkdir()
        write_whole(notes / JOB, self.job.model_dump_json().encode())

    def keep(self, result: Result) -> None:
        """Note the result of a partition whose files are complete."""
        if self.job.out is not None:
            write_whole(self.job.out / NOTES / f"{result.partition}.json", result.model_dump_json().encode())

    def complete(self) -> None:
        """Everything is done."""
        if self.job.out is not None:
            shutil.rmtree(self.job.out / NOTES)

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        with self._stack:
            if self.job.out is not None and self.finished is None and kind is not None:
                for path in (*self.job.out.glob(f"*{PARTIAL}"), *self.job.out.glob(f"{LOG}/*/*{PARTIAL}")):
                    path.unlink(missing_ok=True)


def _made_by(job: Job) -> str:
    return f"Braidstream {job.code} with redaction rules {job.redaction}"


def _look(out: Path) -> _Found:
    """The files in the directory. Raises ReplayError for an archive, or anything else that no replay made."""
    if out.exists() and not out.is_dir():
        raise ReplayError(f"--out {out} is a file; give a directory")
    if not out.is_dir() or all(path.name == LOCK for path in out.iterdir()):
        return _Found()
    found = _Found()
    if read_manifest(out).get("kind") == REPLAY and isinstance(manifest := manifest_at(out), ReplayManifest):
        found.finished, found.formats = manifest, manifest.formats
    begun = out / NOTES / JOB
    if begun.is_file():
        try:
            found.begun = Job.model_validate_json(begun.read_bytes())
        except ValidationError:
            raise ReplayError(f"{begun}: not the notes of a replay; give another directory") from None
        found.finished, found.formats = None, list(found.begun.formats)
    elif not (out / NOTES).is_dir() and found.finished is None:
        raise ReplayError(f"{out} is not empty and holds no replay; give another directory")
    return found


def _require_no_other_dataset(out: Path, found: _Found, job: Job) -> None:
    """A dataset next to the log was made from it: one that the replay did not make itself must neither be replaced nor
    become outdated.
    """
    for name in sorted({*FORMATS, *job.formats} - {*found.formats}):
        if (out / name).exists():
            raise ReplayError(
                f"{out / name} was not made by the replay that would be replaced; move it away, or give another directory"
            )


def require_apart(out: Path, directory: Path | None) -> None:
    """Require that the input directory is not the output directory. Raises ReplayError if one is inside the other,
    links followed.
    """
    if directory is None:
        return
    folder, to = log_folder(directory), out.resolve()
    read = {place.resolve() for place in (folder, *folder.iterdir()) if place.is_dir()}
    if any(place.is_relative_to(to) or to.is_relative_to(place) for place in read):
        raise ReplayError(
            f"--out {out} and --from-dir {directory} share files: the log would be replaced while it is read; "
            "give another directory for --out"
        )
