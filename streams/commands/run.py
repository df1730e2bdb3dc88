"""`braid run`: the whole job for people who have files."""

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Literal

import orjson
from cyclopts import Parameter

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
    judge: Literal["none", "scripted", "anthropic"] = "none",
    rules: Path | None = None,
    keep_going: Annotated[bool, Flag] = False,
    json: Annotated[bool, Flag] = False,
) -> None:
    """Turn files into rankings, evidence and training rows, on the embedded log: no broker, no service.

    A bad line is reported with its file, line, field and reason, kept in OUT/rejected-input.jsonl, and the rest goes on.

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
    keep_going
        Exit with 0 although lines were bad.
    json
        Print one JSON object with the counts.
    """
    from streams.commands.ingest import report_bad_lines, report_warnings
    from streams.commands.progress import progress
    from streams.config import load
    from streams.inputs import SIDECAR
    from streams.judging.inline import InlineJudge
    from streams.judging.judges import ASKED_BY_US
    from streams.outputs import SINK_FILES
    from streams.run import run_files
    from streams.signing import signing_key

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
        counts = run_files(files, out, settings, signing_key(settings), say, inline)
    if json:
        sys.stdout.write(orjson.dumps(counts.plain()).decode() + "\n")
    else:
        from streams.commands.tables import counts_table, show

        show(counts_table(counts))
        if inline is not None:
            from streams.judging.looks import spent_line

            show("", spent_line(inline.spent, inline.budget))
        sys.stdout.write(
            f"\nfiles in {out}: {', '.join(sorted(SINK_FILES.values()))}; the log itself in {out / 'log'}\n"
        )
    if inline is not None:
        from streams.judging.looks import reason_lines

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
