"""`braid replay`: the log read again."""

import os
import sys
from typing import TYPE_CHECKING

from streams.commands.console_output import complain, print_json
from streams.commands.replay_flags import ReplayFlags

if TYPE_CHECKING:
    from streams.jobs.replay.replay import Replayed


def replay(*, flags: ReplayFlags = ReplayFlags()) -> None:
    """Fold the log again: the same facts give the same bytes, or the bytes that other rules would have given.

    Reads the fact topics (or an archive of them) up to their current ends. No worker is needed, no model is called, no
    clock is read: deadlines, verdicts and votes are in the log. Exits with 1 when a rollout that has closed cannot be
    made again, or --verify finds a difference; faults are named, and the rest is replayed.

    Try `braid replay --dry-run --verify` first: it proves that the sinks match the log.

    Example: `braid replay --from-dir results --out again --set rewards.judge_weight=0.5`
    """
    from streams.cluster.config import load
    from streams.cluster.connections import resolve
    from streams.commands.stop_signals import run_stoppable
    from streams.jobs.crew.crew import Crew
    from streams.jobs.replay.bounds import bounded, offsets_asked
    from streams.jobs.replay.partition_job import Job
    from streams.jobs.replay.processes import replay_place
    from streams.jobs.replay.replay import replay as run
    from streams.jobs.replay.replay_manifest import ReplayManifest, manifest_at
    from streams.log.kafka_reader import hush
    from streams.log.readers import reader_of
    from streams.views.progress import progress

    with Crew(flags.processes or os.cpu_count() or 1, replay_place) as crew:
        settings = load()
        flags.check(settings)
        earlier = None if flags.manifest is None else manifest_at(flags.manifest)
        hush()

        async def whole() -> "Replayed":
            directory, unfinished = flags.from_dir, flags.unfinished
            async with reader_of(settings, directory, unfinished=unfinished, tolerant=True) as log:
                spans = await bounded(log, flags.start, flags.end, flags.manifest)
                lost = log.lost(spans, offsets_asked(flags.start), exact=flags.manifest is not None)
            job = Job(
                directory=directory, unfinished=unfinished, spans=spans, overrides=tuple(flags.overrides or ()), reclose=flags.reclose,
                evidence=not flags.no_evidence, sign=not flags.no_sign, out=flags.out, to_prefix=flags.to_prefix,
                verify=flags.verify, lost=lost, formats=tuple(dict.fromkeys(flags.formats or ())), asked=flags.asked(settings),
            )  # fmt: skip
            reached = settings if directory is not None else resolve(settings)
            with progress() as say:
                return await run(
                    job, reached, crew, resume=flags.resume, say=say,
                    earlier=earlier if isinstance(earlier, ReplayManifest) else None,
                )  # fmt: skip

        replayed = run_stoppable(whole())
    _report(replayed, flags)
    if not replayed.ok:
        sys.exit(1)


def _report(replayed: "Replayed", flags: ReplayFlags) -> None:
    from streams.views.replay_page import remarks, replay_table
    from streams.views.tables import show

    complain(*remarks(replayed, flags.manifest))
    if flags.json:
        print_json(replayed.plain())
    else:
        show(replay_table(replayed))
