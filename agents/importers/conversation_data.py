"""Check the data of `message` and `model_call` events on input: a bad event is rejected at its own position.

Facts that arrive by Kafka bypass this check. The fold checks them with the same models.
"""

import re
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from agents.importers.line_error import LineError, TooLargeError
from agents.summarize.output import byte_length
from schemas.conversation import MAX_MESSAGE_BYTES
from schemas.event_kinds import BY_NAME
from schemas.jsontext import kind_of

_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "tuple_type": "an array",
    "list_type": "an array",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}
"""The expected value, by pydantic's error type."""

_HINTS = {
    "content": "expected text, or an array of parts such as {\"type\": \"text\", \"text\": ...}",
    "context": "say which messages were sent: {\"after\": an earlier call_id or null, \"keep\": n, \"add\": [message ids]}",
    "call_id": "give every call an id of its own; a retried call is another call",
    "role": "expected one of system, developer, user, assistant, tool",
    "tool_calls": "a call is {\"id\", \"name\", \"arguments\"}, without \"function\" around name and arguments",
}  # fmt: skip
"""The correct way to write a field, by field name."""

_HUMP = re.compile(r"(?<=[a-z])([A-Z])")


def check_conversation(kind: str, data: dict[str, Any], text: str, field: str) -> BaseModel | None:
    """Return the checked data of a conversation event whose JSON is `text`.

    Raises LineError. Other kinds pass unchecked.
    """
    known = BY_NAME.get(kind)
    if known is None or known.model is None:
        return None
    if kind == "message" and len(text) > MAX_MESSAGE_BYTES // 4 and (size := byte_length(text)) > MAX_MESSAGE_BYTES:
        raise TooLargeError(
            field,
            f"a message of {size} bytes; the limit is {MAX_MESSAGE_BYTES}: keep media outside and give their digests",
        )
    _check_spelling(known.model, data, field)
    try:
        return known.model.model_validate(data)
    except ValidationError as error:
        raise _line_error(error, data, field) from None


def _check_spelling(model: type[BaseModel], data: dict[str, Any], field: str) -> None:
    """Raise LineError for a known field in camelCase: it would be kept as an unknown field and never read."""
    for name in data:
        plain = _HUMP.sub(r"_\1", name).lower()
        if plain != name and plain in model.model_fields:
            raise LineError(f"{field}.{name}", f"write {plain}; this kind has no other spelling")


def _line_error(error: ValidationError, data: dict[str, Any], field: str) -> LineError:
    """Return the deepest problem. For a value with two possible forms, the problem is that of the closer form."""
    problems = error.errors(include_url=False, include_context=False)
    path, problem = max(((_path(data, each["loc"]), each) for each in problems), key=lambda found: len(found[0]))
    return LineError(".".join((field, *map(str, path))), _reason(path, problem))


def _path(data: dict[str, Any], where: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Return the path to a problem in the data, without pydantic's names for the forms of a value."""
    path: list[int | str] = []
    value: Any = data
    for place, part in enumerate(where):
        if isinstance(value, dict) and (part in value or place == len(where) - 1):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int):
            value = value[part]
        else:
            continue
        path.append(part)
    return tuple(path)


def _reason(path: tuple[int | str, ...], problem: ErrorDetails) -> str:
    kind = problem["type"]
    if kind == "value_error":
        return problem["msg"].removeprefix("Value error, ")
    hint = _HINTS.get(next((part for part in path if isinstance(part, str)), ""))
    words = _words(kind, problem)
    if hint is None or (len(path) > 1 and "tool_calls" not in path):
        return words
    return hint if words.startswith("expected") and hint.startswith("expected") else f"{words}; {hint}"


def _words(kind: str, problem: ErrorDetails) -> str:
    if kind == "missing":
        return "missing"
    found = problem["input"]
    if kind in _EXPECTED:
        return f"expected {_EXPECTED[kind]}, found {kind_of(found)}"
    message = problem["msg"].replace("Input should be", "expected", 1)
    return message[0].lower() + message[1:]
