"""Pages in a real browser: what is seen, what is no pass, and what cannot be seen."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from playwright.sync_api import sync_playwright

from agents.fork import visual_verdict as visual
from agents.fork.browser_adapter import find_browser
from agents.fork.local_adapter import LocalSandboxes
from agents.fork.look_adapter import FLAGS, Files, see
from agents.fork.subject import Subject
from agents.fork.task import Page, Probe
from agents.fork.task_adapter import SAMPLES, find_task, load_task, overlays
from agents.fork.visual_verdict import Browser, Keep, look, read_look, visual_verdict
from agents.verdicts.meaning import visual_outcome
from agents.workspace.files import File
from agents.workspace.snapshot_adapter import PNG, SnapshotStore
from schemas.verdicts import VisualVerdict

SUBJECT = Subject("r", 0, 0, "test", "files")


@pytest.fixture(scope="module")
def browser() -> Browser:
    """The machine's Chromium."""
    found = find_browser()
    if isinstance(found, str):
        pytest.skip(f"{found}; the browser's tests were NOT run")
    return found


See = Callable[[str, tuple[Probe, ...]], dict[str, Any]]
"""A look at a page in a folder: the fields of a verdict."""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for pages."""
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def seen_page(browser: Browser, pages: Path) -> Iterator[See]:
    """Look at pages of the folder in one browser, without a sandbox: half of a look is the start of its browser.

    In a thread of its own: Playwright keeps a loop running there.
    """
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), partial(Files, directory=str(pages))) as server,
        ThreadPoolExecutor(1) as thread,
    ):
        Thread(target=server.serve_forever, daemon=True).start()
        playwright = thread.submit(sync_playwright().start).result()
        launch = partial(playwright.chromium.launch, executable_path=browser.program, args=list(FLAGS))
        chromium = thread.submit(launch).result()

        def look_at(path: str, probes: tuple[Probe, ...]) -> dict[str, Any]:
            spec = {"path": path, "probes": [probe.model_dump() for probe in probes], "load_ms": visual.LOAD_MS}
            origin = f"http://127.0.0.1:{server.server_address[1]}"
            return read_look(thread.submit(see, chromium, spec, origin).result())

        yield look_at
        thread.submit(playwright.stop).result()
        server.shutdown()


async def look_at_sample(
    overlay: str, browser: Browser, local: LocalSandboxes, keep: Keep = lambda _picture: None
) -> VisualVerdict:
    """The verdict about the sample task's page, with the files of a reference or broken solution."""
    task = load_task(find_task("price-page"))
    files = {**task.start, **overlays(SAMPLES / "price-page")[overlay]}
    assert task.braid.page is not None
    return await visual_verdict(task, task.braid.page, files, await local.create(), browser, SUBJECT, keep)


@pytest.mark.parametrize("overlay", [name for name in overlays(SAMPLES / "price-page") if name != "solution"])
async def test_broken_pages_fail(overlay: str, browser: Browser, local: LocalSandboxes) -> None:
    """By the probes of the task, in a sandbox."""
    verdict = await look_at_sample(overlay, browser, local)
    assert visual_outcome(verdict) == "fail", verdict
    assert verdict.screenshot_digest is not None


async def test_the_reference_passes_and_looks_in_a_row_see_the_same(
    browser: Browser, local: LocalSandboxes, tmp_path: Path
) -> None:
    """The same page gives the same verdict and the same screenshot, in fresh sandboxes; it is kept under its digest."""
    store = SnapshotStore(tmp_path / "kept")
    seen = [await look_at_sample("solution", browser, local, store.keep_picture) for _ in range(2)]
    assert visual_outcome(seen[0]) == "pass", seen
    assert seen[0].screenshot_digest is not None
    assert seen[0] == seen[1]
    assert (store.picture(seen[0].screenshot_digest) or b"").startswith(PNG)


LIES = """<title>t</title><body>here<script>
document.querySelectorAll = () => ({length: 3}); Array.prototype.join = () => "yes"; Document.prototype.querySelector = () => ({});
</script>"""
CANVAS = """<body><canvas width=50 height=50></canvas><script>
document.querySelector("canvas").getContext("2d").fillRect(0, 0, 9, 9)</script>"""
NETWORK = """<body>here<script>fetch("http://192.0.2.1/").catch(() => {}); new Image().src = "http://192.0.2.1/x.png"</script>"""


@pytest.mark.parametrize(
    ("html", "outcome", "says"),
    [
        ("<body><p>hello</p>", "pass", ""),
        (CANVAS, "pass", ""),
        ("<body></body>", "fail", "nothing is drawn"),
        ("<body style='background:#eee'></body>", "fail", "nothing is drawn"),
        ("<body><p style='display:none'>x</p>", "fail", "nothing is drawn"),
        ("<body>here<script>throw new Error('boom')</script>", "fail", "uncaught"),
        ("<body>here<script>Promise.reject(new Error('later'))</script>", "fail", "uncaught"),
        ("<body>here<script>console.error('bad')</script>", "fail", "console"),
        ("<body>here<img src=missing.png>", "fail", "console"),
        (LIES, "fail", "three"),
        (NETWORK, "fail", "console"),
    ],
)  # fmt: skip
def test_what_is_seen(html: str, outcome: str, says: str, pages: Path, seen_page: See) -> None:
    """A drawn page without errors passes; a page that replaces what probes use answers nothing for the document."""
    (pages / "index.html").write_text("<!doctype html>" + html)
    probes = (Probe(name="three", script="document.querySelectorAll('h1').length === 3"),) if html is LIES else ()
    seen = seen_page("index.html", probes)
    assert seen["verdict"] == outcome, seen
    assert says in (seen["reason"] or ""), seen


def test_a_page_that_is_not_there_fails(seen_page: See) -> None:
    seen = seen_page("none.html", ())
    assert (seen["verdict"], "404" in seen["reason"]) == ("fail", True)


async def test_what_cannot_be_seen_is_unknown_with_the_reason(
    browser: Browser, local: LocalSandboxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that never loads, a browser that does not start, a sandbox that is gone."""
    monkeypatch.setattr(visual, "LOAD_MS", 1500)
    sandbox = await local.create()
    await sandbox.put({"busy.html": File(b"<!doctype html><script>for(;;);</script>")})
    busy = await look(Page(path="busy.html"), sandbox, browser)
    assert (busy["verdict"], "1.5 s" in busy["reason"]) == ("unknown", True), busy
    broken = await look(Page(path="busy.html"), sandbox, browser._replace(program="/usr/bin/false"))
    assert (broken["verdict"], "browser:" in broken["reason"]) == ("unknown", True), broken
    task = load_task(find_task("price-page"))
    await sandbox.dispose()
    assert task.braid.page is not None
    gone = await visual_verdict(task, task.braid.page, task.start, sandbox, browser, SUBJECT)
    assert (gone.verdict, "sandbox:" in (gone.reason or "")) == ("unknown", True), gone


def test_without_a_browser_the_reason_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """None installed, or one named that is not there."""
    monkeypatch.setattr("agents.fork.browser_adapter.PROGRAMS", ())
    monkeypatch.setattr("agents.fork.browser_adapter.COMMANDS", ())
    assert "make browser" in str(find_browser())
    assert "not a file" in str(find_browser(tmp_path / "none"))


def test_trouble_of_the_browser_says_nothing_about_the_page() -> None:
    """It is unknown, never a fail."""
    assert read_look({"trouble": "crashed"}) == {"verdict": "unknown", "reason": "browser: crashed"}
