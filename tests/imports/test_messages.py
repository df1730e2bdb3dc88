"""Chat datasets: contents, calls with and without ids, roles by other names, columns of Parquet."""

from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from tests.imports.importing import Read, read_traces


def read(folder: Path, *rows: Any, name: str = "messages") -> Read:
    (folder / "rows.jsonl").write_bytes(b"\n".join(map(orjson.dumps, rows)))
    return read_traces(name, folder / "rows.jsonl")


def row(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"messages": list(messages), **more}


def user(words: Any) -> dict[str, Any]:
    return {"role": "user", "content": words}


def assistant(words: Any, *calls: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": words, **({"tool_calls": list(calls)} if calls else {}), **more}


def call(name: str, arguments: Any = "{}", **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}, **more}


def tool(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "tool", "content": content, **more}


def test_a_conversation_is_told_in_its_order(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        row(
            {"role": "system", "content": "Be brief."}, user("go"),
            assistant("I look.", call("ls", '{"a":1}', id="x"), reasoning_content="hm"), tool("files", tool_call_id="x"), user("and?"),
            assistant("done"), id="r1", tools=[{"type": "function", "function": {"name": "ls"}}], model="m",
        ),
        name="auto",
    )  # fmt: skip
    assert [line["event"]["event"] for line in found.of("event")] == [
        "import_source", "run_start", "reasoning", "assistant_message", "model_done", "tool_call", "tool_result", "user_message",
        "model_done", "final_answer",
    ]  # fmt: skip
    (opening,) = found.of("rollout")
    assert (opening["task"], opening["system_prompt"], opening["tools"][0]["function"]["name"]) == (
        "go",
        "Be brief.",
        "ls",
    )
    assert found.of("event")[0]["agent"]["model"] == "m"


def test_contents_of_parts_are_joined_and_media_keep_the_row_out(tmp_path: Path) -> None:
    parts = [
        {"type": "text", "text": "look: "},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}},
    ]
    found = read(
        tmp_path,
        row(user([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]), assistant("ok")),
        row(user(parts)),
    )
    assert [data.get("task") for data in found.events("run_start")] == ["ab", "look: "]
    assert found.events("run_start")[1]["media"][0]["media_type"] == "image/png"
    assert found.events("content_left_out") == [{"reason": "media", "count": 1}]


@pytest.mark.parametrize(
    "messages",
    [
        [assistant(None, call("f"), call("g")), tool("1", name="f"), tool("2", name="g")],
        [assistant(None, call("f"), call("g")), tool("1"), tool("2")],
        [
            assistant(None, call("f", id="x"), call("g", id="y")),
            tool("1", tool_call_id="x"),
            tool("2", tool_call_id="y"),
        ],
        [assistant(None, {"name": "f", "arguments": {}}, {"name": "g", "arguments": {}}), tool("1"), tool("2")],
    ],
)
def test_results_find_their_calls_with_and_without_ids(tmp_path: Path, messages: list[Any]) -> None:
    found = read(tmp_path, row(user("go"), *messages, assistant("done")))
    assert [data["toolName"] for data in found.events("tool_call")] == ["f", "g"]
    assert [(data["toolName"], data["output"]) for data in found.events("tool_result")] == [("f", "1"), ("g", "2")]


def test_the_old_function_role_is_read(tmp_path: Path) -> None:
    asked = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{"a": 2}'}}
    found = read(tmp_path, row(user("go"), asked, {"role": "function", "name": "f", "content": "2"}, assistant("done")))
    assert found.events("tool_call")[0]["args"] == {"a": 2}
    assert found.events("tool_result")[0]["callId"] == found.events("tool_call")[0]["callId"]


def test_results_of_anthropic_stand_in_user_messages(tmp_path: Path) -> None:
    asked = assistant(
        [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}},
        ]
    )
    answer = user(
        [
            {"type": "tool_result", "tool_use_id": "t", "content": "bad", "is_error": True},
            {"type": "text", "text": "go on"},
        ]
    )
    found = read(tmp_path, row(user("go"), asked, answer, assistant("done")))
    assert found.events("tool_result") == [
        {"callId": "t", "output": "bad", "toolName": "f", "error": {"message": "bad"}}
    ]
    assert [data["text"] for data in found.events("user_message")] == ["go on"]
    assert found.events("reasoning")[0]["signature"] == "s"


def test_system_and_developer_messages_inside_are_context(tmp_path: Path) -> None:
    found = read(
        tmp_path, row(user("go"), assistant("hm"), {"role": "developer", "content": "be nice"}, assistant("done"))
    )
    assert found.events("context_message") == [{"text": "be nice", "role": "developer", "step": 1}]
    assert found.rejected.count == 0


def test_roles_and_columns_by_other_names_are_read(tmp_path: Path) -> None:
    said = [
        {"from": "human", "value": "go"}, {"from": "function_call", "value": '{"name": "f", "arguments": {"a": 1}}'},
        {"from": "observation", "value": "1"}, {"from": "gpt", "value": "done"},
    ]  # fmt: skip
    found = read(tmp_path, {"conversations": said, "system": "Be brief.", "tools": '[{"name": "f"}]'}, name="auto")
    assert set(found.found.formats.values()) == {"messages"}
    assert found.events("tool_call")[0]["args"] == {"a": 1}
    assert found.events("final_answer")[0]["answer"] == "done"
    assert found.of("rollout")[0]["system_prompt"] == "Be brief."


def test_columns_of_parquet_are_read(tmp_path: Path) -> None:
    as_text = orjson.dumps(
        [user("go"), assistant(None, call("f", id="x")), tool("1", tool_call_id="x"), assistant("done")]
    ).decode()
    pq.write_table(pa.Table.from_pylist([{"id": "a", "messages": as_text}]), tmp_path / "text.parquet")
    pq.write_table(
        pa.Table.from_pylist([{"id": "a", "messages": [user("go"), assistant("done")]}]), tmp_path / "struct.parquet"
    )
    text, struct = (read_traces("auto", tmp_path / f"{name}.parquet") for name in ("text", "struct"))
    assert len(text.events("tool_call")) == len(text.events("tool_result")) == 1
    assert [data["answer"] for data in (*text.events("final_answer"), *struct.events("final_answer"))] == [
        "done",
        "done",
    ]


def test_a_conversation_that_ends_with_a_call_has_not_ended(tmp_path: Path) -> None:
    assert read(tmp_path, row(user("go"), assistant(None, call("f")))).of("end") == []


def test_a_row_of_the_hub_is_not_read_by_its_messages(tmp_path: Path) -> None:
    found = read(tmp_path, row(user("go"), assistant("done"), trace='{"type":"session"}', harness="pi", session_id="x"))
    assert (found.found.rollouts, found.rejected.count) == (0, 1)


def test_a_bad_row_or_message_leaves_the_others_alone(tmp_path: Path) -> None:
    good = row(user("go"), assistant("done"))
    found = read(tmp_path, good, {"messages": 5}, 7, row(user("go"), {"role": "robot"}, assistant("done")), row())
    assert (found.found.rollouts, found.rejected.count) == (2, 4)
    assert len(found.events("final_answer")) == 2


@pytest.mark.parametrize(
    "value",
    [
        {"messages": ["hello"]}, {"messages": [{"id": "a", "role": "button"}]}, {"data": {"messages": [user("x")]}},
        {"name": "package", "dependencies": {}}, [1, 2], "text",
    ],
)  # fmt: skip
def test_other_json_is_not_recognised(tmp_path: Path, value: Any) -> None:
    (tmp_path / "x.json").write_bytes(orjson.dumps(value))
    with pytest.raises(Exception, match="of no known format"):
        read_traces("auto", tmp_path / "x.json")
