"""The selection: splits, filters, and rows that repeat evaluation items."""

from pathlib import Path

import orjson
import pytest

from agents.formats.selection import Filters, SelectionError, Split
from streams.jobs.export.checkpoint import ExportError
from tests.agents.formats.conversations import exact
from tests.agents.formats.rollouts import branch, mixed, opening
from tests.streams.jobs.export.conftest import make_run, rows, take


def test_a_split_keeps_rollouts_whole(tmp_path: Path) -> None:
    """All rows of a rollout are on one side, the same side in every export, and both sides have some."""
    names = [f"s{number}" for number in range(12)]
    run = make_run(tmp_path, [line for name in names for line in mixed(name)])
    split = Split.parse("train=0.5,test=0.5")
    take(run, tmp_path / "out", "trl-kto", split=split)
    sides = {
        side: {row["rollout_id"] for row in rows(tmp_path / "out", f"{side}-*.jsonl")} for side in ("train", "test")
    }
    assert sides["train"]
    assert sides["test"]
    assert sides["train"] | sides["test"] == set(names)
    assert not sides["train"] & sides["test"]
    assert all(split.of(name) == side for side, found in sides.items() for name in found)


@pytest.mark.parametrize("text", ["train", "train=x", "train=0.5", "train=0.5,train=0.5", "a/b=1", "train=1.5"])
def test_a_split_that_makes_no_sense_is_refused(text: str) -> None:
    """Names are words, shares add up to 1."""
    with pytest.raises(SelectionError):
        Split.parse(text)


def test_filters_leave_rows_out_with_their_name(ran: Path, tmp_path: Path) -> None:
    """A row's own fields, and the labels of its rollout."""
    margin = take(ran, tmp_path / "a", "trl-dpo", filters=Filters.parse(["min_margin=9"]))
    assert (margin.rows, margin.rejected) == (0, {"filtered:min_margin": 6})
    judged = take(ran, tmp_path / "b", "trl-dpo", filters=Filters.parse(["basis=judge"]))
    assert judged.rejected == {"filtered:basis": 6}
    team = take(ran, tmp_path / "c", "trl-sft", filters=Filters.parse(["label.team=of-r2", "min_score=0.1"]))
    assert (team.rows, team.rejected) == (1, {"filtered:label.team": 2})
    assert rows(tmp_path / "c")[0]["rollout_id"] == "r2"
    with pytest.raises(SelectionError, match="with a name of"):
        Filters.parse(["colour=red"])


def test_rows_are_chosen_by_how_their_messages_are_known(ran: Path, tmp_path: Path) -> None:
    """Of several fidelities one must be the row's; a row that does not say how it is known is left out, and counted."""
    counts = take(ran, tmp_path / "out", "trl-kto", filters=Filters.parse(["fidelity=exact"]))
    assert (counts.rows, counts.rejected) == (0, {"filtered:fidelity": 9})
    exactly, either = Filters.parse(["fidelity=exact"]), Filters.parse(["fidelity=exact", "fidelity=transcript"])
    row = exact(fidelity="transcript").ppo[0]
    assert (exactly.refuses(row), either.refuses(row)) == ("fidelity", None)
    assert exactly.refuses(exact().dpo[0]) is None
    with pytest.raises(SelectionError, match="exact, composed, transcript, reconstructed"):
        Filters.parse(["fidelity=perfect"])


def test_rows_are_chosen_by_their_agent() -> None:
    """The rows of one sub-agent, or of several."""
    reader = Filters.parse(["agent=reader"])
    assert [reader.refuses(row) for row in exact().ppo] == ["agent", None, "agent"]
    assert reader.refuses(exact().branches[0]) is None


def test_rows_that_repeat_an_evaluation_item_are_left_out_and_the_item_is_named(tmp_path: Path) -> None:
    """By the task, all rows of the rollout; by an answer, the rows that have it."""
    question = "How many moons does the planet Jupiter have according to the most recent count by astronomers?"
    answer = "The smallest prime that divides the sum of the first hundred odd numbers is certainly two, is it not?"
    lines = [
        *mixed("asked", task=f"Please answer: {question}"),
        opening("said", 2), *branch("said", 0, answer, passes=True), *branch("said", 1, "no", passes=False),
        *mixed("clean"),
    ]  # fmt: skip
    items = tmp_path / "items.jsonl"
    items.write_bytes(b"".join(orjson.dumps({"id": name, "question": text}) + b"\n" for name, text in
                               (("moons", question), ("prime", answer))))  # fmt: skip
    counts = take(make_run(tmp_path, lines), tmp_path / "out", "trl-kto", eval_items=items)
    assert (counts.rejected, counts.contaminated) == ({"contaminated": 4}, {"moons": 3, "prime": 1})
    assert {row["rollout_id"] for row in rows(tmp_path / "out")} == {"said", "clean"}


def test_a_branch_with_a_task_of_its_own_is_looked_at_too(tmp_path: Path) -> None:
    """Without an opening each branch says its task; the rollout has the task of one of them."""
    question = "How many moons does the planet Jupiter have according to the most recent count by astronomers?"
    own = [
        line | ({"task": question} if line["type"] == "event" else {}) for line in branch("own", 1, "no", passes=False)
    ]
    (tmp_path / "items.jsonl").write_bytes(orjson.dumps({"id": "moons", "question": question}) + b"\n")
    run = make_run(tmp_path, [*branch("own", 0, "yes", passes=True), *own])
    counts = take(run, tmp_path / "out", "trl-kto", eval_items=tmp_path / "items.jsonl")
    assert (counts.rows, counts.contaminated) == (1, {"moons": 1})


def test_items_that_cannot_be_read_stop_the_export(ran: Path, tmp_path: Path) -> None:
    """A missing file and a bad line are said with their place, and nothing is written."""
    with pytest.raises(ExportError, match="No such file"):
        take(ran, tmp_path / "out", eval_items=tmp_path / "absent.jsonl")
    (tmp_path / "items.jsonl").write_text('{"id": 1, "question": "long enough"}\n{"id": 2}\n')
    with pytest.raises(ExportError, match=r"items.jsonl:2: no text"):
        take(ran, tmp_path / "out", eval_items=tmp_path / "items.jsonl")
    assert not list((tmp_path / "out").glob("*.jsonl"))
