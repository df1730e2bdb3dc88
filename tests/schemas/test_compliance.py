"""The models of the compliance protocol accept what its schemas accept, and nothing else."""

import json
from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError

from schemas.compliance import ConstraintIR, ConstraintViolation, EvalView, RepairStep, TaskSpec
from tests.conformance import conformance

MODELS: dict[str, type[BaseModel]] = {
    "task-spec": TaskSpec, "constraint-ir": ConstraintIR, "constraint-violation": ConstraintViolation, "repair-trace": RepairStep,
    "compliance-eval-record": EvalView,
}  # fmt: skip


def examples(label: str, name: str) -> list[Path]:
    return sorted(conformance("protocol", "fixtures", label, name).glob("*.json"))


@pytest.mark.parametrize("name", MODELS)
def test_valid_fixtures_are_accepted_and_keep_their_json(name: str) -> None:
    for path in examples("valid", name):
        given = json.loads(path.read_text("utf-8"))
        made = MODELS[name].model_validate(given)
        assert made.model_dump(mode="json", exclude_unset=True) == given


@pytest.mark.parametrize("name", MODELS)
def test_invalid_fixtures_are_rejected(name: str) -> None:
    for path in examples("invalid", name):
        with pytest.raises(ValidationError):
            MODELS[name].model_validate_json(path.read_bytes())


def test_golden_records_are_accepted() -> None:
    for path in sorted(conformance("compliance", "golden").glob("*.jsonl")):
        for line in path.read_text("utf-8").splitlines():
            EvalView.model_validate_json(line)


def test_a_run_with_an_error_never_passes() -> None:
    line = json.loads(examples("valid", "compliance-eval-record")[0].read_text("utf-8"))
    line["error"] = {"kind": "model_error", "message": "503", "stage": "generate"}
    with pytest.raises(ValidationError, match="never passes"):
        EvalView.model_validate(line)
