"""The judge that goes by rules: deterministic, and able to be as bad as a real one."""

from pathlib import Path

import pytest

from agents.judge.judge import JudgeSetupError, JudgeTroubleError
from agents.judge.prompt import prompt_of
from agents.judge.scripted_judge_adapter import ScriptedJudge, read_rules
from agents.judge.votes import Call
from schemas.judging import CONTENT_JUDGE, Order
from tests.agents.judge.asking import request_of


def judge_of(tmp_path: Path, text: str) -> ScriptedJudge:
    path = tmp_path / "rules.toml"
    path.write_text(text)
    return ScriptedJudge(read_rules(path))


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ('prefer = "contains"\ntext = "tests passed"', "b"),
        ('prefer = "lacks"\ntext = "tests passed"', "a"),
        ('prefer = "matches"\ntext = "t.sts p"', "b"),
        ('prefer = "longest"', "b"),
        ('prefer = "shortest"', "a"),
        ('prefer = "tie"', "tie"),
        ('prefer = "contains"\ntext = "nowhere"', "tie"),
        ('prefer = "longest"\nwhen = "nowhere"', "tie"),
    ],
)
async def test_a_rule_prefers_texts_not_places(tmp_path: Path, rule: str, expected: str) -> None:
    """The same branch wins in both orders; where no rule decides, it is a tie."""
    judge = judge_of(tmp_path, f"[[rule]]\n{rule}\n")
    request = request_of("short", "long: tests passed")
    letters = [(await judge.ask(prompt_of(request, Call(order, 0)))).letter for order in ("ab", "ba")]  # type: ignore[arg-type]
    assert letters == [expected, {"a": "b", "b": "a", "tie": "tie"}[expected]]


async def test_a_position_bias_can_be_played(tmp_path: Path) -> None:
    """About the share of calls that the rule says go to what is shown first, and always the same ones."""
    judge = judge_of(tmp_path, '[[rule]]\nprefer = "first"\nshare = 0.3\n[[rule]]\nprefer = "tie"\n')

    async def letters() -> list[str | None]:
        orders: tuple[Order, ...] = ("ab", "ba")
        return [
            (await judge.ask(prompt_of(request_of(f"one {n}", f"two {n}"), Call(order, 0)))).letter
            for n in range(200) for order in orders
        ]  # fmt: skip

    found = await letters()
    assert found == await letters()
    assert 80 <= found.count("a") <= 160
    assert set(found) == {"a", "tie"}


async def test_causes_and_scores_can_be_played(tmp_path: Path) -> None:
    """A call without an answer has the cause that the rule names; a score is only ever given by a rule."""
    judge = judge_of(tmp_path, '[[rule]]\nwhen = "slow"\ncause = "timeout"\n[[rule]]\nwhen = "good"\nscore = 7\n')
    with pytest.raises(JudgeTroubleError) as trouble:
        await judge.ask(prompt_of(request_of("slow", "x"), Call("ab", 0)))
    assert trouble.value.cause == "timeout"
    assert (await judge.ask(prompt_of(request_of("good", None), Call("ab", 0)))).score == 7
    with pytest.raises(JudgeTroubleError):
        await judge.ask(prompt_of(request_of("other", None), Call("ab", 0)))


@pytest.mark.parametrize(
    "text",
    ["[[rule]]", "[[rule]]\nprefer = 'best'", "[[rule]]\nprefer = 'contains'", "x = 1", "[[rule]\n",
     "[[rule]]\nprefer = 'matches'\ntext = '('", "[[rule]]\nprefer = 'tie'\ncause = 'timeout'"],
)  # fmt: skip
def test_a_bad_rule_file_is_named(tmp_path: Path, text: str) -> None:
    """The file and what is wrong with it, before anything is judged."""
    with pytest.raises(JudgeSetupError, match=r"rules\.toml"):
        judge_of(tmp_path, text)
    with pytest.raises(JudgeSetupError, match="cannot be read"):
        read_rules(tmp_path / "none.toml")


def test_the_name_of_ties_by_content_is_not_free(tmp_path: Path) -> None:
    """A judge of that name would be no judge: its answers would count nowhere."""
    with pytest.raises(JudgeSetupError, match=r"rules\.toml: judge: .*give the judge another name"):
        judge_of(tmp_path, f'judge = "{CONTENT_JUDGE}"\n')
