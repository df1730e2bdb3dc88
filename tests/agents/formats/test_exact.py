"""Rows made of exact conversations: every message as the model saw it, and only its own words in the loss."""

import json
from dataclasses import replace
from typing import Any

import pytest

from agents.formats import FORMATS
from agents.formats.limits import lost_reasoning
from agents.formats.shape import Group, Row, Style
from schemas.training import Message
from tests.agents.formats.conversations import (
    ANSWER,
    COMPLETION,
    IMAGE,
    PROMPT,
    exact,
    given,
    model,
    result,
    said,
)
from tests.agents.formats.rollouts import group_of, left, mixed, rows


def with_messages(*messages: Message) -> Group:
    """One SFT row of these messages."""
    group = exact()
    return replace(group, sft=(group.sft[0].model_copy(update={"messages": messages}),))


def texts(messages: list[dict[str, Any]]) -> list[Any]:
    return [each["content"] for each in messages]


def test_trl_messages_have_reasoning_and_call_the_developer_system() -> None:
    """Chat templates read `reasoning_content`; hardly one knows `developer`. `trained` is in no message."""
    (pair,) = rows("trl-reward", exact())
    first, answer = pair["chosen"][0], pair["chosen"][-1]
    assert first == {"role": "system", "content": "Be exact."}
    assert answer == {"role": "assistant", "content": ANSWER, "reasoning_content": "Done."}


def test_trl_sft_learns_each_message_of_the_model_in_one_completion() -> None:
    """Runs of the model's messages are completions of all that came before; none holds a given message."""
    first, second = rows("trl-sft", exact(), "spans")
    assert texts(first["prompt"]) == texts(second["prompt"])[:4] == [each.content for each in PROMPT]
    assert texts(first["completion"]) == ["I look."]
    assert texts(second["completion"]) == [None, "ok", ANSWER]
    assert len(second["prompt"]) == len(PROMPT) + 6
    (whole,) = rows("trl-sft", exact())
    assert texts(whole["messages"]) == ["Sum this file up.", "calc.py has a sum."]


@pytest.mark.parametrize(("loss", "completions"), [("spans", 3), ("turns", 4)])
def test_trl_sft_writes_prompts_and_completions_where_asked(loss: Any, completions: int) -> None:
    """All rows have one shape; a turn alone is exact with any chat template."""
    group = exact(style=Style(loss=loss))
    found = rows("trl-sft", group, "spans")
    assert (rows("trl-sft", group), len(found)) == ([], completions)
    learnt = [each for row in found for each in row["completion"] if each["role"] == "assistant"]
    assert texts(learnt) == ["I look.", None, ANSWER, "calc.py has a sum."]
    assert loss == "spans" or all(len(row["completion"]) == 1 for row in found)


def test_rows_without_knowledge_of_given_messages_stay_whole() -> None:
    """Rows of emission version 1 have no `trained`: every assistant message counts, as it always did."""
    assert rows("trl-sft", group_of(mixed()), "spans") == []
    assert len(rows("trl-sft", group_of(mixed()))) == 1


def test_arguments_are_objects_where_asked() -> None:
    """A value that is no object stays text."""
    (row,) = rows("trl-grpo", exact(style=Style(arguments="object")))
    calls = [call["function"]["arguments"] for each in row["sampled"][0] for call in each.get("tool_calls", ())]
    assert calls == [{"cmd": "ls"}, {"cmd": ["cat", 1]}, {"fix": {"a": None}}]
    odd = model(None, ("call_0", {}))
    odd = odd.model_copy(update={"tool_calls": (odd.tool_calls[0].model_copy(
        update={"function": odd.tool_calls[0].function.model_copy(update={"arguments": "[1]"})}),)})  # fmt: skip
    group = replace(with_messages(said("user", "x"), odd), style=Style(arguments="object"))
    (row,) = rows("trl-sft", group)
    assert row["messages"][1]["tool_calls"][0]["function"]["arguments"] == "[1]"


def test_openai_weighs_given_messages_with_nothing() -> None:
    """`weight` 0 keeps a message out of the loss; no field stands there that the service does not know."""
    row = rows("openai-sft", exact())[0]
    weights = [each.get("weight") for each in row["messages"] if each["role"] == "assistant"]
    assert weights == [0, None, 0, None, None]
    known = {"role", "content", "tool_calls", "tool_call_id", "weight"}
    assert all(set(each) <= known for each in row["messages"])
    assert row["messages"][0]["role"] == "system"
    (pair,) = rows("openai-dpo", exact())
    assert "weight" not in json.dumps(pair), "the input of a pair is in no loss"


def test_openai_dpo_needs_two_different_first_messages() -> None:
    """Equal calls with other results, or a difference in reasoning alone, cannot be said."""
    group, call = exact(), model("I look.", ("call_0", {}))
    alike = {"chosen": (call, result("call_0", "1"), model("a")), "rejected": (call, result("call_0", "2"), model("b"))}
    thought = {"chosen": (model("a", reasoning_content="x"),), "rejected": (model("a"),)}
    silent = {"chosen": (model("a"),), "rejected": (model(" "),)}
    for sides, reason in ((alike, "differs_in_calls"), (thought, "same_answer"), (silent, "empty_answer")):
        changed = replace(group, dpo=(group.dpo[0].model_copy(update=sides),))
        assert (rows("openai-dpo", changed), left("openai-dpo", changed)) == ([], [reason])


@pytest.mark.parametrize("name", ["trl-dpo", "trl-kto", "nemo-preference", "sharegpt"])
def test_trainers_that_learn_whole_completions_get_none_with_given_messages(name: str) -> None:
    """They have no mask for a message."""
    assert "given_message" in left(name, exact())
    clean = tuple(each for each in COMPLETION if each.trained is not False)
    assert "given_message" not in left(name, exact(completion=clean)) or name == "sharegpt"


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ((said("user", "x"), model(None, ("c", {})), said("user", "y"), model("z")), "unanswered_call"),
        ((said("user", "x"), model(None, ("c", {})), result("c", "y")), "ends_without_assistant"),
        ((said("user", "x"), result("c", "y"), model("z")), "result_without_call"),
    ],
)
def test_a_service_that_wants_calls_answered_gets_no_other_conversation(
    messages: tuple[Message, ...], reason: str
) -> None:
    """Loaders that render any conversation keep it."""
    group = with_messages(*messages)
    assert left("openai-sft", group) == [reason]
    assert left("sharegpt", group) == ["not_alternating"]
    assert len(rows("trl-sft", group)) == 1


def test_a_last_message_with_calls_is_an_example_of_calling() -> None:
    """Nothing follows it that would need the results."""
    assert len(rows("openai-sft", with_messages(said("user", "x"), model(None, ("c", {}))))) == 1


@pytest.mark.parametrize("name", [name for name, form in FORMATS.items() if form.needs & {"sft", "dpo"}])
def test_media_are_kept_by_reference_or_the_row_is_left_out(name: str) -> None:
    """A format without media leaves out every record that refers to one."""
    part = [{"type": "text", "text": "Look:"}, IMAGE]
    seen = said("user", "Look:", parts=json.dumps(part))
    base = exact(completion=(model(ANSWER),))
    group = replace(
        base,
        sft=(base.sft[0].model_copy(update={"messages": (seen, model(ANSWER))}),),
        dpo=(base.dpo[0].model_copy(update={"prompt": (seen,)}),),
        ppo=(base.ppo[0].model_copy(update={"prompt": (seen,)}),),
    )
    if FORMATS[name].speech.media:
        (row,) = rows(name, group)
        assert row["messages"][0]["content"] == part
    else:
        assert set(left(name, group)) >= {"not_representable"}
        assert all(not rows(name, group, part) for part in FORMATS[name].columns if part != "branches")


def test_messages_loses_nothing() -> None:
    """Roles, reasoning, calls, results and positions are those of the record."""
    main, side, failing = rows("messages", exact())
    whole = PROMPT + COMPLETION
    again = [
        Message.model_validate({**each, "trained": place in main["trained"]} if each["role"] == "assistant" else each)
        for place, each in enumerate(main["messages"])
    ]
    assert tuple(again) == whole
    assert main["trained"] == [place for place, each in enumerate(whole) if each.trained]
    assert (main["fidelity"], main["sequence"], main["n_sequences"], main["imitated"]) == ("exact", 0, 2, True)
    assert (side["agent"], side["sequence"], side["trained"], side["reward"]) == ("reader", 1, [1], main["reward"])
    assert (failing["status"], failing["imitated"], failing["reward"]) == ("fail", False, 0.0)


def test_a_branch_is_one_member_of_its_group_by_its_main_sequence() -> None:
    """A sub-agent's conversation changes no statistic."""
    (row,) = rows("trl-grpo", exact())
    assert (row["branches"], row["rewards"], row["group_mean"]) == ([0, 1], [1.0, 0.0], 0.5)
    assert texts(row["prompt"]) == [each.content for each in PROMPT]
    (verl,) = rows("verl-parquet", exact())
    assert (verl["extra_info"]["group_size"], verl["extra_info"]["advantages"]) == (2, row["advantages"])
    assert verl["prompt"][0] == {"role": "system", "content": "Be exact."}
    for name in ("trl-grpo", "verl-parquet", "rollout-wire", "trl-stepwise"):
        assert left(name, exact()).count("other_sequence") == 1


def test_verl_leaves_out_a_prompt_with_calls() -> None:
    """Its messages have a role and a text, and nothing else."""
    group = exact()
    prompt = (said("user", "x"), model(None, ("c", {})), result("c", "y"))
    changed = replace(group, ppo=(group.ppo[0].model_copy(update={"prompt": prompt}),))
    assert (rows("verl-parquet", changed), left("verl-parquet", changed)) == ([], ["calls_in_prompt"])


def test_transitions_are_of_the_models_own_messages() -> None:
    """A given message is what the model saw, not what it did."""
    found = [row for row in rows("rl-transitions", exact()) if row["branch_index"] == 0 and row["sequence"] == 0]
    assert [row["action"][0]["content"] for row in found] == ["I look.", None, ANSWER]
    assert "(a colleague answers here)" in texts(found[0]["next_observation"])
    assert [row["done"] for row in found] == [False, False, True]


def test_reasoning_that_a_format_cannot_carry_is_counted() -> None:
    """Each message once, however many rows are made of its record."""
    for name, lost in (("openai-sft", 3), ("verl-parquet", 2), ("trl-sft", 0), ("rl-transitions", 0), ("messages", 0)):
        made = [each for each in FORMATS[name].make(exact()) if isinstance(each, Row)]
        assert lost_reasoning(FORMATS[name], made) == lost


def test_steps_without_their_events_have_no_labels() -> None:
    """Only events say whether a call failed; a conversation that they do not cover is left out."""
    assert [row["branch_index"] for row in rows("trl-stepwise", exact())] == []
    assert left("trl-stepwise", exact()).count("unknown_step") == 2


def test_rollout_wire_has_the_calls_and_results_that_the_model_saw() -> None:
    """Where the conversation is known, events are not needed."""
    branches = rows("rollout-wire", exact(), "branches")
    assert branches[0]["branch_index"] == 0
    events = [(each["event"], each["data"].get("output")) for each in branches[0]["tool_call_sequence"]]
    assert events == [
        ("tool_call", None), ("tool_call", None), ("tool_result", "calc.py"), ("tool_result", "a - b"),
        ("tool_call", None), ("tool_result", "ok"),
    ]  # fmt: skip


def test_sharegpt_takes_conversations_that_alternate() -> None:
    """The developer's words are the system's; several users in a row are refused."""
    good = (said("developer", "S"), said("user", "x"), model(None, ("c", {"a": 1})), result("c", "y"), model("z"))
    (row,) = rows("sharegpt", with_messages(*good))
    assert (row["system"], [turn["from"] for turn in row["conversations"]]) == (
        "S", ["human", "function_call", "observation", "gpt"],
    )  # fmt: skip
    assert left("sharegpt", with_messages(said("user", "x"), said("user", "y"), model("z"))) == ["not_alternating"]
    assert left("sharegpt", with_messages(said("user", "x"), given("y"), said("user", "z"), model("."))) == [
        "given_message"
    ]
