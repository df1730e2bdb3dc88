"""`braid show`: everything about one rollout."""

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
from cyclopts import Parameter

if TYPE_CHECKING:
    from streams.cluster.config import Settings
    from streams.views.account import Account

Flag = Parameter(negative="")


def show(
    rollout: str,
    /,
    *,
    from_dir: Path | None = None,
    unfinished: Annotated[bool, Flag] = False,
    json: Annotated[bool, Flag] = False,
) -> None:
    """Show one rollout: ranking, verdicts, votes, training rows, what was left out and why, evidence, dead letters.

    An open rollout is shown as far as it is known: its facts are folded from the log itself.

    Example: `braid show csv-table --from-dir results`

    Parameters
    ----------
    rollout
        The rollout's id.
    from_dir
        Read the log that `braid run --out DIR` left in DIR, instead of Kafka.
    unfinished
        Read it although it has no manifest, or has lost files since.
    json
        Print one JSON object.
    """
    from streams.cluster.config import load

    settings = load()
    account = asyncio.run(_account(rollout, from_dir, settings, unfinished=unfinished))
    if json:
        from streams.views.report import report

        sys.stdout.write(orjson.dumps(report(account, settings)).decode() + "\n")
        return
    from streams.views.page import page
    from streams.views.tables import show as print_all

    print_all(*page(account, settings))


async def _account(rollout_id: str, from_dir: Path | None, settings: "Settings", *, unfinished: bool) -> "Account":
    from streams.log.kafka_reader import hush
    from streams.log.reader import LookError, unknown_rollout
    from streams.log.readers import reader_of
    from streams.log.topics import LIFECYCLE
    from streams.views.account import account_of
    from streams.views.progress import progress

    hush()
    with progress() as say:
        async with reader_of(settings, from_dir, unfinished=unfinished, say=say) as log:
            log.require(LIFECYCLE)
            account = await account_of(log, rollout_id)
            if account.is_empty:
                raise LookError(unknown_rollout(rollout_id, log.place, await log.rollouts()))
            return account
