"""Audits of dataset files: rows that no trainer can learn from, and rows that repeat items of an evaluation."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agents.audit.row_lint import format_of, problems, text_of
from agents.training.contamination import EvalIndex, Match, read_items
from schemas.errors import BraidError
from schemas.jsontext import as_object, parse_unique
from streams.log.input_lines import read_lines


class RowAuditError(BraidError):
    """A file that cannot be audited."""


class Row(NamedTuple):
    """A line of a file."""

    line: int
    """Counted from 1; over all files, when there are several."""
    value: dict[str, Any] | None
    problem: str | None = None


def read_index(path: Path) -> EvalIndex:
    """The index of an items file. Raises RowAuditError for an invalid line, because a missing item would not be
    noticed.
    """
    found = read_items(line.text for line in read_lines([path]))
    if found.errors:
        first = found.errors[0]
        raise RowAuditError(f"{path}:{first.line}: {first.reason}; every line must be an evaluation item")
    return EvalIndex(found.items)


def rows_of(files: Sequence[Path]) -> Iterator[Row]:
    """The rows of files: JSON lines, or the .jsonl files of a dataset's directory."""
    for path in files:
        named = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
        if not named:
            raise RowAuditError(f"{path}: no .jsonl file; only rows in JSON lines are audited")
        for line in read_lines(named):
            try:
                yield Row(line.number, as_object(parse_unique(line.text)))
            except ValueError as error:
                yield Row(line.number, None, "the line is too long" if line.too_long else f"no JSON object: {error}")


def audit_rows(files: Sequence[Path], index: EvalIndex | None) -> dict[str, Any]:
    """Check every row."""
    errors: list[dict[str, Any]] = []
    forms: Counter[str] = Counter()
    total = invalid = contaminated = 0
    for row in rows_of(files):
        total += 1
        found = [row.problem or ""] if row.value is None else problems(row.value)
        if row.value is not None:
            forms[format_of(row.value)] += 1
            match = None if index is None else repeated(index, row.value)
            if match is not None:
                contaminated += 1
                found = [*found, f"repeats evaluation item {match.item_id} ({match.rule}, {match.score:.3g})"]
                invalid -= len(found) == 1  # learnable, but not a row to train on
        invalid += bool(found)
        errors += [{"line": row.line, "reason": reason} for reason in found]
    return {
        "rows": total, "invalid": invalid, "contaminated": contaminated, "errors": errors,
        "format": None if not forms else next(iter(forms)) if len(forms) == 1 else "mixed",
    }  # fmt: skip


def audit_contamination(files: Sequence[Path], index: EvalIndex) -> dict[str, Any]:
    """Find the rows that repeat an item."""
    matches: list[dict[str, Any]] = []
    total = 0
    for row in rows_of(files):
        total += 1
        match = None if row.value is None else repeated(index, row.value)
        if match is not None:
            matches.append({"row": row.line, "item": match.item_id, "rule": match.rule, "score": match.score})
    return {
        "rows": total, "items": len(index), "skipped_items": index.skipped, "flagged": len(matches), "matches": matches
    }  # fmt: skip


def repeated(index: EvalIndex, row: dict[str, Any]) -> Match | None:
    """The item that a text of a row repeats most."""
    found = [match for text in text_of(row) if (match := index.check(text)) is not None]
    return min(found, key=lambda match: (-match.score, match.item_id), default=None)
