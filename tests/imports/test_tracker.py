"""The conversation tracker: every message once, every call with exactly the messages that it was sent."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agents.importers.traces.spoken import Spoken
from agents.importers.traces.tracker import ConversationTracker, Outcome
from tests.imports.told import Message, heard, kinds, result, said, system, texts, told, user

S, U = system("Be brief."), user("Look around.")


def test_a_turn_costs_what_is_new_in_it() -> None:
    tracker = ConversationTracker()
    first = told(tracker, [S, U], said(None, "a"))
    second = told(tracker, [S, U, said(None, "a"), result("a", "a door")], said("A door."))
    assert [each["data"].get("role") for each in second] == ["tool", "assistant", None]
    assert second[-1]["data"]["context"] == {"after": "c0", "keep": 3, "add": ["m3"]}
    assert [len(call.sent) for call in heard(first + second)] == [2, 4]


def test_a_text_and_one_text_part_are_the_same_message() -> None:
    tracker = ConversationTracker()
    told(tracker, [S, U], said("Hello."))
    parts: Message = {"role": "assistant", "content": [{"type": "text", "text": "Hello."}]}
    events = told(
        tracker,
        [S, {"role": "user", "content": [{"type": "text", "text": U["content"]}]}, parts, user("On.")],
        said("Yes."),
    )
    assert texts(kinds(events, "message")) == ["On.", "Yes."]


def test_arguments_are_compared_as_json() -> None:
    tracker = ConversationTracker()
    told(tracker, [U], said(None, "a"))
    again: Message = {"role": "assistant", "tool_calls": [{"id": "a", "name": "look", "arguments": {"at": "a"}}]}
    events = told(tracker, [U, again, result("a", "x")], said("Done."))
    assert texts(kinds(events, "message")) == ["x", "Done."]


def test_reasoning_that_requests_leave_out_makes_no_other_message() -> None:
    tracker = ConversationTracker()
    first = told(tracker, [U], said("Hm.", reasoning_content="I think."))
    second = told(tracker, [U, said("Hm."), user("And?")], said("So."))
    assert heard(first + second)[1].sent[1]["reasoning"] == "I think."


def test_a_failed_call_and_its_retry_share_their_messages() -> None:
    tracker = ConversationTracker()
    first = told(tracker, [S, U], None)
    second = told(tracker, [S, U], said("Here."))
    calls = heard(first + second)
    assert len(kinds(first + second, "message")) == 3
    assert calls[0].sent == calls[1].sent
    assert calls[0].response is None


def test_equal_responses_to_one_request_are_two_messages() -> None:
    tracker = ConversationTracker()
    events = told(tracker, [U], said("Yes.")) + told(tracker, [U], said("Yes."))
    responses = [call.data["response"] for call in heard(events)]
    assert len(set(responses)) == 2


def test_a_user_who_says_the_same_again_says_two_messages() -> None:
    tracker = ConversationTracker()
    events = told(tracker, [user("go on")], said("1"))
    events += told(tracker, [user("go on"), said("1"), user("go on")], said("2"))
    assert texts(kinds(events, "message")) == ["go on", "1", "go on", "2"]


def test_a_dropped_middle_is_said_and_what_stayed_is_not_told_again() -> None:
    tracker = ConversationTracker()
    history = [S, U, said(None, "a"), result("a", "x"), said(None, "b"), result("b", "y")]
    events = told(tracker, history[:2], said(None, "a")) + told(tracker, history[:4], said(None, "b"))
    compacted = [S, user("So far: x."), *history[4:]]
    events += told(tracker, compacted, said("y."))
    assert kinds(events, "context_rewritten") == [{"kept": 2, "dropped": 3}]
    assert [each["role"] for each in kinds(events, "message")].count("tool") == 2
    assert texts(heard(events)[2].sent) == ["Be brief.", "So far: x.", None, "y"]


def test_a_second_continuation_of_a_history_is_no_rewrite() -> None:
    tracker = ConversationTracker()
    events = told(tracker, [S, U], said("One."))
    events += told(tracker, [S, U, said("One."), user("more")], said("Two."))
    events += told(tracker, [S, U, said("One."), user("less")], said("Three."))
    assert not kinds(events, "context_rewritten")
    assert heard(events)[2].data["context"]["keep"] == 3


def test_another_system_prompt_is_another_agent() -> None:
    tracker = ConversationTracker()
    told(tracker, [S, U], said(None, "a"))
    side = told(tracker, [system("You write titles."), user("Title of: look around")], said("Around."))
    back = told(tracker, [S, U, said(None, "a"), result("a", "x")], said("x."))
    assert {each["agent"] for each in kinds(side, "message") + kinds(side, "model_call")} == {"agent-2"}
    assert not any("agent" in each for each in kinds(back, "message") + kinds(back, "model_call"))


def test_a_system_prompt_that_changes_within_a_conversation_is_the_same_agent() -> None:
    tracker = ConversationTracker()
    told(tracker, [system("It is 9:00."), U], said(None, "a"))
    events = told(tracker, [system("It is 9:01."), U, said(None, "a"), result("a", "x")], said("x."))
    assert "agent" not in kinds(events, "model_call")[0]
    assert texts(kinds(events, "message")) == ["It is 9:01.", "x", "x."]


def test_an_agent_that_takes_over_tells_the_others_words_not_again() -> None:
    tracker = ConversationTracker()
    told(tracker, [S, U], said(None, "a"), agent="triage")
    over = [system("You repair."), U, said(None, "a"), result("a", "handed over")]
    events = told(tracker, over, said("Repaired."), agent="repair")
    assert texts(kinds(events, "message")) == ["You repair.", "handed over", "Repaired."]
    assert not kinds(events, "context_rewritten")


def test_a_tool_span_marks_the_message_of_its_result() -> None:
    tracker = ConversationTracker()
    told(tracker, [U], said(None, "a"))
    tracker.outcome("a", Outcome(Spoken("tool", "boom", is_error=True, source={"code": 7}), time=5))
    events = told(tracker, [U, said(None, "a"), result("a", "error: boom")], said("It failed."))
    message = kinds(events, "message")[0]
    assert message["is_error"] is True
    assert message["content"] == "error: boom"
    assert message["source"] == {"code": 7}
    assert not tracker.leftovers()


def test_a_result_that_no_call_was_sent_is_a_message_at_the_end() -> None:
    tracker = ConversationTracker()
    events = told(tracker, [U], said(None, "a"))
    tracker.outcome("a", Outcome(Spoken("tool", "x", name="look"), time=5))
    left = tracker.leftovers()
    assert [each["data"]["tool_call_id"] for each in left] == ["a"]
    assert len(heard(events + left)[0].sent) == 1


def test_calls_without_ids_get_some_and_results_find_them_by_order() -> None:
    tracker = ConversationTracker()
    asked: Message = {
        "role": "assistant",
        "tool_calls": [{"name": "look", "arguments": {}}, {"name": "hear", "arguments": {}}],
    }
    events = told(tracker, [U], asked)
    answers: list[Message] = [{"role": "tool", "name": "hear", "content": "h"}, {"role": "tool", "content": "l"}]
    events += told(tracker, [U, asked, *answers], said("Done."))
    names = {call["id"]: call["name"] for call in heard(events)[0].response["tool_calls"]}  # type: ignore[index]
    tools = [each for each in kinds(events, "message") if each["role"] == "tool"]
    assert [names[each["tool_call_id"]] for each in tools] == ["hear", "look"]
    assert [each["name"] for each in tools] == ["hear", "look"]


def test_tools_are_written_once_and_then_named_by_their_digest() -> None:
    tracker = ConversationTracker()
    tools = [{"name": "look", "input_schema": {}}]
    events = told(tracker, [U], said("1"), facts={"tools": tools}) + told(
        tracker, [U], said("2"), facts={"tools": tools}
    )
    first, second = kinds(events, "model_call")
    assert first["tools"] == tools
    assert "tools" not in second
    assert len(second["tools_digest"]) == 64


def test_a_message_over_the_limit_is_a_reference() -> None:
    tracker = ConversationTracker()
    events = told(tracker, [user("x" * 2_000_000)], said("Long."))
    (part,) = kinds(events, "message")[0]["content"]
    assert part["type"] == "other"
    assert part["bytes"] == 2_000_000


_TURN = st.lists(st.sampled_from(["go", "stop", "wait"]), min_size=1, max_size=3)


@given(st.lists(st.tuples(_TURN, st.booleans(), st.integers(0, 4)), max_size=12))
def test_whatever_is_sent_comes_back_call_by_call(turns: list[tuple[list[str], bool, int]]) -> None:
    """Extended, cut back, retried, repeated: each call's context is what it was sent."""
    tracker = ConversationTracker()
    history: list[Message] = [S]
    events: list[dict[str, Any]] = []
    sent = []
    for number, (words, answered, dropped) in enumerate(turns):
        history = [*history[: max(1, len(history) - dropped)], *[user(each) for each in words]]
        sent.append(texts(history))
        answer = said(f"answer {number % 2}") if answered else None
        events += told(tracker, history, answer)
        history += [answer] if answer is not None else []
    assert [texts(call.sent) for call in heard(events)] == sent


def test_a_system_message_inside_a_conversation_makes_no_other_agent() -> None:
    tracker = ConversationTracker()
    opening = [system("Be brief."), user("Go")]
    told(tracker, [system("Give titles."), user("Name it")], said("A title"))
    told(tracker, opening, said("Looking", "c1"))
    later = told(tracker, [*opening, said("Looking", "c1"), result("c1", "1"), system("New tools.")], said("Done"))
    calls = kinds(later, "model_call")
    assert [call["agent"] for call in calls] == ["agent-2"]
    assert calls[0]["context"]["keep"] == 3


def test_a_history_under_another_prompt_stays_with_its_agent() -> None:
    tracker = ConversationTracker()
    told(tracker, [system("Give titles."), user("Name it")], said("A title"))
    told(tracker, [system("Be brief."), user("Go")], said("Done"))
    events = told(tracker, [system("Be long."), user("Go"), said("Done"), user("More")], said("More"))
    assert [call["agent"] for call in kinds(events, "model_call")] == ["agent-2"]
