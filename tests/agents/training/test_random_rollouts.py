"""For any agents, verifiers and judges: no row is made of nothing, of equals, or of unknown outcomes."""

import json
import math
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from itertools import combinations, count, product
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from agents.formats import FORMATS
from agents.formats.shape import Group, Row
from agents.training.messages import has_content, is_blank
from schemas.emission import EmissionConfig, RewardsConfig
from schemas.training import Message
from tests.agents.formats.rollouts import ELSEWHERE, Line, group_of
from tests.examples import shares

ANSWERS = st.sampled_from(["42", "42 ", "No.", "Yes.", "[no result was recorded]", "", " \n", None])
ARGUMENTS = st.sampled_from(
    [{}, {"x": 1}, {"x": None, "y": [1.5, "ü"]}, {"cmd": "rm -rf build"}, "not an object", None]
)
OUTPUTS = st.sampled_from([None, "", "ok", {"a": 1}, 7, "x" * 3000])
CALL_IDS = st.sampled_from([None, "c0", "c1", "c2"])
BUILDS: tuple[dict[str, Any], ...] = (
    {"status": "success", "exit_code": 0},
    {
        "status": "success",
        "exit_code": 0,
        "tests": {"passed": 3, "failed": 1, "skipped": 0, "total": 4},
        "coverage": 0.5,
    },
    {"status": "success", "exit_code": 0, "protected_paths_intact": False},
    {"status": "success", "exit_code": 0, "tests": {"passed": 5, "failed": 0, "skipped": 5, "total": 10}},
    {
        "status": "success",
        "exit_code": 0,
        "tests": {"passed": 9, "failed": 0, "skipped": 0, "total": 9},
        "coverage": 0.9,
    },
    {
        "status": "success",
        "exit_code": 0,
        "baseline_tests": 9,
        "tests": {"passed": 3, "failed": 0, "skipped": 0, "total": 3, "collection_errors": 0},
    },
    {
        "status": "failure",
        "exit_code": 1,
        "tests": {"passed": 9, "failed": 1, "skipped": 0, "total": 10},
        "coverage": 1.0,
    },
    {"status": "failure", "exit_code": 1, "tests": {"passed": 9, "failed": 0, "skipped": 0, "total": 9}},
    {"status": "failure", "exit_code": 1},
    {"status": "failure", "exit_code": 0},
    {"status": "success"},
    {"status": "running"},
    {"status": "infra_error"},
)


@st.composite
def tool_events(draw: st.DrawFn) -> Iterator[dict[str, Any]]:
    """A call or a result: results without calls, calls without results, repeated ids and any order all occur."""
    call_id, name = draw(CALL_IDS), draw(st.sampled_from(["shell", "read_file"]))
    data: dict[str, Any] = {"toolName": name} | ({} if call_id is None else {"callId": call_id})
    if draw(st.booleans()):
        step = draw(st.sampled_from([None, 0, 1]))
        data |= {"args": draw(ARGUMENTS)} | ({} if step is None else {"stepIndex": step})
        return {"channel": "tool", "event": "tool_call", "data": data}
    failure = draw(st.sampled_from([None, {"code": "E", "message": "broken"}]))
    data |= {"output": draw(OUTPUTS)} | ({} if failure is None else {"error": failure})
    return {"channel": "tool", "event": "tool_result", "data": data}


@st.composite
def branch_lines(draw: st.DrawFn, index: int) -> list[Line]:
    """The events, the end and the verdicts of a branch, as far as there are any."""
    place = {"rollout_id": "r", "branch_index": index}
    events = draw(
        st.lists(tool_events() | st.just({"event": "thinking_delta", "data": {"delta": "hm", "step": 0}}), max_size=6)
    )
    start = {"task": "Do it", "agentConfig": {"model": "m"}}
    events.insert(0, {"channel": "text", "event": "run_start", "data": start})
    answer = draw(ANSWERS)
    if answer is not None:
        events.append({"channel": "text", "event": "final_answer", "data": {"answer": answer}})
    elif draw(st.booleans()):
        events.append({"channel": "text", "event": "error", "data": {"error": "529 overloaded"}})
    lines: list[Line] = [{"type": "event", **place, "seq": seq, "event": event} for seq, event in enumerate(events)]
    status = draw(st.sampled_from([None] * 6 + ["answered", "failed", "aborted", "infra_error"]))
    if status is not None:
        lines.append({"type": "end", **place, "status": status})
    certain = st.sampled_from([[BUILDS[0]], [{"status": "failure", "exit_code": 1}]])
    builds = draw(st.lists(st.sampled_from(BUILDS), max_size=2) | certain)
    lines += [{"type": "build", **place, **build} for build in builds]
    if draw(st.booleans()):
        lines.append({"type": "visual", **place, "verdict": draw(st.sampled_from(["pass", "fail", "pending"]))})
    return lines


@st.composite
def rollouts(draw: st.DrawFn) -> list[Line]:
    """One rollout with everything that may go wrong in it."""
    n = draw(st.sampled_from([4, 3, 2, 1]))
    opening = {
        "type": "rollout", "rollout_id": "r", "task": "Do it", "branches": n,
        "required": draw(st.sampled_from([["build"], None, [], ["build", "visual"]])),
        "system_prompt": draw(st.sampled_from([None, "Be brief."])), "repo_commit": "c", "tool_manifest_digest": "d",
    }  # fmt: skip
    lines: list[Line] = [opening]
    for index in range(n):
        lines += draw(branch_lines(index))
    for a, b in combinations(range(n), 2):
        likely = draw(st.sampled_from(["a", "b", None]))
        for order, sample in product(("ab", "ba"), range(draw(st.integers(0, 3)))):
            preferred = draw(st.sampled_from([likely] * 6 + ["a", "b", "tie", None]))
            vote = {"type": "vote", "rollout_id": "r", "a": a, "b": b, "order": order, "sample": sample, "judge": "j"}
            lines.append(vote | {"preferred": preferred})
    if draw(st.integers(0, 19)) == 19:
        lines.append({"type": "cancel", "rollout_id": "r"})
    return lines


def some(condition: Callable[[Group], object]) -> bool:
    """Whether random rollouts come to this at all: a property of nothing proves nothing."""
    found = find(rollouts(), lambda lines: bool(condition(group_of(lines, in_order=False))), settings=FINDING)
    return bool(found)


FINDING = settings(
    max_examples=2000, deadline=None, phases=[Phase.generate], derandomize=True, suppress_health_check=list(HealthCheck)
)


@pytest.mark.parametrize("basis", ["objective", "judge"])
def test_random_rollouts_make_pairs(basis: str) -> None:
    """Both kinds of pairs occur."""
    assert some(lambda group: any(pair.basis == basis for pair in group.dpo))


@pytest.mark.parametrize("name", [name for name in FORMATS if name not in ELSEWHERE])
def test_random_rollouts_make_rows_of_every_format(name: str) -> None:
    """Every format gets rows, but for those that need a key, token ids or constraints."""
    assert some(lambda group: any(isinstance(made, Row) for made in FORMATS[name].make(group)))


MANY = settings(max_examples=shares(2.4), deadline=None, suppress_health_check=[HealthCheck.too_slow])


def assert_every_call_is_answered(said: Iterable[Message]) -> None:
    """Each call is followed by its tool message, ids run by position, and no tool speaks unasked."""
    waiting: list[tuple[str, str]] = []
    numbers = count()
    for message in said:
        if message.role == "tool":
            assert waiting
            assert waiting.pop(0) == (message.tool_call_id, message.name)
            assert message.content is not None
            continue
        assert not waiting
        waiting = [(call.id, call.function.name) for call in message.tool_calls]
        assert [call_id for call_id, _ in waiting] == [f"call_{next(numbers)}" for _ in waiting]
    assert not waiting


@settings(MANY, max_examples=shares(6))
@given(rollouts())
def test_no_pair_has_an_empty_equal_or_unknown_side(lines: list[Line]) -> None:
    """Both sides say or do something, they differ, and both outcomes are known and tell which is better."""
    group = group_of(lines, in_order=False)
    assert len(group.dpo) <= 4
    for pair in group.dpo:
        assert pair.prompt
        assert pair.chosen != pair.rejected
        assert has_content(pair.chosen)
        assert has_content(pair.rejected)
        assert pair.chosen[0].role == "assistant" or pair.rejected[0].role == "assistant"
        assert any(each.tool_calls for each in pair.chosen) or not is_blank(pair.chosen[-1].content)
        statuses = group.status(pair.chosen_branch), group.status(pair.rejected_branch)
        assert "unknown" not in statuses
        if pair.basis == "hack":
            assert statuses[0] == "pass"
            assert _is_hacked(group, pair.rejected_branch)
            continue
        assert statuses == ("pass", "fail") if pair.basis == "objective" else statuses[0] == statuses[1]
        assert pair.basis == "objective" or (pair.p_chosen or 0) >= 0.9
        for side in (pair.chosen, pair.rejected):
            assert_every_call_is_answered((*pair.prompt, *side))


def _is_hacked(group: Any, index: int) -> bool:
    return any(flag.startswith("hack_confirmed") for flag in group.ranked(index).flags)


@settings(MANY, max_examples=300)
@given(rollouts())
def test_no_hack_is_imitated_or_preferred(lines: list[Line]) -> None:
    """A confirmed, suspected or judged branch is in no SFT row and on no chosen side."""
    group = group_of(lines, in_order=False)
    suspect = {
        each.branch_index for each in group.ranking.branches if any(flag.startswith("hack_") for flag in each.flags)
    }
    assert suspect.isdisjoint(row.branch_index for row in group.sft)
    assert suspect.isdisjoint(pair.chosen_branch for pair in group.dpo)


@MANY
@given(rollouts())
def test_no_penalised_hack_is_rewarded_above_an_unhacked_sibling(lines: list[Line]) -> None:
    """Its row is in no statistic of the group, either."""
    group = group_of(lines, in_order=False, config=EmissionConfig(rewards=RewardsConfig(hacked_rows="penalise")))
    hacked = [row for row in group.ppo if _is_hacked(group, row.branch_index)]
    others = [row for row in group.ppo if not _is_hacked(group, row.branch_index)]
    for row in hacked:
        assert "hack_penalised" in row.admission.reasons
        assert row.reward <= min([other.reward for other in others], default=row.reward)
        assert row.group_size == len(others)


@MANY
@given(rollouts())
def test_no_reward_comes_from_an_unknown(lines: list[Line]) -> None:
    """A reward has a known outcome or a judge's score behind it, and its group counts those that are trained on, no others."""
    group = group_of(lines, in_order=False)
    for row in group.ppo:
        ranked = group.ranked(row.branch_index)
        assert ranked is not None
        assert ranked.objective_status in ("pass", "fail") or ranked.judge_score is not None
        assert ranked.objective_status != "unknown"
        assert 0 <= row.reward <= 1.1
        assert ranked.objective_status != "pass" or row.reward > 0
        assert_every_call_is_answered((*row.prompt, *row.completion))
    assert all(row.group_size == len(group.ppo) for row in group.ppo)


@MANY
@given(rollouts())
def test_what_is_imitated_passes_and_answers(lines: list[Line]) -> None:
    """An SFT row passes, says something, and every branch is in a row or rejected with a reason."""
    group = group_of(lines, in_order=False)
    for row in group.sft:
        assert group.status(row.branch_index) == "pass"
        assert not is_blank(row.messages[-1].content)
        assert_every_call_is_answered(row.messages)
    for kind, rows in (("sft", group.sft), ("ppo", group.ppo)):
        refused = {index for record in group.rejected if record.kind == kind for index in record.branches}
        assert {row.branch_index for row in rows} | refused == {each.branch_index for each in group.ranking.branches}
        assert not {row.branch_index for row in rows} & refused


def numbers(value: Any) -> Iterator[float]:
    if isinstance(value, float):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from numbers(inner)


@MANY
@given(rollouts())
def test_no_format_makes_up_what_is_not_known(lines: list[Line]) -> None:
    """Labels, rewards and preferences of every format come from known outcomes; every row names its records."""
    group = group_of(lines, in_order=False)
    for name, form in FORMATS.items():
        for made in form.make(group):
            if isinstance(made, Row):
                assert made.sources
                assert all(math.isfinite(number) for number in numbers(made.value))
                _CHECKS.get(name, lambda _group, _row: None)(group, made.value)


def _kto(group: Group, row: dict[str, Any]) -> None:
    statuses = {each.record_id: group.status(each.branch_index) for each in group.ppo}
    assert row["label"] == {"pass": True, "fail": False}[statuses[row["record_id"]]]


def _openai_dpo(_group: Group, row: dict[str, Any]) -> None:
    sides = [row[name][0] for name in ("preferred_output", "non_preferred_output")]
    assert sides[0] != sides[1]
    assert all(side.get("tool_calls") or side["content"].strip() for side in sides)


def _transition(group: Group, row: dict[str, Any]) -> None:
    assert (row["reward"] is not None) == row["done"]
    assert (
        row["done"] is False or row["reward"] == {each.record_id: each.reward for each in group.ppo}[row["record_id"]]
    )


def _stepwise(_group: Group, row: dict[str, Any]) -> None:
    assert len(row["labels"]) == len(row["completions"]) > 0
    assert all(isinstance(label, bool) for label in row["labels"])
    assert all(text.strip() for text in row["completions"])


def _nemo(_group: Group, row: dict[str, Any]) -> None:
    ranks = [each["rank"] for each in row["completions"]]
    assert ranks == sorted(ranks)
    assert ranks[0] == 0 < ranks[-1]


def _verl(group: Group, row: dict[str, Any]) -> None:
    assert json.loads(row["reward_model"]["ground_truth"])["task"] == sha256(b"Do it").hexdigest()
    assert row["extra_info"]["rewards"] == [each.reward for each in group.ppo]


_CHECKS = {
    "trl-kto": _kto, "openai-dpo": _openai_dpo, "rl-transitions": _transition, "trl-stepwise": _stepwise,
    "nemo-preference": _nemo, "verl-parquet": _verl,
}  # fmt: skip
