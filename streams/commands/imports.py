"""`braid import`: traces of other systems to lines, rows or the log."""

import asyncio
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from streams.commands.console_output import complain, print_json
from streams.commands.numbers import MOST_EXACT, number
from streams.commands.options import Flag, Flags, JsonCounts, KeepGoing

if TYPE_CHECKING:
    from agents.importers.traces.format import Options
    from agents.importers.traces.rollout_book import Grouping
    from streams.jobs.imports.trace_import import Imported, TraceImport
    from streams.log.input_lines import Rejected


@dataclass(frozen=True, kw_only=True)
class ImportFlags(Flags):
    """The options of `braid import`."""

    to: Literal["lines", "run", "kafka"] = "lines"
    """Print lines (for `braid run` and `braid ingest`), run the whole job on them, or write them to the log."""
    out: Path | None = None
    """The file for lines (default: standard output), or the directory of the run; its lines are kept beside it."""
    run: str | None = None
    """The name of the run, where files of several runs are alike. By default the producer's id, or the file's name."""
    join_runs: Annotated[bool, Flag] = False
    """A task of several runs is one rollout."""
    group_by: str | None = None
    """The value that makes sessions branches of one rollout: `task` (the same first user message), or the path of a
    field, such as metadata.task.
    """
    pass_at: Annotated[float | None, number("--pass-at", -MOST_EXACT, MOST_EXACT)] = None
    """The score from which a check passes; by default the format's own rule, and unknown between pass and fail."""
    tasks: Path | None = None
    """Texts of tasks by their id, for formats that have none: JSON lines or CSV with an id and a text."""
    required: list[str] | None = None
    """The verdicts that decide, instead of those in the files. May be given several times."""
    subagents: Literal["keep", "rollouts"] = "keep"
    """Keep the events of sub-agents in their branch, or make each a rollout of its own."""
    shape: Literal["real", "seed"] = "real"
    """Read the output of producers, or the shapes that their documents describe."""
    check: Annotated[bool, Flag] = False
    """Count only, without writing."""
    no_close: Annotated[bool, Flag] = False
    """Leave the rollouts open: more files about them will follow."""
    rejected: Path | None = None
    """The file for bad input (default: rejected-input.jsonl here)."""
    keep_going: KeepGoing = False
    json: JsonCounts = False


_DEFAULTS = ImportFlags()


def import_traces(
    format: str,  # noqa: A002 - the name that people see
    paths: Annotated[list[Path] | None, Parameter(allow_leading_hyphen=True)] = None,
    /,
    *,
    flags: ImportFlags = _DEFAULTS,
) -> None:
    """Turn traces of other systems into rollouts: benchmark results, SDK traces, session logs.

    FORMAT is one of those that `braid import formats` lists, or `auto`. PATH is a file, a folder, or - for standard input; .gz
    and .zst are unpacked. Nothing is invented: values missing from a file are unknown, and unreadable entries are kept
    in rejected-input.jsonl with their position.

    Example: `braid import tau-bench results.json --to run --out results`
    """
    if format == "formats":
        _show_formats(json=flags.json)
        return
    if not paths:
        complain("name the files or folders to import: braid import FORMAT PATH...")
        sys.exit(2)
    if flags.to == "run" and flags.out is None:
        complain("--to run needs --out DIR")
        sys.exit(2)
    from schemas.extras import needs

    with needs("import", "braid import"):
        from streams.jobs.imports.trace_import import TraceImport
    from streams.log.input_lines import SIDECAR, Rejected
    from streams.views.progress import progress

    rejected = Rejected(None if flags.check else flags.rejected or Path(SIDECAR))
    with progress() as say:
        work = TraceImport(*_choices(flags), rejected, lambda share: say("reading", share))
        with closing(work):
            work.read(format, paths)
            if not flags.check:
                _write(work, flags)
    rejected.close()
    _report(work.found, rejected, flags)
    if rejected.count and not flags.keep_going:
        sys.exit(1)


def _choices(flags: ImportFlags) -> "tuple[Options, Grouping]":
    from agents.importers.traces.format import Options
    from agents.importers.traces.rollout_book import Grouping
    from streams.jobs.imports.task_texts import read_tasks

    tasks = {} if flags.tasks is None else read_tasks(flags.tasks)
    options = Options(run=flags.run, pass_at=flags.pass_at, tasks=tasks, shape=flags.shape)
    grouping = Grouping(
        run=flags.run, join_runs=flags.join_runs, group_by=flags.group_by,
        required=None if flags.required is None else tuple(flags.required),
        subagents=flags.subagents, close=not flags.no_close,
    )  # fmt: skip
    return options, grouping


def _write(work: "TraceImport", flags: ImportFlags) -> None:
    if flags.to == "lines":
        _write_lines(work, flags.out)
    elif flags.to == "run":
        from streams.commands.run import run
        from streams.commands.run_flags import RunFlags

        assert flags.out is not None
        lines = flags.out.with_name(f"{flags.out.name}.ndjson")
        _write_lines(work, lines)
        run([lines], flags=RunFlags(out=flags.out, keep_going=flags.keep_going, json=flags.json))
    else:
        _ingest(work, flags)


def _write_lines(work: "TraceImport", out: Path | None) -> None:
    from streams.log.durable_files import open_output

    if out is None:
        for line in work.lines():
            sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    with open_output(out) as file:
        for line in work.lines():
            file.write(line)


def _ingest(work: "TraceImport", flags: ImportFlags) -> None:
    import tempfile

    from streams.cluster.config import load
    from streams.jobs.imports.trace_import import ImportTracesError
    from streams.jobs.ingest import ingest_files
    from streams.log.input_lines import SIDECAR, Rejected

    with tempfile.TemporaryDirectory(prefix="braid-import-") as folder:
        lines = Path(folder) / "lines.ndjson"
        _write_lines(work, lines)
        refused = Rejected(Path(folder) / SIDECAR)
        done = asyncio.run(ingest_files([lines], load(), refused, close=not flags.no_close))
        refused.close()
        if done.bad_lines:
            raise ImportTracesError(
                f"{done.bad_lines:,} lines that came of the traces were refused, the others were sent: {refused.first[0]}; a fault of "
                "braid import: please report it with the file"
            )


def _report(found: "Imported", rejected: "Rejected", flags: ImportFlags) -> None:
    if flags.json and (flags.check or flags.to != "lines" or flags.out is not None):
        if flags.to != "run" or flags.check:
            print_json(found.plain(rejected.count))
    else:
        counts = found.plain(rejected.count)
        ends = ", ".join(f"{name} {count}" for name, count in counts.pop("ends").items()) or "none"
        counts.pop("formats")
        words = ", ".join(f"{name} {count:,}" for name, count in counts.items())
        sys.stderr.write(f"{words}; ends: {ends}\n")
    if rejected.count:
        where = f", kept in {rejected.path}" if rejected.path is not None else ""
        complain(f"{rejected.count:,} rejected{where}")
        for text in rejected.first:
            sys.stderr.write(f"  {text}\n")


def _show_formats(*, json: bool) -> None:
    from agents.importers.formats.registry import FORMATS

    rows = [(each.name, each.about, each.rollout, each.verdict, each.unknown) for each in FORMATS.values()]
    names = ("format", "reads", "rollout / branch", "verdict", "cannot know")
    if json:
        for row in rows:
            print_json(dict(zip(names, row, strict=True)))
        return
    from streams.views.tables import Grid, show

    table = Grid("", names, whole=("format",))
    for row in rows:
        table.add_row(*row)
    show(table)
