"""`braid audit report`: everything that a reviewer asks of a log or a dataset, as Markdown, HTML and JSON."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from streams.commands.audit.log_audit import with_log
from streams.commands.console_output import print_json
from streams.commands.options import Flag, Json, LogFlags

if TYPE_CHECKING:
    from agents.audit.report import AuditReport
    from streams.cluster.config import Settings
    from streams.log.progress import Say
    from streams.log.reader import LogReader


def report(
    path: Annotated[
        Path | None, Parameter(help="Output of `braid run`, an archive, a dataset, or a file of evidence.")
    ] = None,
    /,
    *,
    out: Path,
    public_key: Annotated[list[str] | None, Flag] = None,
    unfinished: Annotated[bool, Flag] = False,
    json: Json = False,
) -> None:
    """Write report.md, report.html and report.json: outcomes, verifiers, tools, evidence, and which standard is covered by what.

    Without a path, the topics of the configured cluster are read. The report is dated by the last closure, and is the same bytes
    for the same log. Exits with 1 when evidence is not ok.

    Example: `braid audit report results --out audit`

    Parameters
    ----------
    out
        Directory of the report.
    public_key
        A key to trust, as KEYID=HEX; may be given several times. The keys of this machine are trusted as well.
    unfinished
        Read a log although it has no manifest, or has lost files since.
    """
    import orjson

    from agents.audit.report import AuditReport
    from agents.evidence.verification import Verifier
    from streams.cluster.config import load
    from streams.cluster.signing_keys import trusted_keys
    from streams.log.durable_files import write_whole
    from streams.views.report_text import html, markdown, summary
    from streams.views.tables import show

    made = AuditReport(Verifier(trusted_keys(load(), public_key or ())))
    _take(made, path, unfinished=unfinished)
    found = made.plain()
    out.mkdir(parents=True, exist_ok=True)
    write_whole(out / "report.json", orjson.dumps(found, option=orjson.OPT_INDENT_2) + b"\n")
    write_whole(out / "report.md", markdown(found).encode())
    write_whole(out / "report.html", html(found).encode())
    if json:
        print_json(found)
    else:
        show(*summary(found), f"{out}: report.md, report.html, report.json")
    if found["evidence"]["not_ok"]:
        sys.exit(1)


def _take(made: "AuditReport", path: Path | None, *, unfinished: bool) -> None:
    """Read the sources: evidence in lines, if given, else that of the log; and the facts of the log."""
    from streams.jobs.audit.report_sources import ReportError, add_log, evidence_files, read_evidence, stored_evidence
    from streams.log.files import find_log
    from streams.log.manifest import is_dataset

    files = [] if path is None else evidence_files(path)
    for item in read_evidence(files):
        made.add_evidence(item)
    if path is not None and is_dataset(path):
        made.matrix.add_dataset()
    if path is not None and find_log(path) is None:
        if not files:
            raise ReportError(
                f"{path}: neither a log nor evidence; give the output of `braid run` or `braid export`, or an archive"
            )
        return

    async def read(log: "LogReader", settings: "Settings", say: "Say") -> None:
        if not files:
            async for item in stored_evidence(log):
                made.add_evidence(item)
        await add_log(made, log, settings.emission, say)

    with_log(LogFlags(from_dir=path, unfinished=unfinished), read)
