"""`braid diff`: two datasets side by side."""

import sys
from pathlib import Path
from typing import Annotated

from streams.commands.console_output import print_json
from streams.commands.options import Flag, Json


def diff(
    first: Path,
    second: Path,
    /,
    *,
    unfinished: Annotated[bool, Flag] = False,
    json: Json = False,
) -> None:
    """Show what changed between two datasets of the same rollouts: rows added, removed and changed, and the rule that
    caused it.

    Exits with 0 if there are no differences, with 1 otherwise.

    Example: `braid diff results again`

    Parameters
    ----------
    first
        A directory of `braid replay --out`, `braid run --out`, `braid archive --all` or `braid export`, or the manifest in it.
    second
        Another one: the same log under other rules, or another part of it.
    unfinished
        Read logs although they have no manifest, or have lost files since.
    """
    from streams.jobs.diff.diff import diff as run
    from streams.log.terminal_text import visible
    from streams.views.tables import show, table

    found = run(first, second, unfinished=unfinished)
    if json:
        print_json(found.plain())
    else:
        made = table("", "rows", "same", "added", "gone", "changed", right=("same", "added", "gone", "changed"))
        for kind, changes in found.rows.items():
            made.add_row(kind, f"{changes.same:,}", f"{changes.added:,}", f"{changes.gone:,}", f"{changes.changed:,}")
        both, only_first, only_second = found.rollouts
        show(made, "", f"rollouts: {both:,} in both, {only_first:,} only in {first}, {only_second:,} only in {second}")
        causes = table("", "kind", "what and why", "rows", right=("rows",))
        for kind, changes in found.rows.items():
            for cause, count in changes.causes.most_common():
                causes.add_row(kind, visible(cause), f"{count:,}")
        if causes.rows:
            show("", causes)
        for rule in found.rules:
            show(f"rule {visible(rule)}")
        for example in found.examples:
            show(f"  {visible(example)}")
    if not found.same:
        sys.exit(1)
