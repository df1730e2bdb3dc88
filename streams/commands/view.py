"""`braid view`: web pages of the log."""

import sys
import time
from typing import TYPE_CHECKING, Annotated

from streams.commands.console_output import print_json
from streams.commands.numbers import PORTS, number
from streams.commands.options import Flag, LogFlags, LogLevel, given

SNAPSHOTS = "snapshots"
"""The folder in which the demo stores the workspaces of its branches, next to its log."""

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.applications import Starlette

    from agents.workspace.snapshot_adapter import SnapshotStore
    from streams.cluster.config import Settings
    from streams.log.progress import Say


def view(
    *,
    source: LogFlags = LogFlags(),
    host: str | None = None,
    port: Annotated[int | None, number("--port", 0, PORTS)] = None,
    json: Annotated[bool, Flag] = False,
    log_level: LogLevel = "warning",
) -> None:
    """Serve pages that show rollouts: the braid of branches, transcripts, pairs, rows and their evidence; until Ctrl-C.

    Reads the configured cluster, or the directory of a `braid run`, `braid demo` or `braid archive`. An index of the
    log is kept in the state directory and follows the log. Listens on loopback unless told otherwise; any other address
    needs tokens (`gateway.tokens`, with the role viewer). The same data is available as JSON: docs/view.md.

    Example: `braid view --from-dir results`

    Parameters
    ----------
    host
        The address to listen on.
    port
        The port; 0 takes a free one.
    json
        Print the address as one JSON object.
    """
    import asyncio

    import uvloop

    from streams.cluster import structured_logs as logs
    from streams.cluster.config import load
    from streams.cluster.connections import resolve
    from streams.cluster.garbage_collector import tune_gc
    from streams.services.web.server import address_of, listen, serve

    settings = load(view=given(host=host, port=port))
    settings = settings if source.from_dir is not None else resolve(settings)
    app = view_app(settings, source)
    bound = listen(settings.view.host, settings.view.port)

    def said() -> None:
        address = address_of(bound)
        if json:
            print_json({"url": address.url, "host": address.host, "port": address.port})
        else:
            sys.stdout.write(f"{address.url}  (Ctrl-C ends it)\n")
        sys.stdout.flush()

    logs.configure(log_level)
    tune_gc()  # a large rollout is many objects: garbage collection took a quarter of the time of its first page
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(app, bound, said))


def _progress() -> "Say":
    """Says on a terminal how far the index is, once a second."""
    last = time.monotonic()

    def say(step: str, share: float) -> None:
        nonlocal last
        if sys.stderr.isatty() and time.monotonic() - last >= 1:
            last = time.monotonic()
            sys.stderr.write(f"\r{step}: {share:.0%} ")
            sys.stderr.flush()

    return say


def view_app(settings: "Settings", source: LogFlags = LogFlags(), *, mounted: bool = False) -> "Starlette":
    """The application with everything that it reads; `mounted` for a gateway's, whose address and tokens were checked."""
    import shlex
    from functools import partial

    from streams.cluster.broker import places
    from streams.cluster.signing_keys import trusted_keys
    from streams.log.kafka_reader import hush
    from streams.log.readers import reader_of
    from streams.log.rollout_index import index_file
    from streams.services.view.follower import Follower, Source
    from streams.services.view.view_app import create_view, mounted_view
    from streams.views.web.site import BraidSite

    hush()
    state = settings.state_dir or places.state_dir()
    directory = source.from_dir
    opened = partial(reader_of, settings, directory, unfinished=source.unfinished)
    if directory is not None:
        opened()  # a directory without a log fails at once
    follower = Follower(Source(opened, directory), partial(index_file, state), settings.view.refresh_s, _progress())
    command = "braid verify" if directory is None else f"braid verify {shlex.quote(str(directory))}"
    site = BraidSite(settings, follower, trusted_keys(settings), snapshots_of(settings, directory), command)
    return (mounted_view if mounted else create_view)(site, follower, settings)


def snapshots_of(settings: "Settings", directory: "Path | None") -> "SnapshotStore":
    """The snapshots and screenshots that belong to a log: next to it, or those of this machine."""
    from agents.workspace.snapshot_adapter import SnapshotStore
    from streams.services.fork.fork_setup import snapshot_store

    beside = None if directory is None else directory / SNAPSHOTS
    return SnapshotStore(beside) if beside is not None and beside.is_dir() else snapshot_store(settings)
