"""The calls that a played API served, as conversations: what it received and what it sent, to be compared with rows.

Both sides are mapped in the same ways: call ids are numbered by position, secrets are removed, items of one response are one message.
"""

from collections.abc import Iterable
from typing import Any

from schemas.training import PpoRecord
from tests.agents.conversations.test_server import Chat, plainly, received, said, trained
from tests.model_server import ModelServer, Received, Reply
from tests.responses_api import GIVEN


def served_calls(api: ModelServer, first: int = 0) -> list[str]:
    """Every call that has a response, from the first of a run on."""
    return sorted(
        repr(plainly([*sent(api.received[number]), said(told.content)]))
        for number, told in api.replies.items()
        if isinstance(told, Reply) and number >= first
    )


def trained_calls(rows: Iterable[PpoRecord]) -> list[str]:
    """Every response in rows, with all that stands before it."""
    return trained((*row.prompt, *row.completion) for row in rows)


def sent(request: Received) -> Chat:
    """The messages of a request."""
    if request.protocol == "chat":
        return received(request.body, "chat")
    if request.protocol == "messages":
        return [*received(request.body | {"messages": []}, "messages"), *_blocks(request.body["messages"])]
    instructions = request.body.get("instructions")
    found: Chat = [{"role": "system", "content": instructions}] if instructions else []
    items = request.body["input"]
    for item in [{"role": "user", "content": items}] if isinstance(items, str) else items:
        _add_item(found, item)
    return found


def _blocks(messages: Iterable[dict[str, Any]]) -> Chat:
    """Messages of the Messages API: the results in a user message are messages of their own, before its text."""
    found: Chat = []
    for message in messages:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        results = [block for block in blocks if block["type"] == "tool_result"]
        found += [
            {"role": "tool", "content": _text(block["content"]), "tool_call_id": block["tool_use_id"]}
            for block in results
        ]
        if len(results) < len(blocks):
            found.append(said(blocks, message["role"]))
    return found


def _add_item(found: Chat, item: dict[str, Any]) -> None:
    kind = item.get("type", "message")
    if kind in GIVEN:
        found.append({"role": "tool", "tool_call_id": item["call_id"], "content": item["output"]})
        return
    if kind == "message" and item["role"] != "assistant":
        found.append({"role": item["role"], "content": _text(item["content"])})
        return
    if not found or found[-1]["role"] != "assistant":
        found.append({"role": "assistant", "content": "", "reasoning": "", "tool_calls": []})
    if kind == "message":
        found[-1]["content"] += _text(item["content"])
    elif kind == "reasoning":
        found[-1]["reasoning"] += "".join(part["text"] for part in item["summary"])
    else:
        called = {"id": item["call_id"], "name": item["name"], "arguments": item["arguments"]}
        found[-1]["tool_calls"].append(called)


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)
