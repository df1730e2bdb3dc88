"""`braid comply import`: stored compliance records as facts."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from streams.commands.console_output import complain, print_json
from streams.commands.options import Json

LINES = "comply.ndjson"


def import_records(
    files: Annotated[list[Path], Parameter(help="ComplianceEvalRecords, one JSON object a line.")],
    /,
    *,
    tasks: list[Path],
    log: Path | None = None,
    out: Path | None = None,
    json: Json = False,
) -> None:
    """Turn stored records into facts, verify every text again, and make rows of them.

    A rollout per file and task, a branch per mode. The final_pass of a record is only a claim: verdicts are made from the texts.

    Example: `braid comply import seed42.jsonl --tasks tasks.jsonl --out rows`

    Parameters
    ----------
    tasks
        The task files of the records.
    log
        Write the lines that `braid run` and `braid ingest` read to this file.
    out
        Fold them into rankings, evidence and training rows in this directory.
    """
    from agents.compliance.task_file import TaskError
    from streams.cluster.config import load
    from streams.cluster.signing_keys import verifier_key
    from streams.commands.comply.comply_fold import fold
    from streams.jobs.compliance_import import imported_lines
    from streams.jobs.compliance_lines import load_tasks
    from streams.log.durable_files import open_output
    from streams.views.progress import progress

    if (log is None) == (out is None):
        raise TaskError("give --out DIR for rows, or --log FILE for lines")
    settings, loaded, bad = load(), load_tasks(tasks), list[str]()
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    path = log if log is not None else (out or Path()) / LINES
    with progress() as say, open_output(path) as written:
        for line in imported_lines(files, loaded, verifier_key(settings), bad, say):
            written.write(line)
    complain(*bad)
    if out is None:
        sys.stdout.write(f"lines in {path}. Next: `braid run {path} --out DIR`\n")
    else:
        counts = fold(path, out, settings)
        if json:
            print_json(counts.plain() | {"bad_records": len(bad)})
        else:
            from streams.views.tables import counts_table, show

            show(counts_table(counts))
    if bad:
        sys.exit(1)
