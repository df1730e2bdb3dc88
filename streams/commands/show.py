"""`braid show`: everything about one rollout."""

import asyncio
from typing import TYPE_CHECKING

from streams.commands.console_output import print_json
from streams.commands.options import Json, LogFlags

if TYPE_CHECKING:
    from streams.cluster.config import Settings
    from streams.views.account import Account


def show(
    rollout: str,
    /,
    *,
    source: LogFlags = LogFlags(),
    json: Json = False,
) -> None:
    """Show one rollout: ranking, verdicts, votes, training rows, what was left out and why, evidence, dead letters.

    An open rollout is shown as far as it is known: its facts are folded from the log itself.

    Example: `braid show csv-table --from-dir results`

    Parameters
    ----------
    rollout
        The rollout's id.
    """
    from streams.cluster.config import load

    settings = load()
    account = asyncio.run(_account(rollout, source, settings))
    if json:
        from streams.views.report import report

        print_json(report(account, settings))
        return
    from streams.views.page import page
    from streams.views.tables import show as print_all

    print_all(*page(account, settings))


async def _account(rollout_id: str, source: LogFlags, settings: "Settings") -> "Account":
    from streams.log.kafka_reader import hush
    from streams.log.reader import LookError, unknown_rollout
    from streams.log.readers import reader_of
    from streams.log.topics import LIFECYCLE
    from streams.views.account import account_of
    from streams.views.progress import progress

    hush()
    with progress() as say:
        async with reader_of(settings, source.from_dir, unfinished=source.unfinished, say=say) as log:
            log.require(LIFECYCLE)
            account = await account_of(log, rollout_id)
            if account.is_empty:
                raise LookError(unknown_rollout(rollout_id, log.place, await log.rollouts()))
            return account
