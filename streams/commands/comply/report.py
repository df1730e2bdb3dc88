"""`braid comply report`: which modes pass how often, and whether the data show a difference."""

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from streams.commands.console_output import complain, print_json
from streams.commands.options import Json, LogFlags

if TYPE_CHECKING:
    from rich.console import RenderableType

    from streams.jobs.compliance_lines import StoredLine


def report(
    files: Annotated[list[Path], Parameter(help="ComplianceEvalRecords, one JSON object a line.")] = [],  # noqa: B006 - read only
    /,
    *,
    run: str = "",
    source: LogFlags = LogFlags(),
    tasks: list[Path] | None = None,
    semantics: Literal["recorded", "ifeval", "wasmagent"] = "recorded",
    json: Json = False,
) -> None:
    """Compare the modes of compliance runs: rates per seed with intervals, costs, and paired tests.

    Seeds of one task are not independent, so every pair of modes is also tested by task, and the last lines state which
    conclusions the data support.

    Example: `braid comply report seed42.jsonl seed43.jsonl`

    Parameters
    ----------
    run
        Read the records of this run from the log instead: Kafka, or --from-dir DIR.
    tasks
        Task files; needed to verify again.
    semantics
        `recorded`: the final_pass of the records. `ifeval` and `wasmagent`: verify every answer again.
    """
    from agents.compliance.report import report_of
    from agents.compliance.task_file import TaskError
    from streams.jobs.compliance_lines import load_tasks, outcomes_of, stored_records
    from streams.views.progress import progress

    if bool(files) == bool(run):
        raise TaskError("give files of records, or --run ID")
    if semantics != "recorded" and not tasks:
        raise TaskError(f"--semantics {semantics} verifies again: give the task files with --tasks")
    bad: list[str] = []
    loaded = load_tasks(tasks) if tasks else {}
    with progress() as say:
        stored = asyncio.run(_of_run(run, source)) if run else stored_records(files, bad, say)
        found = report_of(outcomes_of(stored, loaded, semantics, bad))
    complain(*bad)
    if json:
        print_json({"semantics": semantics, **found, "bad": len(bad)})
    else:
        from streams.views.tables import show

        show(*_shown(found))
    if bad or not found["modes"]:
        sys.exit(1)


async def _of_run(run: str, source: LogFlags) -> "list[StoredLine]":
    """Return the records of a run on the log."""
    from agents.compliance.stored_record import record_of, seed_of
    from schemas.compliance import ComplianceEvalRecord
    from streams.cluster.config import load
    from streams.jobs.compliance_lines import StoredLine
    from streams.log.kafka_reader import hush
    from streams.log.reader import LookError
    from streams.log.readers import reader_of
    from streams.log.topics import COMPLIANCE_EVALS

    hush()
    found: dict[str, StoredLine] = {}
    async with reader_of(load(), source.from_dir, unfinished=source.unfinished) as log:
        async for placed in log.records([COMPLIANCE_EVALS]):
            record = await log.decode(placed)
            if isinstance(record, ComplianceEvalRecord) and record.rollout_id.startswith(f"{run}/"):
                view = record_of(record.model_dump(mode="json"))
                seed = seed_of(view, run) if record.seed is None else str(record.seed)
                found[record.trace_uri] = StoredLine(record.trace_uri, run, view, seed)
    if not found:
        raise LookError(f"there is no closed rollout of a compliance run {run}; `braid rollouts` lists all")
    return [found[name] for name in sorted(found)]


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
            f"{pair['mcnemar_p']:.4f}" if pair["mcnemar_p"] >= 0.0001 else f"{pair['mcnemar_p']:.1e}",
            str(pair["tasks_up"]),
            str(pair["tasks_down"]),
            f"{pair['by_task_p']:.2f}" if pair["by_task_p"] >= 0.01 else f"{pair['by_task_p']:.4f}",
        )
    return [modes, "", *([pairs, ""] if found["pairs"] else []), *found["conclusion"]]
