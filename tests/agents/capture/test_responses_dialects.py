"""The Responses API as OpenAI's SDK calls it: what a request leaves out is found in captures or is not known, never guessed."""

from typing import Any

import openai
import pytest

from tests.agents.capture.exchanges import Wire, folded
from tests.responses_api import events, output_items, whole

TOOL = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}, "strict": False}
USED = {"input_tokens": 10, "output_tokens": 2, "cache_read_input_tokens": 3}
TEXT = {"type": "text", "text": "Hello"}
USE = {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": 1}}
HELLO = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]


def response(*blocks: dict[str, Any], number: int = 0, stop: str = "end_turn", **more: Any) -> dict[str, Any]:
    output = output_items(blocks, number)
    return whole({}, output, USED, name=f"resp_{number}", stop=stop) | more


def ask(wire: Wire, given: Any, **options: Any) -> Any:
    client = openai.OpenAI(base_url="http://played/v1", api_key="k", http_client=wire.client(), max_retries=0)
    made = client.responses.create(model="m", input=given, **options)
    return list(made) if options.get("stream") else made


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def called(name: str, output: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": name, "output": output}


def shown(wire: Wire) -> list[list[tuple[str, Any]]]:
    """Role and content of every row's messages."""
    return [[(each["role"], each["content"]) for each in row] for row in folded(wire.kept).rows]


def test_a_text_is_a_user_message_and_instructions_are_the_system_prompt() -> None:
    wire = Wire(response(TEXT))
    ask(wire, "Hi", instructions="Be brief.")
    assert shown(wire) == [[("system", "Be brief."), ("user", "Hi"), ("assistant", "Hello")]]
    assert folded(wire.kept).usage == [{"input": 13, "output": 2, "cached": 3, "reasoning": 0}]


def test_items_of_one_response_are_one_message_and_its_stream_says_the_same() -> None:
    blocks = [{"type": "thinking", "thinking": "So.", "signature": "c2VjcmV0"}, TEXT, USE, USE | {"id": "t2"}]
    first = response(*blocks)
    for answer in (first, events(first)):
        wire = Wire(answer, response({"type": "text", "text": "Done."}, number=1))
        ask(wire, [user("Go")], tools=[TOOL], store=False, stream=isinstance(answer, list), parallel_tool_calls=True)
        history = [user("Go"), *first["output"], called("t1", "1"), called("t2", "2")]
        ask(wire, history, tools=[TOOL], store=False)
        made = folded(wire.kept)
        (row,) = made.rows
        assert [each["role"] for each in row] == ["user", "assistant", "tool", "tool", "assistant"]
        assert row[1]["reasoning"] == "So."
        assert row[1]["tool_calls"] == [("call_0", "look", '{"at": 1}'), ("call_1", "look", '{"at": 1}')]
        assert "c2VjcmV0" not in made.group.sft[0].model_dump_json()


def test_calls_whose_results_stand_between_them_are_still_one_response() -> None:
    first = response(USE, USE | {"id": "t2"})
    one, two = first["output"]
    wire = Wire(first, response(TEXT, number=1))
    ask(wire, [user("Go")], tools=[TOOL])
    ask(wire, [user("Go"), one, called("t1", "1"), two, called("t2", "2")], tools=[TOOL])
    made = folded(wire.kept)
    for row in made.group.sft:
        trained = [each for each in row.messages if each.trained]
        assert len(trained) == 1, "the second request's history is another one than the model wrote: two rows, not one"


def test_an_earlier_response_that_is_named_is_found_in_the_captures() -> None:
    wire = Wire(response(TEXT), response({"type": "text", "text": "Fine."}, number=1))
    ask(wire, "Hi", instructions="Be brief.")
    ask(wire, "And you?", previous_response_id="resp_0", instructions="Be kind.")
    made = folded(wire.kept)
    assert [[(each["role"], each["content"]) for each in row] for row in made.rows] == [
        [("system", "Be brief."), ("user", "Hi"), ("assistant", "Hello")],
        [("system", "Be kind."), ("user", "Hi"), ("assistant", "Hello"), ("user", "And you?"), ("assistant", "Fine.")],
    ]


def test_a_chain_of_named_responses_is_one_conversation() -> None:
    wire = Wire(response(USE), response(USE | {"id": "t2"}, number=1), response(TEXT, number=2))
    ask(wire, "Go", tools=[TOOL])
    ask(wire, [called("t1", "1")], tools=[TOOL], previous_response_id="resp_0")
    ask(wire, [called("t2", "2")], tools=[TOOL], previous_response_id="resp_1")
    (row,) = folded(wire.kept).rows
    assert [(each["role"], each["content"]) for each in row] == [
        ("user", "Go"), ("assistant", None), ("tool", "1"), ("assistant", None), ("tool", "2"), ("assistant", "Hello"),
    ]  # fmt: skip


@pytest.mark.parametrize("elsewhere", [
    {"previous_response_id": "resp_of_yesterday"},
    {"conversation": "conv_1"},
    {"prompt": {"id": "pmpt_1", "version": "2"}},
    {"truncation": "auto"},
])  # fmt: skip
def test_a_history_that_is_kept_elsewhere_makes_no_row(elsewhere: dict[str, Any]) -> None:
    wire = Wire(response(TEXT))
    ask(wire, "Hi", **elsewhere)
    made = folded(wire.kept)
    assert made.rows == []
    assert made.reasons & {"not_representable"}


def test_an_item_that_is_only_named_makes_no_row() -> None:
    wire = Wire(response(TEXT))
    ask(wire, [{"type": "item_reference", "id": "msg_1"}, user("And?")])
    made = folded(wire.kept)
    assert made.rows == []
    assert made.reasons & {"not_representable"}


@pytest.mark.parametrize("item", [
    {"type": "web_search_call", "id": "ws", "status": "completed", "action": {"type": "search", "query": "x"}},
    {"type": "file_search_call", "id": "fs", "status": "completed", "queries": ["x"], "results": None},
    {"type": "code_interpreter_call", "id": "ci", "status": "completed", "code": "1", "container_id": "c", "outputs": None},
    {"type": "mcp_call", "id": "mcp", "name": "get", "arguments": "{}", "server_label": "n", "output": "x"},
    {"type": "compaction", "id": "cmp", "encrypted_content": "ZW5j"},
    {"type": "image_generation_call", "id": "ig", "status": "completed", "result": "aGk="},
])  # fmt: skip
def test_tools_that_the_provider_runs_make_no_row(item: dict[str, Any]) -> None:
    wire = Wire(response(item, TEXT))
    ask(wire, "What is x?")
    made = folded(wire.kept)
    assert made.rows == []
    assert made.reasons & {"not_representable"}


def test_a_tool_that_takes_a_text_is_called_with_that_text() -> None:
    patch = {"type": "tool_use", "custom": True, "id": "t1", "name": "apply_patch", "input": "*** Begin Patch\n"}
    first = response(patch)
    for answer in (first, events(first)):
        wire = Wire(answer, response(TEXT, number=1))
        ask(wire, [user("Go")], stream=isinstance(answer, list))
        ask(
            wire,
            [user("Go"), *first["output"], {"type": "custom_tool_call_output", "call_id": "t1", "output": "Done!"}],
        )
        (row,) = folded(wire.kept).rows
        assert row[1]["tool_calls"] == [("call_0", "apply_patch", '{"input":"*** Begin Patch\\n"}')]
        assert row[2]["content"] == "Done!"


def test_a_response_that_is_made_in_the_background_is_no_turn() -> None:
    wire = Wire(response(status="queued", output=[], usage=None))
    ask(wire, "Hi", background=True)
    made = folded(wire.kept)
    assert made.rows == []
    assert "response" not in made.data("model_call")[0]


def test_a_response_that_failed_is_no_turn() -> None:
    failed = response(TEXT, status="failed", error={"code": "server_error", "message": "broken"})
    for answer in (failed, events(failed)):
        wire = Wire(answer)
        ask(wire, "Hi", stream=isinstance(answer, list))
        made = folded(wire.kept)
        assert made.rows == []
        assert made.data("model_call")[0]["error"]["message"] == "broken"


def test_images_are_referred_to() -> None:
    wire = Wire(response(TEXT))
    ask(
        wire,
        [
            user(
                [
                    {"type": "input_text", "text": "What?"},
                    {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="},
                ]
            )
        ],
    )
    made = folded(wire.kept)
    assert all(each.parts for row in made.group.sft for each in row.messages if each.role == "user")
    assert [part["type"] for part in made.data("message")[0]["content"]] == ["text", "image"]


def test_a_developer_message_and_an_assistant_message_that_was_given_stay_what_they_are() -> None:
    wire = Wire(response(TEXT))
    given = [
        {"role": "developer", "content": "Be brief."},
        user("1?"),
        {"role": "assistant", "content": "One."},
        user("Hi"),
    ]
    ask(wire, given)
    (row,) = folded(wire.kept).group.sft
    assert [(each.role, each.trained) for each in row.messages] == [
        ("developer", None), ("user", None), ("assistant", False), ("user", None), ("assistant", True),
    ]  # fmt: skip
