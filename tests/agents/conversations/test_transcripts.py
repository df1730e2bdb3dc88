"""Transcripts and steps: rows hold the turns in their order, or nothing and the reason."""

from typing import Any

import pytest

from schemas.emission import EmissionConfig
from tests.agents.conversations.chats import Line, opened
from tests.agents.formats.rollouts import group_of

Event = tuple[str, str, dict[str, Any]]


def lines(*events: Event, passes: bool = True, branch: int = 0, **info: Any) -> list[Line]:
    place = {"rollout_id": "r", "branch_index": branch}
    written = [
        {"type": "event", **place, **info, "event": {"channel": channel, "event": kind, "data": data}}
        for channel, kind, data in events
    ]
    build = {"status": "success", "exit_code": 0} if passes else {"status": "failure", "exit_code": 1}
    return [*written, {"type": "end", **place}, {"type": "build", **place, **build}]


def start(task: str = "Chat", **config: Any) -> Event:
    return ("text", "run_start", {"task": task, "agentConfig": {"model": "m", **config}})


def user(text: str, **more: Any) -> Event:
    return ("user", "user_message", {"text": text, **more})


def assistant(text: str, **more: Any) -> Event:
    return ("text", "assistant_message", {"text": text, **more})


def reasoning(text: str, **more: Any) -> Event:
    return ("thinking", "reasoning", {"text": text, **more})


def call(call_id: str, step: int | None = None, **more: Any) -> Event:
    where = {} if step is None else {"stepIndex": step}
    return ("tool", "tool_call", {"toolName": "read_file", "args": {"n": call_id}, "callId": call_id, **where, **more})


def result(call_id: str, output: Any = "ok", **more: Any) -> Event:
    return ("tool", "tool_result", {"callId": call_id, "output": output, **more})


def answer(text: str) -> Event:
    return ("text", "final_answer", {"answer": text})


def shown(group: Any) -> list[tuple[Any, ...]]:
    (row,) = group.sft
    found: list[tuple[Any, ...]] = []
    for message in row.messages:
        calls = [[each.id for each in message.tool_calls]] if message.tool_calls else []
        answered = [message.tool_call_id] if message.role == "tool" else []
        found.append((message.role, message.content, *calls, *answered))
    return found


def why(group: Any) -> tuple[str, ...]:
    assert not group.sft
    (reasons,) = [record.reasons for record in group.rejected if record.kind == "sft"]
    return reasons


def test_a_chat_of_three_user_turns_keeps_every_word_in_its_place() -> None:
    group = group_of([
        opened(system_prompt="Be brief."),
        *lines(
            start(), reasoning("let me see", step=1), assistant("I look.", step=1), call("a", 1), call("b", 1),
            result("b", "B"), result("a", "A"), assistant("Two files.", step=2), user("And now?"),
            assistant("Wait.", step=3), call("a", 3), result("a", "x" * 70_000), user("Well?"), answer("Done."),
        ),
    ])  # fmt: skip
    assert shown(group) == [
        ("system", "Be brief."), ("user", "Chat"), ("assistant", "I look.", ["call_0", "call_1"]), ("tool", "B", "call_1"),
        ("tool", "A", "call_0"), ("assistant", "Two files."), ("user", "And now?"), ("assistant", "Wait.", ["call_2"]),
        ("tool", "x" * 70_000, "call_2"), ("user", "Well?"), ("assistant", "Done."),
    ]  # fmt: skip
    (row,) = group.sft
    assert (row.fidelity, row.sequence, row.n_sequences) == ("transcript", 0, 1)
    assert row.messages[2].reasoning_content == "let me see"
    assert [message.trained for message in row.messages if message.role == "assistant"] == [True] * 4


def test_the_last_text_is_the_answer_and_is_not_said_twice() -> None:
    group = group_of([opened(), *lines(start(), user("go on"), assistant("Done.", step=4), answer("Done."))])
    assert shown(group) == [("user", "Chat"), ("user", "go on"), ("assistant", "Done.")]


def test_user_messages_that_nothing_followed_are_left_out() -> None:
    group = group_of([opened(), *lines(start(), assistant("Hello."), answer("Hello."), user("thanks"))])
    assert shown(group) == [("user", "Chat"), ("assistant", "Hello.")]


def test_a_task_that_no_model_saw_is_in_no_row() -> None:
    secret = "You are Ada. Return the shoes, but only if the refund is full."
    hello = [start("Hi, I want to return shoes."), user("Full refund?"), answer("Yes.")]
    other = [start("Hello! Shoes."), user("Full?"), answer("No.")]
    line = opened(2, task=secret, task_shown=False)
    group = group_of([line, *lines(*hello), *lines(*other, passes=False, branch=1)])
    assert shown(group)[0] == ("user", "Hi, I want to return shoes.")
    rows = (*group.sft, *group.dpo, *group.ppo)
    assert not any(secret in row.model_dump_json() for row in rows)
    assert not group.dpo
    assert ("no_shared_prompt",) in [record.reasons for record in group.rejected if record.kind == "dpo"]
    assert {row.group_size for row in group.ppo} == {2}


def test_words_before_the_task_are_given() -> None:
    before = [("user", "context_message", {"text": "earlier"}), assistant("How can I help?", beforeTask=True)]
    group = group_of([opened(), *lines(*before, start(), user("x"), answer("y"))])
    (row,) = group.sft
    assert [message.content for message in row.messages] == ["earlier", "How can I help?", "Chat", "x", "y"]


def test_words_between_what_was_given_are_given() -> None:
    before: Event = ("user", "context_message", {"text": "Are you there?"})
    group = group_of([opened(), *lines(before, assistant("Yes.", beforeTask=True), start(), answer("Done."))])
    assert [(each.content, each.trained) for each in group.sft[0].messages] == [
        ("Are you there?", None), ("Yes.", False), ("Chat", None), ("Done.", True),
    ]  # fmt: skip


def test_context_inside_is_where_it_was_given() -> None:
    def context(text: str, **more: Any) -> Event:
        return ("user", "context_message", {"text": text, **more})

    turn = [assistant("I look.", step=0), call("a", 0), result("a")]
    events = [
        start(), context("rules", role="developer"), *turn, context("the file changed"), answer("Done."),
        context("unheard", role="system"),
    ]  # fmt: skip
    assert [each[:2] for each in shown(group_of([opened(), *lines(*events)]))] == [
        ("developer", "rules"), ("user", "Chat"), ("assistant", "I look."), ("tool", "ok"), ("user", "the file changed"),
        ("assistant", "Done."),
    ]  # fmt: skip


def said(role: str, content: str | None = None, **more: Any) -> Event:
    return ("conversation", "message", {"role": role, "content": content, **more})


def test_messages_alone_are_a_transcript() -> None:
    group = group_of(
        [
            opened(),
            *lines(said("user", "hi"), said("assistant", "hello"), said("user", "bye"), said("assistant", "ciao")),
        ]
    )
    assert shown(group) == [("user", "hi"), ("assistant", "hello"), ("user", "bye"), ("assistant", "ciao")]
    assert group.branches[0].final_answer == "ciao"


ASKING = said("assistant", tool_calls=[{"id": "a", "name": "read_file", "arguments": "{}"}])
OUTPUT = said("tool", "ok", tool_call_id="a")


def test_events_beside_the_messages_that_tell_them_are_not_said_twice() -> None:
    events = [said("user", "hi"), ASKING, call("a"), result("a"), OUTPUT, said("assistant", "yo"), answer("yo")]
    assert shown(group_of([opened(), *lines(*events)])) == [
        ("user", "hi"), ("assistant", None, ["call_0"]), ("tool", "ok", "call_0"), ("assistant", "yo"),
    ]  # fmt: skip


def test_an_answer_that_no_message_tells_has_its_place() -> None:
    events = [
        said("user", "hi"),
        said("assistant", "yes"),
        said("user", "Sure?"),
        answer("yes"),
        said("user", "Thanks"),
    ]
    assert shown(group_of([opened(), *lines(*events)])) == [
        ("user", "hi"), ("assistant", "yes"), ("user", "Sure?"), ("assistant", "yes"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("beside", "code"),
    [
        (user("more"), "mixed_turns"),
        (("user", "context_message", {"text": "before"}), "mixed_turns"),
        (assistant("hello"), "mixed_turns"),
        (call("b"), "mixed_turns"),
        (result("b"), "mixed_turns"),
        (said("assistant", "of another", agent="sub"), "several_agents"),
        (said("user", "twice", id="u"), "repeated_message_id"),
    ],
)
def test_turns_that_messages_do_not_tell_keep_them_out(beside: Event, code: str) -> None:
    group = group_of([opened(), *lines(said("user", "hi", id="u"), beside, said("assistant", "hello"))])
    assert why(group) == ("not_representable", code)


@pytest.mark.parametrize("named", [{}, {"callId": "same"}])
def test_results_of_parallel_calls_without_ids_of_their_own_go_to_them_in_order(named: dict[str, str]) -> None:
    calls: list[Event] = [("tool", "tool_call", {"toolName": "read_file", "args": {}, "batchId": "b", **named})] * 2
    results: list[Event] = [("tool", "tool_result", {"toolName": "read_file", "output": out, **named}) for out in "12"]
    group = group_of([opened(), *lines(user("Chat"), *calls, *results, answer("Done."))])
    assert shown(group)[2:4] == [("tool", "1", "call_0"), ("tool", "2", "call_1")]


def delta(text: str) -> Event:
    return ("thinking", "thinking_delta", {"delta": text, "step": 0})


@pytest.mark.parametrize("then", [[call("a", 0), result("a")], [user("And?")], []])
def test_a_secret_that_is_spread_over_deltas_leaves_the_row_and_is_counted(then: list[Event]) -> None:
    key = "ghp_aB3dE5gH7jK9mN1pQ3sT5vW7xY9zA1bC3dE5"
    events = [user("Chat"), delta(f"Use {key[:16]}"), delta(key[16:]), *then, answer("Done.")]
    group = group_of([opened(), *lines(*events)])
    assert ("assistant", "Use [REDACTED:github_token]") in [each[:2] for each in shown(group)]
    assert group.sft[0].redactions == {"github_token": 1}


def test_an_answer_of_several_texts_is_not_said_twice() -> None:
    group = group_of([opened(), *lines(user("Chat"), assistant("a", step=0), assistant("b", step=0), answer("a\n\nb"))])
    assert shown(group) == [("user", "Chat"), ("assistant", "a\n\nb")]


@pytest.mark.parametrize(
    ("events", "code"),
    [
        ([user("x"), result("a")], "unpaired_result"),
        ([user("x"), call("a"), assistant("on", step=9), result("a")], "late_result"),
        ([user("x"), call("a"), assistant("on", step=9)], "unanswered_call"),
        ([user("x"), call("a", 1), call("b", 2), result("a"), result("b")], "late_result"),
        ([user("x"), call("a", 1), assistant("late text", step=1), result("a")], "text_after_calls"),
        ([user("x"), start()], "second_run_start"),
        ([user("x"), ("status", "context_rewritten", {"kept": 1, "dropped": 2})], "context_rewritten"),
        ([user("x"), ("status", "unreadable", {"reason": "cut"})], "unreadable"),
        ([user("x"), ("text", "shout", {"text": "hey"})], "unknown_text"),
        ([("user", "user_message", {"text": None})], "no_text"),
        ([user("x"), ("thinking", "thinking_delta", {"delta": "a", "step": 1}), assistant("a", step=1)], "text_twice"),
    ],
)  # fmt: skip
def test_a_transcript_that_would_have_to_be_guessed_is_kept_out(events: list[Event], code: str) -> None:
    group = group_of([opened(), *lines(start(), *events, answer("Done."))])
    assert why(group) == ("not_representable", code)
    assert not group.ppo


@pytest.mark.parametrize("turns", [[user("x")], []])
def test_arguments_that_an_importer_could_not_read_keep_a_branch_out(turns: list[Event]) -> None:
    group = group_of([opened(), *lines(start(), *turns, call("a", argsError="no JSON"), result("a"), answer("Done."))])
    assert why(group) == ("malformed_arguments",)


# -- steps ---------------------------------------------------------------------------------------------------------------


def test_outputs_that_the_model_saw_raw_are_whole() -> None:
    group = group_of([opened(), *lines(start(), call("a"), result("a", "x" * 60_000), answer("Done."), observed="raw")])
    assert group.sft[0].messages[2].content == "x" * 60_000
    assert group.sft[0].fidelity == "reconstructed"
    assert len(group.branches[0].tool_calls[0].output_summary or "") <= 800


def test_an_output_over_the_limit_keeps_the_branch_out() -> None:
    events = [start(), call("a"), result("a", "x" * 70_000), answer("Done.")]
    assert why(group_of([opened(), *lines(*events, observed="raw")])) == ("output_too_large",)
    assert group_of([opened(), *lines(*events, observed="raw")], config=EmissionConfig(max_output_bytes=80_000)).sft
    assert group_of([opened(), *lines(*events, observed="summarized")]).sft


@pytest.mark.parametrize(
    ("events", "code"),
    [
        ([start(), ("text", "shout", {"text": "hey"}), answer("Done.")], "unknown_text"),
        ([start(), start(), answer("Done.")], "second_run_start"),
        ([start(), answer("Done."), ("thinking", "thinking_delta", {"delta": "more", "step": 2})], "text_after_answer"),
    ],
)
def test_steps_that_rows_cannot_carry_keep_a_branch_out(events: list[Event], code: str) -> None:
    assert why(group_of([opened(), *lines(*events)])) == ("not_representable", code)


def test_version_1_reads_new_kinds_as_it_did() -> None:
    """Unknown kinds on the text channel were something that the model said; all others counted in the digest alone."""
    events = [
        start(), ("conversation", "message", {"role": "user", "content": "hi"}), assistant("I look.", step=1), call("a", 1),
        result("a"), user("more"), ("text", "shout", {"text": "hey", "step": 2}), call("b", 2), result("b"), answer("Done."),
    ]  # fmt: skip
    group = group_of([opened(), *lines(*events)], config=EmissionConfig(version=1))
    assert [message.content for message in group.sft[0].messages] == ["Chat", "I look.", "ok", "hey", "ok", "Done."]
    assert group.sft[0].fidelity is None
    assert group.sft[0].messages[-1].trained is None
