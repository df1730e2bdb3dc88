"""The page about events: the same as the table, and its examples run."""

import json
from pathlib import Path
from typing import Any

import pytest

from streams.views.reference.event_page import FORMS, BranchForm, event_page
from tests.processes import run_braid

PAGE = Path(__file__).parents[3] / "docs" / "events.md"


def form_name(form: BranchForm) -> str:
    return form.name


def test_the_page_about_events_is_that_of_the_table() -> None:
    """A kind that changes in schemas/event_kinds.py changes on the page."""
    assert PAGE.read_text("utf-8") == event_page(), "run: braid schemas page events > docs/events.md"


def test_the_command_prints_the_page() -> None:
    """`braid schemas page events` writes the page as it is committed."""
    assert run_braid("schemas", "page", "events").stdout == PAGE.read_text("utf-8")


def run_example(form: BranchForm, folder: Path) -> dict[str, Any]:
    """The counts of `braid run` on the example of a form."""
    (folder / "lines.ndjson").write_text(form.lines())
    done = run_braid("run", folder / "lines.ndjson", "--out", folder / "out", "--json")
    assert done.returncode == 0, done.stderr
    counts: dict[str, Any] = json.loads(done.stdout)
    return counts


@pytest.mark.parametrize("form", FORMS, ids=form_name)
def test_the_example_of_each_form_goes_in_without_a_complaint(form: BranchForm, tmp_path: Path) -> None:
    """It is a complete rollout of one passing branch."""
    counts = run_example(form, tmp_path)
    assert (counts["bad_lines"], counts["dead_letters"], counts["closed"], counts["passes"]) == (0, 0, 1, 1)


@pytest.mark.parametrize("form", FORMS, ids=form_name)
def test_the_example_of_each_form_gives_a_row_of_that_fidelity(form: BranchForm, tmp_path: Path) -> None:
    """The row says how its messages are known, by what is there."""
    run_example(form, tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "out" / "sft.jsonl").read_text("utf-8").splitlines()]
    assert [row.get("fidelity") for row in rows] == [form.name]
