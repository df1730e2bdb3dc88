"""`braid run`: the whole job for people who have files."""

import sys
from pathlib import Path
from typing import Annotated

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
    keep_going: Annotated[bool, Flag] = False,
    json: Annotated[bool, Flag] = False,
) -> None:
    """Turn files into rankings, evidence and training rows, on the embedded log: no broker, no service.

    A bad line is reported with its file, line, field and reason, kept in OUT/rejected-input.jsonl, and the rest goes on.

    Parameters
    ----------
    out
        Directory for the results; what an earlier run left there is replaced.
    keep_going
        Exit with 0 although lines were bad.
    json
        Print one JSON object with the counts.
    """
    from streams.commands.ingest import report_bad_lines
    from streams.commands.progress import progress
    from streams.config import load
    from streams.inputs import SIDECAR
    from streams.outputs import SINK_FILES
    from streams.run import run_files
    from streams.signing import signing_key

    settings = load()
    with progress() as say:
        counts = run_files(files, out, settings, signing_key(settings), say)
    if json:
        sys.stdout.write(orjson.dumps(counts.plain()).decode() + "\n")
    else:
        from streams.commands.tables import counts_table, show

        show(counts_table(counts))
        sys.stdout.write(
            f"\nfiles in {out}: {', '.join(sorted(SINK_FILES.values()))}; the log itself in {out / 'log'}\n"
        )
    report_bad_lines(counts.bad_lines, counts.first_bad, out / SIDECAR)
    if counts.bad_lines and not keep_going:
        sys.exit(1)
