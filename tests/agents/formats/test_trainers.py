"""Rows for trainers, field by field: TRL, OpenAI, verl, NeMo, ShareGPT."""

import json
from hashlib import sha256

import pytest

from agents.formats import FORMATS
from agents.formats.shape import Group
from tests.agents.formats.conversations import exact
from tests.agents.formats.rollouts import ELSEWHERE, SHAPES, branch, group_of, left, mixed, opening, rows

SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "Do the thing of r1"}
WRITE = {
    "type": "function",
    "function": {"name": "write_file", "description": "Write.", "parameters": {"type": "object", "properties": {}}},
}
SHELL = {"type": "function", "function": {"name": "shell", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture(scope="module")
def group() -> Group:
    return group_of(mixed())


def test_every_format_of_the_contract_is_there() -> None:
    """All names that the command takes, and no others."""
    assert list(FORMATS) == [
        "trl-sft", "trl-dpo", "trl-kto", "trl-grpo", "trl-reward", "openai-sft", "openai-dpo", "messages",
        "verl-parquet", "tokens-parquet", "nemo-preference", "sharegpt", "rollout-wire", "atif", "sts", "adp", "rl-transitions",
        "trl-stepwise", "compliance-eval", "dsse",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name", [name for name, form in FORMATS.items() if not form.verbatim and name not in ELSEWHERE]
)
def test_rows_have_only_declared_columns_and_are_strict_json(name: str, group: Group) -> None:
    """A value that Parquet would not know is never in a row, and no row holds a NaN."""
    plain = group_of([opening("r1", 2), *branch("r1", 0, "Yes.", passes=True), *branch("r1", 1, "No.", passes=False)])
    for part, columns in FORMATS[name].columns.items():
        made = rows(name, group, part) or rows(name, plain, part) or rows(name, exact(), part)
        assert made
        assert all(row.keys() <= columns.keys() for row in made)
        json.dumps(made, allow_nan=False)


def test_trl_sft_is_the_whole_conversation(group: Group) -> None:
    """Parallel calls share a message, arguments are JSON text, tools are JSON text in OpenAI's shape."""
    (row,) = rows("trl-sft", group)
    roles = [said["role"] for said in row["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "tool", "tool", "assistant"]
    assert row["messages"][:2] == [SYSTEM, USER]
    assert set(row["messages"][2]) == {"role", "content", "tool_calls"}
    calls = [call for said in row["messages"] for call in said.get("tool_calls", ())]
    assert [json.loads(call["function"]["arguments"]) for call in calls] == list(SHAPES)
    assert row["messages"][3] == {
        "role": "tool", "content": "did 0-0", "tool_call_id": "call_0", "name": "write_file",
    }  # fmt: skip
    assert json.loads(row["tools"]) == [WRITE, SHELL]
    assert (row["rollout_id"], row["record_id"]) == ("r1", group.sft[0].record_id)


def test_trl_dpo_has_the_shared_beginning_and_both_continuations(group: Group) -> None:
    """The prompt ends before an assistant message; margin and basis stand beside."""
    first, second = rows("trl-dpo", group)
    assert {len(first["prompt"]), len(second["prompt"])} == {2, 4}
    for row in (first, second):
        assert row["chosen"][0]["role"] == row["rejected"][0]["role"] == "assistant"
        assert row["chosen"] != row["rejected"]
        assert (row["basis"], row["margin"] > 0) == ("objective", True)


def test_trl_reward_has_no_prompt_column(group: Group) -> None:
    """Both conversations are whole and share their beginning."""
    for row, pair in zip(rows("trl-reward", group), group.dpo, strict=True):
        assert set(row) == {"chosen", "rejected", "tools", "margin", "rollout_id", "record_id"}
        shared = len(pair.prompt)
        assert row["chosen"][:shared] == row["rejected"][:shared]


def test_trl_kto_labels_what_passes_and_what_fails(group: Group) -> None:
    """True for the passing branch, false for the failing ones, nothing for the unknown."""
    assert [row["label"] for row in rows("trl-kto", group)] == [True, False, False]
    lines = [opening("r1", 1, required=[]), *branch("r1", 0, "ok", passes=None)]
    assert rows("trl-kto", group_of(lines)) == []


def test_trl_grpo_is_one_row_for_each_group(group: Group) -> None:
    """A prompt with the sampled completions, their rewards and advantages, in one order."""
    (row,) = rows("trl-grpo", group)
    assert row["prompt"] == [SYSTEM, USER]
    assert (row["rewards"], row["branches"], row["reference_answer"]) == ([1.0, 0.0, 0.0], [0, 1, 2], "Done.")
    assert [said[-1]["content"] for said in row["sampled"]] == ["Done.", "I tried.", "Done."]
    assert row["advantages"] == [each.advantage for each in group.ppo]


def test_a_group_without_a_spread_of_rewards_is_left_out() -> None:
    """Equal rewards teach nothing, and are no preference either."""
    lines = [opening("r1", 2), *branch("r1", 0, "a", passes=True), *branch("r1", 1, "b", passes=True)]
    assert left("trl-grpo", group_of(lines)) == ["no_reward_spread"]
    assert left("nemo-preference", group_of(lines)) == ["all_equal"]


def own_tasks() -> Group:
    """The rollout has no opening: two branches were asked for apples, three for pears, one for plums."""
    lines = []
    for index, (task, answer, passes) in enumerate(
        [
            ("Count apples.", "3 apples", True),
            ("Count pears.", "no idea", False),
            ("Count apples.", "4 apples", False),
            ("Count pears.", "5 pears", True),
            ("Count pears.", "6 pears", False),
            ("Count plums.", "7 plums", True),
        ]
    ):
        lines += [
            line | {"task": task} if line["type"] == "event" else line
            for line in branch("r1", index, answer, passes=passes)
        ]
    return group_of(lines)


def test_branches_with_tasks_of_their_own_are_groups_of_their_own() -> None:
    """No prompt has the completion of another; what was asked once has nothing to be compared with."""
    group = own_tasks()
    apples, pears = rows("trl-grpo", group)
    assert [(row["task"], row["prompt"][-1]["content"]) for row in (apples, pears)] == [
        ("Count apples.", "Count apples."), ("Count pears.", "Count pears."),
    ]  # fmt: skip
    assert (apples["branches"], apples["rewards"], apples["reference_answer"]) == ([0, 2], [1.0, 0.0], "3 apples")
    assert (pears["branches"], pears["rewards"], pears["reference_answer"]) == ([3, 1, 4], [1.0, 0.0, 0.0], "5 pears")
    assert (apples["group_mean"], sum(apples["advantages"])) == (0.5, 0.0)
    assert pears["group_mean"] == pytest.approx(1 / 3)
    assert sum(pears["advantages"]) == pytest.approx(0, abs=1e-8)
    assert left("trl-grpo", group) == ["no_reward_spread"]


def test_ppo_rows_have_the_statistics_of_what_was_asked_the_same() -> None:
    """A reader of the topic computes nothing again: an answer about apples is not worth more because pears are hard."""
    found = {row.branch_index: row for row in own_tasks().ppo}
    assert [(found[index].group_size, found[index].group_mean) for index in (0, 2, 5)] == [(2, 0.5), (2, 0.5), (1, 1.0)]
    assert {found[index].group_size for index in (1, 3, 4)} == {3}
    assert (found[0].advantage, found[2].advantage, found[5].advantage) == (0.707106781, -0.707106781, None)


def test_nemo_ranks_only_completions_of_one_prompt() -> None:
    """Ranks begin again with each prompt."""
    group = own_tasks()
    apples, pears = rows("nemo-preference", group)
    assert [each["completion"][0]["content"] for each in apples["completions"]] == ["3 apples", "4 apples"]
    assert (apples["context"][-1]["content"], pears["context"][-1]["content"]) == ("Count apples.", "Count pears.")
    assert [each["rank"] for each in pears["completions"]] == [0, 1, 1]
    assert left("nemo-preference", group) == ["fewer_than_two_completions"]


def test_verl_has_a_row_for_each_prompt() -> None:
    """With the digest of its own task and the rewards of its own branches; every prompt has a number of its own."""
    found = rows("verl-parquet", own_tasks())
    tasks = [row["prompt"][-1]["content"] for row in found]
    assert tasks == ["Count apples.", "Count pears.", "Count plums."]
    assert [json.loads(row["reward_model"]["ground_truth"])["task"] for row in found] == [
        sha256(task.encode()).hexdigest() for task in tasks
    ]
    assert len({row["extra_info"]["uid"] for row in found}) == 3
    assert [row["extra_info"]["rewards"] for row in found] == [[1.0, 0.0], [1.0, 0.0, 0.0], [1.0]]
    assert len({row["extra_info"]["index"] for row in found}) == 3
    assert [row["extra_info"]["group_size"] for row in found] == [2, 3, 1]


def test_openai_sft_has_only_fields_that_the_service_knows(group: Group) -> None:
    """No names on tool messages, no null content beside calls, tools as objects."""
    (row,) = rows("openai-sft", group)
    assert set(row) == {"messages", "tools", "parallel_tool_calls"}
    assert set(row["messages"][2]) == {"role", "tool_calls"}
    assert set(row["messages"][3]) == {"role", "content", "tool_call_id"}
    assert row["tools"] == [WRITE, SHELL]


def test_openai_dpo_compares_the_first_messages_that_differ(group: Group) -> None:
    """With their calls; never the answers that came after different calls."""
    first, second = rows("openai-dpo", group)
    assert left("openai-dpo", group) == []
    for row, pair in zip((first, second), group.dpo, strict=True):
        assert len(row["input"]["messages"]) == len(pair.prompt)
        sides = ((row["preferred_output"], pair.chosen[0]), (row["non_preferred_output"], pair.rejected[0]))
        for (side,), said in sides:
            calls = [call["function"]["arguments"] for call in side.get("tool_calls", ())]
            assert calls == [call.function.arguments for call in said.tool_calls]
    alike = [opening("r1", 2), *branch("r1", 0, "Done.", passes=True), *branch("r1", 1, "I tried.", passes=False)]
    (row,) = rows("openai-dpo", group_of(alike))
    assert row["input"]["messages"] == [SYSTEM, USER]
    assert row["preferred_output"] == [{"role": "assistant", "content": "Done."}]
    assert row["non_preferred_output"] == [{"role": "assistant", "content": "I tried."}]


def test_openai_sft_defines_a_tool_that_nobody_offered() -> None:
    """A call to an undefined tool would be refused by the loader."""
    lines = [opening("r1", 1, tools=[]), *branch("r1", 0, "a", passes=True, calls=({"x": 1},))]
    (row,) = rows("openai-sft", group_of(lines))
    assert [tool["function"]["name"] for tool in row["tools"]] == ["write_file"]


def test_verl_has_its_five_columns_and_none_of_tokens_where_there_are_none(group: Group) -> None:
    """One prompt for each rollout, with the digest of its task, its verifiers and rewards, and a stable index."""
    (row,) = rows("verl-parquet", group)
    assert [name for name, value in row.items() if value is not None] == [
        "data_source", "prompt", "ability", "reward_model", "extra_info",
    ]  # fmt: skip
    assert row["prompt"] == [SYSTEM, USER]
    truth = {"task": sha256(b"Do the thing of r1").hexdigest(), "verifiers": ["build"]}
    assert (row["reward_model"]["style"], json.loads(row["reward_model"]["ground_truth"])) == ("rule", truth)
    assert row["extra_info"]["advantages"] == [each.advantage for each in group.ppo]
    assert (row["extra_info"]["verifiers"], row["extra_info"]["branches"]) == (["build"], [0, 1, 2])
    assert row["extra_info"]["rewards"] == [1.0, 0.0, 0.0]
    assert row["extra_info"]["index"] == int(sha256(b"r1").hexdigest()[:12], 16)
    assert (row["extra_info"]["split"], row["extra_info"]["group_size"]) == ("train", 3)
    lines = [opening("r1", 1), *branch("r1", 0, "a", passes=False)]
    assert [row["extra_info"]["rewards"] for row in rows("verl-parquet", group_of(lines))] == [[0.0]]


def test_nemo_ranks_completions_and_equals_share_a_rank(group: Group) -> None:
    """Rank 0 is the best; two failing branches that nothing tells apart have the same rank."""
    (row,) = rows("nemo-preference", group)
    assert row["context"] == [SYSTEM, USER]
    assert [(each["rank"], each["completion"][-1]["content"]) for each in row["completions"]] == [
        (0, "Done."), (1, "I tried."), (1, "Done."),
    ]  # fmt: skip


def test_sharegpt_alternates_and_keeps_parallel_calls_together(group: Group) -> None:
    """People and observations at even places, the model at odd ones; arguments are exactly what was called with."""
    (row,) = rows("sharegpt", group)
    assert row["system"] == "Be brief."
    assert [turn["from"] for turn in row["conversations"]] == [
        "human", "function_call", "observation", "function_call", "observation", "gpt",
    ]  # fmt: skip
    single, several = (json.loads(row["conversations"][place]["value"]) for place in (1, 3))
    assert single == {"name": "write_file", "arguments": SHAPES[0]}
    assert [call["arguments"] for call in several] == list(SHAPES[1:])
    assert json.loads(row["conversations"][4]["value"]) == ["did 1-0", "did 1-1"]
