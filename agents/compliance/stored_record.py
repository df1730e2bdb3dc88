"""Stored compliance records of other runs: lines with a ComplianceEvalRecord, with or without its schema_version."""

import re
from typing import Any, Final

from pydantic import ValidationError

from agents.compliance.report import RunOutcome
from agents.compliance.stored_semantics import verify_stored
from agents.compliance.task_file import Task, TaskError
from agents.compliance.verification import Verifier
from schemas.codec.body import first_problem
from schemas.compliance import EVAL_VERSION, ComplianceEvalRecord, EvalView, eval_view

_SEED_OF_URI: Final = re.compile(r"/s(-?\d+)/b\d+/a\d+$")
_SEED_OF_NAME: Final = re.compile(r"seed-?(\d+)")

BY_CODE: Final = frozenset({"patch", "insert_section"})


def is_record(line: dict[str, Any]) -> bool:
    """Whether a line looks like an eval record."""
    return "task_spec_hash" in line and "artifact" in line


def record_of(line: dict[str, Any]) -> EvalView:
    """Return the record of a line. Raises TaskError."""
    try:
        if "record_id" in line:
            return EvalView.model_validate(eval_view(ComplianceEvalRecord.model_validate(line)))
        return EvalView.model_validate({"schema_version": EVAL_VERSION, **line})
    except ValidationError as error:
        raise TaskError(first_problem(error)) from None


def seed_of(record: EvalView, file_label: str) -> str:
    """Return the seed of a record: from its trace, else from its file name, else the file name itself."""
    found = _SEED_OF_URI.search(record.trace_uri or "") or _SEED_OF_NAME.search(record.trace_uri or file_label)
    return found[1] if found else file_label


def edits_alone(record: EvalView) -> bool:
    """Whether at least one step held, and code made every step that held."""
    held = [step for step in record.repair_trace if step.ok]
    return bool(held) and all(step.strategy in BY_CODE for step in held)


def task_for(record: EvalView, tasks: dict[str, Task]) -> Task:
    """Return the task of a record. Raises TaskError if the task is missing or differs."""
    task = tasks.get(record.task_id)
    if task is None:
        raise TaskError(f"task_id: {record.task_id!r} is in none of the task files; give its file with --tasks")
    if task.spec.digest() != record.task_spec_hash:
        raise TaskError(f"task_spec_hash: the task {record.task_id!r} of the task file is another one")
    return task


def outcome_of_record(record: EvalView, seed: str, passed: bool | None) -> RunOutcome:
    """Return a record as a row of the report."""
    cost = record.token_cost
    tokens = None if cost is None else (cost.prompt or 0) + (cost.generation or 0) + (cost.repair or 0)
    return RunOutcome(
        record.task_id,
        seed,
        record.mode,
        passed,
        tokens,
        len(record.repair_trace) if record.repair_rounds is None else record.repair_rounds,
        edits_alone(record),
    )


def verified_pass(record: EvalView, task: Task, semantics: str) -> bool | None:
    """Return whether the artifact passes by these semantics; None if unknown. Raises TaskError."""
    if record.error is not None:
        return None
    if semantics == "wasmagent":
        found = verify_stored(task.spec, record.artifact)
        if found is None:
            raise TaskError("the semantics wasmagent has only 15 classes, and this task uses another one")
        return all(hint is None for _, hint in found)
    status = Verifier(task.spec).verify(record.artifact).status
    return None if status == "unknown" else status == "pass"
