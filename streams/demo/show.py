"""The demo: forked branches become a ranking, a preference pair and evidence, on a real Kafka, while one watches.

It starts a broker (unless one is configured), a worker, a judge and two verifiers as processes of their own, and forks the
sample tasks in real sandboxes. Without Java and without a cluster, the same forks go to a file and over the embedded
log.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.constrain import Constrain
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from agents.evidence.signing import SigningKey
from agents.fork.browser_adapter import find_browser
from agents.fork.task_adapter import SAMPLES, load_task, sample_names
from agents.verdicts.meaning import kind_of
from schemas.branches import BranchRecord
from schemas.evidence import AepRecord
from schemas.lifecycle import CloseRequested, Lifecycle
from schemas.training import DpoRecord, Message
from schemas.verdicts import BuildVerdict, CheckVerdict, VisualVerdict
from streams.cluster import broker
from streams.cluster.broker import places
from streams.cluster.config import Settings
from streams.cluster.signing_keys import signing_key
from streams.demo.forks import BRANCHES, SNAPSHOTS, Forks, run_forks, usable
from streams.jobs.archive import archive
from streams.log.files import LOG
from streams.log.json_lines import SINK_FILES, Outputs
from streams.log.kafka_reader import KafkaReader, View
from streams.log.kafka_writer import FactWriter
from streams.log.manifest import LOG_MANIFEST, described, read_manifest, require_no_log_of_others, seal
from streams.log.topics import BUILD_VERDICTS, BY_RECORD, CHECK_VERDICTS, EVIDENCE, TOPICS, VISUAL_VERDICTS
from streams.log.view_rows import newest_first
from streams.services.fork.logs import KafkaForkLog
from streams.views.account import Account, account_of
from streams.views.fork_board import in_words
from streams.views.page import ranking_sheet
from streams.views.rollout_table import listing
from streams.views.tables import Grid, table

SHOWN = "csv-table"
"""The rollout whose ranking and pair are shown at the end: a mixed group with judged branches and a retried turn."""

RULES = Path(__file__).with_name("judge.toml")

NOW = 55
"""Characters of a branch's current step, in whole words, so that it fits 80 columns next to its task."""

PANEL = 120
"""Columns of a side of the pair, at most: its text is read, not measured."""

FORKS_S = 300.0
"""The branches and their verdicts have this long, on a busy machine, too."""

DATASET = "trl-dpo"
"""The format that the demo's last lines export, and its place in the demo's directory."""

VIEW_S = 60.0
"""The pages have this long to start."""

CLOSE_S = 60.0
"""The worker has this long to close everything after the last fact."""


def can_run_kafka(settings: Settings) -> bool:
    """Whether there is a cluster, or everything that a local one needs."""
    return bool(settings.kafka) or (shutil.which("java") is not None and shutil.which("mvn") is not None)


@contextmanager
def running_broker(settings: Settings, say: Callable[[str], None], *, keep: bool) -> Iterator[Settings]:
    """The configured cluster, or a local one; one that was started here is stopped again unless it shall be kept."""
    if settings.kafka:
        yield settings
        return
    state = settings.state_dir or places.state_dir()
    was_running = any(service.running for service in broker.status(state))
    endpoint = broker.start(state, settings.cache_dir or places.cache_dir(), say=say)
    try:
        yield settings.model_copy(update={"kafka": endpoint.bootstrap, "registry": endpoint.registry or ""})
    finally:
        if not keep and not was_running:
            broker.stop(state)


@asynccontextmanager
async def running(settings: Settings, log: Path, *command: str) -> AsyncIterator[subprocess.Popen[bytes]]:
    """A real process of ours (a worker, a judge, a verifier), stopped with SIGTERM."""
    env = os.environ | {
        "BRAID_KAFKA": settings.kafka,
        "BRAID_REGISTRY": settings.registry,
        "BRAID_PREFIX": settings.prefix,
        "BRAID_PARTITIONS": str(settings.partitions),
        "BRAID_EMISSION__JUDGE__KIND": "scripted",
        "BRAID_JUDGE__RULES": str(RULES),
        "BRAID_FORK__SNAPSHOTS": str(settings.fork.snapshots),
        "BRAID_FORK__ISOLATION": settings.fork.isolation,
        "BRAID_TRUSTED_VERIFIERS": "local",
    }
    with log.open("wb") as out:
        process = subprocess.Popen([sys.executable, "-m", "streams.cli", *command], env=env, stdout=out, stderr=out)  # noqa: ASYNC220 - returns at once
    try:
        yield process
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait, 15)


async def fork_all(writer: FactWriter, settings: Settings, forks: Forks) -> set[str]:
    """Fork the sample tasks, wait for their verdicts, and close them; return the rollouts."""
    awaiting = asyncio.create_task(await_verdicts(settings, forks))
    try:
        rollouts = await run_forks(KafkaForkLog(writer), settings, forks)
        await awaiting
    finally:
        awaiting.cancel()
    for rollout_id in rollouts:
        await writer.append(Lifecycle(close_requested=CloseRequested(rollout_id=rollout_id, end_of_input=True)))
    return set(rollouts)


async def await_verdicts(settings: Settings, forks: Forks) -> None:
    """Follow the verdicts, until every branch of every task has all of them, whatever they are."""
    tasks = {name: load_task(SAMPLES / name) for name in sample_names()}
    waiting = {(name, branch) for name in tasks for branch in range(BRANCHES)}
    async with KafkaReader(settings) as log:
        while waiting:
            said: dict[tuple[str, int], dict[str, str]] = defaultdict(dict)
            async for placed in log.records([BUILD_VERDICTS, CHECK_VERDICTS, VISUAL_VERDICTS]):
                verdict = await log.decode(placed)
                if isinstance(verdict, VisualVerdict | CheckVerdict) or (
                    isinstance(verdict, BuildVerdict) and verdict.status != "running"
                ):
                    said[verdict.rollout_id, verdict.branch_index][kind_of(verdict)] = in_words(verdict)
            for name, branch in sorted(waiting):
                result, verdicts = forks.results.get((name, branch)), said[name, branch]
                wanted = 1 + (tasks[name].braid.page is not None) + settings.verifier.anti_manipulation
                if result is None or (result.workspace and len(verdicts) < wanted):
                    continue
                if result.workspace:
                    forks.done(name, result, [verdicts[kind] for kind in sorted(verdicts)])
                waiting.discard((name, branch))
            await asyncio.sleep(0.5)


async def run_on_kafka(settings: Settings, out: Path, console: Console) -> Account:
    """Fork onto Kafka, watch it close, write the files; returns all about the rollout that is shown."""
    forks = Forks(say=lambda _line: None if console.is_terminal else console.print(_line, highlight=False))
    settings = await usable(settings, out, forks.say)
    if isinstance(browser := find_browser(settings.verifier.browser), str):
        console.print(f"Pages will be unknown: {browser}\n", highlight=False)
    async with (
        FactWriter(settings, "demo") as writer,
        running(settings, out / "worker.log", "worker") as worker,
        running(settings, out / "judge.log", "judge", "worker") as judge,
        running(settings, out / "build-verifier.log", "build-verifier", "--concurrency", "3") as builds,
        running(settings, out / "hack-verifier.log", "hack-verifier", "--concurrency", "1") as looks,
        running(settings, out / "visual-verifier.log", "visual-verifier", "--concurrency", "1") as pages,
        running(settings, out / "view.log", "view", "--port", "0", "--json"),
        KafkaReader(settings) as log,
    ):
        console.print(await _address_of(out / "view.log"), highlight=False, soft_wrap=True)
        processes = {
            "worker": worker,
            "judge": judge,
            "build-verifier": builds,
            "hack-verifier": looks,
            "visual-verifier": pages,
        }
        forking = asyncio.create_task(fork_all(writer, settings, forks))
        try:
            await _watch(log, forking, forks, processes, out, console)
        finally:
            forking.cancel()
            await asyncio.wait([forking])
        closed = await _write_files(log, out)
        account = await account_of(log, SHOWN)
    kept = await _keep_log(settings, out)  # after the worker has ended: it writes no more
    _seal(out, kept | {"rollouts": sorted(closed)}, signing_key(settings))
    return account


async def _address_of(said: Path) -> str:
    """The line with the address of the pages, or the reason why there are none: the demo continues without them."""
    for _ in range(int(VIEW_S / 0.1)):
        first = (await asyncio.to_thread(said.read_bytes)).partition(b"\n")[0]
        if first.startswith(b"{"):
            return f"See it live: {json.loads(first)['url']}\n"
        await asyncio.sleep(0.1)
    return f"The pages did not start; {said} says more.\n"


def _seal(out: Path, members: dict[str, Any], key: SigningKey) -> None:
    """Write the manifest, when the processes have ended, and so have their logs."""
    ours = (
        *(out / name for name in SINK_FILES.values()),
        *out.glob("*.log"),
        *(out / LOG).rglob("*"),
        *(out / SNAPSHOTS).rglob("*"),
    )
    files = [path for path in ours if path.is_file() and not path.is_symlink()]
    seal(out, "demo", described(out, files), key, members)


async def _write_files(log: KafkaReader, out: Path) -> set[str]:
    """The sinks as files. Of the branch records only those that evidence lists: a branch may have settled with other
    facts than it ended with.

    Returns the rollouts that have closed.
    """
    (out / LOG_MANIFEST).unlink(missing_ok=True)
    closings = [
        record
        async for placed in log.records([EVIDENCE])
        if isinstance(record := await log.decode(placed), AepRecord) and record.closing is not None
    ]
    listed = {each.record_id for record in closings if record.closing for each in record.closing.emitted}
    with Outputs(out, SINK_FILES) as outputs:
        async for placed in log.records([BY_RECORD[record] for record in SINK_FILES]):
            record = await log.decode(placed)
            if not isinstance(record, BranchRecord) or record.record_id in listed:
                outputs.write([record])
    return {record.rollout_id for record in closings}


async def _keep_log(settings: Settings, out: Path) -> dict[str, Any]:
    """Copy all topics to files, so that the demo's results can be viewed, exported and verified without its Kafka.

    Returns the manifest's description of this log.
    """
    with tempfile.TemporaryDirectory(prefix=".log-", dir=out) as folder:
        await archive(settings, Path(folder), TOPICS, None)
        (Path(folder) / LOG).rename(out / LOG)
        said = read_manifest(Path(folder))
    return {name: said[name] for name in ("inputs", "schemas")}


def clear(out: Path) -> None:
    """Make the demo's directory, without the log and the dataset of an earlier demo."""
    out.mkdir(parents=True, exist_ok=True)
    require_no_log_of_others(out)
    for name in (LOG, DATASET):
        shutil.rmtree(out / name, ignore_errors=True)
    (out / LOG_MANIFEST).unlink(missing_ok=True)


async def _watch(
    log: KafkaReader,
    forking: "asyncio.Task[set[str]]",
    forks: Forks,
    processes: dict[str, subprocess.Popen[bytes]],
    out: Path,
    console: Console,
) -> None:
    view = View(log)
    ends = time.monotonic() + FORKS_S + CLOSE_S
    with Live(
        Text("starting the worker ..."), console=console, auto_refresh=False, transient=not console.is_terminal
    ) as live:
        while True:
            await view.refresh()
            if console.is_terminal:
                live.update(Group(_board(forks), listing(newest_first(view.rows), 0, view.rows.values())), refresh=True)
            if forking.done() and all(view.rows.get(each) and view.rows[each].is_final for each in forking.result()):
                break
            for name, process in processes.items():
                if process.poll() is not None or time.monotonic() > ends:
                    raise DemoError(
                        f"the {name} did not finish (exit code {process.poll()}); its log: {out / name}.log"
                    )
            await asyncio.sleep(0.3)
    if not console.is_terminal:
        console.print(listing(newest_first(view.rows), 0, view.rows.values()))


def _board(forks: Forks) -> Grid:
    """The branches of all tasks, in their current state."""
    board = table("", "task", "branch", "now", right=("branch",), whole=("task",))
    for (task, branch), now in sorted(forks.now.items()):
        board.add_row(task, str(branch), textwrap.shorten(now, NOW, placeholder=" …"))
    return board


class DemoError(broker.BrokerError):
    """The demo did not finish."""


def closing_picture(account: Account) -> RenderableType:
    """The ranking of a rollout, and one preference pair."""
    parts: list[RenderableType] = []
    if account.ranking is not None:
        parts += [Text(f"\nThe ranking of {SHOWN}", style="bold"), ranking_sheet(account.ranking)]
    pair = next((row for row in account.rows if isinstance(row, DpoRecord)), None)
    if pair is not None:
        title = f"\nA preference pair of {SHOWN}: branch {pair.chosen_branch} over branch {pair.rejected_branch}"
        parts += [
            Text(f"{title} ({pair.basis}, margin {pair.margin:g}, {len(pair.prompt)} messages shared)", style="bold"),
            _side("chosen", "green", pair.chosen),
            _side("rejected", "red", pair.rejected),
        ]
    return Group(*parts)


def _side(name: str, colour: str, messages: tuple[Message, ...]) -> RenderableType:
    lines = []
    for message in messages:
        lines += [f"calls {call.function.name}({_cut(call.function.arguments, 60)})" for call in message.tool_calls]
        if message.content:
            lines.append(f"{message.role}: {_cut(message.content, 300 if message is messages[-1] else 90)}")
    shown = lines if len(lines) <= 12 else [*lines[:5], f"... {len(lines) - 11} more ...", *lines[-6:]]
    return Constrain(Panel(Text("\n".join(shown)), title=name, border_style=colour, expand=False), PANEL)


def _cut(text: str, length: int) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= length else flat[: length - 1] + "…"
