"""Answers that a reader sees nothing of: they are no answers, and no row is made of them alone."""

import pytest

from agents.formats.shape import Group
from agents.training.messages import is_blank
from tests.agents.formats.rollouts import branch, group_of, left, opening, rows

BLANK = [
    "", " ", "\n\t ", "\u00a0", "\u200b", "\ufeff", "\u2060\u200d", " \u200b\n\ufeff ", "\u00ad", "\u3164", "\u2800", "\u202e",
    "\U000e0041", "\x00", "\x1b",
]  # fmt: skip
SEEN = ["0", ".", "\u200b.", "é", "\u200b\u4e2d", "🙂", "\u0301", "[REDACTED:email]", "\\u200b"]


@pytest.mark.parametrize("text", BLANK, ids=ascii)
def test_what_nobody_sees_is_blank(text: str) -> None:
    """White space of any kind, control characters, joiners, marks of direction, and letters without ink."""
    assert is_blank(text)
    assert is_blank(None)


@pytest.mark.parametrize("text", SEEN, ids=ascii)
def test_one_visible_character_is_an_answer(text: str) -> None:
    assert not is_blank(text)


def reasons(group: Group, kind: str) -> dict[tuple[int, ...], tuple[str, ...]]:
    return {row.branches: row.reasons for row in group.rejected if row.kind == kind}


@pytest.mark.parametrize("answer", [*BLANK, None], ids=ascii)
def test_a_branch_that_said_nothing_is_in_no_row(answer: str | None) -> None:
    """It is kept out by name: of SFT, of pairs on either side, and of PPO."""
    lines = [opening("r1", 3)]
    for index, (said, passes) in enumerate([(answer, True), ("Done.", True), (answer, False)]):
        lines += branch("r1", index, said, passes=passes)
    group = group_of(lines)
    assert [row.branch_index for row in group.sft] == [1]
    assert [row.branch_index for row in group.ppo] == [1]
    assert group.dpo == ()
    assert reasons(group, "sft")[0,] == (("empty_answer",) if answer is not None else ("ended_badly",))
    assert reasons(group, "ppo") == {(0,): ("empty_completion",), (2,): ("empty_completion",)}
    assert reasons(group, "dpo")[1, 2] == ("empty_completion",)


def test_what_it_did_counts_without_an_answer() -> None:
    """Calls are a completion; a blank answer behind them is no message, as an empty one is none."""
    lines = [
        opening("r1", 2),
        *branch("r1", 0, "Done.", passes=True, calls=({"x": 1},)),
        *branch("r1", 1, "\u200b\n", passes=False, calls=({"x": 2},)),
    ]
    group = group_of(lines)
    (pair,) = group.dpo
    assert [said.role for said in pair.rejected] == ["assistant", "tool"]
    assert [[said.role for said in row.completion] for row in group.ppo] == [
        ["assistant", "tool", "assistant"], ["assistant", "tool"],
    ]  # fmt: skip
    assert left("openai-dpo", group) == []
    assert [row["label"] for row in rows("trl-kto", group)] == [True, False]


def test_it_touches_no_statistic_of_its_group() -> None:
    """Only those that are trained on are compared."""
    lines = [opening("r1", 2), *branch("r1", 0, "Done.", passes=True), *branch("r1", 1, " ", passes=False)]
    (row,) = group_of(lines).ppo
    assert (row.group_size, row.group_mean, row.reward) == (1, 1.0, 1.0)
