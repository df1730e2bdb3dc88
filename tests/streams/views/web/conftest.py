"""A server of the pages on real runs, and a browser."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
import uvloop
from playwright.sync_api import Browser, sync_playwright

from agents.evidence.signing import SigningKey
from agents.fork.browser_adapter import find_browser
from agents.workspace.snapshot_adapter import SnapshotStore
from benchmarks.view import wide_lines
from streams.cluster.config import Settings
from streams.commands.options import LogFlags
from streams.commands.view import SNAPSHOTS, view_app
from streams.jobs.run.run import run_files
from streams.services.web.server import Server, address_of, listen
from tests.sample.sample_lines import sample_lines
from tests.streams.views.web.view_data_lines import hostile_lines, picture, secret_lines, six_lines


@contextmanager
def viewing(settings: Settings, directory: Path | None = None) -> Iterator[str]:
    """Serve the pages on a free port; gives the address."""
    bound, started = listen("127.0.0.1", 0), threading.Event()
    app = view_app(settings, LogFlags(from_dir=directory))
    server = Server(app, started.set)

    def run() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(server.serve([bound]))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert started.wait(60)
    try:
        yield address_of(bound).url
    finally:
        server.end()
        thread.join(30)


def await_that(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    until = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.1)


def write_lines(path: Path, lines: Iterator[Any]) -> Path:
    """Lines as a file."""
    path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    return path


@pytest.fixture(scope="package")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of `braid run` on the sample and on rollouts for the pages, signed with the development key."""
    from streams.cluster.signing_keys import signing_key

    folder = tmp_path_factory.mktemp("ran")
    key: SigningKey = signing_key(Settings())
    wide = wide_lines("resumable-import", branches=14, turns=16, cheat=3)
    lines = [*sample_lines(), *six_lines(), *hostile_lines(), *secret_lines(), *wide]
    run_files([write_lines(folder / "lines.ndjson", iter(lines))], folder / "out", Settings(), key)
    SnapshotStore(folder / "out" / SNAPSHOTS).keep_picture(picture())
    return folder / "out"


@pytest.fixture(scope="package")
def state(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Settings with a state directory of their own."""
    return Settings(state_dir=tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="package")
def address(ran: Path, state: Settings) -> Iterator[str]:
    """The pages of that run."""
    with viewing(state, ran) as url:
        yield url


class Look:
    """A browser in a thread of its own: Playwright keeps a loop running there. Everything that a page complains about is kept."""

    def __init__(self, thread: ThreadPoolExecutor, browser: Browser) -> None:
        self._thread = thread
        self._browser = browser

    def __call__(self, do: Any, *given: Any) -> Any:
        """Run a function with the browser as its first argument."""
        return self._thread.submit(do, self._browser, *given).result(120)


@pytest.fixture(scope="session")
def look() -> Iterator[Look]:
    """The machine's Chromium."""
    found = find_browser()
    if isinstance(found, str):
        pytest.skip(f"{found}; the browser's tests were NOT run")
    with ThreadPoolExecutor(1) as thread:
        playwright = thread.submit(sync_playwright().start).result()
        flags = ["--no-sandbox", "--disable-dev-shm-usage", "--font-render-hinting=none"]
        browser = thread.submit(playwright.chromium.launch, executable_path=found.program, args=flags).result()
        yield Look(thread, browser)
        thread.submit(browser.close).result()
        thread.submit(playwright.stop).result()
