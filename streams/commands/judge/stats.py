"""`braid judge stats`: how judges behave, by their votes in the log."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from streams.commands.console_output import print_json
from streams.commands.judge import result_file
from streams.commands.numbers import number
from streams.commands.options import Flag, Flags, Json

if TYPE_CHECKING:
    from agents.judge.agreement import TimedVote


@dataclass(frozen=True, kw_only=True)
class StatsFlags(Flags):
    """The options of `braid judge stats`."""

    from_dir: Annotated[list[Path] | None, Flag] = None
    """Read the output of `braid run --out DIR` or `braid judge again --out DIR` in DIR, instead of Kafka. Give it again
    for more directories: their judges are compared.
    """
    unfinished: Annotated[bool, Flag] = False
    """Read directories although they have no manifest, or have lost files since."""
    prefix: Annotated[list[str] | None, Flag] = None
    """Read the topics with this prefix (instead of the configured one). May be given several times."""
    spans: Annotated[int, number("--spans", 1, 1000)] = 8
    """Into how many spans of time the votes are divided."""
    plot: Path | None = None
    """Draw it over time, too, into this file (SVG: any browser shows it)."""
    metrics_file: result_file.MetricsFile = None
    json: Json = False


def stats(*, flags: StatsFlags = StatsFlags()) -> None:
    """Show how judges behave: by judge and over time, and whether they agree.

    A judge with votes by several rubrics is shown once for each of them.

    Example: `braid judge stats --from-dir results`
    """
    import asyncio

    from streams.cluster.config import load
    from streams.jobs.judge.stored_votes import votes_of_directory, votes_of_prefixes
    from streams.log.kafka_reader import hush
    from streams.views.judge_pages import stats_json, stats_page
    from streams.views.progress import progress
    from streams.views.tables import show

    if flags.plot is not None and flags.plot.suffix != ".svg":
        raise result_file.ResultFileError(f"--plot {flags.plot}: pictures are SVG; give a name that ends in .svg")
    if flags.plot is not None:
        result_file.check_place("--plot", flags.plot)
    result_file.check_metrics_file(flags.metrics_file)
    settings = load()
    prefixes = flags.prefix or ([] if flags.from_dir else [settings.prefix])
    hush()

    async def read() -> "list[TimedVote]":
        found = [
            vote
            for directory in flags.from_dir or ()
            for vote in await votes_of_directory(directory, unfinished=flags.unfinished)
        ]
        with progress() as say:
            return found + await votes_of_prefixes(settings, prefixes, say)

    votes = asyncio.run(read())
    if flags.plot is not None:
        from streams.views.judge_plot import plot_svg

        result_file.write("--plot", flags.plot, plot_svg(votes, flags.spans).encode())
    if flags.metrics_file is not None:
        from streams.jobs.judge.textfile import stats_metrics

        result_file.write_metrics(flags.metrics_file, stats_metrics(votes, time.time()))
    if flags.json:
        print_json(stats_json(votes, flags.spans))
    else:
        show(*stats_page(votes, flags.spans))
