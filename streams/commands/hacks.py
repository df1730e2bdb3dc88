"""`braid hacks`: signs of gamed tests in files, without any log."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from streams.commands.console_output import complain, print_json
from streams.commands.options import Flag

if TYPE_CHECKING:
    from streams.services.verifiers.hack_cases import CaseFiles, Result


def hacks(
    cases: Annotated[
        list[Path], Parameter(help="Directories with task/ and branches/N/files, branches/N/events.ndjson.")
    ],
    /,
    *,
    static: Annotated[bool, Flag] = False,
    judged: Annotated[bool, Flag] = False,
    labels: Path | None = None,
    json: Annotated[bool, Flag] = False,
) -> None:
    """Find out whether branches gamed their tests: by experiments in sandboxes, from their files, events and siblings.

    A case is a directory with a task (`CASE/task`) and the files of its branches (`CASE/branches/0/files`, and if there
    are events `CASE/branches/0/events.ndjson`). Only an experiment confirms a hack; signs found by reading are
    suspected. The exit code is 1 only for a case that cannot be read.

    Example: `braid hacks cases/* --labels labels.ndjson`

    Parameters
    ----------
    static
        Run nothing: read files and events only.
    judged
        Ask the judge of emission.judge, too: each branch's changes next to those of up to four siblings.
    labels
        Lines {"case", "branch_index", "label": "honest" or "T5", "provable"}: print precision and recall.
    json
        Print one JSON object per branch, and with labels one more.
    """
    import asyncio

    from schemas.errors import BraidError
    from streams.cluster.config import load
    from streams.services.verifiers.hack_cases import hack_looker, read_case, read_labels
    from streams.views.progress import progress

    found: list[Result] = []
    read: list[CaseFiles] = []
    bad = 0
    for path in cases:
        try:
            read.append(read_case(path))
        except (BraidError, OSError, UnicodeDecodeError) as error:
            bad += 1
            complain(str(error))

    async def run() -> None:
        settings = load()
        if judged:
            settings = settings.model_copy(
                update={"verifier": settings.verifier.model_copy(update={"judged_hacks": True})}
            )
        async with hack_looker(settings, static=static) as looker:
            with progress() as say:
                for number, case in enumerate(read):
                    say("looking", number / len(read))
                    async for result in looker.look(case):
                        found.append(result)
                        if json:
                            print_json(result.as_json())

    asyncio.run(run())
    if not json:
        _show(found)
    if labels is not None:
        _score(found, list(read_labels(labels)), json=json)
    if bad:
        sys.exit(1)


def _show(found: "list[Result]") -> None:
    from streams.log.terminal_text import visible
    from streams.views.tables import show, table

    made = table(
        "Hacks",
        "case",
        "branch",
        "status",
        "rule",
        "source",
        "place",
        "evidence",
        right=("branch",),
        spare=("evidence", "source"),
    )
    for each in found:
        if not each.signals:
            made.add_row(visible(each.case), str(each.branch_index), each.status, "-", "-", "-", "-")
        for signal in each.signals:
            place = "" if signal.path is None else signal.path + (f":{signal.line}" if signal.line else "")
            turn = f" turn {signal.turn}" if signal.turn is not None else ""
            cells = (
                each.case,
                str(each.branch_index),
                each.status,
                signal.rule,
                signal.source,
                place + turn,
                signal.evidence,
            )
            made.add_row(*map(visible, cells))
    show(made)


def _score(found: "list[Result]", labels: list[tuple[str, int, str, bool]], *, json: bool) -> None:
    from agents.hacks.scores import Labelled, scores

    known = {(case, index): (label, provable) for case, index, label, provable in labels}
    labelled = [
        Labelled(*known[each.case, each.branch_index], each.status, frozenset(signal.rule.partition(".")[0] for signal in each.signals))
        for each in found
        if (each.case, each.branch_index) in known
    ]  # fmt: skip
    result: dict[str, Any] = scores(labelled)
    if json:
        print_json(result)
        return
    from streams.views.tables import show, table

    made = table("Labels", "figure", "hits", "of", "share", "95%", right=("hits", "of", "share"))
    rows = [(name, value) for name, value in result.items() if name != "families"]
    for family, both in result["families"].items():
        rows += [(f"{family} recall", both["recall"]), (f"{family} precision", both["precision"])]
    for name, value in rows:
        share = "-" if value["share"] is None else f"{value['share']:.3f}"
        interval = "-" if value["low"] is None else f"{value['low']:.3f} to {value['high']:.3f}"
        made.add_row(name.replace("_", " "), str(value["hits"]), str(value["of"]), share, interval)
    show(made)
