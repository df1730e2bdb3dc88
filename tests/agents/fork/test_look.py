"""Pages in a real browser inside a sandbox: what is seen, what is no pass, and what cannot be seen."""

from pathlib import Path
from typing import Any

import pytest

from agents.fork import visual_verdict as visual
from agents.fork.browser_adapter import find_browser
from agents.fork.local_adapter import LocalSandboxes
from agents.fork.subject import Subject
from agents.fork.task import Page, Probe
from agents.fork.task_adapter import SAMPLES, find_task, load_task, overlays
from agents.fork.visual_verdict import Browser, look, read_look, visual_verdict
from agents.verdicts.meaning import visual_outcome
from agents.workspace.files import File

SUBJECT = Subject("r", 0, 0, "test", "files")


@pytest.fixture
def browser() -> Browser:
    """The machine's Chromium."""
    found = find_browser()
    if isinstance(found, str):
        pytest.skip(f"{found}; the browser's tests were NOT run")
    return found


@pytest.mark.parametrize("overlay", overlays(SAMPLES / "price-page"))
async def test_the_reference_passes_and_broken_pages_fail(
    overlay: str, browser: Browser, local: LocalSandboxes
) -> None:
    """By the probes of the task, in a real browser."""
    task = load_task(find_task("price-page"))
    files = {**task.start, **overlays(SAMPLES / "price-page")[overlay]}
    assert task.braid.page is not None
    verdict = await visual_verdict(task, task.braid.page, files, await local.create(), browser, SUBJECT)
    assert visual_outcome(verdict) == ("pass" if overlay == "solution" else "fail"), verdict
    assert verdict.screenshot_digest is not None


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
async def test_what_is_seen(html: str, outcome: str, says: str, browser: Browser, local: LocalSandboxes) -> None:
    """A drawn page without errors passes; a page that replaces what probes use answers nothing for the document."""
    sandbox = await local.create()
    await sandbox.write("index.html", b"<!doctype html>" + html.encode())
    probes = (Probe(name="three", script="document.querySelectorAll('h1').length === 3"),) if html is LIES else ()
    seen: dict[str, Any] = await look(Page(probe=probes), sandbox, browser)
    assert seen["verdict"] == outcome, seen
    assert says in (seen["reason"] or ""), seen


async def test_what_cannot_be_seen_is_unknown_with_the_reason(
    browser: Browser, local: LocalSandboxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that never loads, one that is not there, a browser that does not start, a sandbox that is gone."""
    monkeypatch.setattr(visual, "LOAD_MS", 1500)
    sandbox = await local.create()
    await sandbox.put({"busy.html": File(b"<!doctype html><script>for(;;);</script>")})
    busy = await look(Page(path="busy.html"), sandbox, browser)
    assert (busy["verdict"], "1.5 s" in busy["reason"]) == ("unknown", True), busy
    absent = await look(Page(path="none.html"), sandbox, browser)
    assert (absent["verdict"], "404" in absent["reason"]) == ("fail", True)
    broken = await look(Page(path="busy.html"), sandbox, browser._replace(program="/usr/bin/false"))
    assert (broken["verdict"], "browser:" in broken["reason"]) == ("unknown", True), broken
    task = load_task(find_task("price-page"))
    await sandbox.dispose()
    assert task.braid.page is not None
    gone = await visual_verdict(task, task.braid.page, task.start, sandbox, browser, SUBJECT)
    assert (gone.verdict, "sandbox:" in (gone.reason or "")) == ("unknown", True), gone


async def test_looks_in_a_row_see_the_same(browser: Browser, local: LocalSandboxes) -> None:
    """The same page gives the same verdict and the same screenshot, in fresh sandboxes."""
    task = load_task(find_task("price-page"))
    files = {**task.start, **overlays(SAMPLES / "price-page")["solution"]}
    assert task.braid.page is not None
    seen = [
        await visual_verdict(task, task.braid.page, files, await local.create(), browser, SUBJECT) for _ in range(3)
    ]
    assert len({each.model_dump_json() for each in seen}) == 1


def test_without_a_browser_the_reason_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """None installed, or one named that is not there."""
    monkeypatch.setattr("agents.fork.browser_adapter.PROGRAMS", ())
    monkeypatch.setattr("agents.fork.browser_adapter.COMMANDS", ())
    assert "make browser" in str(find_browser())
    assert "not a file" in str(find_browser(tmp_path / "none"))


def test_trouble_of_the_browser_says_nothing_about_the_page() -> None:
    """It is unknown, never a fail."""
    assert read_look({"trouble": "crashed"}) == {"verdict": "unknown", "reason": "browser: crashed"}
