"""`braid capture`: captures on the log, read again."""

import sys
from dataclasses import asdict

from cyclopts import App

from streams.commands.console_output import print_json
from streams.commands.options import Json, LogFlags

app = App(name="capture", help="Read captured calls again, with today's fold.")


@app.command
def again(*rollouts: str, to_prefix: str, source: LogFlags = LogFlags(), json: Json = False) -> None:
    """Fold old captures with today's code, and write the events to other rollouts on the configured cluster.

    A settled rollout never changes: the result of an improved fold of its captures goes to a rollout of its own, named
    with a prefix. Openings are repeated; verdicts are not, since they are about the rollout that they name.

    Example: `braid capture again fix-42 --to-prefix again-`

    Parameters
    ----------
    rollouts
        Only these; all that have captures otherwise.
    to_prefix
        Put before the id of each rollout.
    """
    import asyncio

    from streams.cluster.config import load
    from streams.jobs.captured_again import Again, AgainError, fold_again
    from streams.log.kafka_reader import hush
    from streams.log.kafka_writer import FactWriter
    from streams.log.readers import reader_of
    from streams.views.progress import progress

    if not to_prefix:
        raise AgainError("--to-prefix is empty: the captures would be read into the rollouts that they came from")
    settings = load()

    async def run() -> Again:
        hush()
        with progress() as say:
            async with (
                FactWriter(settings, "captures") as writer,
                reader_of(settings, source.from_dir, unfinished=source.unfinished, say=say) as log,
            ):
                return await fold_again(log, rollouts, to_prefix, writer.write)

    found = asyncio.run(run())
    if json:
        print_json(asdict(found))
        return
    late = f"; {found.refused} did not count" if found.refused else ""
    running = f"; {found.unended} branches have not ended" if found.unended else ""
    where = f"{found.branches} branches in {found.rollouts} rollouts"
    sys.stdout.write(f"{found.captures} captures of {where}: {found.slices} slices written{late}{running}\n")
