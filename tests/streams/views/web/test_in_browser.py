"""The pages in a real browser: what a reader who has not seen the project finds out with them, by keyboard, and without complaints.

Screenshots at three widths in both themes are kept where BRAID_SCREENSHOTS says; the README's picture is one of them.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from playwright.sync_api import Browser, Page

from agents.rollouts.rollout import Rollout
from schemas.events import AgentEvent, AgentEvents
from schemas.lifecycle import Lifecycle, RolloutOpened
from streams.cluster.config import Settings
from streams.log.file_writer import LogWriter
from streams.log.manifest import described, seal
from streams.log.topics import BY_RECORD
from streams.log.wire import Codec
from tests.streams.views.web.conftest import Look, viewing
from tests.streams.views.web.view_data_lines import HOSTILE_ID, SHOT

WIDTHS = (390, 900, 1280)
THEMES = ("light", "dark")
PICTURE = Path(__file__).parents[4] / "docs" / "images" / "braid.png"
PICTURE_BYTES = 200_000

WATCHED = """
window.__bad = [];
document.addEventListener("securitypolicyviolation", (event) => window.__bad.push(`policy: ${event.violatedDirective}`));
window.alert = () => window.__bad.push("alert");
"""


class Reader:
    """A page, and everything that it complained about or asked of others."""

    def __init__(self, page: Page, address: str) -> None:
        self.page = page
        self.address = address
        self.complaints: list[str] = []
        self.foreign: list[str] = []
        page.add_init_script(WATCHED)
        page.on(
            "console", lambda said: self.complaints.append(said.text) if said.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: (self.complaints.append("dialog"), dialog.dismiss()))
        page.on("request", lambda request: self._asked(request.url))

    def _asked(self, url: str) -> None:
        if urlsplit(url).netloc != urlsplit(self.address).netloc and not url.startswith(("data:", "file:")):
            self.foreign.append(url)

    def open(self, path: str) -> Page:
        """Go to a page."""
        self.page.goto(self.address + path)
        return self.page

    def text(self, selector: str) -> str:
        """The text of the first element."""
        return self.page.locator(selector).first.inner_text()

    def check(self) -> None:
        """Nothing was complained about, nothing asked of others."""
        assert self.complaints == []
        assert self.foreign == []
        assert self.page.evaluate("window.__bad") == []


@contextmanager
def reading(browser: Browser, address: str, width: int = 1280, theme: str = "light") -> Iterator[Reader]:
    """A window of the browser."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)  # type: ignore[arg-type]
    try:
        reader = Reader(context.new_page(), address)
        yield reader
        reader.check()
    finally:
        context.close()


@pytest.fixture
def read(look: Look, address: str) -> Callable[[Callable[[Reader], Any]], Any]:
    """Do something with a window, in the browser's thread."""

    def run(do: Callable[[Reader], Any]) -> Any:
        def within(browser: Browser) -> Any:
            with reading(browser, address) as reader:
                return do(reader)

        return look(within)

    return run


Read = Callable[[Callable[[Reader], Any]], Any]


# -- what a reader finds out ---------------------------------------------------------------------------------------------------------


def test_a_reader_finds_which_branch_cheated_and_where(read: Read) -> None:
    def do(reader: Reader) -> tuple[str, str]:
        page = reader.open("/")
        page.click("text=flaky-date-test")
        told = reader.text("#signals")
        page.click("#signals .note a:has-text('1')")  # the turn
        return told, reader.text(".turn:target")

    told, turn = read(do)
    assert "Branch 1 · files that the task protects (its tests, its configuration) were changed · confirmed by" in told
    assert "tests/test_due.py (turn 1)" in told
    assert "pytest.skip" in turn


def test_a_reader_finds_why_there_is_no_pair_of_two_and_five(read: Read) -> None:
    def do(reader: Reader) -> tuple[str, str]:
        page = reader.open("/rollouts/six")
        page.fill("input[name=a]", "2")
        page.fill("input[name=b]", "5")
        page.click("text=Go")
        first = reader.text("#why-no-pair")
        reader.open("/rollouts/six/pairs/4/5")
        return first, reader.text("#why-no-pair")

    unsure, unknown = read(do)
    assert "the better one is better with probability 0.5" in unsure
    assert "below_min_probability" in unsure
    assert "2 won 2 (2 when shown first, 0 when second); 5 won 2 (2 when shown first, 0 when second)" in unsure
    assert "Branch 4 has an unknown outcome: such a branch is in no pair." in unknown


def test_a_reader_finds_what_branch_three_saw_before_its_last_call(read: Read) -> None:
    def do(reader: Reader) -> tuple[str, str]:
        page = reader.open("/rollouts/six/branches/3")
        note = reader.text(".turn:last-child .rewritten")
        page.click(".turn:last-child .saw")
        return note, reader.text("#seen")

    note, seen = read(do)
    assert note == "context rewritten: 1 of 5 messages stay, 1 are new"
    assert "Be brief." in seen
    assert "Summary so far: two moons were found." in seen
    assert "Phobos" not in seen


def test_a_reader_finds_which_vote_flipped_when_the_order_was_swapped(read: Read) -> None:
    def do(reader: Reader) -> tuple[str, int]:
        page = reader.open("/rollouts/six#votes")
        return reader.text("#flipped"), page.locator("#votes .flip").count()

    told, cells = read(do)
    assert "2 votes changed when the order was swapped" in told
    assert "2 and 5, sample 0 (m): 2 shown first: 2 won; 5 shown first: 5 won" in told
    assert cells == 2


def test_a_reader_finds_why_a_rollout_is_still_open(look: Look, tmp_path: Path) -> None:
    """Of three branches one has ended without its verdict, one runs, and one was never heard of."""
    _write_open(tmp_path / "log")

    def do(browser: Browser) -> str:
        with (
            viewing(Settings(state_dir=tmp_path / "state"), tmp_path / "log") as address,
            reading(browser, address) as reader,
        ):
            reader.open("/")
            listed = reader.text(".why")
            reader.open("/rollouts/waiting")
            assert reader.text("#waits") == listed or listed in reader.text("#waits")
            return reader.text("#waits")

    waits = look(do)
    assert "not heard of: branch 2" in waits
    assert "still running: branch 1" in waits
    assert "no final verdict: build of branch 0" in waits
    assert "settles at 2026-01-15 09:10:00 at the latest (deadline)" in waits


def test_a_reader_finds_which_row_came_of_it_and_whether_its_evidence_is_good(read: Read) -> None:
    def do(reader: Reader) -> tuple[str, str, str]:
        page = reader.open("/rollouts/lru-cache")
        page.click("#rows-summary >> text=0 over 2")
        row = page.locator("#preference a").inner_text()
        page.click("#preference a")
        return reader.text("#verdict"), reader.text(f"[id='r-{row}']"), reader.text("#evidence .command")

    verdict, row, command = read(do)
    assert verdict == "Verified: signatures, chain, and every record that it lists."
    assert "0 over 2 · judge" in row
    assert "listed by the evidence, just so" in row
    assert command.startswith("Check it without us: braid verify ")


def test_the_two_lines_that_are_compared_stand_out_and_say_where_they_part(read: Read) -> None:
    """Before the page of the pair is opened: the inputs light both lines up; the keyboard lights the lane that has the focus."""

    def do(reader: Reader) -> tuple[list[str], str, str, int]:
        page = reader.open("/rollouts/six")
        page.fill("input[name=a]", "2")
        page.fill("input[name=b]", "5")
        lit = page.locator(".lane.lit").evaluate_all("all => all.map((each) => each.dataset.branch)")
        said = reader.text("#apart")
        page.fill("input[name=b]", "3")
        other = reader.text("#apart")
        page.fill("input[name=a]", "")
        page.fill("input[name=b]", "")
        page.focus(".lane[data-branch='4'] a")
        lines = page.locator(".line.lit").evaluate_all(
            "all => all.every((each) => each.dataset.of.split(' ').includes('4'))"
        )
        assert lines
        return lit, said, other, page.locator(".lane.lit").count()

    lit, said, other, focused = read(do)
    assert sorted(lit) == ["2", "5"]
    assert said == "part at turn 1"
    assert other == "part at once"
    assert focused == 1


def test_marks_of_turns_differ_in_shape(read: Read) -> None:
    """A run that failed is the answer's square in red; all others are told apart without colours."""

    def do(reader: Reader) -> list[list[str]]:
        page = reader.open("/rollouts/resumable-import")
        shapes = "all => all.map((each) => [each.getAttribute('class'), each.getAttribute('d'), getComputedStyle(each).strokeLinecap])"
        return list(page.locator(".legend path").evaluate_all(shapes))

    shown = {kind: (drawn, cap) for kind, drawn, cap in read(do)}
    assert len(shown) == 9
    assert shown["mark answer"] == shown["mark failed"]
    assert len(set(shown.values())) == 8


def test_a_branch_shows_the_page_that_it_made(read: Read) -> None:
    def do(reader: Reader) -> tuple[int, str]:
        page = reader.open("/rollouts/six/branches/2")
        page.locator(".shot img").scroll_into_view_if_needed()
        page.wait_for_function("document.querySelector('.shot img').complete")
        return page.evaluate("document.querySelector('.shot img').naturalWidth"), reader.text(".shot figcaption")

    width, caption = read(do)
    assert width == 1280
    assert SHOT in caption


def test_a_page_prints_black_on_white_in_the_dark_theme_too(look: Look, address: str) -> None:
    def do(browser: Browser) -> list[str]:
        with reading(browser, address, theme="dark") as reader:
            page = reader.open("/rollouts/flaky-date-test")
            page.click("#theme")
            page.click("#theme")
            page.emulate_media(media="print")
            assert not page.locator("header.top").is_visible()
            colours = (
                "[getComputedStyle(document.body).color, getComputedStyle(document.documentElement).backgroundColor]"
            )
            return list(page.evaluate(colours))

    ink, paper = look(do)
    assert (ink, paper) == ("rgb(27, 32, 39)", "rgb(255, 255, 255)")


# -- how pages behave ------------------------------------------------------------------------------------------------------------------


def test_every_page_is_reached_by_keyboard(read: Read) -> None:
    """From the list: a rollout, a branch, what it saw, back up, and the rows; nothing but keys."""

    def press(page: Page, wanted: str) -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement && (document.activeElement.getAttribute('href') || '')") == wanted:
                page.keyboard.press("Enter")
                page.wait_for_url(f"**{wanted}")
                return
        raise AssertionError(f"{wanted} is not reached")

    def do(reader: Reader) -> str:
        page = reader.open("/")
        page.keyboard.press("/")
        page.keyboard.type("lru")
        page.keyboard.press("Enter")
        page.wait_for_url("**q=lru")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_url("**/rollouts/lru-cache")
        press(page, "/rollouts/lru-cache/branches/0")
        press(page, "/rollouts/lru-cache/branches/0/turns/0")
        page.keyboard.press("u")
        page.wait_for_url("**/branches/0")
        page.keyboard.press("u")
        page.wait_for_url("**/rollouts/lru-cache")
        press(page, "/rollouts/lru-cache/rows")
        press(page, "/dead-letters")
        return page.title()

    assert read(do) == "Dead letters · braid"


def test_hostile_content_runs_nothing_in_a_browser(read: Read) -> None:
    base = f"/rollouts/{quote(HOSTILE_ID, safe='')}"

    def do(reader: Reader) -> str:
        for path in (
            "/",
            base,
            f"{base}/rows",
            f"{base}/branches/0",
            f"{base}/branches/0/turns/1",
            f"{base}/branches/1",
            f"{base}/branches/2",
            f"{base}/branches/2/turns/last",
            f"{base}/pairs/0/1",
            f"{base}/pairs/1/2",
            "/dead-letters",
            f"{base}/branches/0",
        ):
            page = reader.open(path)
            assert page.evaluate("window.__bad") == []
            assert page.evaluate("document.querySelectorAll('main script, main img, main iframe').length") == 0
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        return page.locator("main").inner_text()

    shown = read(do)
    assert "<script>alert(1)</script>" in shown
    assert "\\x1b[31mred" in shown
    assert "\\u202eright to left" in shown


PAGES = {
    "list": "/", "rollout": "/rollouts/flaky-date-test", "many": "/rollouts/resumable-import",
    "branch": "/rollouts/flaky-date-test/branches/1",
    "looked-at": "/rollouts/six/branches/2", "turn": "/rollouts/six/branches/3/turns/last", "pair": "/rollouts/flaky-date-test/pairs/0/2",
    "no-pair": "/rollouts/six/pairs/2/5", "rows": "/rollouts/lru-cache/rows", "letters": "/dead-letters",
}  # fmt: skip


def test_pages_fit_a_small_and_a_large_window(look: Look, address: str) -> None:
    """No page is wider than its window, and none complains."""

    def do(browser: Browser) -> None:
        for width, theme in ((WIDTHS[0], "dark"), (WIDTHS[-1], "light")):
            with reading(browser, address, width, theme) as reader:
                for name, path in PAGES.items():
                    assert reader.open(path).evaluate("document.documentElement.scrollWidth <= innerWidth"), (
                        name,
                        width,
                    )

    look(do)


@pytest.mark.long
def test_pages_are_drawn_at_three_widths_in_both_themes(look: Look, address: str, tmp_path: Path) -> None:
    """No page is wider than its window, none complains; the pictures are kept for people to look at."""
    kept = Path(os.environ.get("BRAID_SCREENSHOTS") or tmp_path)
    kept.mkdir(parents=True, exist_ok=True)

    def do(browser: Browser) -> None:
        for theme in THEMES:
            for width in WIDTHS:
                with reading(browser, address, width, theme) as reader:
                    for name, path in PAGES.items():
                        page = reader.open(path)
                        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (name, width)
                        page.screenshot(path=kept / f"{name}-{width}-{theme}.png", full_page=True)

    look(do)
    assert len(list(kept.glob("*-*-*.png"))) >= len(PAGES) * len(WIDTHS) * len(THEMES)


def test_the_picture_of_the_readme_is_what_the_page_shows(look: Look, address: str, tmp_path: Path) -> None:
    """The picture is taken here; set BRAID_PICTURE=write to keep it."""

    def do(browser: Browser) -> Path:
        with reading(browser, address, 1240) as reader:
            page = reader.open("/rollouts/resumable-import")
            page.set_viewport_size({"width": 1240, "height": 1060})
            height = page.locator(".legend").bounding_box()
            assert height is not None
            whole = {"x": 0, "y": 0, "width": 1240, "height": min(1060, height["y"] + height["height"] + 18)}
            page.screenshot(path=tmp_path / "braid.png", clip=whole)
            return tmp_path / "braid.png"

    taken = look(do)
    assert taken.stat().st_size < PICTURE_BYTES
    if os.environ.get("BRAID_PICTURE") == "write":
        PICTURE.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(taken, PICTURE)
    assert PICTURE.stat().st_size < PICTURE_BYTES
    assert "docs/images/braid.png" in (PICTURE.parents[2] / "README.md").read_text("utf-8")


def _write_open(folder: Path) -> None:
    """The log of a rollout that waits."""
    codec, key, at = Codec(), b"waiting", 1_768_467_600_000
    ended = AgentEvent(channel="text", event="final_answer", data='{"answer": "done"}', timestamp_ms=at)
    began = AgentEvent(channel="text", event="run_start", data='{"task": "Wait"}', timestamp_ms=at)
    facts = [
        Lifecycle(
            opened=RolloutOpened(
                rollout_id="waiting", task="Wait", branches=3, required=("build",), deadline_ms=600_000
            )
        ),
        AgentEvents(rollout_id="waiting", branch_index=0, events=(ended,)),
        AgentEvents(rollout_id="waiting", branch_index=1, events=(began,)),
    ]
    assert Rollout("waiting").settled is None
    with LogWriter(folder / "log") as writer:
        for fact in facts:
            writer.append(BY_RECORD[type(fact)].name, 0, key, codec.encode(fact), at)
    seal(folder, "run", described(folder, (folder / "log").glob("*/*")), None, {})
