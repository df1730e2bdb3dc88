"""The summarizer: never too long, idempotent, valid UTF-8, and honest about what it left out."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.summarize.output import excerpt, shorten, summarize
from schemas.emission import SummaryLimits
from tests.examples import shares

TEXT = st.text(st.one_of(st.characters(exclude_categories=("Cs",)), st.just("\n")), max_size=3000)
LIMIT = st.integers(0, 1200)
LINES = st.integers(0, 9)


@given(TEXT, LIMIT, LINES, LINES)
@settings(max_examples=shares(6), deadline=None)
def test_a_summary_is_never_too_long_and_never_changes_again(text: str, limit: int, first: int, last: int) -> None:
    """At most max_bytes UTF-8 bytes; summarizing a summary gives the same bytes."""
    summary = summarize(text, limit, first, last)
    assert summary is not None
    assert len(summary.encode()) <= limit
    assert summarize(summary, limit, first, last) == summary
    if len(text.encode()) <= limit:
        assert summary == text


@given(TEXT, st.integers(30, 400), LINES, LINES)
@settings(max_examples=shares(4), deadline=None)
def test_an_excerpt_is_enough(text: str, limit: int, first: int, last: int) -> None:
    """The held part of an output gives the same summary as all of it."""
    limits = SummaryLimits(max_bytes=limit, keep_first_lines=first, keep_last_lines=last)
    assert shorten(excerpt(text, window=limit), limits) == summarize(text, limit, first, last)


def test_long_outputs_keep_their_first_and_last_lines() -> None:
    """The default: three lines, what was left out, five lines."""
    text = "\n".join(f"line {number}" for number in range(500))
    assert summarize(text) == "\n".join(
        ["line 0", "line 1", "line 2", "[...492 lines omitted...]", *(f"line {number}" for number in range(495, 500))]
    )


def test_one_endless_line_is_cut() -> None:
    """A megabyte without a line break is cut at both ends, with the exact count of what is missing."""
    summary = summarize("é" * 500_000)
    assert summary is not None
    match = re.search(r"\[\.\.\.(\d+) bytes omitted\.\.\.\]", summary)
    assert match is not None
    assert int(match[1]) + len(summary.encode()) - len(match[0]) == 1_000_000


@pytest.mark.parametrize("value", [{"a": [1, 2.5, None]}, [1, "x"], 7, True, 0.5])
def test_what_is_not_text_becomes_compact_json(value: object) -> None:
    """Objects, arrays, numbers and booleans are rendered as JSON; null stays null."""
    assert json.loads(summarize(value) or "") == value
    assert summarize(None) is None
