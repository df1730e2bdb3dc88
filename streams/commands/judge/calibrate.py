"""`braid judge calibrate`: ask the configured judge about pairs whose answer is known."""

import time
from dataclasses import dataclass
from pathlib import Path

import orjson

from streams.commands.console_output import complain, print_json
from streams.commands.judge import result_file
from streams.commands.numbers import Samples
from streams.commands.options import Flags, Json


@dataclass(frozen=True, kw_only=True)
class CalibrateFlags(Flags):
    """The options of `braid judge calibrate`."""

    samples: Samples = 1
    """How often each order of a pair is asked."""
    save: Path | None = None
    """Keep the result in this file."""
    against: Path | None = None
    """Compare with a result that was kept earlier."""
    metrics_file: result_file.MetricsFile = None
    json: Json = False


def calibrate(file: Path, /, *, flags: CalibrateFlags = CalibrateFlags()) -> None:
    """Ask the configured judge about pairs for which the better side is known.

    judge.calls_per_hour is counted for this run alone: calls of workers and other commands are not included.

    Example: `braid judge calibrate golden.jsonl --save calibration.json`

    Parameters
    ----------
    file
        One JSON object per line: task, better, worse; optional id and shared_prefix.
    """
    import asyncio

    from streams.cluster.config import load
    from streams.cluster.judge_client import Budget, make_judge
    from streams.jobs.judge.asker import Asker, Spent
    from streams.jobs.judge.calibration import Calibration, drift, read_earlier, read_golden
    from streams.jobs.judge.calibration import calibrate as ask_all
    from streams.views.judge_pages import calibration_page, reason_lines
    from streams.views.tables import show

    if flags.save is not None:
        result_file.check_place("--save", flags.save)
    result_file.check_metrics_file(flags.metrics_file)
    settings, pairs = load(), read_golden(file)
    before = None if flags.against is None else read_earlier(flags.against)

    async def run() -> tuple[Calibration, Spent]:
        judge = make_judge(settings, Budget(settings.judge.calls_per_hour).allow)
        asker = Asker(judge, settings.judge.concurrency)
        try:
            return await ask_all(asker, pairs, settings.emission.judge, samples=flags.samples), asker.spent
        finally:
            await judge.close()

    found, spent = asyncio.run(run())
    changed = None if before is None else drift(before, found)
    if flags.json:
        print_json(found.plain() | {"drift": None if changed is None else changed._asdict()})
    else:
        show(*calibration_page(found, changed))
    complain(*reason_lines(spent))
    if spent.missing["budget"]:
        complain(
            f"the budget of {settings.judge.calls_per_hour:,} calls per hour (judge.calls_per_hour) was spent; "
            f"{spent.missing['budget']:,} answers are missing for that"
        )
    if flags.save is not None:
        result_file.write("--save", flags.save, orjson.dumps(found.plain(), option=orjson.OPT_INDENT_2) + b"\n")
    if flags.metrics_file is not None:
        from streams.jobs.judge.textfile import calibration_metrics

        result_file.write_metrics(flags.metrics_file, calibration_metrics(found, changed, time.time()))
