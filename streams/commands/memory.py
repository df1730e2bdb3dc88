"""`braid memory`: store what worked before, and search it."""

import sys
from typing import Annotated

from cyclopts import App

from streams.commands.console_output import print_json
from streams.commands.numbers import number
from streams.commands.options import Flag, Json, LogFlags

app = App(name="memory", help="Remember branches that passed, and find them by the words of a task.")


@app.command
def add(
    *rollouts: str,
    source: LogFlags = LogFlags(),
    json: Json = False,
) -> None:
    """Remember the branches of closed rollouts that passed and show no sign of a hack.

    Nothing else is ever remembered. Repeating it is harmless: a branch that is remembered already is replaced.

    Example: `braid memory add --from-dir results`

    Parameters
    ----------
    rollouts
        Only these; all that are closed otherwise.
    """
    import asyncio

    from agents.memory.memory import Memory
    from streams.cluster.config import load
    from streams.jobs.memory import memory_store, remembered
    from streams.log.kafka_reader import hush
    from streams.log.readers import reader_of
    from streams.views.progress import progress

    settings = load()

    async def read() -> list[Memory]:
        hush()
        with progress() as say:
            async with reader_of(settings, source.from_dir, unfinished=source.unfinished, say=say) as log:
                return await remembered(log, rollouts)

    store, found = memory_store(settings), asyncio.run(read())
    store.upsert(found)
    if json:
        print_json({"remembered": [each.id for each in found], "in_all": store.count()})
    else:
        sys.stdout.write(
            f"{len(found)} branches remembered, {store.count()} in all. Next: `braid fork TASK --memories 3`\n"
        )


@app.command
def search(
    task: str,
    /,
    *,
    top_k: Annotated[int | None, number("--top-k", 1, 50)] = None,
    floor: Annotated[float | None, number("--floor", 0, 1)] = None,
    json: Annotated[bool, Flag] = False,
) -> None:
    """Show the memories that a task would get: the best fitting first, with its score (0 to 1).

    Example: `braid memory search "parse a CSV file"`

    Parameters
    ----------
    task
        The task's words.
    top_k
        At most so many; memory.top_k otherwise.
    floor
        Leave out memories with a lower score; memory.floor otherwise.
    json
        Print one JSON object per memory.
    """
    from streams.cluster.config import load
    from streams.jobs.memory import recall

    found = recall(load(), task, top_k, floor)
    for each in found:
        if json:
            print_json({"score": each.score, **each.memory.model_dump()})
        else:
            first = each.memory.task.strip().partition("\n")[0]
            sys.stdout.write(f"{each.score:.3f}  {each.memory.id}  {first[:100]}\n")
    if not found and not json:
        sys.stdout.write("nothing that fits well enough; `braid memory add` remembers closed rollouts\n")


@app.command
def forget(*ids: str) -> None:
    """Remove memories.

    Example: `braid memory forget csv-table/b2`

    Parameters
    ----------
    ids
        As `braid memory search` shows them.
    """
    from streams.cluster.config import load
    from streams.jobs.memory import memory_store

    sys.stdout.write(f"{memory_store(load()).forget(ids)} forgotten\n")
