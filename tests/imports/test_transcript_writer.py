"""The shared rules of a transcript: places of context, sources that are too long, values that are nested too deep."""

from agents.importers.traces.content import Content
from agents.importers.traces.transcript_writer import Called, TranscriptWriter, Turn
from agents.importers.traces.usage import Usage
from schemas.jsontext import compact, parse_object


def kinds(writer: TranscriptWriter) -> list[str]:
    return [event["event"] for event in writer.finish()]


def test_context_stays_where_it_is_and_is_never_the_task() -> None:
    writer = TranscriptWriter()
    writer.user("Fix it")
    writer.context("reminder")
    writer.model(Turn(Content("I look."), [Called("ls", {}, "a")]))
    writer.result("a", None, "x")
    writer.context("the file changed", role="developer")
    writer.model(Turn(Content("Done.")))
    events = writer.finish()
    assert events[0]["data"]["task"] == "Fix it"
    assert [event["event"] for event in events] == [
        "run_start", "context_message", "assistant_message", "model_done", "tool_call", "tool_result", "context_message",
        "model_done", "final_answer",
    ]  # fmt: skip
    assert events[6]["data"] == {"text": "the file changed", "role": "developer", "step": 1}


def test_a_reply_is_the_user_message_after_the_answer_and_no_context() -> None:
    writer = TranscriptWriter()
    writer.user("Fix it")
    writer.model(Turn(Content("Done.")))
    writer.context("reminder")
    writer.user("Thanks")
    events = writer.finish()
    assert events[-2]["data"]["reply"] == "Thanks"
    assert events[-1]["event"] == "context_message"


def test_words_after_given_context_are_a_turn_and_no_greeting() -> None:
    writer = TranscriptWriter()
    writer.context("a summary of what was done")
    writer.model(Turn(Content("I go on.")))
    assert kinds(writer) == ["run_start", "context_message", "model_done", "final_answer"]


def test_fields_without_a_place_never_make_an_event_too_long() -> None:
    writer = TranscriptWriter()
    writer.user("Fix it", source={"small": 1, "file": "x" * 2_000_000})
    writer.model(Turn(Content(None), [Called("ls", {}, "a")], source={"raw": "y" * 2_000_000}))
    writer.result("a", None, "z" * 800_000, {"message": "z" * 800_000}, source={"stdout": "z" * 800_000})
    events = writer.finish()
    assert max(len(compact(event)) for event in events) < 1024 * 1024
    assert events[0]["data"]["source"]["small"] == 1
    assert events[0]["data"]["source"]["file"]["bytes"] == 2_000_000
    assert "content_left_out" not in [event["event"] for event in events]


def test_values_that_are_nested_too_deep_for_a_line_are_replaced() -> None:
    deep: object = 1
    for _ in range(95):
        deep = [deep]
    writer = TranscriptWriter()
    writer.user("Fix it", source={"deep": deep})
    writer.model(Turn(Content(None), [Called("ls", {"deep": deep}, "a")]))
    writer.result("a", None, deep)
    events = writer.finish()
    assert all(parse_object(compact({"type": "event", "event": event})) for event in events)
    assert [event["data"]["reason"] for event in events if event["event"] == "content_left_out"] == ["too_large"] * 2


def test_words_that_nobody_asked_for_are_turns_with_their_usage() -> None:
    writer = TranscriptWriter()
    writer.model(Turn(Content("Hello."), model="m", usage=Usage(5, 1)))
    writer.model(Turn(Content("Anyone?"), model="m", usage=Usage(6, 1)))
    events = writer.finish()
    assert [(event["event"], event["data"].get("step")) for event in events[1:]] == [
        ("assistant_message", 0), ("model_done", 0), ("model_done", 1), ("final_answer", 1),
    ]  # fmt: skip


def test_a_message_that_was_given_before_the_first_turn_keeps_its_place_and_the_task_follows() -> None:
    writer = TranscriptWriter()
    writer.user("Are you there?")
    writer.given(Content("Yes."))
    writer.user("Fix it")
    writer.model(Turn(Content("Done.")))
    events = writer.finish()
    assert events[0]["data"]["task"] == "Fix it"
    assert [(event["event"], event["data"].get("text")) for event in events[1:3]] == [
        ("context_message", "Are you there?"), ("assistant_message", "Yes."),
    ]  # fmt: skip
    assert events[2]["data"]["beforeTask"] is True


def test_the_task_is_the_last_user_message_also_before_given_words() -> None:
    writer = TranscriptWriter()
    writer.user("Fix it")
    writer.given(Content("I was told to say this."))
    writer.model(Turn(Content("Done.")))
    kinds = [event["event"] for event in writer.finish()]
    assert kinds == ["run_start", "assistant_message", "content_left_out", "model_done", "final_answer"]


def test_a_message_that_was_given_later_keeps_the_branch_out_of_rows() -> None:
    writer = TranscriptWriter()
    writer.user("Fix it")
    writer.model(Turn(Content("Done.")))
    writer.given(Content("No response requested."))
    assert [event["event"] for event in writer.finish()][-2:] == ["content_left_out", "final_answer"]


def test_results_of_calls_with_one_id_go_to_the_nearest_turn_and_there_to_the_first() -> None:
    writer = TranscriptWriter()
    writer.user("Do it")
    writer.model(Turn(Content(None), [Called("never", {}, "a")]))
    writer.model(Turn(Content(None), [Called("f", {"n": 1}, "a"), Called("f", {"n": 2}, "a"), Called("g", {}, "a")]))
    for name, output in ((None, "one"), ("g", "three"), (None, "two")):
        writer.result("a", name, output)
    results = {event["data"]["callId"]: event["data"] for event in writer.finish() if event["event"] == "tool_result"}
    assert {name: data["output"] for name, data in results.items()} == {"a#2": "one", "a#3": "two", "a#4": "three"}
    assert writer.waiting == 1
