"""`braid comply report`: which modes pass how often, and whether the data show a difference."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from streams.commands.console_output import complain, print_json
from streams.commands.options import Json

if TYPE_CHECKING:
    from rich.console import RenderableType


def report(
    files: Annotated[list[Path], Parameter(help="ComplianceEvalRecords, one JSON object a line.")],
    /,
    *,
    tasks: list[Path] | None = None,
    semantics: Literal["recorded", "ifeval", "wasmagent"] = "recorded",
    json: Json = False,
) -> None:
    """Compare the modes of compliance runs: rates per seed with intervals, costs, and paired tests.

    Seeds of one task are not independent, so every pair of modes is also tested by task, and the last lines say in words
    what the data show and what they do not.

    Example: `braid comply report seed42.jsonl seed43.jsonl`

    Parameters
    ----------
    tasks
        Task files; needed to verify again.
    semantics
        `recorded`: the final_pass of the records. `ifeval` and `wasmagent`: verify every answer again.
    """
    from agents.compliance.report import report_of
    from agents.compliance.task_file import TaskError
    from streams.jobs.compliance_lines import load_tasks, outcomes_of
    from streams.views.progress import progress

    if semantics != "recorded" and not tasks:
        raise TaskError(f"--semantics {semantics} verifies again: give the task files with --tasks")
    bad: list[str] = []
    loaded = load_tasks(tasks) if tasks else {}
    with progress() as say:
        found = report_of(outcomes_of(files, loaded, semantics, bad, say))
    complain(*bad)
    if json:
        print_json({"semantics": semantics, **found, "bad": len(bad)})
    else:
        from streams.views.tables import show

        show(*_shown(found))
    if bad or not found["modes"]:
        sys.exit(1)


def _shown(found: dict[str, Any]) -> "list[RenderableType]":
    from streams.views.tables import table

    right = ("n", "tasks", "rate %", "passes", "95% %", "unknown", "rounds", "tokens", "by edits")
    modes = table("modes", "mode", *right, right=right)
    for each in found["modes"]:
        deviation = "" if each["sd"] is None else f" ±{each['sd']:.1f}"
        modes.add_row(
            each["mode"],
            str(each["n"]),
            str(each["tasks"]),
            "-" if each["mean"] is None else f"{each['mean']:.1f}{deviation}",
            ", ".join(map(str, each["passes_per_seed"])),
            "-" if each["wilson"] is None else "{:.1f}-{:.1f}".format(*each["wilson"]),
            str(each["unknown"]),
            str(each["rounds"]),
            "-" if each["tokens"] is None else str(each["tokens"]),
            str(each["edits_alone"]),
        )
    names = ("delta", "only first", "only second", "McNemar p", "tasks up", "tasks down", "by task p")
    pairs = table("pairs, over (task, seed) and by task", "first", "second", *names, right=names)
    for pair in found["pairs"]:
        pairs.add_row(
            pair["first"],
            pair["second"],
            f"{pair['delta_pp']:+.1f}",
            str(pair["only_first"]),
            str(pair["only_second"]),
            f"{pair['mcnemar_p']:.4f}",
            str(pair["tasks_up"]),
            str(pair["tasks_down"]),
            f"{pair['by_task_p']:.2f}" if pair["by_task_p"] >= 0.01 else f"{pair['by_task_p']:.4f}",
        )
    return [modes, "", *([pairs, ""] if found["pairs"] else []), *found["conclusion"]]
