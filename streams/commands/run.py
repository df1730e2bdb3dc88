"""`braid run`: the whole job for people who have files."""

import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from streams.commands.console_output import complain, print_json
from streams.commands.options import InputFiles
from streams.commands.run_flags import RunFlags

if TYPE_CHECKING:
    from streams.cluster.config import Settings
    from streams.jobs.counts import Counts
    from streams.jobs.judge.inline import InlineJudge


def run(files: InputFiles, /, *, flags: RunFlags) -> None:
    """Turn files into rankings, evidence and training rows, on the embedded log: no broker, no service.

    A bad line is reported with its file, line, field and reason and kept in OUT/rejected-input.jsonl; the other lines
    are still read.

    Example: `braid run lines.ndjson --out results --format trl-dpo`
    """
    from streams.cluster.judge_client import ASKED_BY_US
    from streams.cluster.signing_keys import signing_key
    from streams.commands.stop_signals import run_stoppable
    from streams.jobs.crew.crew import Crew
    from streams.jobs.judge.inline import InlineJudge
    from streams.jobs.run.run import Wanted, fold_files
    from streams.jobs.run.run_processes import run_place
    from streams.views.progress import progress

    members = flags.members(files)
    with Crew(members, run_place, spare=members - 1 if flags.processes is None else 0) as crew:
        flags.check()
        settings, formats = flags.settings(), tuple(dict.fromkeys(flags.formats or ()))
        if flags.judge == "none" and (kind := settings.emission.judge.kind) in ASKED_BY_US:
            complain(f"no judge is asked, although {kind} is configured; --judge {kind} asks it")

        async def whole() -> "tuple[Counts, InlineJudge | None, dict[str, int]]":
            async with AsyncExitStack() as stack:
                judge = None
                if flags.judge != "none":
                    judge = await stack.enter_async_context(InlineJudge(settings, flags.out))
                say = stack.enter_context(progress())
                wanted = Wanted(formats=formats, evidence=not flags.no_evidence, signs_verdicts=flags.sign_verdicts)
                counts = await fold_files(files, flags.out, settings, signing_key(settings), crew, wanted, say, judge)
                exported = {}
                for name in formats:
                    from streams.jobs.export.beside import export_beside

                    exported[name] = (await export_beside(flags.out, name, settings, say)).rows
                return counts, judge, exported

        counts, judge, exported = run_stoppable(whole())
    if flags.json:
        print_json(counts.plain() | ({"formats": exported} if formats else {}))
    else:
        _show(flags, counts, judge, exported)
    _complain(flags, counts, judge, settings)
    if counts.broken or (counts.bad_lines and not flags.keep_going):
        sys.exit(1)


def _show(flags: RunFlags, counts: "Counts", judge: "InlineJudge | None", exported: dict[str, int]) -> None:
    from streams.log.json_lines import SINK_FILES
    from streams.log.terminal_text import several
    from streams.views.judge_pages import spent_line
    from streams.views.tables import counts_table, show

    show(counts_table(counts))
    if judge is not None:
        show("", spent_line(judge.spent, judge.budget))
    names = ", ".join(sorted(SINK_FILES.values()))
    sys.stdout.write(f"\nfiles in {flags.out}: {names}; the log itself in {flags.out / 'log'}\n")
    for name, rows in exported.items():
        sys.stdout.write(f"dataset in {flags.out / name}: {several(rows, 'row')}\n")


def _complain(flags: RunFlags, counts: "Counts", judge: "InlineJudge | None", settings: "Settings") -> None:
    from streams.commands.ingest import report_bad_lines, report_untrusted, report_warnings
    from streams.log.input_lines import SIDECAR

    if judge is not None:
        from streams.views.judge_pages import reason_lines

        complain(*reason_lines(judge.spent))
        if missing := judge.spent.missing["budget"]:
            complain(
                f"the budget of {settings.judge.calls_per_hour:,} calls per hour (judge.calls_per_hour) was spent; "
                f"{missing:,} votes are missing for that; a later run into {flags.out} asks for them"
            )
    report_warnings(counts.warnings, counts.first_warning)
    report_untrusted(counts.untrusted, counts.first_untrusted)
    report_bad_lines(counts.bad_lines, counts.first_bad, flags.out / SIDECAR)
    complain(*(f"nothing could be made of {why}" for why in counts.broken))
