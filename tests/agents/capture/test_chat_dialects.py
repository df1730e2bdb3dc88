"""Chat completions as servers really speak them, called by OpenAI's SDK: a row is what the model saw and said, or there is none."""

import json
from typing import Any

import httpx
import openai
import pytest

from tests.agents.capture.exchanges import Exchange, Folded, Wire, folded

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


def client(wire: Wire) -> openai.OpenAI:
    return openai.OpenAI(base_url="http://played/v1", api_key="k", http_client=wire.client(), max_retries=0)


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices, **more}


def completion(*messages: dict[str, Any], finish: str = "stop", **more: Any) -> dict[str, Any]:
    choices = [{"index": at, "message": each, "finish_reason": finish} for at, each in enumerate(messages)]
    return {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": choices, **more}


def said(text: str | None, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def ask(wire: Wire, *messages: dict[str, Any], **options: Any) -> Any:
    """One call of the SDK; a stream is read to its end."""
    made = client(wire).chat.completions.create(model="m", messages=list(messages), **options)
    return list(made) if options.get("stream") else made


def one_row(wire: Wire) -> list[dict[str, Any]]:
    (row,) = folded(wire.kept).rows
    return row


def test_reasoning_and_usage_of_vllm_come_from_its_chunks() -> None:
    wire = Wire([
        chunk({"role": "assistant", "content": ""}), chunk({"reasoning_content": "So "}), chunk({"reasoning_content": "be it."}),
        chunk({"content": "Hel"}), chunk({"content": "lo"}), chunk({"content": ""}, "stop", stop_reason=None),
        chunk(usage={"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13, "prompt_tokens_details": None}), "[DONE]",
    ])  # fmt: skip
    ask(wire, user("Hi"), stream=True, stream_options={"include_usage": True})
    made = folded(wire.kept)
    assert made.rows == [[user("Hi"), said("Hello", reasoning="So be it.")]]
    assert made.usage == [{"input": 9, "output": 4}]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_that_is_sent_back_stays_in_its_conversation(field: str) -> None:
    wire = Wire(completion(said(None, tool_calls=[CALL], **{field: "hm"})), completion(said("Done.", **{field: "so"})))
    ask(wire, user("Go"), tools=[TOOL])
    history = [
        user("Go"),
        said(None, tool_calls=[CALL], **{field: "hm"}),
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
    ]
    ask(wire, *history, tools=[TOOL])
    row = one_row(wire)
    assert [message.get("reasoning") for message in row] == [None, "hm", None, "so"]


def test_reasoning_that_is_dropped_from_the_history_is_in_no_context() -> None:
    wire = Wire(completion(said(None, tool_calls=[CALL], reasoning_content="hm")), completion(said("Done.")))
    ask(wire, user("Go"), tools=[TOOL])
    ask(
        wire,
        user("Go"),
        said(None, tool_calls=[CALL]),
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
        tools=[TOOL],
    )
    rows = folded(wire.kept).rows
    assert [message.get("reasoning") for message in next(row for row in rows if len(row) == 4)] == [
        None,
        None,
        None,
        None,
    ]
    assert [message.get("reasoning") for message in next(row for row in rows if len(row) == 2)] == [None, "hm"]


def test_llama_cpp_ends_its_stream_with_timings_and_unknown_usage_is_not_zero() -> None:
    wire = Wire([
        chunk({"role": "assistant", "content": None}), chunk({"content": "Hello"}),
        chunk({}, "stop", timings={"prompt_n": 3, "predicted_n": 2}), "[DONE]",
    ])  # fmt: skip
    ask(wire, user("Hi"), stream=True)
    made = folded(wire.kept)
    assert made.rows == [[user("Hi"), said("Hello")]]
    assert made.usage == [None]


def test_comments_pings_and_other_line_ends_in_a_stream_say_nothing() -> None:
    raw = b": OPENROUTER PROCESSING\r\n\r\nevent: ping\r\ndata: {}\r\n\r\n"
    raw += f"data: {json.dumps(chunk({'role': 'assistant', 'content': 'Grüße'}, 'stop'), ensure_ascii=False)}\r\n\r\n".encode()
    wire = Wire(raw + b"data: [DONE]\r\n\r\n")
    ask(wire, user("Hi"), stream=True)
    assert one_row(wire) == [user("Hi"), said("Grüße")]


def test_a_stream_without_its_end_is_a_failed_call() -> None:
    wire = Wire([chunk({"role": "assistant", "content": "Hel"})])
    ask(wire, user("Hi"), stream=True)
    made = folded(wire.kept)
    assert made.rows == []
    assert "response" not in made.data("model_call")[0]


def test_an_error_inside_a_stream_is_a_failed_call() -> None:
    wire = Wire(
        [chunk({"role": "assistant", "content": "Hel"}), {"error": {"message": "CUDA out of memory", "code": 500}}]
    )
    with pytest.raises(openai.APIError):
        ask(wire, user("Hi"), stream=True)
    assert folded(wire.kept).rows == []


def test_parallel_calls_whose_pieces_come_mixed_are_the_calls_that_were_made() -> None:
    starts = [
        {"index": at, "id": f"c{at}", "type": "function", "function": {"name": "look", "arguments": ""}}
        for at in (0, 1)
    ]
    piece = [{"index": at, "function": {"arguments": words}} for words in ('{"at"', ": 7}") for at in (1, 0)]
    wire = Wire([chunk({"role": "assistant", "tool_calls": starts}), *(chunk({"tool_calls": [each]}) for each in piece),
                 chunk({}, "tool_calls"), "[DONE]"], completion(said("Both.")))  # fmt: skip
    ask(wire, user("Go"), tools=[TOOL], stream=True, parallel_tool_calls=True)
    calls = [{**CALL, "id": name, "function": {"name": "look", "arguments": '{"at": 7}'}} for name in ("c0", "c1")]
    results = [{"role": "tool", "tool_call_id": name, "content": name} for name in ("c1", "c0")]
    ask(wire, user("Go"), said(None, tool_calls=calls), *results, tools=[TOOL])
    row = one_row(wire)
    assert row[1]["tool_calls"] == [("call_0", "look", '{"at": 7}'), ("call_1", "look", '{"at": 7}')]
    assert [(each["tool_call_id"], each["content"]) for each in row[2:4]] == [("call_1", "c1"), ("call_0", "c0")]


def test_sglang_writes_null_until_there_are_calls() -> None:
    nothing = {
        "role": "assistant",
        "content": None,
        "reasoning_content": None,
        "tool_calls": None,
        "function_call": None,
    }
    start = {"index": 0, "id": "c1", "function": {"name": "look", "arguments": None}}
    piece = {"index": 0, "id": None, "function": {"name": None, "arguments": '{"at": 1}'}}
    wire = Wire(
        [
            chunk(nothing),
            chunk(nothing | {"tool_calls": [start]}),
            chunk(nothing | {"tool_calls": [piece]}, "tool_calls"),
            "[DONE]",
        ]
    )
    ask(wire, user("Go"), tools=[TOOL], stream=True)
    made = folded(wire.kept)
    assert made.data("message")[-1]["tool_calls"] == [{"id": "c1", "name": "look", "arguments": '{"at": 1}'}]


def test_calls_that_a_server_numbers_alike_are_told_apart_by_their_ids() -> None:
    calls = [
        {"index": 0, "id": f"c{at}", "function": {"name": "look", "arguments": f'{{"at": {at}}}'}} for at in (1, 2)
    ]
    wire = Wire([*(chunk({"tool_calls": [call]}) for call in calls), chunk({}, "tool_calls"), "[DONE]"])
    ask(wire, user("Go"), tools=[TOOL], stream=True)
    made = folded(wire.kept)
    assert [call["arguments"] for call in made.data("message")[-1]["tool_calls"]] == ['{"at": 1}', '{"at": 2}']


def test_every_choice_is_a_conversation_of_its_own_and_the_request_is_paid_once() -> None:
    used = {"prompt_tokens": 5, "completion_tokens": 8, "total_tokens": 13}
    wire = Wire(completion(said("One"), said("Two"), usage=used), completion(said("Fine.")))
    ask(wire, user("Hi"), n=2)
    ask(wire, user("Hi"), said("Two"), user("Go on"))
    made = folded(wire.kept)
    assert made.rows == [[user("Hi"), said("One")], [user("Hi"), said("Two"), user("Go on"), said("Fine.")]]
    assert [each for each in made.usage if each] == [{"input": 5, "output": 8}]


def test_choices_of_a_stream_are_kept_apart() -> None:
    pieces = [(0, "O"), (1, "T"), (0, "ne"), (1, "wo")]
    chunks = [
        chunk() | {"choices": [{"index": at, "delta": {"content": text}, "finish_reason": None}]} for at, text in pieces
    ]
    ends = [chunk() | {"choices": [{"index": at, "delta": {}, "finish_reason": "stop"}]} for at in (0, 1)]
    wire = Wire([*chunks, *ends, "[DONE]"])
    ask(wire, user("Hi"), n=2, stream=True)
    assert folded(wire.kept).rows == [[user("Hi"), said("One")], [user("Hi"), said("Two")]]


def test_functions_of_before_tools_are_calls_and_results() -> None:
    old = {"name": "look", "arguments": '{"at": 1}'}
    wire = Wire(completion(said(None, function_call=old), finish="function_call"), completion(said("Done.")))
    ask(wire, user("Go"), functions=[{"name": "look", "parameters": {}}])
    given = [user("Go"), said(None, function_call=old), {"role": "function", "name": "look", "content": "1"}]
    ask(wire, *given, functions=[{"name": "look", "parameters": {}}])
    row = one_row(wire)
    assert row[1]["tool_calls"] == [("call_0", "look", '{"at": 1}')]
    assert row[2] == {"role": "tool", "content": "1", "tool_call_id": "call_0"}
    assert row[3] == said("Done.")


def test_a_developer_message_stays_one() -> None:
    wire = Wire(completion(said("Hello")))
    ask(wire, {"role": "developer", "content": "Be brief."}, user("Hi"))
    assert one_row(wire) == [{"role": "developer", "content": "Be brief."}, user("Hi"), said("Hello")]


def test_texts_in_parts_are_joined_in_their_order() -> None:
    wire = Wire(completion(said("Hello")))
    ask(wire, user([{"type": "text", "text": "Hi "}, {"type": "text", "text": "there"}]))
    assert one_row(wire)[0]["content"] == "Hi there"


@pytest.mark.parametrize("part", [
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
    {"type": "image_url", "image_url": {"url": "http://images/1.png"}},
    {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
    {"type": "file", "file": {"file_id": "f1"}},
])  # fmt: skip
def test_media_are_referred_to_and_never_dropped(part: dict[str, Any]) -> None:
    wire = Wire(completion(said("A cat.")))
    ask(wire, user([{"type": "text", "text": "What is it?"}, part]))
    assert_media(folded(wire.kept))


def assert_media(made: Folded) -> None:
    """A row with media says so in its parts, or there is none; and the event has their digest."""
    assert all(message.parts for row in made.group.sft for message in row.messages if message.role == "user")
    media = [part for data in made.data("message") if isinstance(data["content"], list) for part in data["content"]]
    assert [part["type"] for part in media if "digest" in part]


def test_a_refusal_is_what_the_model_said() -> None:
    wire = Wire([chunk({"role": "assistant", "content": "", "refusal": None}), chunk({"refusal": "I will "}),
                 chunk({"refusal": "not."}), chunk({}, "stop"), "[DONE]"])  # fmt: skip
    ask(wire, user("Hi"), stream=True)
    assert one_row(wire) == [user("Hi"), said("I will not.")]


def test_paths_and_first_chunks_of_azure_are_chat_completions() -> None:
    filters = {
        "choices": [],
        "created": 0,
        "id": "",
        "model": "",
        "object": "",
        "prompt_filter_results": [{"prompt_index": 0}],
    }
    wire = Wire([filters, chunk({"role": "assistant", "content": "Hello"}), chunk({}, "stop"), "[DONE]"])
    azure = openai.AzureOpenAI(
        azure_endpoint="http://played", api_version="2025-01-01", api_key="k", http_client=wire.client()
    )
    list(azure.chat.completions.create(model="gpt", messages=[{"role": "user", "content": "Hi"}], stream=True))
    assert wire.kept[0].path == "/openai/deployments/gpt/chat/completions"
    assert one_row(wire) == [user("Hi"), said("Hello")]


def test_arguments_that_are_no_json_keep_their_row_out() -> None:
    broken = {**CALL, "function": {"name": "look", "arguments": '{"at": '}}
    wire = Wire(completion(said(None, tool_calls=[broken]), finish="tool_calls"))
    ask(wire, user("Go"), tools=[TOOL])
    made = folded(wire.kept)
    assert made.rows == []
    assert "malformed_arguments" in made.reasons
    assert made.data("message")[-1]["tool_calls"][0]["arguments"] == '{"at": '


def test_a_request_that_was_refused_and_made_again_is_one_turn() -> None:
    busy = httpx.Response(429, json={"error": {"message": "slow down", "type": "rate_limit_error"}})
    wire = Wire(busy, completion(said("Hello")))
    with pytest.raises(openai.RateLimitError):
        ask(wire, user("Hi"))
    ask(wire, user("Hi"))
    made = folded(wire.kept)
    assert made.rows == [[user("Hi"), said("Hello")]]
    assert [call.get("error", {}).get("kind") for call in made.data("model_call")] == ["rate_limited", None]


def test_an_assistant_message_that_was_given_is_not_trained() -> None:
    wire = Wire(completion(said("Four.")))
    ask(wire, user("1 + 1?"), said("Two."), user("2 + 2?"))
    (row,) = folded(wire.kept).group.sft
    assert [message.trained for message in row.messages if message.role == "assistant"] == [False, True]


@pytest.mark.parametrize(("mark", "options"), [
    ({}, {"continue_final_message": True, "add_generation_prompt": False}), ({"prefix": True}, {}), ({"partial": True}, {}),
])  # fmt: skip
def test_a_prefix_that_the_model_goes_on_from_is_no_row_of_two_answers(
    mark: dict[str, Any], options: dict[str, Any]
) -> None:
    """The last message of the request is the beginning of the answer."""
    wire = Wire(completion(said("lo")))
    ask(wire, user("Hi"), said("Hel", **mark), extra_body=options)
    assert_no_row(wire)


def assert_no_row(wire: Wire) -> None:
    made = folded(wire.kept)
    assert (made.rows, "other_content" in made.reasons) == ([], True)


@pytest.mark.parametrize("options", [
    {"web_search_options": {}}, {"search_parameters": {"mode": "auto"}}, {"plugins": [{"id": "web"}]}, {"transforms": ["middle-out"]},
    {"documents": [{"text": "Paris"}]}, {"echo": True},
])  # fmt: skip
def test_a_request_that_the_server_adds_to_or_cuts_is_no_row(options: dict[str, Any]) -> None:
    wire = Wire(completion(said("Paris.")))
    ask(wire, user("The capital of France?"), extra_body=options)
    assert_no_row(wire)


SOURCE = {"type": "url_citation", "url_citation": {"url": "http://a", "title": "a", "start_index": 0, "end_index": 1}}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}


@pytest.mark.parametrize("answer", [
    completion(said("Paris.", annotations=[SOURCE])), completion(said("Paris.", executed_tools=[{"type": "search"}])),
    completion(said("Here.", images=[PICTURE])), completion(said("Paris."), citations=["http://a"]),
    completion(said("Paris."), search_results=[{"url": "http://a"}]),
    [chunk({"role": "assistant", "content": "Par"}), chunk({"content": "is.", "annotations": [SOURCE]}), chunk({}, "stop"), "[DONE]"],
    [chunk({"role": "assistant", "content": "Paris."}, citations=["http://a"]), chunk({}, "stop"), "[DONE]"],
])  # fmt: skip
def test_an_answer_from_tools_that_the_provider_ran_or_with_media_is_no_row(answer: Any) -> None:
    wire = Wire(answer)
    ask(wire, user("The capital of France?"), stream=isinstance(answer, list))
    assert_no_row(wire)


def test_fields_that_are_there_and_say_nothing_change_no_row() -> None:
    """As OpenAI's own servers and gateways before others send them."""
    wire = Wire(completion(said("Paris.", annotations=[], images=None), citations=None))
    ask(
        wire,
        user("The capital of France?"),
        extra_body={"plugins": [], "transforms": [], "echo": False, "documents": None},
    )
    assert one_row(wire) == [user("The capital of France?"), said("Paris.")]


@pytest.mark.parametrize("options", [{"echo": True}, {"suffix": "Rome."}])
def test_a_completion_that_repeats_its_prompt_or_fills_a_gap_is_no_row(options: dict[str, Any]) -> None:
    wire = Wire({"id": "x", "object": "text_completion", "created": 1, "model": "m",
                 "choices": [{"index": 0, "text": "Paris.", "finish_reason": "stop", "logprobs": None}]})  # fmt: skip
    client(wire).completions.create(model="m", prompt="The capital?", extra_body=options)
    assert_no_row(wire)


def exchange(request: dict[str, Any], response: dict[str, Any], path: str = "/v1/chat/completions") -> Exchange:
    return Exchange(path, json.dumps(request).encode(), 200, "application/json", json.dumps(response).encode())
