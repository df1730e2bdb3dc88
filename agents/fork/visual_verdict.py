"""The visual verdict of a branch: its page, opened in headless Chromium inside a sandbox without a network.

A page that cannot be seen is unknown, with the reason: no browser on this machine, a page that never finishes loading,
a browser that dies. All other fields are observations.
"""

import json
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from agents.fork.build_verdict import run_building
from agents.fork.sandbox import Ended, Harness, Limits, Sandbox, SandboxError
from agents.fork.subject import Subject
from agents.fork.task import Page, Task
from agents.importers.records import make
from agents.workspace.files import File, FileProblemError, Files, checked
from schemas.verdicts import VisualVerdict

START_MS = 30_000
LOAD_MS = 15_000
LIMITS = Limits(timeout_s=90.0, cpu_s=90, memory_mb=32 * 1024, processes=4096)
"""For the browser: it reserves far more memory than it uses, and has many threads."""

LOOK = 'FONTCONFIG_FILE="$TEST_DIR/fonts.conf" exec "$0" -I "$TEST_DIR/look.py" "$1"'
"""Starts the look: Python is $0, the questions are $1."""

FONTS = b"<?xml version='1.0'?><fontconfig><dir>/usr/share/fonts</dir><cachedir>/tmp/fonts</cachedir></fontconfig>"


SCREENSHOT = "screenshot.png"
"""The report of `look_adapter.py`."""

Keep = Callable[[bytes], object]
"""Stores a screenshot, as PNG."""


class Browser(NamedTuple):
    """The inputs of a look at a page."""

    program: str
    """Chromium itself, not a script that starts it."""
    python: str
    """A Python that has Playwright, as commands in the sandbox see it."""
    script: bytes
    """`look_adapter.py`."""


async def visual_verdict(
    task: Task,
    page: Page,
    files: Files,
    sandbox: Sandbox,
    browser: Browser,
    subject: Subject,
    keep: Keep = lambda _picture: None,
) -> VisualVerdict:
    """Look at a branch's page; `sandbox` is empty and has no other user. `keep` stores the screenshot that the verdict
    names.
    """
    try:
        stuck = await run_building(task, files, sandbox)
        if stuck is not None:
            return unseen(subject, f"there is nothing to look at: the {stuck.stage} stage did not end well")
        return make(VisualVerdict, subject.said("visual") | await look(page, sandbox, browser, keep))
    except (SandboxError, FileProblemError) as error:
        return unseen(subject, f"sandbox: {error}")


def unseen(subject: Subject, why: str) -> VisualVerdict:
    """The verdict for a page that was not tested, and why; it has its own id, so that a real one can follow."""
    return make(VisualVerdict, subject.said("visual:unknown") | _unknown(why))


async def look(page: Page, sandbox: Sandbox, browser: Browser, keep: Keep = lambda _picture: None) -> dict[str, Any]:
    """Open the page in the sandbox; return the fields of a verdict that record the observations."""
    spec = {
        "root": sandbox.root,
        "path": checked(page.path),
        "probes": [probe.model_dump() for probe in page.probe],
        "browser": browser.program,
        "start_ms": START_MS,
        "load_ms": LOAD_MS,
    }
    harness = Harness({"look.py": File(browser.script), "fonts.conf": File(FONTS)}, apart=False)
    done = await sandbox.run(["sh", "-c", LOOK, browser.python, json.dumps(spec)], LIMITS, harness=harness)
    if done.ended is Ended.TIMEOUT:
        return _unknown(f"the page kept the browser busy for {LIMITS.timeout_s:g} s and was stopped")
    try:
        seen = json.loads(done.stdout.text.splitlines()[-1])
    except (ValueError, IndexError):
        return _unknown(f"the browser's script ended with {done.exit_code}: {done.stderr.text.strip()[-300:]}")
    picture = done.reports.get(SCREENSHOT)
    if picture is not None and sha256(picture.content).hexdigest() == seen.get("screenshot"):
        keep(picture.content)
    return read_look(seen)


def read_look(seen: dict[str, Any]) -> dict[str, Any]:
    """The verdict that follows from a look: the fields of a verdict."""
    if "trouble" in seen:
        return _unknown(f"browser: {seen['trouble']}")
    if "late" in seen:
        return _unknown(seen["late"])
    if "absent" in seen:
        return {"verdict": "fail", "reason": seen["absent"], "renders_non_empty": False}
    faults = _faults(seen)
    return {
        "verdict": "fail" if faults else "pass",
        "reason": "; ".join(faults) or None,
        "uncaught_errors": seen["uncaught"],
        "console_errors": seen["console"],
        "dom_probes": seen["probes"],
        "renders_non_empty": seen["renders_non_empty"],
        "screenshot_digest": seen["screenshot"],
    }


def _faults(seen: dict[str, Any]) -> Sequence[str]:
    failed = [probe["name"] for probe in seen["probes"] if not probe["ok"]]
    counts = (
        ("nothing is drawn", not seen["renders_non_empty"]),
        (f"{len(seen['uncaught'])} uncaught errors", seen["uncaught"]),
        (f"{len(seen['console'])} errors on the console", seen["console"]),
        (f"probes that do not hold: {', '.join(failed)}", failed),
    )
    return [text for text, holds in counts if holds]


def _unknown(reason: str) -> dict[str, Any]:
    return {"verdict": "unknown", "reason": reason}
