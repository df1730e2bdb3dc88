"""`braid demo`: everything, on four forked tasks."""

import asyncio
import shlex
import shutil
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from streams.commands.options import Flag

if TYPE_CHECKING:
    from rich.console import Console

    from streams.cluster.config import Settings
    from streams.views.account import Account


def demo(
    *, out: Path = Path("braid-demo"), keep: Annotated[bool, Flag] = False, embedded: Annotated[bool, Flag] = False
) -> None:
    """Fork four tasks live, on a real Kafka, and watch them become rankings, training rows and evidence.

    Starts a Kafka and a schema registry (stopped again at the end unless --keep is given), a worker, a judge and two verifiers
    as processes, and runs four branches of each sample task in sandboxes: agents that play scripts, real files, real commands.
    The verifiers test the results in fresh sandboxes, and open the page among them in a browser if there is one.
    While it runs, its pages are at an address that it prints. The files go to a directory. Without Java and Maven, and without
    BRAID_KAFKA, it runs on the embedded log and says so.

    Example: `braid demo --out braid-demo`

    Parameters
    ----------
    out
        Where the files go; what an earlier demo left there is replaced.
    keep
        Leave Kafka and the registry running, for use with `braid show` and `braid tail`.
    embedded
        Use the embedded log although a Kafka could be started.
    """
    from streams.cluster.config import load
    from streams.demo.show import can_run_kafka, clear, closing_picture
    from streams.views.tables import console

    settings, screen = load(), console()
    clear(out)
    began = time.monotonic()
    if embedded or not can_run_kafka(settings):
        if not embedded:
            screen.print(
                "No Java and Maven here, and BRAID_KAFKA is not set: running on the embedded log instead of Kafka.\n"
            )
        account = _on_files(settings, out, screen)
    else:
        account = _on_kafka(settings, out, screen, keep=keep)
    screen.print(closing_picture(account))
    _say_where(screen, out, time.monotonic() - began)


def _on_kafka(settings: "Settings", out: Path, screen: "Console", *, keep: bool) -> "Account":
    from streams.demo.show import run_on_kafka, running_broker
    from streams.views.progress import steps

    # A rollout closes once and for all: every demo has topics of its own.
    settings = settings.model_copy(update={"prefix": f"demo-{int(time.time())}.", "partitions": 4})
    with ExitStack() as stack:
        with steps() as say:
            resolved = stack.enter_context(running_broker(settings, say, keep=keep))
        account = asyncio.run(run_on_kafka(resolved, out, screen))
    if keep:
        hint = f"BRAID_PREFIX={settings.prefix} BRAID_PARTITIONS={settings.partitions} braid show csv-table"
        screen.print(f"\nKafka stays at {resolved.kafka} (`braid broker stop` ends it). Look around:\n  {hint}")
    return account


def _on_files(settings: "Settings", out: Path, screen: "Console") -> "Account":
    from streams.cluster.signing_keys import signing_key
    from streams.demo.forks import SNAPSHOTS, Forks, run_forks, usable
    from streams.demo.show import SHOWN
    from streams.jobs.run.run import Wanted, run_files
    from streams.log.file_reader import FileReader
    from streams.services.fork.logs import file_log
    from streams.views.account import account_of
    from streams.views.tables import counts_table

    lines = out / "forks.ndjson"
    lines.unlink(missing_ok=True)

    async def fork() -> "Settings":
        forks = Forks(say=lambda line: screen.print(line, highlight=False))
        working = await usable(settings, out, forks.say)
        async with file_log(lines) as log:
            await run_forks(log, working, forks, verify=True)
        return working

    working = asyncio.run(fork())
    screen.print(counts_table(run_files([lines], out, working, signing_key(working), Wanted(beside=[SNAPSHOTS]))))
    return asyncio.run(account_of(FileReader(out), SHOWN))


def _say_where(screen: "Console", out: Path, seconds: float) -> None:
    from streams.log.json_lines import SINK_FILES

    screen.print(f"\nFiles in {out.resolve()} (done in {seconds:.0f} s):", soft_wrap=True)
    for name in SINK_FILES.values():
        count = (out / name).read_bytes().count(b"\n")
        screen.print(f"  {name:<16} {count:>4} records")
    pages, *others = _next(out)
    screen.print("\nThe pages of it, until Ctrl-C:")
    screen.print(f"  {pages}", soft_wrap=True)
    screen.print("\nNext, with or without a Kafka:")
    for line in others:
        screen.print(f"  {line}", soft_wrap=True)


def _next(out: Path) -> list[str]:
    """Commands that work on the demo's files, in a form that this shell can run; the one that shows its pages first."""
    from streams.demo.show import DATASET, SHOWN

    own = Path(sys.executable).with_name("braid")
    found = shutil.which("braid")
    braid = "braid" if found and own.exists() and own.samefile(found) else f"{shlex.quote(sys.executable)} -m streams"
    if braid != "braid" and own.exists():
        braid = shlex.quote(str(own))
    folder, dataset = shlex.quote(str(out.resolve())), shlex.quote(str(out.resolve() / DATASET))
    return [
        f"{braid} view --from-dir {folder}",
        f"{braid} show {SHOWN} --from-dir {folder}",
        f"{braid} export --format {DATASET} --from-dir {folder} --out {dataset}",
        f"{braid} verify {folder}",
    ]
