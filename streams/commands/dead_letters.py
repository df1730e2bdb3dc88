"""`braid dead-letters`: what did not count, why, and putting it back."""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import orjson
from cyclopts import App, Parameter

from streams.commands.numbers import number

if TYPE_CHECKING:
    from streams.cluster.config import Settings
    from streams.jobs.letter_retry import Outcome
    from streams.log.kafka_reader import KafkaReader
    from streams.log.letter_list import DeadLetter, Filters
    from streams.log.reader import LookError
    from streams.log.record import Placed

app = App(name="dead-letters", help="What did not count, why, and putting it back.")

Flag = Parameter(negative="")


@app.command(name="list")
def list_(
    *,
    reason: str | None = None,
    topic: str | None = None,
    rollout: str | None = None,
    since: str | None = None,
    limit: Annotated[int, number("--limit", 0)] = 50,
    json: Annotated[bool, Flag] = False,
) -> None:
    """List dead letters, newest first, and how many there are for each reason.

    Example: `braid dead-letters list --reason undecodable --since 2026-01-31T09:00`

    Parameters
    ----------
    reason
        Only letters with this reason: undecodable, late, conflict, fenced, ...
    topic
        Only letters whose original stands in this topic (a part of its name is enough).
    rollout
        Only letters of this rollout.
    since
        Only letters written at or after this time (ISO 8601; UTC when it names no zone).
    limit
        How many to list; 0 lists all.
    json
        Print one JSON object.
    """
    from streams.cluster.config import load
    from streams.log.letter_list import by_reason
    from streams.log.terminal_text import clean
    from streams.views.report import letter_json

    settings = load()
    letters = asyncio.run(_read(settings, _filters(settings, None, reason, topic, rollout, since)))[::-1]
    shown = letters[:limit] if limit else letters
    if json:
        found = {
            "total": len(letters),
            "by_reason": by_reason(letters),
            "letters": [letter_json(each) for each in shown],
        }
        sys.stdout.write(orjson.dumps(clean(found)).decode() + "\n")
    elif not letters:
        sys.stdout.write("no dead letters\n")
    else:
        _print_letters(shown, len(letters) - len(shown))
        _print_counts(by_reason(letters))


@app.command
def show(letter: str, /, *, json: Annotated[bool, Flag] = False) -> None:
    """Show a dead letter: where it came from, why it did not count, its headers, and a redacted look at what it holds.

    Example: `braid dead-letters show rollouts.agent-events.v1/3/17`

    Parameters
    ----------
    letter
        Its id, as `list` prints it: topic/partition/offset of the original.
    json
        Print one JSON object.
    """
    from streams.cluster.config import load
    from streams.views.letter_page import letter_object, letter_page

    settings = load()
    found = asyncio.run(_one(settings, _filters(settings, letter, None, None, None, None)))
    objects = [letter_object(each, decoded) for each, decoded in found]
    if json:
        sys.stdout.write(orjson.dumps({"letters": objects}).decode() + "\n")
        return
    from streams.views.tables import show as print_all

    for each in objects:
        print_all(letter_page(each))


@app.command
def retry(
    letter: str | None = None,
    /,
    *,
    reason: str | None = None,
    topic: str | None = None,
    rollout: str | None = None,
    since: str | None = None,
    limit: Annotated[int | None, number("--limit", 1)] = None,
    dry_run: Annotated[bool, Flag] = False,
    json: Annotated[bool, Flag] = False,
) -> None:
    """Put dead letters back where they came from, each once; late ones never.

    What fails again after it was put back is a new letter, and is put back only when its id is given.

    Example: `braid dead-letters retry --reason undecodable --dry-run`

    Parameters
    ----------
    letter
        A letter's id; or choose by the same filters as `list`, or all of them.
    reason
        Only letters with this reason.
    topic
        Only letters whose original stands in this topic.
    rollout
        Only letters of this rollout.
    since
        Only letters written at or after this time (ISO 8601).
    limit
        No more letters than this, oldest first.
    dry_run
        Say what would be done, and write nothing.
    json
        Print one JSON object.
    """
    from streams.cluster.config import load
    from streams.log.terminal_text import clean
    from streams.views.report import letter_json

    settings = load()
    filters = _filters(settings, letter, reason, topic, rollout, since)
    outcomes = asyncio.run(_retry(settings, filters, limit, dry_run=dry_run))
    if json:
        plain = [{**letter_json(each.letter), "step": each.step, "why": each.why or None} for each in outcomes]
        sys.stdout.write(orjson.dumps(clean({"dry_run": dry_run, "letters": plain})).decode() + "\n")
        return
    _print_outcomes(outcomes)


def _filters(
    settings: "Settings",
    letter: str | None,
    reason: str | None,
    topic: str | None,
    rollout: str | None,
    since: str | None,
) -> "Filters":
    from streams.log.letter_list import Filters, parse_since
    from streams.views.naming import find_topic

    return Filters(
        letter_id=letter,
        reason=reason,
        topic=None if topic is None else settings.prefix + find_topic(topic, settings.prefix).name,
        rollout_id=rollout,
        since=None if since is None else parse_since(since),
    )


@asynccontextmanager
async def _log(settings: "Settings") -> "AsyncGenerator[KafkaReader, None]":
    from streams.log.kafka_reader import KafkaReader, hush
    from streams.log.topics import DEAD_LETTERS
    from streams.views.progress import progress

    hush()
    with progress() as say:
        async with KafkaReader(settings, say) as log:
            log.require(DEAD_LETTERS)
            yield log


async def _read(settings: "Settings", filters: "Filters") -> "list[DeadLetter]":
    from streams.log.letter_list import read_letters

    async with _log(settings) as log:
        return await read_letters(log, filters)


async def _one(settings: "Settings", filters: "Filters") -> "list[tuple[Placed, dict[str, object] | None]]":
    """The letters of an id (one for each reason), with their original decoded where that is possible."""
    from streams.log.letter_list import dead_letter
    from streams.log.topics import DEAD_LETTERS
    from streams.views.letter_page import decoded_original

    found: dict[str, Placed] = {}
    async with _log(settings) as log:
        async for placed in log.records([DEAD_LETTERS]):
            if filters.match(letter := dead_letter(placed)):
                found.setdefault(letter.letter.reason, placed)
        if not found:
            raise _no_letter(log, filters)
        return [(placed, await decoded_original(log, placed)) for placed in found.values()]


async def _retry(settings: "Settings", filters: "Filters", limit: int | None, *, dry_run: bool) -> "list[Outcome]":
    from streams.jobs.letter_retry import plan, put_back
    from streams.log.letter_list import read_letters

    async with _log(settings) as log:
        letters = await read_letters(log, filters)
        if filters.letter_id is not None and not letters:
            raise _no_letter(log, filters)
        chosen = letters if limit is None else letters[: max(0, limit)]
        planned = await plan(log, chosen, again=filters.letter_id is not None)
        return planned if dry_run else await put_back(log, planned)


def _no_letter(log: "KafkaReader", filters: "Filters") -> "LookError":
    from streams.log.reader import LookError

    return LookError(f"{log.place}: there is no dead letter {filters.letter_id!r}; `braid dead-letters list` has ids")


def _print_letters(letters: "Sequence[DeadLetter]", left: int) -> None:
    from streams.log.terminal_text import WHOLE, line, moment
    from streams.views.layout import sheet
    from streams.views.tables import show as print_all

    rows = [
        (
            moment(each.at), each.letter.reason, each.letter_id, line(each.rollout_id, WHOLE) or "-", each.size,
            line(each.letter.message, WHOLE) + (f" (x{each.copies})" if each.copies > 1 else ""),
        )
        for each in letters
    ]  # fmt: skip
    columns = ("at (UTC)", "reason", "id", "rollout", "bytes", "message")
    print_all(
        sheet("", columns, rows, right=("bytes",), limit=len(rows), narrow=columns[:3], spare=("bytes", "rollout"))
    )
    if left:
        sys.stdout.write(f"... and {left:,} more (--limit 0 shows all)\n")


def _print_counts(counts: dict[str, int]) -> None:
    from streams.views.layout import sheet
    from streams.views.tables import show as print_all

    rows = [*((reason, f"{count:,}") for reason, count in counts.items()), ("all", f"{sum(counts.values()):,}")]
    print_all(sheet("Letters by reason", ("reason", "letters"), rows, right=("letters",)))


def _print_outcomes(outcomes: "Sequence[Outcome]") -> None:
    from streams.log.terminal_text import line
    from streams.views.layout import sheet
    from streams.views.tables import show as print_all

    if not outcomes:
        sys.stdout.write("no dead letters match\n")
        return
    rows = [(each.step, each.letter.letter.reason, each.letter.letter_id, line(each.why)) for each in outcomes]
    print_all(sheet("", ("what", "reason", "id", "why"), rows, narrow=("what", "id")))
    counts = Counter(each.step for each in outcomes)
    sys.stdout.write("\n" + ", ".join(f"{count:,} {step}" for step, count in counts.items()) + "\n")
