"""Looks at a page, as a script: it runs inside a sandbox (`python -I look_adapter.py SPEC`) and imports no code of
this project.

It serves the workspace on the sandbox's loopback, opens the page in headless Chromium, and prints one JSON object:
errors, probes, whether anything was drawn, and the screenshot's digest. The screenshot itself is written to
`$LOGS_DIR`. The sandbox has no other network, and the script also blocks the page's requests to other addresses.
Probes run in a separate script world: they see the document, but not the page's own redefinitions. Errors of the
browser itself are printed as `{"trouble": ...}`: they are not evidence about the page.
"""

import functools
import json
import os
import sys
import threading
from collections.abc import Callable
from hashlib import sha256
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Error,
    Page,
    Route,
    ViewportSize,
    sync_playwright,
)
from playwright.sync_api import TimeoutError as LateError

VIEW = ViewportSize(width=1280, height=800)
SETTLE_MS = 250
"""Time that scripts get after loading, before the probes run."""

FLAGS = (
    "--no-sandbox",  # this process is in a sandbox; Chromium's own does not start as root
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--force-color-profile=srgb",
    "--font-render-hinting=none",
    "--disable-lcd-text",
    "--hide-scrollbars",
    "--no-proxy-server",
)

VISIBLE = """(() => {
  const drawn = (each) => {
    const box = each.getBoundingClientRect(), style = getComputedStyle(each);
    return box.width > 0 && box.height > 0 && style.visibility !== "hidden" && Number(style.opacity) > 0;
  };
  if (document.body && document.body.innerText.trim()) return true;
  return [...document.querySelectorAll("img, canvas, svg, video, input, button, select, textarea")].some(drawn);
})()"""

MAX_MESSAGES = 50
MAX_MESSAGE = 500


class Files(SimpleHTTPRequestHandler):
    """Serves the workspace, without request logs."""

    def log_message(self, *_: object) -> None:
        """Write no log."""

    def do_GET(self) -> None:
        """Serve a file. The browser's own request for an icon is not an error of the page."""
        if self.path == "/favicon.ico":
            self.send_response(204)
            self.end_headers()
            return
        super().do_GET()


def main() -> None:
    """Look at the page, and print the result."""
    spec = json.loads(sys.argv[1])
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Files, directory=spec["root"]))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        seen = look(spec, f"http://127.0.0.1:{server.server_address[1]}")
    except Error as error:
        seen = {"trouble": first_line(error)}
    sys.stdout.write(json.dumps(seen) + "\n")


def look(spec: dict[str, Any], origin: str) -> dict[str, Any]:
    """Start the browser and open the page."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=spec["browser"], args=list(FLAGS), timeout=spec["start_ms"]
        )
        return see(browser, spec, origin)


def see(browser: Browser, spec: dict[str, Any], origin: str) -> dict[str, Any]:
    """Open the page in a separate browser context and evaluate the probes."""
    uncaught: list[str] = []
    console: list[str] = []

    def heard(message: ConsoleMessage) -> None:
        if message.type == "error":
            console.append(message.text)

    def passes(route: Route) -> None:
        if route.request.url.startswith((origin + "/", "data:", "blob:")):
            route.continue_()
        else:
            route.abort()

    context = browser.new_context(viewport=VIEW, locale="en-US", timezone_id="UTC", reduced_motion="reduce")
    context.set_default_timeout(spec["load_ms"])
    page = context.new_page()
    blank = shot(page)
    context.route("**/*", passes)
    page.on("pageerror", lambda error: uncaught.append(str(error)))
    page.on("console", heard)
    page.on("dialog", lambda dialog: dialog.dismiss())
    try:
        answer = page.goto(f"{origin}/{spec['path']}", wait_until="load")
    except LateError:
        return {"late": f"{spec['path']} had not loaded after {spec['load_ms'] / 1000:g} s"}
    if answer is None or not answer.ok:
        return {"absent": f"{spec['path']}: {answer.status if answer else 'no'} answer"}
    page.wait_for_timeout(SETTLE_MS)
    picture, ask = shot(page), questions(context, page)
    if "LOGS_DIR" in os.environ:
        Path(os.environ["LOGS_DIR"], "screenshot.png").write_bytes(picture)
    found = {
        "renders_non_empty": picture != blank and ask(VISIBLE) is True,
        "screenshot": sha256(picture).hexdigest(),
        "probes": [probe(ask, each) for each in spec["probes"]],
    }
    context.close()
    return found | {"uncaught": cut(uncaught), "console": cut(console)}


def shot(page: Page) -> bytes:
    """Return a screenshot without animations."""
    return page.screenshot(animations="disabled", caret="hide")


def questions(context: BrowserContext, page: Page) -> Callable[[str], Any]:
    """Return a function that evaluates expressions on the page's document, in a world without the page's
    redefinitions.
    """
    devtools = context.new_cdp_session(page)
    frame = devtools.send("Page.getFrameTree")["frameTree"]["frame"]["id"]
    world = devtools.send("Page.createIsolatedWorld", {"frameId": frame, "worldName": "questions"})
    asked = {"contextId": world["executionContextId"], "returnByValue": True, "awaitPromise": True}

    def ask(expression: str) -> Any:
        answer = devtools.send("Runtime.evaluate", asked | {"expression": expression})
        trouble = answer.get("exceptionDetails")
        if trouble is not None:
            raise ValueError(trouble.get("exception", {}).get("description") or trouble["text"])
        return answer["result"].get("value")

    return ask


def probe(ask: Callable[[str], Any], asked: dict[str, str]) -> dict[str, Any]:
    """Evaluate one probe; only `true` passes."""
    try:
        said = ask(f"({asked['script']})")
    except ValueError as error:
        return {"name": asked["name"], "ok": False, "detail": str(error).partition("\n")[0][:MAX_MESSAGE]}
    detail = None if said is True else f"gave {json.dumps(said)}"[:MAX_MESSAGE]
    return {"name": asked["name"], "ok": said is True, "detail": detail}


def first_line(error: Error) -> str:
    """Return the first line of the library's message, which helps a person."""
    return error.message.partition("\n")[0][:MAX_MESSAGE]


def cut(messages: list[str]) -> list[str]:
    """Return the messages truncated to a size that fits a record."""
    return [message[:MAX_MESSAGE] for message in messages[:MAX_MESSAGES]]


if __name__ == "__main__":
    main()
