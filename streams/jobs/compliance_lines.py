"""Lines of task files, answers and records: read, checked, verified one by one, each bad one with its place."""

import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from agents.compliance.report import RunOutcome
from agents.compliance.stored_record import is_record, outcome_of_record, record_of, seed_of, task_for, verified_pass
from agents.compliance.stored_semantics import verify_stored
from agents.compliance.task_file import Task, TaskError, task_of
from agents.compliance.verification import TextVerdict, Verifier, verify_loose
from agents.importers.line_error import LineError
from agents.importers.lines import read_line
from schemas.compliance import EvalView
from streams.log.input_lines import Line, check_length, read_lines, require_inputs
from streams.log.progress import Say, quiet

Semantics = Literal["ifeval", "wasmagent"]


def load_tasks(files: Sequence[Path]) -> dict[str, Task]:
    """Return the tasks of all files by id. Raises TaskError with file:line and field for the first that is wrong."""
    require_inputs(files)
    tasks: dict[str, Task] = {}
    for line in read_lines(files):
        if not line.text.strip():
            continue
        try:
            check_length(line)
            task = task_of(read_line(line.text), f"line-{line.number}")
        except (LineError, TaskError) as error:
            raise TaskError(f"{line.place}: {error}") from None
        if task.id in tasks and tasks[task.id] != task:
            raise TaskError(f"{line.place}: id: another task is called {task.id!r}; give every task its own id")
        tasks[task.id] = task
    if not tasks:
        raise TaskError(f"{', '.join(map(str, files))}: there is no task; a task is one JSON object a line")
    return tasks


class Verified(NamedTuple):
    """A line with its verdict, as `--json` prints it."""

    view: dict[str, Any]
    seconds: float


class AnswerVerifier:
    """Verifies the answers of lines."""

    def __init__(self, tasks: dict[str, Task], semantics: Semantics, *, loose: bool) -> None:
        self._tasks = tasks
        self._semantics = semantics
        self._loose = loose
        self._verifiers: dict[str, Verifier] = {}

    def verify(self, line: Line) -> Verified:
        """Return the verdict of a line, or its error."""
        view: dict[str, Any] = {"line": line.number}
        try:
            check_length(line)
            value = read_line(line.text)
            given = value.get("id", value.get("task_id"))
            if isinstance(given, (str, int)) and not isinstance(given, bool):
                view["id"] = given
            task, text = self._answer(value, line)
            view.setdefault("id", task.id)
            began = time.perf_counter()
            view |= self._stored(task, text) if self._semantics == "wasmagent" else self._verdict(task, text)
        except (LineError, TaskError) as error:
            return Verified({**view, "error": str(error)}, 0.0)
        return Verified(view, time.perf_counter() - began)

    def _answer(self, value: dict[str, Any], line: Line) -> tuple[Task, str]:
        if is_record(value):
            record = record_of(value)
            return task_for(record, self._tasks), record.artifact
        name = "output" if "spec" in value else "response"
        text = value.get(name)
        if not isinstance(text, str):
            raise TaskError(f"{name}: expected a text")
        unnamed = f"line-{line.number}"
        if "spec" in value:
            value = {"prompt": value.get("prompt") or "-", "spec": value["spec"]}
        return task_of(value, unnamed), text

    def _verdict(self, task: Task, text: str) -> dict[str, Any]:
        verifier = Verifier(task.spec)
        verdict = verifier.verify(text, calls=None)
        loose = list(verify_loose(verifier, text)) if self._loose else None
        made = {"status": verdict.status, "official": verdict.official}
        if loose is not None:
            known = [each for each in loose if each is not None]
            made["loose"] = all(known) if known else None
        return made | {"constraints": _constraints(verdict, loose)}

    def _stored(self, task: Task, text: str) -> dict[str, Any]:
        found = verify_stored(task.spec, text)
        if found is None:
            raise TaskError("the semantics wasmagent has only 15 classes, and this task uses another one")
        hints = dict(found)
        status = "pass" if all(hint is None for hint in hints.values()) else "fail"
        constraints = [
            {
                "id": each.id,
                "method": each.verify_method,
                "level": each.level,
                "status": "pass" if hints[each.id] is None else "fail",
                "official": None,
                "hint": hints[each.id],
                "span": None if hints[each.id] is None else {"region_id": "response"},
            }
            for each in task.spec.constraints
        ]
        return {"status": status, "official": None, "constraints": constraints}


def _constraints(verdict: TextVerdict, loose: Sequence[bool | None] | None) -> list[dict[str, Any]]:
    return [
        {
            "id": each.constraint.id,
            "method": each.constraint.verify_method,
            "level": each.constraint.level,
            "status": each.status,
            "official": each.official,
            "hint": each.hint,
            "span": None if each.span is None else each.span.view(),
            **({} if loose is None else {"loose": loose[number]}),
        }
        for number, each in enumerate(verdict.constraints)
    ]


class StoredLine(NamedTuple):
    """A record of a file."""

    place: str
    label: str
    """The file, shortly: its folder where several files have one name."""
    record: EvalView
    seed: str
    """The seed in the record, else in its trace, else in its file's name."""


def stored_records(files: Sequence[Path], bad: list[str], say: Say = quiet) -> Iterator[StoredLine]:
    """Yield all records; errors of lines are added to `bad`."""
    require_inputs(files)
    names = [path.name for path in files]
    for number, path in enumerate(files):
        label = path.stem if names.count(path.name) == 1 else path.resolve().parent.name
        say("reading", number / len(files))
        for line in read_lines([path]):
            try:
                check_length(line)
                value = read_line(line.text)
                record = record_of(value)
                given = value.get("seed")
                seed = str(given) if type(given) is int else seed_of(record, label)
                yield StoredLine(line.place, label, record, seed)
            except (LineError, TaskError) as error:
                bad.append(f"{line.place}: {error}")


def outcomes_of(
    stored: Iterable[StoredLine], tasks: dict[str, Task], semantics: str, bad: list[str]
) -> Iterator[RunOutcome]:
    """Yield the outcome of every stored record: as recorded, or verified again."""
    for place, _, record, seed in stored:
        passed: bool | None = record.final_pass
        if record.error is not None:
            passed = None
        elif semantics != "recorded":
            try:
                passed = verified_pass(record, task_for(record, tasks), semantics)
            except TaskError as error:
                bad.append(f"{place}: {error}")
                continue
        yield outcome_of_record(record, seed, passed)
