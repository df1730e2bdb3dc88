"""Runs against models that misbehave: nothing passes falsely, nothing is lost, nothing costs more than its caps."""

import asyncio
import json
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.compliance.compliance_verdict import Place, compliance_verdict
from agents.compliance.edits import Part, with_part
from agents.compliance.repair_plan import RepairPlan
from agents.compliance.runner import BranchDone, ComplianceRunner, RunOptions, planned_rollouts
from agents.compliance.task_file import Task, task_of
from agents.compliance.verification import Verifier, verify
from agents.facts.fact import Fact
from agents.fork.history import History, read_history
from agents.models.conversation import Message, ToolCall
from agents.models.model import ModelRequest, ModelResponse, TokenUsage
from agents.models.model_error import ModelError
from schemas.events import AgentEvents
from schemas.jsontext import parse_object
from tests.examples import shares

RULES: list[dict[str, Any]] = [
    {"type": "format", "rule": "no_comma"}, {"type": "format", "rule": "lowercase"}, {"type": "format", "rule": "uppercase"},
    {"type": "format", "rule": "quoted"}, {"type": "format", "rule": "title"}, {"type": "format", "rule": "json"},
    {"type": "format", "rule": "bullet_count", "value": 2}, {"type": "format", "rule": "max_chars", "value": 60},
    {"type": "format", "rule": "word_count", "value": {"min": 3, "max": 12}}, {"type": "content", "rule": "contains", "value": "river"},
    {"type": "content", "rule": "excludes", "value": ["boat"]}, {"type": "format", "rule": "ends_with", "value": "the end"},
    {"type": "format", "rule": "starts_with", "value": "Once"}, {"type": "content", "rule": "placeholders_min", "value": 1},
    {"type": "tool", "rule": "tools", "value": {"allowed": []}},
]  # fmt: skip
WORDS = (
    "river",
    "boat",
    "Once",
    "the end",
    ",",
    "<<t>>",
    "<<untitled>>",
    "- a\n- b",
    '{"a": 1}',
    "[x]",
    '"',
    "UP",
    "",
    "\n",
    "Say it.",
)

texts = st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join)


@st.composite
def tasks(draw: st.DrawFn) -> Task:
    chosen = draw(st.lists(st.sampled_from(RULES), min_size=1, max_size=5))
    levels = draw(st.lists(st.sampled_from(("hard", "hard", "soft")), min_size=5, max_size=5))
    repairs = draw(st.lists(st.sampled_from((None, "patch", "insert_section", "full")), min_size=5, max_size=5))
    constraints = [
        {
            **each,
            "id": f"c{number}",
            "level": level,
            "priority": number * 7 % 3,
            **({"repair": {"strategy": how}} if how else {}),
        }
        for number, (each, level, how) in enumerate(zip(chosen, levels, repairs, strict=False))
    ]
    return task_of({"id": "t", "instruction": "Say it.", "constraints": constraints}, "t")


class Moody:
    """Answers from a list, or breaks off."""

    takes_seed = True
    takes_reasoning = False
    name = "moody"

    def __init__(self, answers: Sequence[str], breaks_at: int | None) -> None:
        self.calls: list[ModelRequest] = []
        self._answers = answers
        self._breaks_at = breaks_at

    async def call(self, request: ModelRequest) -> ModelResponse:
        self.calls.append(request)
        if self._breaks_at is not None and len(self.calls) > self._breaks_at:
            raise ModelError("bad_request", "broken for good")
        said = self._answers[(len(self.calls) - 1) % len(self._answers)]
        return ModelResponse(
            Message("assistant", said), self.name, "end_turn", TokenUsage(len(request.messages[0].text) // 4, 7, 0)
        )

    async def close(self) -> None:
        pass


USUAL = RunOptions()
NOTHING = History(None, {}, False)


class Memory:
    def __init__(self) -> None:
        self.facts: list[Fact] = []

    async def append(self, fact: Fact) -> None:
        self.facts.append(fact)


async def no_wait(_seconds: float) -> None:
    pass


def run(
    task: Task, model: Moody, mode: Any, options: RunOptions = USUAL
) -> tuple[BranchDone, list[dict[str, Any]], list[Any]]:
    log, done = Memory(), list[BranchDone]()
    [planned] = planned_rollouts("r", [task], [mode], [1])
    runner = ComplianceRunner(log, lambda _place: model, options, lambda: 0, no_wait)
    asyncio.run(runner.run(planned, History(None, {}, False), done.append))
    events = [event for fact in log.facts if isinstance(fact, AgentEvents) for event in fact.events]
    rounds = [parse_object(event.data) for event in events if event.event == "compliance_attempt"]
    return done[0], rounds, events


@settings(max_examples=shares(6), deadline=None)
@given(tasks(), st.lists(texts, min_size=1, max_size=5), st.integers(0, 8), st.booleans())
def test_a_repaired_branch_never_passes_falsely_and_never_loses_ground(
    task: Task, answers: list[str], rounds: int, repair_soft: bool
) -> None:
    model = Moody(answers, None)
    done, attempts, events = run(task, model, "full_pcl", RunOptions(rounds=rounds, repair_soft=repair_soft))
    final = json.loads(events[-1].data)["answer"]
    verdict = verify(task.spec, final)
    assert done.passed is (None if verdict.status == "unknown" else verdict.status == "pass")
    assert len(attempts) - 1 <= rounds
    assert len(model.calls) <= 1 + rounds
    draft = verify(task.spec, attempts[0]["output"])
    if draft.status == "pass":
        assert done.passed
    held = draft
    for each in attempts[1:]:
        if each["committed"]:
            now = verify(task.spec, each["output"])
            for before, after in zip(held.constraints, now.constraints, strict=True):
                assert before.constraint.level == "soft" or before.status != "pass" or after.status == "pass"
            assert each["output"].strip()
            assert "<<untitled>>" not in each["output"] or "<<untitled>>" in attempts[0]["output"]
            held = now
    hard = [each for each in verdict.constraints if each.constraint.level == "hard"]
    assert (done.passed is True) == all(each.status == "pass" for each in hard), "soft constraints decide nothing"
    checked = compliance_verdict(Place("r/t", 0, 0), task.spec.text(), events)
    assert checked.status == verdict.status
    assert "flags" not in json.loads(checked.details or "{}")


@settings(max_examples=shares(2.4), deadline=None)
@given(
    tasks(),
    st.lists(texts, min_size=1, max_size=4),
    st.sampled_from(("direct", "prompt_retry", "full_pcl")),
    st.integers(0, 4),
)
def test_a_model_that_breaks_at_any_round_leaves_unknown_never_fail(
    task: Task, answers: list[str], mode: str, at: int
) -> None:
    model = Moody(answers, at)
    done, _, events = run(task, model, mode)
    if len(model.calls) > at:
        assert (done.status, done.passed) == ("infra_error", None)
        assert all(event.event != "final_answer" for event in events)
    else:
        assert done.status == "answered"


def test_contradicting_constraints_end_exhausted() -> None:
    task = task_of({"id": "t", "instruction": "x", "constraints": [RULES[1], RULES[2]]}, "t")
    done, attempts, _ = run(task, Moody(["Both at once."], None), "full_pcl", RunOptions(rounds=8))
    assert done.exhausted
    assert done.passed is False
    assert len(attempts) <= 9


def test_a_budget_of_tokens_ends_repairs() -> None:
    task = task_of({"id": "t", "instruction": "x", "constraints": [RULES[6]]}, "t")
    model = Moody(["no bullets"], None)
    _, attempts, _ = run(task, model, "full_pcl", RunOptions(rounds=8, max_repair_tokens=10))
    assert len(attempts) == len(model.calls) == 1


def test_retries_stop_at_the_first_answer_that_passes() -> None:
    task = task_of({"id": "t", "instruction": "Go", "constraints": [RULES[0]]}, "t")
    model = Moody(["a, b", "c, d", "fine", "e, f"], None)
    done, attempts, _ = run(task, model, "prompt_retry")
    assert done.passed
    assert len(attempts) == 3
    asked = model.calls[2].messages[0].text
    assert asked.startswith("Go\n")
    assert "comma at char 1" in asked


@pytest.mark.parametrize("claim", [{"passed": True}, {"status": "pass", "passed": True}])
def test_a_claim_that_the_text_does_not_bear_out_is_flagged_and_decides_nothing(claim: dict[str, Any]) -> None:
    task = task_of({"id": "t", "instruction": "Go", "constraints": [RULES[0]]}, "t")
    _, _, events = run(task, Moody(["a, b"], None), "direct")
    forged = [
        event.model_copy(update={"data": json.dumps({**json.loads(event.data), **claim})})
        if event.event == "compliance_attempt"
        else event
        for event in events
    ]
    verdict = compliance_verdict(Place("r/t", 0, 0), task.spec.text(), forged)
    assert verdict.status == "fail"
    assert json.loads(verdict.details or "{}")["flags"] == ["inconsistent_compliance"]


def test_a_killed_run_goes_on_after_its_last_whole_round_to_the_same_events() -> None:
    task = task_of({"id": "t", "instruction": "Go", "constraints": [RULES[6], RULES[4], RULES[0]]}, "t")
    answers = ["a, b", "- a\n- b", "A title", "<<T>>\n- a\n- b"]
    planned = planned_rollouts("r", [task], ["direct", "prompt_retry", "full_pcl"], [1])[0]

    def whole(facts: list[Fact]) -> dict[Any, Any]:
        history = read_history(facts, planned.opened.rollout_id)
        return {
            job: [(seq, event.data) for seq, event in sorted(each.events.items())]
            for job, each in history.attempts.items()
        }

    models: dict[Any, Moody] = {}

    def model_for(place: Any) -> Moody:
        return models.setdefault(place, Moody([answers[min(place.round, 3)]], None))

    undisturbed = Memory()
    asyncio.run(
        ComplianceRunner(undisturbed, model_for, RunOptions(), lambda: 0, no_wait).run(
            planned, History(None, {}, False), lambda _: None
        )
    )
    paid = sum(len(each.calls) for each in models.values())
    for cut in range(1, len(undisturbed.facts)):
        models.clear()
        log = Memory()
        log.facts = undisturbed.facts[:cut]
        history = read_history(log.facts, planned.opened.rollout_id)
        asyncio.run(
            ComplianceRunner(log, model_for, RunOptions(), lambda: 0, no_wait).run(planned, history, lambda _: None)
        )
        assert whole(log.facts) == whole(undisturbed.facts), cut
        assert sum(len(each.calls) for each in models.values()) <= paid


def test_a_plan_does_not_use_a_strategy_twice_for_one_target() -> None:
    task = task_of({"id": "t", "instruction": "x", "constraints": [RULES[6]]}, "t")
    plan = RepairPlan(task.spec, task.prompt, "nothing", max_rounds=8)
    seen = []
    while (step := plan.next_step()) is not None:
        seen.append(step.strategy)
        plan.consider("still nothing")
    assert seen == ["regenerate_region", "full"], "strategies that do not apply cost no round"


def test_a_verifier_gives_the_same_verdict_again() -> None:
    rng = random.Random(4)
    task = task_of(
        {"id": "t", "instruction": "x", "constraints": [{**each, "id": str(n)} for n, each in enumerate(RULES)]}, "t"
    )
    verifier = Verifier(task.spec)
    for _ in range(50):
        text = " ".join(rng.choices(WORDS, k=6))
        assert verifier.verify(text) == verify(task.spec, text)
        found = verifier.verify(text).constraints
        assert [each.hint is None for each in found] == [each.status == "pass" for each in found]


@pytest.mark.parametrize(
    ("written", "title"),
    [("<<A day out>> and more", "A day out"), ("# A day out", "A day out"), ("A day > a night", "A day   a night"), ("x" * 201, None),
     ("<<Untitled>>", None), ("<<>>", None)],
)  # fmt: skip
def test_a_title_is_what_the_model_wrote_between_brackets_or_on_its_first_line(written: str, title: str | None) -> None:
    made = with_part(Part("-", "title"), written, "text")
    assert made == (None if title is None else f"<<{title}>>\n\ntext")


def test_a_tool_that_was_never_offered_fails_the_round_that_calls_it_and_flags_nobody() -> None:
    task = task_of({"id": "t", "instruction": "Go", "constraints": [RULES[-1]]}, "t")

    class Caller(Moody):
        async def call(self, request: ModelRequest) -> ModelResponse:
            found = await super().call(request)
            return found._replace(message=found.message._replace(tool_calls=(ToolCall("1", "rm", "{"),)))

    done, attempts, events = run(task, Caller(["a"], None), "full_pcl", RunOptions(rounds=1))
    verdict = compliance_verdict(Place("r/t", 0, 0), task.spec.text(), events)
    assert (done.passed, verdict.status, attempts[0]["status"]) == (False, "fail", "fail")
    assert "flags" not in json.loads(verdict.details or "{}")


@pytest.mark.parametrize(("relation", "committed"), [("at least", False), ("less than", True)])
def test_only_a_rule_that_asks_for_less_lets_a_repair_drop_most_words(relation: str, committed: bool) -> None:
    length = {"num_words": 50 if relation == "less than" else 1, "relation": relation}
    row = {"key": 1, "prompt": "Go", "kwargs": [{}, length]}
    task = task_of({**row, "instruction_id_list": ["punctuation:no_comma", "length_constraints:number_words"]}, "t")
    plan = RepairPlan(task.spec, "Go", "a, " * 40, max_rounds=8)
    assert plan.next_step() is not None
    assert plan.consider("one two").committed is committed


@pytest.mark.parametrize("mode", ["direct", "prompt_retry", "full_pcl"])
def test_an_enormous_answer_is_trouble_of_its_provider(mode: str) -> None:
    task = task_of({"id": "t", "instruction": "x", "constraints": [RULES[6]]}, "t")
    done, attempts, _ = run(task, Moody(["short", "long, " * 100_000], None), mode)
    if mode == "direct":
        assert done.passed is False
    else:
        assert (done.status, done.passed, len(attempts)) == ("infra_error", None, 1)
        assert "600,0" in str(done.error)
