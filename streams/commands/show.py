"""`braid show`: everything about one rollout."""

import asyncio
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from schemas.errors import BraidError
from streams.commands.console_output import print_json
from streams.commands.numbers import number
from streams.commands.options import Json, LogFlags

if TYPE_CHECKING:
    from streams.cluster.config import Settings
    from streams.views.account import Account


class ShowError(BraidError):
    """Something was asked for that a rollout does not have, or that makes no sense."""


def show(
    rollout: str,
    /,
    *,
    source: LogFlags = LogFlags(),
    branch: Annotated[int | None, number("--branch", 0)] = None,
    pair: Annotated[tuple[int, int] | None, number("--pair", 0)] = None,
    html: Path | None = None,
    json: Json = False,
) -> None:
    """Show one rollout: ranking, verdicts, votes, training rows, rejected rows with reasons, evidence, dead letters.

    An open rollout is shown as far as it is known: its facts are folded from the log itself. `braid view` shows the
    same as pages.

    Example: `braid show csv-table --from-dir results`

    Parameters
    ----------
    rollout
        The rollout's id.
    branch
        Show the transcript of this branch instead, turn by turn.
    pair
        Show two branches instead, from where they diverge, and their row or the reason why there is none.
    html
        Write the pages of the rollout to this one file, which needs nothing beside it.
    """
    from streams.cluster.config import load

    if sum(each is not None for each in (branch, pair, html)) > 1:
        raise ShowError("--branch, --pair and --html show different things; give one of them")
    settings = load()
    if html is not None:
        asyncio.run(_write_file(rollout, source, settings, html))
        return
    account = asyncio.run(_account(rollout, source, settings))
    if branch is not None or pair is not None:
        _show_strands(account, settings, [branch] if branch is not None else list(pair or ()), as_json=json)
        return
    if json:
        from streams.views.report import report

        print_json(report(account, settings))
        return
    from streams.views.page import page
    from streams.views.tables import show as print_all

    print_all(*page(account, settings))


def _show_strands(account: "Account", settings: "Settings", branches: list[int], *, as_json: bool) -> None:
    """Print a transcript, or two branches from where they diverge."""
    from streams.views.tables import show as print_all
    from streams.views.web.sight import sight_of
    from streams.views.web.transcript_text import branch_text, pair_text
    from streams.views.web.view_data import branch_data, pair_data

    sight = sight_of(account, settings, None, "")
    strands = []
    for index in branches:
        strand = sight.strand(index)
        if strand is None:
            known = ", ".join(str(each.branch) for each in sight.strands[:20])
            raise ShowError(f"{account.rollout_id} has no branch {index}; it has {known or 'none yet'}")
        strands.append(strand)
    if len(branches) == 2 and branches[0] == branches[1] and not sight.repairs(branches[0]):
        raise ShowError(f"branch {branches[0]} cannot stand beside itself: name two branches")
    if as_json:
        found = branch_data(sight, strands[0], 0, 10**9) if len(strands) == 1 else pair_data(sight, *strands)
        print_json(found)
    else:
        print_all(*(branch_text(sight, strands[0]) if len(strands) == 1 else pair_text(sight, *strands)))


async def _write_file(rollout_id: str, source: LogFlags, settings: "Settings", path: Path) -> None:
    """Write one file with all pages of a rollout."""
    import shlex

    from streams.cluster.signing_keys import trusted_keys
    from streams.commands.view import snapshots_of
    from streams.jobs.verify.inspection import ROW_TOPICS
    from streams.log.durable_files import write_whole
    from streams.log.readers import reader_of
    from streams.log.topics import EVIDENCE
    from streams.views.web.mail_file import mail_file
    from streams.views.web.sight import sight_of
    from streams.views.web.sights import check_records

    account = await _account(rollout_id, source, settings)
    async with reader_of(settings, source.from_dir, unfinished=source.unfinished) as log:
        records = [placed async for placed in log.records((EVIDENCE, *ROW_TOPICS), rollout_id=rollout_id)]
        checked = await check_records(log, records, trusted_keys(settings))
        command = "braid verify" if source.from_dir is None else f"braid verify {shlex.quote(str(source.from_dir))}"
        picture = snapshots_of(settings, source.from_dir).picture
        whole = mail_file(sight_of(account, settings, None, command), checked, log.place, picture)
    write_whole(path, whole.encode())
    sys.stdout.write(f"{path}: {len(whole.encode()):,} bytes, open it in a browser\n")


async def _account(rollout_id: str, source: LogFlags, settings: "Settings") -> "Account":
    from streams.log.reader import LookError, unknown_rollout
    from streams.log.readers import reader_of
    from streams.log.topics import LIFECYCLE
    from streams.views.account import account_of
    from streams.views.progress import progress

    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # our own errors describe the failure
    with progress() as say:
        async with reader_of(settings, source.from_dir, unfinished=source.unfinished, say=say) as log:
            log.require(LIFECYCLE)
            account = await account_of(log, rollout_id)
            if account.is_empty:
                raise LookError(unknown_rollout(rollout_id, log.place, await log.rollouts()))
            return account
