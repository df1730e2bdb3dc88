"""`braid ingest`: files to the log."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated

from streams.commands.console_output import complain, print_json
from streams.commands.options import Flag, InputFiles, Json, KeepGoing, SignVerdicts


def ingest(
    files: InputFiles,
    /,
    *,
    close: Annotated[bool, Flag] = False,
    rejected: Path | None = None,
    sign_verdicts: SignVerdicts = False,
    keep_going: KeepGoing = False,
    json: Json = False,
) -> None:
    """Write the lines of files to the log, where a worker folds them.

    Reading the same file again is harmless: known facts are ignored. A bad line is reported with its file, line, field
    and reason, and the other lines are still read.

    Example: `braid ingest lines.ndjson`

    Parameters
    ----------
    close
        Nothing more will come: settle the rollouts of these files when the worker has read them.
    rejected
        Keep bad lines in this file (default: rejected-input.jsonl here).
    """
    from streams.cluster.config import load
    from streams.jobs.ingest import ingest_files
    from streams.jobs.verdict_trust import verdict_trust
    from streams.log.input_lines import SIDECAR, Rejected
    from streams.views.progress import progress

    settings, sidecar = load(), Rejected(rejected or Path(SIDECAR))
    trust = verdict_trust(settings, vouches=sign_verdicts, say=complain)
    with progress() as say:
        done = asyncio.run(
            ingest_files(files, settings, sidecar, close=close, say=lambda share: say("ingesting", share), trust=trust)
        )
    sidecar.close()
    if json:
        print_json(done._asdict())
    else:
        written = ", ".join(f"{count:,} {name}" for name, count in done.facts.items())
        sys.stdout.write(f"{done.lines:,} lines of {done.rollouts:,} rollouts: {written or 'nothing'} written\n")
    report_warnings(done.warnings, done.first_warning)
    report_untrusted(trust.count, trust.first)
    report_bad_lines(sidecar.count, sidecar.first, sidecar.path)
    if done.bad_lines and not keep_going:
        sys.exit(1)


def report_warnings(count: int, first: str) -> None:
    """Print to standard error how many verdicts will have no effect, and the position of the first one."""
    if count:
        what = "1 verdict is" if count == 1 else f"{count:,} verdicts are"
        complain(f"{what} neither pass nor fail{'; the first' if count > 1 else ''}: {first}")


def report_untrusted(count: int, first: str) -> None:
    """Say on standard error how many verdicts do not count because no trusted key has signed them."""
    from streams.jobs.verdict_trust import untrusted_line

    if count:
        complain(untrusted_line(count, first))


def report_bad_lines(count: int, first: list[str], where: Path | None) -> None:
    """Print the bad lines to standard error, and the file that keeps them."""
    if not count:
        return
    complain(f"{count} bad line{'s' * (count > 1)}, kept in {where}")
    for text in first:
        sys.stderr.write(f"  {text}\n")
