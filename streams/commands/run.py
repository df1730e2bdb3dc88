"""`braid run`: the whole job for people who have files."""

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import orjson
from cyclopts import Parameter

if TYPE_CHECKING:
    from streams.cluster.config import Settings
    from streams.log.progress import Say

Flag = Parameter(negative="")


def run(
    files: Annotated[
        list[Path],
        Parameter(
            help="NDJSON of events, verdicts and votes, or rollout-wire/v1 JSONL; - is standard input.",
            allow_leading_hyphen=True,
        ),
    ],
    /,
    *,
    out: Path,
    judge: Literal["none", "scripted", "anthropic", "openai"] = "none",
    rules: Path | None = None,
    format: list[str] | None = None,  # noqa: A002 - the option's name
    keep_going: Annotated[bool, Flag] = False,
    json: Annotated[bool, Flag] = False,
) -> None:
    """Turn files into rankings, evidence and training rows, on the embedded log: no broker, no service.

    A bad line is reported with its file, line, field and reason, kept in OUT/rejected-input.jsonl, and the rest goes on.

    Example: `braid run lines.ndjson --out results --format trl-dpo`

    Parameters
    ----------
    out
        Directory for the results; what an earlier run left there is replaced.
    judge
        Who is asked about branches of one tier: nobody (votes in the files count all the same), a rule file, or the model that
        emission.judge.model names. What it answered stays in OUT/votes.jsonl: a second run does not pay for it again.
        judge.calls_per_hour is counted for this run alone.
    rules
        The rule file of a scripted judge.
    format
        Export the result as well, to OUT/FORMAT, as `braid export --format FORMAT --from-dir OUT` does; may be given several times.
    keep_going
        Exit with 0 although lines were bad.
    json
        Print one JSON object with the counts.
    """
    from streams.cluster.config import load
    from streams.cluster.judge_client import ASKED_BY_US
    from streams.cluster.signing_keys import signing_key
    from streams.commands.ingest import report_bad_lines, report_warnings
    from streams.jobs.judge.inline import InlineJudge
    from streams.jobs.run import run_files
    from streams.log.input_lines import SIDECAR
    from streams.log.json_lines import SINK_FILES
    from streams.log.terminal_text import several
    from streams.views.progress import progress

    formats = _formats(format or [])
    settings = load(judge=None if rules is None else {"rules": rules})
    asked = settings.emission.judge
    with progress() as say, ExitStack() as stack:
        inline = None
        if judge != "none":
            emission = settings.emission.model_copy(update={"judge": asked.model_copy(update={"kind": judge})})
            settings = settings.model_copy(update={"emission": emission})
            inline = stack.enter_context(InlineJudge(settings, out))
        elif asked.kind in ASKED_BY_US:
            sys.stderr.write(
                f"braid: no judge is asked, although {asked.kind} is configured; --judge {asked.kind} asks it\n"
            )
        counts = run_files(files, out, settings, signing_key(settings), say, inline, formats=formats)
        exported = _export(out, formats, settings, say)
    if json:
        rows = {"formats": exported} if formats else {}
        sys.stdout.write(orjson.dumps(counts.plain() | rows).decode() + "\n")
    else:
        from streams.views.tables import counts_table, show

        show(counts_table(counts))
        if inline is not None:
            from streams.views.judge_pages import spent_line

            show("", spent_line(inline.spent, inline.budget))
        sys.stdout.write(
            f"\nfiles in {out}: {', '.join(sorted(SINK_FILES.values()))}; the log itself in {out / 'log'}\n"
        )
        for name, rows_written in exported.items():
            sys.stdout.write(f"dataset in {out / name}: {several(rows_written, 'row')}\n")
    if inline is not None:
        from streams.views.judge_pages import reason_lines

        for reason in reason_lines(inline.spent):
            sys.stderr.write(f"braid: {reason}\n")
    if inline is not None and inline.spent.missing["budget"]:
        sys.stderr.write(
            f"braid: the budget of {settings.judge.calls_per_hour:,} calls per hour (judge.calls_per_hour) was spent; "
            f"{inline.spent.missing['budget']:,} votes are missing for that; a later run into {out} asks for them\n"
        )
    report_warnings(counts.warnings, counts.first_warning)
    report_bad_lines(counts.bad_lines, counts.first_bad, out / SIDECAR)
    for why in counts.broken:
        sys.stderr.write(f"braid: nothing could be made of {why}\n")
    if counts.broken or (counts.bad_lines and not keep_going):
        sys.exit(1)


def _formats(names: list[str]) -> list[str]:
    """The formats that are asked for, each once. Raises ExportError before anything is read."""
    if names:
        from streams.jobs.export.beside import require_formats

        require_formats(names)
    return list(dict.fromkeys(names))


def _export(out: Path, formats: list[str], settings: "Settings", say: "Say") -> dict[str, int]:
    """Export what was run; returns the rows of each format."""
    if not formats:
        return {}
    import asyncio

    from streams.jobs.export.beside import export_beside

    return {name: asyncio.run(export_beside(out, name, settings, say)).rows for name in formats}
