"""Tables on narrow and wide terminals: no number is cut, no word is broken, and what is left out is named."""

import asyncio
import re
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console, RenderableType

from schemas.rankings import RankedBranch, Ranking, RankingStats
from streams.cluster.config import Settings
from streams.jobs.run.run import run_files
from streams.log.file_reader import FileReader
from streams.log.view_rows import RankedRow, ViewRow
from streams.views.account import account_of
from streams.views.page import page, ranking_sheet
from streams.views.rollout_table import COLUMNS, columns, listing
from streams.views.tables import PIPE_WIDTH, Grid
from tests.sample.sample_lines import write_sample

WIDTHS = (80, 100, 140)


def printed(thing: RenderableType, width: int) -> str:
    out = StringIO()
    Console(file=out, width=width, highlight=False).print(thing, crop=False)
    return out.getvalue()


def left_out(shown: str) -> set[str]:
    """The columns that a table says it does without."""
    found = re.search(r"Not in \d+ columns: (.*?)\. A wider", " ".join(shown.split()))
    return set(found[1].split("; ")) if found else set()


words = st.text(st.characters(categories=("L", "N", "P")), min_size=1, max_size=60)
cells = st.one_of(
    st.lists(words, max_size=12).map(" ".join), st.integers(0, 10**15).map("{:,}".format), st.floats(0, 9).map("{:.3f}".format)
)  # fmt: skip


@given(st.data(), st.sampled_from((*WIDTHS, PIPE_WIDTH)))
def test_every_word_of_every_cell_is_whole(data: st.DataObject, width: int) -> None:
    """For any cells; a line is longer than the terminal only where one word is."""
    count = data.draw(st.integers(1, 8))
    names = tuple(f"name{at}" for at in range(count))
    chosen = [tuple(data.draw(st.lists(st.sampled_from(names), unique=True))) for _ in range(3)]
    grid = Grid("", names, right=chosen[0], whole=chosen[1], spare=chosen[2][: count - 1])
    for _ in range(data.draw(st.integers(1, 5))):
        grid.add_row(*(data.draw(cells) for _ in names))
    shown = printed(grid, width)
    kept = [at for at, name in enumerate(names) if name not in left_out(shown)]
    tokens = set(shown.split())
    assert {word for row in grid.rows for at in kept for word in row[at].plain.split()} <= tokens
    longest = max((cell_len(word) for row in grid.rows for each in row for word in each.plain.split()), default=0)
    assert all(cell_len(line) <= max(width, longest + 10) for line in shown.splitlines())
    if width == PIPE_WIDTH:
        assert len(shown.splitlines()) == len(grid.rows) + 1


@pytest.mark.parametrize("width", WIDTHS)
def test_a_ranking_shows_its_totals_and_its_flags(width: int) -> None:
    flags = ("protected_paths_changed", "hack_suspected", "judge_position_dependent")
    branches = tuple(
        RankedBranch(
            branch_index=at, attempt=0, objective_status="pass", total=1.3, rank=at + 1, rank_low=1, rank_high=12, bt_score=-12.34, se=0.5,
            judge_score=10.0, p_beats_next=0.999, n_comparisons=12_345, n_missing=678, flags=flags,
        )
        for at in range(3)
    )  # fmt: skip
    ranking = Ranking.model_construct(branches=branches, stats=RankingStats(n=3, passes=3))
    shown = printed(ranking_sheet(ranking), width)
    assert shown.count("1.300") == 3
    for flag in flags:
        assert len(re.findall(rf"\b{flag}\b", shown)) == 3
    gone = left_out(shown)
    assert ("12345" in shown) == ("votes" not in gone)
    assert ("├" in shown) == ("± 1.96 se" not in gone)
    assert not gone & {"rank", "range", "branch", "objective", "total", "flags"}


@pytest.mark.parametrize("width", WIDTHS)
def test_a_list_of_rollouts_shows_long_ids_and_large_numbers(width: int) -> None:
    row = ViewRow(
        rollout_id="nightly-regression-of-the-payment-service-2026-11-18-attempt-42", status="closed", expected=128, branches=128,
        events=1_234_567, settled="end_of_input", closed="deadline", outcomes={"pass": 100, "fail": 20, "unknown": 8},
        ranking=(RankedRow(branch=101, total=1.288, rank=1),), rows={"sft": 100, "dpo": 4096, "ppo": 120, "rejected": 999},
        started_at=1_790_000_000_000,
    )  # fmt: skip
    shown = printed(listing([row], 0, [row]), width)
    for name, text in zip(COLUMNS, columns(row), strict=True):
        assert name in left_out(shown) or text in shown, name


@pytest.mark.parametrize("width", WIDTHS)
def test_a_whole_page_breaks_no_word(width: int, tmp_path: Path) -> None:
    """All sections of a real rollout: every word stands there as it does where there is room."""
    write_sample(tmp_path / "sample.ndjson")
    run_files([tmp_path / "sample.ndjson"], tmp_path / "out", Settings(), None)
    account = asyncio.run(account_of(FileReader(tmp_path / "out"), "lru-cache"))
    for section in page(account, Settings()):
        roomy = set(printed(section, PIPE_WIDTH).split())
        shown = re.sub(r"Not in \d+ columns:.*?less -S`\.", "", printed(section, width), flags=re.DOTALL)
        assert set(shown.split()) <= roomy
