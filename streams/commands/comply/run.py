"""`braid comply run`: tasks in their modes, from drafts to rows."""

import asyncio
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from streams.commands.console_output import complain, print_json
from streams.commands.numbers import MOST_EXACT, number
from streams.commands.options import Flag, Flags

if TYPE_CHECKING:
    from agents.compliance.runner import BranchDone, PlannedRollout
    from streams.cluster.config import Settings

Mode = Literal["direct", "prompt_retry", "full_pcl"]


@dataclass(frozen=True, kw_only=True)
class ComplyRunFlags(Flags):
    """The options of `braid comply run`."""

    mode: tuple[Mode, ...] = ("direct", "prompt_retry", "full_pcl")
    """`direct`: the draft is the answer. `prompt_retry`: ask again with the violations. `full_pcl`: repair violations,
    and commit no repair that breaks another constraint. Several modes share the draft of a seed.
    """
    seeds: str = ""
    """Seeds, as in 42,43,44."""
    samples: Annotated[int | None, number("--samples", 1, 1000)] = None
    """Samples of one mode, instead of seeds: parallel rollouts of a task."""
    model: Literal["scripted", "anthropic", "openai"] = "scripted"
    """`openai`: chat completions at any base URL. `anthropic`: accepts no seed. `scripted`: answers from a file, no
    key.
    """
    script: Path | None = None
    """The answers of a scripted model."""
    model_name: str = ""
    """Which model; fork.model (BRAID_FORK__MODEL) otherwise."""
    base_url: str = ""
    """The address of its service, such as http://127.0.0.1:8000/v1; fork.base_url otherwise."""
    limit: Annotated[int | None, number("--limit", 1)] = None
    """Only the first tasks."""
    id: str = ""
    """The name of the run; a new one otherwise."""
    log: Path | None = None
    """Write the lines of the run to this file instead of Kafka, verified."""
    out: Path | None = None
    """Run on the embedded log in this directory, through to rows, verified."""
    resume: str = ""
    """Go on with this run: rounds that are on the log are not paid again."""
    temperature: Annotated[float, number("--temperature", 0, 2)] = 0.2
    """Of every call."""
    max_tokens: Annotated[int, number("--max-tokens", 1)] = 512
    """Of every answer."""
    retries: Annotated[int, number("--retries", 0, 8)] = 3
    """Of prompt_retry."""
    rounds: Annotated[int, number("--rounds", 0, 8)] = 3
    """Of full_pcl."""
    max_repair_tokens: Annotated[int | None, number("--max-repair-tokens", 0, MOST_EXACT)] = None
    """Tokens that the repairs of a branch may use."""
    repair_soft: Annotated[bool, Flag] = False
    """Also repair soft constraints, if no hard one fails."""
    json: Annotated[bool, Flag] = False
    """Print a JSON object per branch, then the counts."""


def run(
    tasks: Annotated[list[Path], Parameter(help="Task files: IFEval rows, protocol specs or short rules, one a line.")],
    /,
    *,
    flags: ComplyRunFlags = ComplyRunFlags(),
) -> None:
    """Run tasks that specify what their answer must look like, in one or several modes.

    Every round is on the log before the next. A verifier decides from spec and texts: on Kafka `braid compliance-verifier`, with
    --log and --out this command itself. A provider that fails leaves a branch unknown, never failed.

    Example: `braid comply run tasks.jsonl --script answers.toml --seeds 42,43 --out results`
    """
    from agents.compliance.runner import planned_rollouts
    from agents.compliance.task_file import TaskError
    from streams.cluster.config import load
    from streams.jobs.compliance_lines import load_tasks

    named = {"model": flags.model_name or None, "base_url": flags.base_url or None}
    settings = load(fork={name: value for name, value in named.items() if value} or None)
    if flags.log is not None and flags.out is not None:
        raise TaskError("give --log FILE or --out DIR, not both")
    seeds, modes = _seeds(flags), tuple(dict.fromkeys(flags.mode))
    if flags.samples is not None and len(modes) > 1:
        raise TaskError("--samples goes with one mode: give --mode once")
    loaded = list(load_tasks(tasks).values())[: flags.limit]
    name = flags.resume or flags.id or f"comply-{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:4]}"
    planned = planned_rollouts(name, loaded, modes, seeds)
    sys.exit(_finish(flags, name, settings, *asyncio.run(_run(flags, planned, settings))))


def _seeds(flags: ComplyRunFlags) -> list[int]:
    from agents.compliance.task_file import TaskError

    if flags.samples is not None:
        if flags.seeds:
            raise TaskError("give --seeds or --samples, not both")
        return list(range(flags.samples))
    try:
        seeds = [int(each) for each in flags.seeds.split(",")] if flags.seeds else [0]
    except ValueError:
        raise TaskError(f"--seeds: expected whole numbers with commas between them, found {flags.seeds!r}") from None
    if len(set(seeds)) < len(seeds):
        raise TaskError("--seeds: a seed is there twice")
    return seeds


async def _run(
    flags: ComplyRunFlags, planned: "list[PlannedRollout]", settings: "Settings"
) -> "tuple[list[BranchDone], int, str]":
    from agents.compliance.runner import RunOptions
    from streams.commands.comply.record_import import LINES
    from streams.log.kafka_reader import hush
    from streams.services.comply.compliance_run import ModelChoice, models, run_planned
    from streams.services.fork.logs import file_log, kafka_log
    from streams.views.progress import progress

    options = RunOptions(
        flags.temperature, flags.max_tokens, flags.retries, flags.rounds, flags.repair_soft, flags.max_repair_tokens
    )
    path = flags.log
    if flags.out is not None:
        flags.out.mkdir(parents=True, exist_ok=True)
        path = flags.out / LINES
    if path is None:
        hush()
    done: list[BranchDone] = []

    def ended(branch: "BranchDone") -> None:
        done.append(branch)
        if flags.json:
            print_json(_view(branch))
            sys.stdout.flush()

    async with (
        file_log(path) if path is not None else kafka_log(settings) as log,
        models(ModelChoice(flags.model, flags.script), settings) as model_for,
    ):
        with progress() as say:
            verdicts = await run_planned(
                planned, log, model_for, options, settings, resume=bool(flags.resume), verify=path is not None,
                scripted=flags.model == "scripted", done=ended, say=say,
            )  # fmt: skip
        return done, verdicts, log.place


def _view(branch: "BranchDone") -> dict[str, Any]:
    return {
        "rollout_id": branch.rollout_id, "branch_index": branch.branch_index, "mode": branch.sample.mode,
        "seed": branch.sample.seed, "status": branch.status, "rounds": branch.rounds, "passed": branch.passed,
        "exhausted": branch.exhausted, "error": branch.error,
    }  # fmt: skip


def _finish(
    flags: ComplyRunFlags, name: str, settings: "Settings", done: "list[BranchDone]", verdicts: int, place: str
) -> int:
    """Fold, if rows are wanted, and print the counts. Returns the exit code."""
    passed = {mode: sum(each.passed is True for each in done if each.sample.mode == mode) for mode in flags.mode}
    broken = [each for each in done if each.status != "answered"]
    counts = None
    if flags.out is not None:
        from streams.commands.comply.comply_fold import fold
        from streams.commands.comply.record_import import LINES

        counts = fold(flags.out / LINES, flags.out, settings)
    if flags.json:
        rows = {} if counts is None else {"rows": counts.plain()}
        print_json(
            {
                "run": name,
                "log": place,
                "branches": len(done),
                "passed": passed,
                "unknown": len(broken),
                "verdicts": verdicts,
                **rows,
            }
        )
    else:
        said = ", ".join(
            f"{mode} {count} of {sum(each.sample.mode == mode for each in done)}" for mode, count in passed.items()
        )
        sys.stdout.write(f"{name}: {len(done)} branches, passing: {said}; log: {place}\n")
        if counts is not None:
            from streams.views.tables import counts_table, show

            show(counts_table(counts))
            sys.stdout.write(f"Next: `braid comply report {flags.out}/compliance.jsonl`\n")
        elif flags.log is None:
            sys.stdout.write(f"Next: `braid compliance-verifier` decides; then `braid show {name}/...`\n")
    for each in broken[:5]:
        complain(f"{each.rollout_id} branch {each.branch_index}: {each.status}: {each.error}")
    return 1 if broken else 0
