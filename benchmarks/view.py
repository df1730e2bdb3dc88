"""benchmarks/view: the pages beside a static page of the same server, on logs that grow, and fifty open pages beside a worker.

    python -m benchmarks.view [--only pages,long,live] [--events 10000,1000000] [--rollouts N] [--rounds N]

`pages` is a rollout of 64 branches and 10,000 events, in headless Chromium; `long` one page on logs of more and more events; `live`
the CPU seconds of a worker with and without fifty open pages, on the same facts.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import httpx
import psutil
from playwright.sync_api import Browser, sync_playwright

from agents.fork.browser_adapter import find_browser
from benchmarks import live, replay
from streams.cluster.config import Settings
from streams.cluster.signing_keys import signing_key
from streams.jobs.run.run import run_files
from streams.log.topic_setup import ensure_topics

OPEN_PAGES = 50
ROUNDS = 5

START_MS = 1_768_000_000_000
TOOLS = ("read_file", "search", "run", "edit_file", "write_file")


def wide_lines(
    rollout_id: str = "wide", branches: int = 64, turns: int = 31, shared: int = 3, cheat: int = 21
) -> Iterator[dict[str, Any]]:
    """A rollout as lines: branches that stay together for some turns, five events a turn, verdicts, and votes among those that pass.

    Branch `cheat` changed a protected file.
    """
    yield {
        "type": "rollout", "rollout_id": rollout_id, "task": "Make the flaky import job resumable, and keep its log readable.",
        "branches": branches, "required": ["build"], "labels": {"kind": "generated"},
    }  # fmt: skip
    passing = [branch for branch in range(branches) if branch % 7 in (0, 3, 5)]
    for branch in range(branches):
        own = turns - branch % 9
        for seq, (channel, kind, data) in enumerate(_events(branch, own, shared)):
            event = {
                "channel": channel,
                "event": kind,
                "data": data,
                "timestamp_ms": START_MS + branch * 37 + seq * 900,
            }
            yield {"type": "event", "rollout_id": rollout_id, "branch_index": branch, "seq": seq, "event": event}
        if branch % 16 == 15:
            continue  # it was not tested
        good = branch in passing
        yield {
            "type": "build", "rollout_id": rollout_id, "branch_index": branch, "status": "success" if good else "failure",
            "exit_code": 0 if good else 1,
            "tests": {"passed": 20 if good else branch % 19, "failed": 0 if good else 20 - branch % 19, "total": 20},
            "protected_paths_intact": branch != cheat,
        }  # fmt: skip
    for place, branch in enumerate(passing):
        for other in passing[place + 1 : place + 4]:
            for order in ("ab", "ba"):
                better = "a" if (branch * 7) % 11 >= (other * 7) % 11 else "b"
                preferred = ("a" if order == "ab" else "b") if (branch + other) % 5 == 0 else better
                yield {
                    "type": "vote", "rollout_id": rollout_id, "a": branch, "b": other, "order": order, "sample": 0,
                    "preferred": preferred, "judge": "judge-1", "reasoning": "It keeps the log readable.",
                }  # fmt: skip


def _events(branch: int, turns: int, shared: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
    yield (
        "text",
        "run_start",
        {"task": "Make the flaky import job resumable.", "agentConfig": {"model": "m-1", "tools": list(TOOLS)}},
    )
    for turn in range(turns):
        # Branches part one group after the other: by turn `shared` in eight groups, then one by one.
        group = 0 if turn < shared else branch % 8 if turn < shared + 3 else branch
        tool = TOOLS[(turn * 3 + group) % len(TOOLS)]
        path = f"src/job_{(turn + group) % 9}.py"
        failed = (turn * 5 + group) % 17 == 11
        yield "thinking", "step_start", {"step": turn}
        yield "thinking", "thinking_delta", {"delta": f"Next I look at {path}, as plan {group} says.", "step": turn}
        yield (
            "model",
            "model_done",
            {"modelId": "m-1", "step": turn, "inputTokens": 900 * (turn + 1), "outputTokens": 60 * (turn + 1)},
        )
        call = f"c{turn}"
        yield (
            "tool",
            "tool_call",
            {"toolName": tool, "args": {"path": path, "plan": group}, "callId": call, "stepIndex": turn},
        )
        output = "\n".join(
            f"{path}:{line}: def step_{line}(state): return state" for line in range(6 + (turn + group) % 9)
        )
        error = {"error": {"code": "ENOENT", "message": f"{path} is not there"}} if failed else {"output": output}
        yield "tool", "tool_result", {"callId": call, **error}
        if turn == 14 and branch % 11 == 4:
            yield "status", "context_rewritten", {"kept": 3}
    yield (
        "text",
        "final_answer",
        {"answer": f"The job resumes from its last committed row; branch {branch} keeps one line a batch."},
    )


def write_lines(path: Path, lines: Iterator[dict[str, Any]]) -> int:
    """Write lines to a file; returns how many events are among them."""
    events = 0
    with path.open("w") as out:
        for line in lines:
            events += line["type"] == "event"
            out.write(json.dumps(line) + "\n")
    return events


class Served(NamedTuple):
    """A server of pages."""

    url: str
    process: psutil.Process

    @property
    def memory(self) -> float:
        """MB of it that are its own or shared in part (PSS)."""
        return float(self.process.memory_full_info().pss) / 1e6

    @property
    def cpu_s(self) -> float:
        """CPU seconds so far."""
        used = self.process.cpu_times()
        return float(used.user + used.system)


@contextmanager
def serving(state: Path, directory: Path | None = None, settings: Settings | None = None) -> Iterator[Served]:
    """`braid view` in a process of its own."""
    words = ["view", "--port", "0", "--json", *(["--from-dir", str(directory)] if directory else [])]
    env = live.environment(settings or Settings()) | {"BRAID_STATE_DIR": str(state)}
    process = subprocess.Popen([sys.executable, "-m", "streams.cli", *words], env=env, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield Served(json.loads(process.stdout.readline())["url"], psutil.Process(process.pid))
    finally:
        process.terminate()
        process.wait(30)


def wait_ready(url: str) -> float:
    """Seconds until the index has reached the end of the log."""
    began = time.monotonic()
    while True:
        answer = httpx.get(f"{url}/v1/rollouts?limit=1", timeout=60)
        if answer.status_code == 200 and answer.json()["ready"]:
            return time.monotonic() - began
        time.sleep(0.05)


class View(NamedTuple):
    """One page in the browser."""

    painted_ms: float
    loaded_ms: float
    bytes: int
    """Over the wire, with everything that it loads."""
    requests: int
    complaints: int


def view(browser: Browser, url: str) -> View:
    """Open a page in a window of its own, with nothing cached."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Network.enable")
    sizes: list[int] = []
    complaints: list[str] = []
    session.on("Network.loadingFinished", lambda event: sizes.append(int(event["encodedDataLength"])))
    page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
    page.goto(url)
    painted = page.evaluate(
        "new Promise((done) => { const look = () => { const found = performance.getEntriesByName('first-contentful-paint')[0];"
        " found ? done(found.startTime) : requestAnimationFrame(look); }; look(); })"
    )
    loaded = page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
    page.wait_for_timeout(100)
    context.close()
    return View(painted, loaded, sum(sizes), len(sizes), len(complaints))


def pages(folder: Path) -> None:
    """First views in the browser."""
    found = find_browser()
    if isinstance(found, str):
        print(f"pages: {found}")
        return
    events = write_lines(folder / "wide.ndjson", wide_lines(turns=36))
    run_files([folder / "wide.ndjson"], folder / "wide", Settings(), signing_key(Settings()))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found.program, args=["--no-sandbox"])
        print(f"64 branches, {events:,} events; {ROUNDS} windows each, nothing cached in the browser")
        print(f"{'page':<44}{'painted, ms':>12}{'loaded, ms':>12}{'KB':>8}{'requests':>10}{'errors':>8}")
        for name, path in (
            ("a static file of the same server", "/static/braid.svg"), ("the list", "/"), ("the rollout, first time", "/rollouts/wide"),
            ("the rollout", "/rollouts/wide"), ("a branch", "/rollouts/wide/branches/14"), ("a pair", "/rollouts/wide/pairs/14/28"),
            ("rows and evidence, verified", "/rollouts/wide/rows"),
        ):  # fmt: skip
            shown = []
            for number in range(1 if name.endswith("first time") else ROUNDS):
                with serving(folder / f"state-{name}-{number}", folder / "wide") as served:
                    wait_ready(served.url)
                    if not name.endswith("first time"):
                        httpx.get(served.url + path, timeout=60)
                    shown.append(view(browser, served.url + path))
                    memory = served.memory
            middle = [statistics.median(each[place] for each in shown) for place in range(5)]
            print(
                f"{name:<44}{middle[0]:>12.0f}{middle[1]:>12.0f}{middle[2] / 1000:>8.1f}{middle[3]:>10.0f}{middle[4]:>8.0f}",
                flush=True,
            )
        print(f"memory of the server: {memory:.0f} MB (PSS)\n")
        browser.close()


def long(folder: Path, sizes: list[int]) -> None:
    """One page on logs of more and more events, in files."""
    heads = (
        ("index built, s", 16),
        ("index, MB", 11),
        ("opened again, s", 17),
        ("list, ms", 10),
        ("rollout, ms", 13),
        ("PSS, MB", 9),
    )
    print(f"{'events in the log':<20}" + "".join(f"{name:>{width}}" for name, width in heads))
    for events in sizes:
        log, state = folder / f"log-{events}", folder / f"state-{events}"
        replay.generate(log, events // 8)
        with serving(state, log) as served:
            built = wait_ready(served.url)
        index = sum(path.stat().st_size for path in (state / "view").iterdir()) / 1e6
        with serving(state, log) as served:
            again = wait_ready(served.url)
            listed = _milliseconds(served.url + "/")
            names = [
                row["rollout_id"]
                for row in httpx.get(f"{served.url}/v1/rollouts?limit=9", timeout=60).json()["rollouts"]
            ]
            shown = statistics.median(_milliseconds(f"{served.url}/rollouts/{name}") for name in names)
            memory = served.memory
        print(
            f"{events:<20,}{built:>16.1f}{index:>11.1f}{again:>17.2f}{listed:>10.0f}{shown:>13.0f}{memory:>9.0f}",
            flush=True,
        )
    print()


def _milliseconds(url: str) -> float:
    began = time.monotonic()
    answer = httpx.get(url, timeout=60)
    assert answer.status_code == 200, answer.text
    return (time.monotonic() - began) * 1000


async def open_pages(url: str, count: int, ended: asyncio.Event) -> int:
    """Keep pages open as browsers do: told of a change, each is fetched again; returns how often."""
    fetched = 0

    async def one(client: aiohttp.ClientSession) -> None:
        nonlocal fetched
        async with client.get(f"{url}/live") as changes:
            state = ""
            async for told in changes.content:
                if told.startswith(b"data:"):
                    async with client.get(url, headers={"If-None-Match": state}) as answer:
                        await answer.read()
                        state = answer.headers.get("ETag", "")
                    fetched += 1
                    await asyncio.sleep(0.5)

    # A light client: its own work is on the same processors, and would be taken for the server's. Nothing is unpacked.
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(
        connector=connector, auto_decompress=False, headers={"Accept-Encoding": "gzip"}, timeout=aiohttp.ClientTimeout()
    ) as client:
        tasks = [asyncio.create_task(one(client)) for _ in range(count)]
        await ended.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return fetched


def worker_seconds(settings: Settings, rollouts: int, folder: Path) -> float:
    """CPU seconds of a worker that closes a backlog."""
    log = folder / f"worker-{settings.prefix}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "streams.cli", "worker"], env=live.environment(settings), stderr=out
        )
    watched = psutil.Process(process.pid)
    try:
        while log.read_bytes().count(b'"event": "closed"') < rollouts:
            if process.poll() is not None:
                raise RuntimeError(f"the worker ended: {log.read_text()[-2000:]}")
            time.sleep(0.2)
        used = watched.cpu_times()
        return float(used.user + used.system)
    finally:
        process.terminate()
        process.wait(20)


def beside_worker(folder: Path, rollouts: int, rounds: int) -> None:
    """The worker alone, and with fifty open pages, in turn."""
    alone, watched, memory, fetched, served_s = [], [], 0.0, 0, []
    with live.fresh_broker(folder, live.PARTITIONS) as base:
        for number in range(2 * rounds):
            settings = base.model_copy(update={"prefix": f"view{number}."})
            asyncio.run(ensure_topics(settings))
            asyncio.run(live.produce(settings, rollouts, 16, live.BUSY))
            if number % 2 == 0:
                alone.append(worker_seconds(settings, rollouts, folder))
                continue
            with serving(folder / f"state{number}", settings=settings) as served:
                wait_ready(served.url)
                before = served.cpu_s
                seconds, count, peak = asyncio.run(_watched(served, settings, rollouts, folder))
                served_s.append(served.cpu_s - before)
            watched.append(seconds)
            memory, fetched = max(memory, peak), fetched + count
    print(f"worker alone                 {statistics.median(alone):>8.2f} CPU s   {[round(each, 2) for each in alone]}")
    print(
        f"worker beside {OPEN_PAGES} open pages  {statistics.median(watched):>8.2f} CPU s   {[round(each, 2) for each in watched]}"
    )
    # Other work of the machine only ever adds to CPU seconds: the least of each say most.
    middle, least = statistics.median(watched) / statistics.median(alone) - 1, min(watched) / min(alone) - 1
    print(
        f"difference: least {least:+.1%}, median {middle:+.1%}; pages fetched again {fetched:,} times; "
        f"server {statistics.median(served_s):.2f} CPU s, {memory:.0f} MB (PSS)"
    )


async def _watched(served: Served, settings: Settings, rollouts: int, folder: Path) -> tuple[float, int, float]:
    ended = asyncio.Event()
    pages_open = asyncio.create_task(open_pages(served.url, OPEN_PAGES, ended))
    working = asyncio.create_task(asyncio.to_thread(worker_seconds, settings, rollouts, folder))
    peak = 0.0
    while not working.done():
        peak = max(peak, served.memory)
        await asyncio.sleep(0.5)
    ended.set()
    return await working, await pages_open, peak


def main() -> None:
    """Run what was asked for and print the tables."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--only", default="pages,long,live")
    arguments.add_argument("--events", default="10000,1000000")
    arguments.add_argument("--rollouts", type=int, default=300)
    arguments.add_argument("--rounds", type=int, default=3)
    given = arguments.parse_args()
    wanted = given.only.split(",")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "pages" in wanted:
            pages(folder)
        if "long" in wanted:
            long(folder, [int(each) for each in given.events.split(",")])
        if "live" in wanted:
            beside_worker(folder, given.rollouts, given.rounds)


if __name__ == "__main__":
    main()
