"""The worker's view as it is read: last row wins, and whatever is not a row is passed over."""

import orjson
import pytest

from streams.log.view_rows import ViewRow, fold_row, newest_first
from streams.views.rollout_table import columns, nothing_yet

ROW = {"rollout_id": "r1", "status": "open", "expected": 4, "branches": 2, "events": 7, "started_at": 1000}


def rows_of(*entries: tuple[bytes | None, object]) -> dict[str, ViewRow]:
    rows: dict[str, ViewRow] = {}
    for key, value in entries:
        fold_row(rows, key, value if value is None or isinstance(value, bytes) else orjson.dumps(value))
    return rows


@pytest.mark.parametrize("key", [b"r1", b'"r1"'])
def test_a_key_may_be_plain_or_json(key: bytes) -> None:
    """Faust writes text keys as JSON; both name the same rollout."""
    assert rows_of((key, ROW)).keys() == {"r1"}


def test_the_last_row_of_a_key_wins() -> None:
    """The topic is compacted sooner or later; until then older rows are passed over."""
    assert rows_of((b"r1", ROW), (b"r1", {**ROW, "status": "closed"}))["r1"].status == "closed"


def test_an_empty_row_removes_a_rollout() -> None:
    """A deletion is a deletion."""
    assert rows_of((b"r1", ROW), (b"r1", None)) == {}


@pytest.mark.parametrize("value", [b"not json", b"[]", b'{"status": 3}'])
def test_what_is_not_a_row_is_passed_over(value: bytes) -> None:
    """Foreign bytes in the topic end no listing."""
    assert rows_of((b"r1", ROW), (b"r2", value)).keys() == {"r1"}


def test_fields_of_a_later_worker_are_kept() -> None:
    """A newer worker may say more; `--json` shows it."""
    assert rows_of((b"r1", {**ROW, "mood": "good"}))["r1"].model_dump()["mood"] == "good"


def test_rows_come_newest_first_and_by_status() -> None:
    """The order of the table, and its filter."""
    rows = rows_of(
        *((name.encode(), {**ROW, "rollout_id": name, "started_at": at}) for name, at in (("a", 1), ("b", 2)))
    )
    assert [row.rollout_id for row in newest_first(rows)] == ["b", "a"]
    assert newest_first(rows, "closed") == []


def test_counts_of_an_open_rollout_have_a_plus() -> None:
    """A row of an open rollout is old: there may be more by now."""
    shown = columns(ViewRow.model_validate(ROW))
    assert shown[2:4] == ("2+/4", "7+")


def test_a_closed_rollout_shows_outcomes_best_branch_and_rows() -> None:
    """The things that a person looks for first."""
    closed = {
        **ROW, "status": "closed", "settled": "complete", "closed": "no_judge", "outcomes": {"pass": 1, "fail": 2},
        "ranking": [[3, 1, 1.25], [0, 2, 0.1]], "rows": {"sft": 1, "dpo": 2, "rejected": 5},
    }  # fmt: skip
    assert columns(ViewRow.model_validate(closed))[2:9] == (
        "2/4", "7", "1/2/0", "complete, no_judge", "3 (1.250)", "1/2/0", "5",
    )  # fmt: skip


def test_an_empty_view_says_what_to_do() -> None:
    """Facts without a worker need another step than no facts at all."""
    assert "braid worker" in nothing_yet("here", 12)
    assert "12 facts" in nothing_yet("here", 12)
    assert "braid ingest" in nothing_yet("here", 0)
