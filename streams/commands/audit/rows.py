"""`braid audit rows` and `braid audit contamination`: are the rows of a dataset fit to be learnt from?"""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from streams.commands.console_output import print_json
from streams.commands.options import Json

Files = Annotated[list[Path], Parameter(help="JSON lines of rows, or directories of a dataset.")]

SHOWN = 50
"""Lines that people are shown."""


def rows(files: Files, /, *, eval_items: Path | None = None, json: Json = False) -> None:
    """Check every row of a dataset, of any trainer: messages, calls, empty and equal sides, invalid numbers.

    Exits with 1 when a row is bad, or repeats an evaluation item.

    Example: `braid audit rows dataset`

    Parameters
    ----------
    eval_items
        JSON lines of {id, question}: rows that repeat one are counted as contaminated.
    """
    from streams.jobs.audit.row_audit import audit_rows, read_index

    found = audit_rows(files, None if eval_items is None else read_index(eval_items))
    if json:
        print_json(found)
    else:
        counts = f"{found['invalid']:,} invalid, {found['contaminated']:,} contaminated"
        lines = [f"line {each['line']}: {each['reason']}" for each in found["errors"]]
        _show(f"{found['rows']:,} rows, format {found['format'] or '-'}: {counts}", lines)
    if found["invalid"] or found["contaminated"]:
        sys.exit(1)


def contamination(files: Files, /, *, eval_items: Path, json: Json = False) -> None:
    """Find rows that repeat an item that models are evaluated on, by the rules that keep such rows out of exports.

    Exits with 1 if there is one.

    Example: `braid audit contamination dataset --eval-items items.jsonl`

    Parameters
    ----------
    eval_items
        JSON lines of {id, question}.
    """
    from streams.jobs.audit.row_audit import audit_contamination, read_index

    found = audit_contamination(files, read_index(eval_items))
    if json:
        print_json(found)
    else:
        first = f"{found['flagged']:,} of {found['rows']:,} rows repeat one of {found['items']:,} items"
        lines = [
            f"line {each['row']}: {each['item']} ({each['rule']} {each['score']:.3g})" for each in found["matches"]
        ]
        _show(f"{first}; {found['skipped_items']:,} items are too short to tell", lines)
    if found["flagged"]:
        sys.exit(1)


def _show(first: str, lines: list[str]) -> None:
    from streams.log.terminal_text import visible
    from streams.views.tables import show

    more = [f"and {len(lines) - SHOWN:,} more; --json has all"] if len(lines) > SHOWN else []
    show(first, *map(visible, lines[:SHOWN]), *more)
