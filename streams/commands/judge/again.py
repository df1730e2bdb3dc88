"""`braid judge again`: stored rollouts, judged by another judge or rubric."""

import sys
from pathlib import Path

from streams.commands.console_output import complain, print_json
from streams.commands.options import JsonCounts, LogFlags


def again(
    *, out: Path | None = None, to_prefix: str | None = None, log: LogFlags = LogFlags(), json: JsonCounts = False
) -> None:
    """Judge stored rollouts again, with the judge and rubric that are configured now. The facts are not touched.

    Every closed rollout is judged, also one that closed while the judge was unavailable. Its branches, events,
    verdicts and all other configuration are those that were settled; only votes, rankings and their results are new.
    Existing votes are not paid for again: a run that was interrupted, or whose hourly budget was spent, is started
    again and continues.

    judge.calls_per_hour is counted for this run alone: calls of workers, of other commands and of an earlier run are
    not included.

    Example: `braid judge again --from-dir results --out judged`

    Parameters
    ----------
    out
        Write votes, rankings, training rows and evidence to files in this directory.
    to_prefix
        Write them to topics with this prefix (instead of --out).
    """
    import asyncio

    from streams.cluster.config import load
    from streams.cluster.judge_client import Budget, make_judge
    from streams.cluster.signing_keys import signing_key
    from streams.jobs.judge.again import Judged, into_directory, into_topics, judge_again
    from streams.jobs.judge.asker import Spent
    from streams.jobs.judge.closed_rollouts import ClosedRollouts
    from streams.jobs.targets import TargetError
    from streams.log.kafka_reader import hush
    from streams.log.readers import reader_of
    from streams.views.judge_pages import again_page, reason_lines
    from streams.views.progress import progress
    from streams.views.tables import show

    if (out is None) == (to_prefix is None):
        raise TargetError("say where the results go: --out DIR, or --to-prefix PREFIX")
    settings = load()
    budget = Budget(settings.judge.calls_per_hour)
    hush()

    async def run() -> tuple[Judged, Spent]:
        source = reader_of(settings, log.from_dir, unfinished=log.unfinished)
        judge, key = make_judge(settings, budget.allow), signing_key(settings)
        into = into_directory(out, key) if out is not None else into_topics(settings, to_prefix or "", key)
        try:
            with progress() as say:
                async with source, into as results:
                    chosen, concurrency = settings.emission.judge, settings.judge.concurrency
                    return await judge_again(ClosedRollouts(source), results, judge, chosen, concurrency, say)
        finally:
            await judge.close()

    counts, spent = asyncio.run(run())
    if json:
        print_json(counts.plain() | {"judge": spent.plain(budget), "out": None if out is None else str(out)})
    else:
        show(*again_page(counts, spent, budget))
    for rollout_id in counts.broken:
        complain(f"{rollout_id!r}: the log does not hold what was settled; it cannot be judged again")
    complain(*reason_lines(spent))
    if counts.unfinished:
        complain(
            f"the budget of {settings.judge.calls_per_hour:,} calls per hour is spent, {counts.unfinished:,} rollouts "
            "are unfinished; run this again later, votes that are there are not paid for twice"
        )
    if counts.broken or counts.unfinished:
        sys.exit(1)
