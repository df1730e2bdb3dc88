"""Evaluation logs as files: recognised by content, read in full, with the position of everything that is not a row.

Sizes are bounded: a member of an archive that unpacks to more, or a line that is longer, is an error at its position.
"""

from codecs import BOM_UTF8
from collections.abc import Iterator
from itertools import chain
from math import isfinite
from pathlib import Path
from typing import Any

from agents.audit.eval_row import EvalLog
from agents.audit.eval_shapes import (
    Choice,
    Element,
    NotALogError,
    elements_of,
    read_inspect,
    read_lm_eval,
    read_plain,
    read_results,
    shape_of,
)
from agents.audit.triage import Samples
from schemas.errors import BraidError
from schemas.jsontext import parse, without_constants
from streams.jobs.imports.eval_archive import MAGIC, ArchiveError, EvalArchive, opened_archive
from streams.log.input_lines import Line, read_lines

WHOLE_LIMIT = 1 << 30
"""Bytes of a file that is one JSON value."""
MEMBER_LIMIT = 256 << 20
"""Bytes of one sample of an archive, unpacked."""

ALL = Choice()
"""The first filter, and the first metric."""

ASKED = (
    "; give samples of lm-eval, a log of Inspect (.eval or .json), {results: [..]}, or lines of {id, correct or score}"
)


class EvalFileError(BraidError):
    """A file that cannot be read as an evaluation log."""


def read_eval_log(path: Path, choice: Choice = ALL) -> EvalLog:
    """Read a log. Raises EvalFileError if it is not an evaluation log, or has nothing of the requested filter or task."""
    try:
        with path.open("rb") as source:
            head = source.read(len(MAGIC))
        log = _archive(path, choice) if head == MAGIC else _json(path, choice)
    except OSError as error:
        raise EvalFileError(f"{path}: {error.strerror or error}; is the path right?") from error
    except NotALogError as error:
        raise EvalFileError(f"{path}: {error}") from error
    if not log.rows:
        why = f"; the first problem: {log.bad[0].place}: {log.bad[0].reason}" if log.bad else ""
        raise EvalFileError(f"{path}: no rows{why}")
    return log


def _archive(path: Path, choice: Choice) -> EvalLog:
    with path.open("rb") as source, opened_archive(source) as archive:
        members = archive.members()
        header = next((_member(archive, each.name) for each in members if each.is_header), None)
        if header is None or not isinstance(header.value, dict):
            reason = "it has no header.json" if header is None else header.problem or "its header is no object"
            raise EvalFileError(f"{path}: not a log of Inspect: {reason}")
        samples = (_member(archive, each.name) for each in members if not each.is_header)
        return read_inspect(path.name, header.value, samples, choice)


def _member(archive: EvalArchive, name: str) -> Element:
    try:
        raw = archive.read(name, MEMBER_LIMIT + 1)
    except ArchiveError as error:
        return Element(name, None, str(error))
    if len(raw) > MEMBER_LIMIT:
        return Element(name, None, f"unpacks to more than {MEMBER_LIMIT >> 20} MiB")
    try:
        return Element(name, _parsed(raw))
    except ValueError as error:
        return Element(name, None, f"no JSON: {error}")


def _json(path: Path, choice: Choice) -> EvalLog:
    lines = read_lines([path])
    first = next(lines, None)
    if first is None:
        raise EvalFileError(f"{path}: it is empty{ASKED}")
    element = _line(first)
    shape = shape_of(element.value)
    if shape in ("lm-eval", "lines") or (element.problem is not None and _second_is_object(path)):
        return _lines(path, choice)
    value = element.value if shape is not None else _whole(path)
    if isinstance(value, list):
        return read_plain(path.name, elements_of(value, "rows"))
    match shape_of(value):
        case "results":
            return read_results(path.name, value)
        case "inspect":
            samples = value.get("samples")
            if not isinstance(samples, list):
                raise EvalFileError(f"{path}: a log of Inspect without samples: there is nothing to pair")
            return read_inspect(path.name, value, elements_of(samples, "samples"), choice)
        case _:
            raise EvalFileError(f"{path}: no evaluation log that is known here{ASKED}")


def _lines(path: Path, choice: Choice) -> EvalLog:
    elements = map(_line, read_lines([path]))
    held = list[Element]()
    for element in elements:  # bad lines may come first: the first good one shows the shape
        held.append(element)
        shape = shape_of(element.value)
        if shape is not None:
            whole = chain(held, elements)
            return read_lm_eval(path.name, whole, choice) if shape == "lm-eval" else read_plain(path.name, whole)
    raise EvalFileError(f"{path}: no line is a row{ASKED}")


def _second_is_object(path: Path) -> bool:
    """Whether a file whose first line is bad has another line that is a row: then it is a file of lines."""
    return any(
        shape_of(_line(each).value) in ("lm-eval", "lines")
        for each, _ in zip(read_lines([path]), range(100), strict=False)
    )


def _line(line: Line) -> Element:
    if line.too_long:
        return Element(line.place, None, "the line is too long")
    try:
        return Element(line.place, _parsed(line.text))
    except ValueError as error:
        return Element(line.place, None, f"no JSON: {error}")


def _parsed(text: bytes) -> Any:
    """The value of a JSON text. A NaN written by the tool is not a value, and a byte order mark is skipped."""
    return parse(without_constants(text.removeprefix(BOM_UTF8)))


def _whole(path: Path) -> Any:
    if path.stat().st_size > WHOLE_LIMIT:
        raise EvalFileError(f"{path}: more than {WHOLE_LIMIT >> 20} MiB in one JSON value")
    try:
        return _parsed(path.read_bytes())
    except ValueError as error:
        raise EvalFileError(f"{path}: no JSON: {error}{ASKED}") from None


def read_samples(path: Path) -> tuple[list[Samples], list[Element]]:
    """Lines of {id, expected, answers}; returns them and the bad ones."""
    found, bad = list[Samples](), list[Element]()
    for line in read_lines([path]):
        element = _line(line)
        samples = None if element.problem is not None else _samples(element.value)
        if samples is None:
            bad.append(Element(element.place, None, element.problem or "expected {id, expected, answers: [..]}"))
        else:
            found.append(samples)
    return found, bad


def _samples(value: Any) -> Samples | None:
    if not isinstance(value, dict) or not isinstance(value.get("answers"), list) or value.get("id") is None:
        return None
    expected = value.get("expected")
    answers = [None if each is None else str(each) for each in value["answers"]]
    return Samples(str(value["id"]), None if expected is None else str(expected), answers)


def read_residuals(path: Path) -> tuple[list[float], list[Element]]:
    """Lines of {prediction, actual} as residuals; returns them and the bad ones."""
    found, bad = list[float](), list[Element]()
    for line in read_lines([path]):
        element = _line(line)
        pair = [element.value.get(name) for name in ("prediction", "actual")] if isinstance(element.value, dict) else []
        numbers = [float(each) for each in pair if isinstance(each, int | float) and not isinstance(each, bool)]
        if len(numbers) == 2 and isfinite(numbers[1] - numbers[0]):
            found.append(numbers[1] - numbers[0])
        else:
            bad.append(Element(element.place, None, element.problem or "expected {prediction, actual}, both numbers"))
    return found, bad


def bad_rows(log: EvalLog) -> Iterator[str]:
    """The rows of a log that cannot be read, for people."""
    for bad in log.bad:
        place = bad.place if bad.place.startswith(log.name) else f"{log.name}: {bad.place}"
        yield f"{place}: {bad.reason}"
