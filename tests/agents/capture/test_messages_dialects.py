"""The Messages API as Anthropic's SDK calls it: a row is what the model saw and said, or there is none."""

from typing import Any

import anthropic
import httpx2
import pytest

from tests.agents.capture.exchanges import Wire, folded

TOOL = {"name": "look", "input_schema": {"type": "object", "properties": {}}}
USED = {"input_tokens": 10, "output_tokens": 2, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
USE = {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": 1}}


def message(*content: dict[str, Any], stop: str = "end_turn", **more: Any) -> dict[str, Any]:
    return {
        "id": "msg", "type": "message", "role": "assistant", "model": "m", "content": list(content), "stop_reason": stop,
        "stop_sequence": None, "usage": USED, **more,
    }  # fmt: skip


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def thinking(words: str, signature: str = "sig") -> dict[str, Any]:
    return {"type": "thinking", "thinking": words, "signature": signature}


def result(words: Any, name: str = "t1", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": name, "content": words, **more}


def user(*content: Any) -> dict[str, Any]:
    return {
        "role": "user",
        "content": content[0] if len(content) == 1 and isinstance(content[0], str) else list(content),
    }


def assistant(*content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(content)}


def ask(wire: Wire, *messages: dict[str, Any], **options: Any) -> Any:
    client = anthropic.Anthropic(base_url="http://played", api_key="k", http_client=wire.client(httpx2), max_retries=0)
    return client.messages.create(model="m", max_tokens=100, messages=list(messages), **options)


def events(
    head: dict[str, Any], blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]], end: dict[str, Any]
) -> list[Any]:
    """A stream: its head, each block with its deltas, and its end."""
    told: list[Any] = [{"type": "message_start", "message": head}, {"type": "ping"}]
    for at, (block, deltas) in enumerate(blocks):
        told.append({"type": "content_block_start", "index": at, "content_block": block})
        told += [{"type": "content_block_delta", "index": at, "delta": delta} for delta in deltas]
        told.append({"type": "content_block_stop", "index": at})
    return [*told, {"type": "message_delta", **end}, {"type": "message_stop"}]


def test_thinking_is_reasoning_and_its_signature_reaches_no_row() -> None:
    blocks = [
        ({"type": "thinking", "thinking": "", "signature": ""},
         [{"type": "thinking_delta", "thinking": "So "}, {"type": "thinking_delta", "thinking": "be it."},
          {"type": "signature_delta", "signature": "c2ln"}]),
        (text(""), [{"type": "text_delta", "text": "Hello"}]),
    ]  # fmt: skip
    wire = Wire(
        events(message(stop="end_turn"), blocks, {"delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}})
    )
    list(ask(wire, user("Hi"), stream=True))
    made = folded(wire.kept)
    assert made.rows == [[user("Hi"), {"role": "assistant", "content": "Hello", "reasoning": "So be it."}]]
    assert made.data("message")[-1]["extra"] == {"signatures": ["c2ln"]}
    assert "c2ln" not in made.group.sft[0].model_dump_json()
    assert made.usage == [{"input": 10, "output": 7, "cached": 0}]


def test_thinking_between_tool_calls_is_sent_back_and_stays_one_conversation() -> None:
    first = [thinking("First.", "s1"), text("Looking."), USE]
    second = [thinking("Then.", "s2"), USE | {"id": "t2"}]
    wire = Wire(message(*first, stop="tool_use"), message(*second, stop="tool_use"), message(text("Done.")))
    given = [user("Go")]
    for answer, name in ((first, "t1"), (second, "t2"), (None, "")):
        ask(wire, *given, tools=[TOOL])
        given += [assistant(*answer), user(result("1", name))] if answer else []
    (row,) = folded(wire.kept).rows
    assert [each["role"] for each in row] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert [each.get("reasoning") for each in row if each["role"] == "assistant"] == ["First.", "Then.", None]
    assert [each["tool_call_id"] for each in row if each["role"] == "tool"] == ["call_0", "call_1"]


def test_thinking_that_the_provider_keeps_secret_is_kept_beside_the_row() -> None:
    wire = Wire(message({"type": "redacted_thinking", "data": "ZW5j"}, text("Hello")))
    ask(wire, user("Hi"))
    made = folded(wire.kept)
    assert made.rows == [[user("Hi"), {"role": "assistant", "content": "Hello"}]]
    assert made.data("message")[-1]["extra"]["signatures"] == [{"type": "redacted_thinking", "data": "ZW5j"}]


def test_marks_of_the_cache_move_and_the_conversation_stays_one() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    used = USED | {"cache_read_input_tokens": 100, "cache_creation_input_tokens": 30}
    wire = Wire(message(USE, stop="tool_use", usage=used), message(text("Done."), usage=used))
    prompt = [text("Be brief.", **mark)]
    ask(wire, user(text("Go", **mark)), tools=[TOOL], system=prompt)
    ask(wire, user(text("Go")), assistant(USE), user(result("1", **mark)), tools=[TOOL], system=prompt)
    made = folded(wire.kept)
    (row,) = made.rows
    assert [each["role"] for each in row] == ["system", "user", "assistant", "tool", "assistant"]
    assert made.usage == [{"input": 140, "output": 2, "cached": 100}] * 2


def test_results_and_the_words_after_them_are_messages_in_their_order() -> None:
    wire = Wire(message(USE, USE | {"id": "t2"}, stop="tool_use"), message(text("Done.")))
    ask(wire, user("Go"), tools=[TOOL])
    answers = [result([text("one"), text("two")]), result("no such file", "t2", is_error=True), text("And hurry.")]
    ask(wire, user("Go"), assistant(USE, USE | {"id": "t2"}), user(*answers), tools=[TOOL])
    made = folded(wire.kept)
    (row,) = made.rows
    assert [each["content"] for each in row] == ["Go", None, "onetwo", "no such file", "And hurry.", "Done."]
    assert [each.get("is_error", False) for each in made.data("message") if each["role"] == "tool"] == [False, True]


def test_a_system_message_inside_the_conversation_keeps_its_place() -> None:
    wire = Wire(message(text("Hello")))
    ask(wire, user("Hi"), {"role": "system", "content": "New tools."}, system="Be brief.")
    (row,) = folded(wire.kept).rows
    assert [(each["role"], each["content"]) for each in row] == [
        ("system", "Be brief."), ("user", "Hi"), ("system", "New tools."), ("assistant", "Hello"),
    ]  # fmt: skip


SEARCH = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"type": "web_search_result", "url": "u"}]}
FETCHED = {"type": "mcp_tool_result", "tool_use_id": "s1", "is_error": False, "content": [text("x")]}


@pytest.mark.parametrize("content", [
    [SEARCH, FOUND, text("It is x.")],
    [{"type": "mcp_tool_use", "id": "s1", "name": "get", "server_name": "n", "input": {}}, FETCHED, text("It is x.")],
    [{"type": "compaction", "content": "Summary of what was."}, text("On we go.")],
])  # fmt: skip
def test_what_the_provider_did_inside_a_response_is_no_row_of_text(content: list[dict[str, Any]]) -> None:
    wire = Wire(message(*content))
    ask(wire, user("What is x?"))
    made = folded(wire.kept)
    assert made.rows == []
    assert made.reasons & {"not_representable"}


@pytest.mark.parametrize("content", [
    [text("First this: "), USE, text("and then this.")],
    [text("Looking."), thinking("Late thought."), text("Done.")],
    [thinking("One."), USE, thinking("Two."), USE | {"id": "t2"}],
])  # fmt: skip
def test_a_message_that_mixes_words_thoughts_and_calls_is_not_put_in_another_order(
    content: list[dict[str, Any]],
) -> None:
    wire = Wire(message(*content))
    ask(wire, user("Go"), tools=[TOOL])
    made = folded(wire.kept)
    assert made.rows == []
    assert made.reasons & {"not_representable"}


def test_a_history_that_the_provider_edited_is_not_what_the_model_saw() -> None:
    edits = [{"type": "clear_tool_uses_20250919", "cleared_tool_uses": 3, "cleared_input_tokens": 900}]
    blocks = [(text(""), [{"type": "text_delta", "text": "Done."}])]
    end = {
        "delta": {"stop_reason": "end_turn"},
        "usage": {"output_tokens": 2},
        "context_management": {"applied_edits": edits},
    }
    streamed = Wire(events(message(), blocks, end))
    list(ask(streamed, user("Go"), stream=True))
    whole = Wire(message(text("Done."), context_management={"applied_edits": edits}))
    ask(whole, user("Go"))
    for wire in (streamed, whole):
        made = folded(wire.kept)
        assert made.rows == []
        assert made.reasons & {"not_representable"}


def test_edits_that_were_allowed_and_not_made_change_nothing() -> None:
    wire = Wire(message(text("Done."), context_management={"applied_edits": []}))
    ask(
        wire,
        user("Go"),
        extra_body={"context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}},
    )
    assert len(folded(wire.kept).rows) == 1


def test_an_answer_that_goes_on_from_given_words_is_no_row_of_two_answers() -> None:
    wire = Wire(message(text("lo")))
    ask(wire, user("Hi"), assistant(text("Hel")))
    made = folded(wire.kept)
    assert made.rows == []
    assert made.reasons & {"not_representable"}


def test_an_error_in_a_stream_is_a_failed_call() -> None:
    wire = Wire([
        {"type": "message_start", "message": message()},
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
    ])  # fmt: skip
    with pytest.raises(anthropic.APIStatusError):
        list(ask(wire, user("Hi"), stream=True))
    made = folded(wire.kept)
    assert made.rows == []
    assert made.data("model_call")[0]["error"]["message"] == "Overloaded"


def test_images_of_results_are_referred_to() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    wire = Wire(message(USE, stop="tool_use"), message(text("A cat.")))
    ask(wire, user("Go"), tools=[TOOL])
    ask(wire, user("Go"), assistant(USE), user(result([text("see"), image])), tools=[TOOL])
    made = folded(wire.kept)
    assert all(each.parts for row in made.group.sft for each in row.messages if each.role == "tool")
    (told,) = [each for each in made.data("message") if each["role"] == "tool"]
    assert [part["type"] for part in told["content"]] == ["text", "image"]


def test_citations_are_beside_the_words_that_they_are_about() -> None:
    wire = Wire(message(text("It is "), text("x.", citations=[{"type": "char_location", "cited_text": "x"}])))
    ask(wire, user("What is it?"))
    (row,) = folded(wire.kept).rows
    assert row[-1]["content"] == "It is x."
