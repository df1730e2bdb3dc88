"""OpenAI's rules for fine-tuning files, as its API reference documents them, over every row that we write."""

import json
from typing import Any

import jsonschema
import pytest

from tests.agents.formats.rollouts import SHAPES, branch, group_of, mixed, opening, rows

NAME = {"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,64}$"}
TEXT = {"type": "string", "minLength": 1}
CALL = {
    "type": "object", "required": ["id", "type", "function"], "additionalProperties": False,
    "properties": {
        "id": TEXT, "type": {"const": "function"},
        "function": {
            "type": "object", "required": ["name", "arguments"], "additionalProperties": False,
            "properties": {"name": NAME, "arguments": {"type": "string"}},
        },
    },
}  # fmt: skip


def _role(name: str, required: list[str], **properties: Any) -> dict[str, Any]:
    known = {"role": {"const": name}, "content": {"type": "string"}, **properties}
    return {"type": "object", "required": ["role", *required], "additionalProperties": False, "properties": known}


def _assistant(**properties: Any) -> dict[str, Any]:
    calls = {"type": "array", "minItems": 1, "items": CALL}
    return {
        **_role("assistant", [], tool_calls=calls, **properties),
        "anyOf": [{"required": ["content"]}, {"required": ["tool_calls"]}],
    }


MESSAGE = {
    "oneOf": [
        _role("system", ["content"]),
        _role("user", ["content"]),
        _assistant(weight={"enum": [0, 1]}),
        _role("tool", ["content", "tool_call_id"], tool_call_id=TEXT),
    ]
}
TOOLS = {
    "type": "array", "minItems": 1, "maxItems": 128,
    "items": {
        "type": "object", "required": ["type", "function"], "additionalProperties": False,
        "properties": {
            "type": {"const": "function"},
            "function": {
                "type": "object", "required": ["name"], "additionalProperties": False,
                "properties": {
                    "name": NAME, "description": {"type": "string"}, "parameters": {"type": "object"}, "strict": {"type": "boolean"},
                },
            },
        },
    },
}  # fmt: skip
OFFER = {
    "messages": {"type": "array", "minItems": 1, "items": MESSAGE},
    "tools": TOOLS,
    "parallel_tool_calls": {"type": "boolean"},
}
CHAT = {"type": "object", "required": ["messages"], "additionalProperties": False, "properties": OFFER}
SIDE = {"type": "array", "minItems": 1, "maxItems": 1, "items": _assistant(content=TEXT)}
PREFERENCE = {
    "type": "object", "required": ["input", "preferred_output", "non_preferred_output"], "additionalProperties": False,
    "properties": {"input": CHAT, "preferred_output": SIDE, "non_preferred_output": SIDE},
}  # fmt: skip

SHORT = [opening("r1", 2), *branch("r1", 0, "Yes.", passes=True), *branch("r1", 1, "No.", passes=False)]
SHARED = [
    opening("r1", 2),
    *branch("r1", 0, "Yes.", passes=True, calls=(SHAPES[0],)),
    *branch("r1", 1, "No.", passes=False, calls=(SHAPES[0],)),
]
LONG_GROUP = [
    opening("r1", 4),
    *branch("r1", 0, "Yes.", passes=True, calls=(SHAPES[0], (SHAPES[1], SHAPES[2]), {})),
    *branch("r1", 1, "Also yes.", passes=True),
    *branch("r1", 2, "No.", passes=False, calls=(SHAPES[1],)),
    *branch("r1", 3, None, passes=False, calls=({},)),
]


@pytest.mark.parametrize(("name", "schema"), [("openai-sft", CHAT), ("openai-dpo", PREFERENCE)])
@pytest.mark.parametrize("lines", [mixed(), LONG_GROUP, SHORT, SHARED], ids=["mixed", "long", "short", "shared"])
def test_rows_follow_the_documented_rules(name: str, schema: dict[str, Any], lines: list[Any]) -> None:
    """Fields, roles, names and one message on each side; examples end with an assistant, inputs do not."""
    found = rows(name, group_of(lines))
    assert found or name == "openai-dpo"
    assert found or lines not in (SHORT, SHARED)
    for row in found:
        jsonschema.validate(row, schema)
        said = row["messages"] if name == "openai-sft" else row["input"]["messages"]
        assert (said[-1]["role"] == "assistant") == (name == "openai-sft")
        _check_calls(said, row if name == "openai-sft" else row["input"])
        if name == "openai-dpo":
            for side in (row["preferred_output"], row["non_preferred_output"]):
                offered = {tool["function"]["name"] for tool in row["input"].get("tools", [])}
                assert {call["function"]["name"] for call in side[0].get("tool_calls", [])} <= offered


def _check_calls(said: list[dict[str, Any]], offer: dict[str, Any]) -> None:
    """Every call is to a tool that is offered, has JSON for arguments, and is answered before the next speaker."""
    offered = {tool["function"]["name"] for tool in offer.get("tools", [])}
    waiting: set[str] = set()
    for message in said:
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
            continue
        assert not waiting
        for call in message.get("tool_calls", []):
            assert call["function"]["name"] in offered
            json.loads(call["function"]["arguments"])
            waiting.add(call["id"])
    assert not waiting
