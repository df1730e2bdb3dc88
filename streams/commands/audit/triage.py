"""`braid audit triage`: why wrong answers are wrong."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from streams.commands.console_output import complain, print_json
from streams.commands.options import Json


def triage(
    file: Annotated[Path, Parameter(help="An evaluation log.")],
    /,
    *,
    samples: Path | None = None,
    filter: str | None = None,  # noqa: A002 - the name of the option
    metric: str | None = None,
    json: Json = False,
) -> None:
    """Say of each wrong answer why it is wrong: the format, the grader, a cut text, arithmetic, or reasoning.

    The labels are predicates on the logged text that can be checked by hand; the first that applies counts.

    Example: `braid audit triage samples.jsonl`

    Parameters
    ----------
    samples
        Lines of {id, expected, answers: [..]}: answers drawn again for wrong items. Prints how many a majority would
        have got right. filter Of samples of lm-eval: the filter whose rows count, instead of the first. metric Of
        samples of lm-eval the metric, of Inspect the scorer, instead of the first.
    """
    from agents.audit.eval_shapes import Choice
    from agents.audit.triage import lottery_of
    from agents.audit.triage import triage as run
    from streams.jobs.audit.eval_files import bad_rows, read_eval_log, read_samples

    log = read_eval_log(file, Choice(filter, metric))
    drawn, bad = ([], []) if samples is None else read_samples(samples)
    complain(*bad_rows(log), *(f"{each.place}: {each.problem}" for each in bad))
    found = run(log.rows, None if samples is None else lottery_of(drawn))
    if json:
        print_json(found.plain())
    else:
        from streams.views.audit_page import triage_page
        from streams.views.tables import show

        show(*triage_page(log, found))
    if log.bad or bad:
        sys.exit(1)
