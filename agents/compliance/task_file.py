"""Parse tasks from lines: IFEval rows, the protocol's specs and short rules, distinguished by their fields.

Each becomes a TaskSpec with its prompt. A wrong line raises TaskError with the field: nothing is guessed.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from agents.compliance.method_parameters import METHODS, parameter_problem
from schemas.codec.body import first_problem
from schemas.compliance import ConstraintCategory, Strategy, TaskSpec
from schemas.errors import BraidError

MOST_CONSTRAINTS: Final = 200

_CATEGORIES: Final[dict[str, ConstraintCategory]] = {
    "keywords": "content", "detectable_content": "content", "language": "style",
}  # fmt: skip
_STRATEGIES: Final[dict[str, Strategy]] = {
    "punctuation:no_comma": "patch",
    "change_case:english_lowercase": "patch",
    "detectable_format:title": "insert_section",
    "combination:repeat_prompt": "insert_section",
}
_SHORT_TYPES: Final = ("format", "content", "style", "tool", "state", "security", "semantic")
_HIERARCHY: Final = ["system_policy", "user_explicit_constraints"]


class TaskError(BraidError):
    """A task that cannot be loaded, with the wrong field."""


class Task(NamedTuple):
    """A prompt and the properties of a good answer to it."""

    prompt: str
    spec: TaskSpec

    @property
    def id(self) -> str:
        """The task's id."""
        return self.spec.id


def task_of(line: dict[str, Any], unnamed: str) -> Task:
    """Return the task of a line; `unnamed` is the id of a task without one. Raises TaskError."""
    if "instruction_id_list" in line:
        return _ifeval(line, unnamed)
    if "spec" in line:
        return _checked(_text_field(line, "prompt"), line["spec"], "spec.")
    if "constraints" in line:
        return _short(line, unnamed)
    raise TaskError(
        "this is no task: expected instruction_id_list (IFEval), spec (protocol) or constraints (short rules)"
    )


def _text_field(line: dict[str, Any], name: str) -> str:
    value = line.get(name)
    if not isinstance(value, str) or not value.strip():
        raise TaskError(f"{name}: expected a text that is not blank")
    return value


def _ifeval(line: dict[str, Any], unnamed: str) -> Task:
    key = line.get("key", line.get("id", unnamed))
    if not isinstance(key, (str, int)) or isinstance(key, bool) or key == "":
        raise TaskError("key: expected a number or a text")
    methods, given = line["instruction_id_list"], line.get("kwargs")
    if not isinstance(methods, list) or not isinstance(given, list) or len(methods) != len(given):
        raise TaskError("kwargs: expected one object for each of instruction_id_list")
    spec = {
        "id": f"ifeval.{key}",
        "intent": "ifeval_response",
        "language": "en",
        "constraints": list(_ifeval_constraints(key, methods, given)),
        "priority_hierarchy": _HIERARCHY,
    }
    prompt = line.get("prompt", "") if "response" in line else _text_field(line, "prompt")
    if not isinstance(prompt, str):
        raise TaskError("prompt: expected a text")
    return _checked(prompt, spec, "", lambda number: f"kwargs.{number}")


def _ifeval_constraints(key: object, methods: list[Any], given: list[Any]) -> Iterator[dict[str, Any]]:
    for number, (method, arg) in enumerate(zip(methods, given, strict=True)):
        if not isinstance(method, str) or f"ifeval:{method}" not in METHODS:
            raise TaskError(f"instruction_id_list.{number}: {method!r} is no class of IFEval")
        if not isinstance(arg, dict):
            raise TaskError(f"kwargs.{number}: expected an object")
        yield {
            "id": f"{key}:{number}:{method}",
            "description": f"IFEval {method}",
            "verify_method": f"ifeval:{method}",
            "arg": {name: value for name, value in arg.items() if value is not None},
            "path": f"response_{key}.txt",
            "level": "hard",
            "priority": 100,
            "category": _CATEGORIES.get(method.partition(":")[0], "format"),
            "repair": {"strategy": _STRATEGIES.get(method, "regenerate_region")},
        }


_SHORT_FIELDS: Final = frozenset({"type", "rule", "value", "level", "id", "priority", "description", "repair"})


def _short(line: dict[str, Any], unnamed: str) -> Task:
    unknown = line.keys() - {"id", "instruction", "constraints", "language", "repair"}
    if unknown:
        raise TaskError(f"{min(unknown)}: no such field")
    constraints = line["constraints"]
    if not isinstance(constraints, list):
        raise TaskError("constraints: expected a list")
    spec = {
        "id": line.get("id", unnamed),
        "intent": "task",
        "language": line.get("language", "en"),
        "constraints": [_short_constraint(number, each) for number, each in enumerate(constraints)],
        "priority_hierarchy": _HIERARCHY,
        **({"repair": line["repair"]} if "repair" in line else {}),
    }
    return _checked(_text_field(line, "instruction"), spec, "", lambda number: f"constraints.{number}.value")


def _short_constraint(number: int, given: Any) -> dict[str, Any]:
    at = f"constraints.{number}"
    if not isinstance(given, dict):
        raise TaskError(f"{at}: expected an object")
    unknown = given.keys() - _SHORT_FIELDS
    if unknown:
        raise TaskError(f"{at}.{min(unknown)}: no such field")
    kind, rule = given.get("type"), given.get("rule")
    method = f"{kind}:{rule}"
    if kind not in _SHORT_TYPES or not isinstance(rule, str) or method not in METHODS:
        raise TaskError(f"{at}.rule: {method!r} is no rule; see docs/compliance.md for all of them")
    value = given.get("value")
    return {
        "id": given.get("id", f"c{number}-{rule}"),
        "description": given.get("description", _described(rule, value)),
        "verify_method": method,
        **({} if value is None else {"arg": value}),
        "level": given.get("level", "hard"),
        "priority": given.get("priority", 50),
        "category": kind,
        **({"repair": given["repair"]} if "repair" in given else {}),
    }


def _described(rule: str, value: Any) -> str:
    return rule.replace("_", " ") if value in (None, True) else f"{rule.replace('_', ' ')}: {value}"


def _checked(prompt: str, spec: Any, prefix: str, place: Any = None) -> Task:
    """Return the task, if its spec and all its parameters are valid."""
    if not isinstance(spec, dict):
        raise TaskError("spec: expected an object")
    if isinstance(spec.get("constraints"), list) and not 0 < len(spec["constraints"]) <= MOST_CONSTRAINTS:
        raise TaskError(f"{prefix}constraints: expected 1 to {MOST_CONSTRAINTS:,} of them")
    try:
        made = TaskSpec.model_validate(spec)
    except ValidationError as error:
        raise TaskError(f"{prefix}{first_problem(error).removeprefix('record: Value error, ')}") from None
    check_methods(made, prefix, place)
    return Task(prompt, made)


def check_methods(spec: TaskSpec, prefix: str = "", place: Any = None) -> None:
    """Raise TaskError for an unknown method or for wrong parameters."""
    for number, each in enumerate(spec.constraints):
        problem = parameter_problem(each.verify_method, each.arg)
        if problem is not None:
            at = f"{prefix}constraints.{number}" if place is None else place(number)
            inner = problem.removeprefix("arg.").removeprefix("arg: ")
            raise TaskError(f"{at}.{problem}" if place is None else f"{at}: {inner}")
