"""`braid archive`: topics to files, and back."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from streams.commands.console_output import complain, print_json
from streams.commands.options import Json

if TYPE_CHECKING:
    from streams.jobs.archive import Archived

app = App(name="archive", help="Keep the log in files, and bring it back.")


@app.default
def archive(
    *,
    out: Path,
    all_: Annotated[bool, Parameter(name="--all", negative="")] = False,
    json: Json = False,
) -> None:
    """Copy the fact topics to files: Avro containers with offsets, times, keys, headers and unchanged bytes.

    `braid replay --from-dir OUT` reads them exactly as it reads topics, on any machine: the schemas are in the manifest.
    The manifest is signed and written last: without it a directory is no archive, and is refused.

    Example: `braid archive --out kept`

    Parameters
    ----------
    out
        An empty directory.
    all_
        Also what follows from the facts: branches, rankings, evidence, rows, dead letters.
    """
    from streams.cluster.config import load
    from streams.cluster.signing_keys import signing_key
    from streams.commands.stop_signals import run_stoppable
    from streams.jobs.archive import archive as run
    from streams.jobs.errors import ReplayError
    from streams.log.kafka_reader import hush
    from streams.log.topics import ARCHIVED, TOPICS
    from streams.views.progress import progress

    hush()
    began = time.monotonic()
    if out.exists() and not out.is_dir():
        raise ReplayError(f"--out {out} is a file; give a directory")
    settings = load()
    with progress() as say:
        found = run_stoppable(run(settings, out, TOPICS if all_ else ARCHIVED, signing_key(settings), say))
    found.seconds = round(time.monotonic() - began, 3)
    _show(found, json=json)


@app.command
def restore(directory: Path, /, *, to_prefix: str, json: Json = False) -> None:
    """Write an archive to new topics: same partitions, order, times, keys, headers and content.

    Example: `braid archive restore kept --to-prefix restored.`

    Parameters
    ----------
    directory
        The output of `braid archive --out`.
    to_prefix
        Prefix of the topics; they are created, and must not hold anything.
    """
    from streams.cluster.config import load
    from streams.cluster.connections import resolve
    from streams.commands.stop_signals import run_stoppable
    from streams.jobs.archive import restore as run
    from streams.jobs.replay.replay_manifest import require_manifest
    from streams.jobs.targets import require_possible
    from streams.log.kafka_reader import hush
    from streams.views.progress import progress

    require_possible(to_prefix)
    require_manifest(directory)
    hush()
    began = time.monotonic()
    with progress() as say:
        found = run_stoppable(run(directory, resolve(load()), to_prefix, say))
    found.seconds = round(time.monotonic() - began, 3)
    _show(found, json=json)


@app.command
def check(directory: Path, /, *, json: Json = False) -> None:
    """Check that every file of an archive is present and unchanged, and that there are no others.

    Example: `braid archive check kept`

    Parameters
    ----------
    directory
        The output of `braid archive --out`.
    """
    from streams.jobs.archive import check as run
    from streams.jobs.replay.replay_manifest import require_manifest

    require_manifest(directory)
    _show(run(directory), json=json)


def _show(found: "Archived", *, json: bool) -> None:
    if json:
        print_json(vars(found))
    else:
        from streams.views.tables import show, table

        made = table("", "what", "count", right=("count",))
        for what in ("topics", "partitions", "records", "files", "bytes", "schemas"):
            if getattr(found, what):
                made.add_row(what, f"{getattr(found, what):,}")
        show(made)
    complain(*found.problems)
    if found.problems:
        sys.exit(1)
