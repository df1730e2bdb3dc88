"""`braid show --branch`, `--pair` and `--html`: the same pages in a terminal, and in one file."""

import re
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser

from tests.streams.views.conftest import Braid
from tests.streams.views.web.conftest import Look
from tests.streams.views.web.test_in_browser import Reader


def test_a_branch_is_shown_turn_by_turn(braid: Braid, ran: Path) -> None:
    code, said, _ = braid(None, "show", "flaky-date-test", "--from-dir", str(ran), "--branch", "1")
    assert code == 0
    assert "flaky-date-test branch 1: pass, answered, 4 turns (reconstructed)" in said
    assert "files that its calls change: tests/test_due.py (turn 1)" in said
    assert "calls edit_file:" in said
    data = braid(None, "show", "flaky-date-test", "--from-dir", str(ran), "--branch", "1", "--json").json
    turns: Any = data["turns"]
    assert (data["total"], turns[1]["calls"][0]["name"]) == (4, "edit_file")


def test_two_branches_are_shown_from_where_they_part(braid: Braid, ran: Path) -> None:
    code, said, _ = braid(None, "show", "flaky-date-test", "--from-dir", str(ran), "--pair", "0", "2")
    assert code == 0
    assert "preference row: 0 over 2 (objective, margin 1.256)" in said
    assert "The first turn is the same; they part at turn 1: other calls." in said
    assert "read_file" not in said
    none = braid(None, "show", "six", "--from-dir", str(ran), "--pair", "4", "5")
    assert "no preference row: Branch 4 has an unknown outcome" in none.out


def test_a_branch_that_is_not_there_is_an_error(braid: Braid, ran: Path) -> None:
    code, _, complaint = braid(None, "show", "six", "--from-dir", str(ran), "--branch", "9")
    assert code == 1
    assert "six has no branch 9; it has " in complaint
    code, _, complaint = braid(None, "show", "six", "--from-dir", str(ran), "--branch", "0", "--pair", "0", "1")
    assert code == 1
    assert "give one of them" in complaint


def test_one_file_shows_everything_without_a_server(braid: Braid, ran: Path, look: Look, tmp_path: Path) -> None:
    """The file runs its own script only, sends no request, and its links lead to its own parts."""
    file = tmp_path / "six.html"
    code, said, _ = braid(None, "show", "six", "--from-dir", str(ran), "--html", str(file))
    assert (code, "open it in a browser" in said) == (0, True)
    text = file.read_text("utf-8")
    targets = set(re.findall(r'href="#([^"]*)"', text))
    assert targets <= {*re.findall(r' id="([^"]*)"', text)}
    shown = re.findall(r'(?:href|src)="(?!#)([^"]{,22})', text.partition("<script>")[0])
    assert shown == ["data:image/png;base64,"]  # the screenshot that is kept
    names = re.findall(r' id="([^"]*)"', text)
    assert len(names) == len(set(names))

    def do(browser: Browser) -> tuple[str, bool]:
        context = browser.new_context()
        reader = Reader(context.new_page(), f"file://{tmp_path}")
        page = reader.open("/six.html")
        page.click("text=Theme")
        dark = page.evaluate("document.documentElement.dataset.theme") == "dark"
        page.click(".lane a[href='#branch-3'] .link")
        shown = page.locator("#branch-3").inner_text()
        page.locator(".shot img").scroll_into_view_if_needed()
        page.wait_for_function("document.querySelector('.shot img').naturalWidth === 1280")
        reader.check()
        context.close()
        return shown, dark

    shown, dark = look(do)
    assert dark
    assert "I look again." in shown
