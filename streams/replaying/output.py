"""The directory that a replay writes to: what may be replaced in it, and which partitions are done."""

import shutil
from pathlib import Path

from streams.exporting.shards import write_whole
from streams.looking.files import log_folder
from streams.replaying.job import Job, Result
from streams.replaying.logs import MANIFEST, ReplayError, read_manifest
from streams.replaying.targets import LOG

REPLAY = "replay"

NOTES = ".replay"
"""Results of the partitions that are done, until all of them are."""


class Notes:
    """Which partitions are done, kept in the output directory while a replay runs."""

    def __init__(self, job: Job, *, resume: bool) -> None:
        self._folder = None if job.out is None else job.out / NOTES
        self.job = job
        """What is replayed: when resumed, the part of the log that was set out for, however much it has grown since."""
        self.results: dict[int, Result] = {}
        if self._folder is None:
            if resume:
                raise ReplayError("--resume needs --out: what is done is noted there")
            return
        assert job.out is not None
        _require_apart(job.out, job.directory)
        path = self._folder / "job.json"
        if resume and path.is_file():
            self.job = Job.model_validate_json(path.read_bytes())
            if job.model_copy(update={"spans": self.job.spans, "lost": self.job.lost}) != self.job:
                raise ReplayError(
                    f"{job.out} holds another replay that was cut off; give its options again, or leave --resume out to begin anew"
                )
            for note in sorted(self._folder.glob("[0-9]*.json")):
                result = Result.model_validate_json(note.read_bytes())
                self.results[result.partition] = result
            return
        _clear(job.out)
        self._folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, job.model_dump_json().encode())

    def keep(self, result: Result) -> None:
        """A partition's files are there: note its result."""
        if self._folder is not None:
            write_whole(self._folder / f"{result.partition}.json", result.model_dump_json().encode())

    def clear(self) -> None:
        """Everything is done."""
        if self._folder is not None:
            shutil.rmtree(self._folder)


def _clear(out: Path) -> None:
    """Make room: what an earlier replay left is replaced; an archive, or anything else, is not touched."""
    if not out.exists() or not any(out.iterdir()):
        return
    if not (out / NOTES).is_dir() and read_manifest(out).get("kind") != REPLAY:
        raise ReplayError(f"{out} is not empty and holds no replay; give another directory")
    shutil.rmtree(out / LOG, ignore_errors=True)
    shutil.rmtree(out / NOTES, ignore_errors=True)
    (out / MANIFEST).unlink(missing_ok=True)


def _require_apart(out: Path, directory: Path | None) -> None:
    """What is read is not what is replaced. Raises ReplayError when one lies in the other, links followed."""
    if directory is None:
        return
    folder, to = log_folder(directory), out.resolve()
    read = {place.resolve() for place in (folder, *folder.iterdir()) if place.is_dir()}
    if any(place.is_relative_to(to) or to.is_relative_to(place) for place in read):
        raise ReplayError(
            f"--out {out} and --from-dir {directory} share files: the log would be replaced while it is read; "
            "give another directory for --out"
        )
