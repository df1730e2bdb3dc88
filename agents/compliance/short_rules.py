"""The short rules of task files, such as `format:bullet_count`. Their value is the constraint's `arg`."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from agents.compliance.checked_text import CheckedText
from agents.compliance.ifeval_rules import (
    HOLDS,
    Finding,
    compared,
    count_bullets,
    count_placeholders,
    lower_case,
    no_comma,
    quoted,
    spoken,
    title_of,
    upper_case,
)
from agents.compliance.json_shape import shape_problem

Calls = Sequence[str] | None
"""Names of the tools that the branch called; None: unknown."""

ShortRule = Callable[[CheckedText, Any, Calls], Finding]

_HEADING: Final = re.compile(r"^#{1,6}[^\S\n]++[^\s]", re.MULTILINE)
_BLANK_LINE: Final = re.compile(r"\n[^\S\n]*+(?=\n)")


def _between(found: int, unit: str, limits: Mapping[str, int]) -> Finding:
    low, high = limits.get("min"), limits.get("max")
    if low is not None and found < low:
        return Finding(False, f"found {found} {unit}; needs at least {low}")
    return Finding(False, f"found {found} {unit}; needs at most {high}") if high is not None and found > high else HOLDS


def _paragraphs(text: str) -> int:
    return sum(1 for part in _BLANK_LINE.split(text) if part.strip())


def _json_value(text: CheckedText) -> tuple[Any, Finding]:
    try:
        return json.loads(text.stripped), HOLDS
    except (ValueError, RecursionError) as error:
        why = error if isinstance(error, ValueError) else "nested too deeply"
        return None, Finding(False, f"not JSON: {why}")


def _json_schema(text: CheckedText, schema: Any) -> Finding:
    value, found = _json_value(text)
    if not found.holds:
        return found
    try:
        problem = shape_problem(value, schema)
    except RecursionError:
        problem = "nested too deeply"
    return HOLDS if problem is None else Finding(False, f"not of the schema: {problem}")


def _starts_with(text: CheckedText, start: str) -> Finding:
    held = text.stripped.startswith(start.strip())
    return HOLDS if held else Finding(False, f'does not start with "{start.strip()}"')


def _ends_with(text: CheckedText, end: str) -> Finding:
    held = text.stripped.endswith(end.strip())
    return HOLDS if held else Finding(False, f'does not end with "{end.strip()}"')


def _contains(text: CheckedText, given: str | list[str]) -> Finding:
    missing = [each for each in _listed(given) if not text.has(each)]
    return Finding(False, f"missing: {', '.join(missing)}") if missing else HOLDS


def _excludes(text: CheckedText, given: str | list[str]) -> Finding:
    places = {each: text.place_of(each) for each in _listed(given)}
    found = {each: (place, place + len(each)) for each, place in places.items() if place is not None}
    return Finding(False, f"forbidden: {', '.join(found)}", min(found.values())) if found else HOLDS


def _listed(given: str | list[str]) -> list[str]:
    return [given] if isinstance(given, str) else given


def _keyword_count(text: CheckedText, arg: Mapping[str, Any]) -> Finding:
    word = arg["word"].strip()
    return _between(text.count(word), f'occurrences of "{word}"', arg)


def _tools(calls: Calls, arg: Mapping[str, Any]) -> Finding:
    if calls is None:
        return Finding(None, "the calls of the branch are not known")
    allowed, denied = arg.get("allowed"), arg.get("denied", ())
    wrong = dict.fromkeys(name for name in calls if name in denied or (allowed is not None and name not in allowed))
    return Finding(False, f"tools not allowed: {', '.join(wrong)}") if wrong else HOLDS


def _title(text: CheckedText) -> Finding:
    return HOLDS if title_of(text.text) is not None else Finding(False, "no <<title>>")


SHORT_RULES: Final[Mapping[str, ShortRule]] = {
    "format:bullet_count": lambda text, arg, _: compared(count_bullets(text.text), "bullets", "exactly", arg),
    "format:word_count": lambda text, arg, _: _between(text.words, "words", arg),
    "format:sentence_count": lambda text, arg, _: _between(text.sentences, "sentences", arg),
    "format:paragraph_count": lambda text, arg, _: _between(_paragraphs(text.text), "paragraphs", arg),
    "format:max_chars": lambda text, arg, _: _between(len(text.text), "characters", {"max": arg}),
    "format:headings_min": lambda text, arg, _: compared(len(_HEADING.findall(text.text)), "headings", "at least", arg),
    "format:title": lambda text, _, __: _title(text),
    "format:json": lambda text, _, __: _json_value(text)[1],
    "format:json_schema": lambda text, arg, _: _json_schema(text, arg),
    "format:starts_with": lambda text, arg, _: _starts_with(text, arg),
    "format:ends_with": lambda text, arg, _: _ends_with(text, arg),
    "format:quoted": lambda text, _, __: quoted(text, {}),
    "format:lowercase": lambda text, _, __: lower_case(text),
    "format:uppercase": lambda text, _, __: upper_case(text),
    "format:no_comma": lambda text, _, __: no_comma(text, {}),
    "content:contains": lambda text, arg, _: _contains(text, arg),
    "content:excludes": lambda text, arg, _: _excludes(text, arg),
    "content:keyword_count": lambda text, arg, _: _keyword_count(text, arg),
    "content:placeholders_min": lambda text, arg, _: compared(
        count_placeholders(text.text), "placeholders", "at least", arg
    ),
    "style:language": lambda text, arg, _: spoken(text, arg),
    "tool:tools": lambda _, arg, calls: _tools(calls, arg),
}
"""The short rules by method."""
