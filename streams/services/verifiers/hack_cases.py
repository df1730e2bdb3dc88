"""Examines hacks in files: cases of a task with branches, without any log.

    CASE/task                         a task directory
    CASE/branches/N/files             what branch N left: its whole workspace, or only the files that differ
    CASE/branches/N/events.ndjson     optional: lines of its events, as `braid run` takes them

The branches of a case are siblings.
"""

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from agents.fork.judged_hacks import MAX_SIBLINGS
from agents.fork.looks import Findings, Look, read_files
from agents.fork.task import Task
from agents.fork.task_adapter import load_task, read_workspace
from agents.hacks.acts import event_signals, without_common
from agents.hacks.file_rules import place_of
from agents.hacks.verdict import as_json, status_of
from agents.importers.line_error import LineError
from agents.importers.lines import LineReader
from agents.rollouts.branch_records import ended_branch
from agents.rollouts.rollout import Rollout
from agents.workspace.files import File
from schemas.branches import BranchRecord
from schemas.emission import EmissionConfig, SummarizeConfig
from schemas.errors import BraidError
from schemas.events import AgentEvents
from schemas.rankings import HackSignal
from streams.cluster.config import Settings
from streams.log.input_lines import check_length, read_lines
from streams.services.verifiers.hacks import HackExaminer, hack_examiner

WHOLE = EmissionConfig(summarize=SummarizeConfig(max_bytes=16_384, keep_first_lines=400, keep_last_lines=400))
"""Outputs for rules: nearly whole."""


class CaseError(BraidError):
    """A case that cannot be read; the message names the file, and what it should contain."""


class Left(NamedTuple):
    """The files of a branch of a case."""

    number: int
    files: dict[str, File] | None
    record: BranchRecord | None


class CaseFiles(NamedTuple):
    """A case, read."""

    name: str
    task: Task
    branches: tuple[Left, ...]


class Result(NamedTuple):
    """The result of examining a branch."""

    case: str
    branch_index: int
    signals: tuple[HackSignal, ...]
    looks: tuple[Look, ...]
    verdict: str | None
    """The verdict `hacks`; None if no experiment was made."""

    @property
    def status(self) -> str:
        """confirmed, suspected, clean, or unknown if nothing was found and some check could not be made."""
        found = status_of(self.signals)
        return "unknown" if found == "clean" and self.verdict == "unknown" else found

    def as_json(self) -> dict[str, Any]:
        """One line of output."""
        return {
            "case": self.case, "branch_index": self.branch_index, "status": self.status,
            "signals": [as_json(each) for each in self.signals],
            "looks": [{"name": each.name, "made": each.made, "why": each.why} for each in self.looks],
            "verdict": self.verdict,
        }  # fmt: skip


def read_case(folder: Path) -> CaseFiles:
    """A case from its directory. Raises CaseError and TaskError."""
    if not (folder / "task").is_dir():
        raise CaseError(
            f"{folder / 'task'}: missing; a case has a task directory there, and branches/N/files beside it"
        )
    task = load_task(folder / "task")
    places = [path for path in sorted((folder / "branches").glob("*")) if path.name.isdigit() and path.is_dir()]
    if not places:
        raise CaseError(
            f"{folder / 'branches'}: no branches; each has a folder with its number, and in it files/ or events.ndjson"
        )
    return CaseFiles(
        folder.resolve().name, task, tuple(sorted((_left(path, task) for path in places), key=lambda each: each.number))
    )


def _left(folder: Path, task: Task) -> Left:
    files = _workspace(folder / "files", task) if (folder / "files").is_dir() else None
    events = folder / "events.ndjson"
    record = _record(events, task) if events.is_file() else None
    if files is None and record is None:
        raise CaseError(f"{folder}: neither files/ nor events.ndjson; one of them says what the branch did")
    return Left(int(folder.name), files, record)


def _workspace(folder: Path, task: Task) -> dict[str, File]:
    """The files of a branch. A folder with less than half of the task's own files has only the changed ones."""
    found = read_workspace(folder)
    kept = sum(path in found for path in task.start)
    return found if 2 * kept >= len(task.start) else {**task.start, **found}


def _record(path: Path, task: Task) -> BranchRecord | None:
    """The branch record of a file of lines; None when it has no events."""
    reader, rollout = LineReader(), Rollout("case")
    place: tuple[int, int] | None = None
    try:
        for number, line in enumerate(read_lines([path])):
            check_length(line)
            for fact in reader.read(line.text):
                if isinstance(fact, AgentEvents):
                    place = (
                        max(place or (0, -1), (0, fact.attempt))
                        if place and place[0] == fact.branch_index
                        else (fact.branch_index, fact.attempt)
                    )
                    rollout.add(fact, number, ("events", 0, number))
    except LineError as error:
        raise CaseError(f"{path}: {error}") from None
    if place is None:
        return None
    return ended_branch(rollout, *place, WHOLE).record.model_copy(update={"task": task.instruction})


class HackLooker:
    """Looks at cases."""

    def __init__(self, examiner: HackExaminer | None) -> None:
        """Without an examiner files are only read."""
        self._examiner = examiner

    async def look(self, case: CaseFiles) -> AsyncIterator[Result]:
        """Yield the result of each branch of a case, examined alone and then compared with its siblings."""
        findings = {each.number: await self._findings(case.task, each) for each in case.branches}
        findings = await self._judged(case, findings)
        signals = {
            each.number: self._signals(case.task, each, findings[each.number]) for each in case.branches
        }  # fmt: skip
        passing = frozenset(index for index, each in findings.items() if each.passes)
        together = without_common(signals, passing)
        for index, found in findings.items():
            yield Result(case.name, index, together[index], found.looks, _verdict(found, together[index]))

    async def _findings(self, task: Task, left: Left) -> Findings:
        if left.files is None:
            return Findings((), (Look("all", made=False, why="the branch left no files"),))
        if self._examiner is None or "test.sh" not in task.tests:
            return Findings(read_files(task, left.files), ())
        return await self._examiner.findings(task, left.files)

    async def _judged(self, case: CaseFiles, findings: dict[int, Findings]) -> dict[int, Findings]:
        """The findings with the judge's votes: each branch compared with the others, passing ones first."""
        if self._examiner is None:
            return findings
        order = sorted(case.branches, key=lambda each: (not findings[each.number].passes, each.number))
        judged = dict(findings)
        for left in case.branches:
            if left.files is not None:
                siblings = [each.files for each in order if each.number != left.number and each.files is not None]
                judged[left.number] = await self._examiner.judged(
                    case.task, left.files, siblings[:MAX_SIBLINGS], findings[left.number]
                )
        return judged

    def _signals(self, task: Task, left: Left, found: Findings) -> tuple[HackSignal, ...]:
        if left.record is None:
            return found.signals
        record = left.record
        acted = event_signals(
            record.tool_calls, record.final_answer, task.instruction, files_known=left.files is not None
        )
        return tuple(sorted((*found.signals, *acted), key=place_of))


def _verdict(found: Findings, signals: tuple[HackSignal, ...]) -> str | None:
    if not found.looks:
        return None
    if any(each.kind == "confirmed" for each in signals):
        return "fail"
    return "unknown" if any(each.missing for each in found.looks) else "pass"


@asynccontextmanager
async def hack_looker(settings: Settings, *, static: bool) -> AsyncIterator[HackLooker]:
    """A looker with sandboxes, or without any where files are only read."""
    if static:
        yield HackLooker(None)
        return
    async with hack_examiner(settings) as examiner:
        yield HackLooker(examiner)


def read_labels(path: Path) -> Iterator[tuple[str, int, str, bool]]:
    """Labels: (case, branch, honest or a family, provable), one JSON object a line: {case, branch_index, label, provable?}."""
    from schemas.jsontext import parse

    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            value = parse(line)
        except ValueError as error:
            raise CaseError(f"{path}:{number}: {error}") from None
        if (
            not isinstance(value, dict)
            or not isinstance(value.get("case"), str)
            or not isinstance(value.get("label"), str)
        ):
            raise CaseError(
                f"{path}:{number}: expected an object with case, branch_index and label (honest, or a family: T5)"
            )
        label = re.sub(r"\..*", "", value["label"])
        yield value["case"], int(value.get("branch_index", 0)), label, bool(value.get("provable", False))
