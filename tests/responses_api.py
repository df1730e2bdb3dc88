"""The Responses API as the played model speaks it: a reply as a whole response, or as the events that a stream has.

A reply's content blocks become output items: thinking a reasoning item, text a message, a tool_use a function call (or, with
`custom`, a custom tool call whose input is text). `turns_of` counts how often the model has spoken in a request's input.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

Item = dict[str, Any]

GIVEN = frozenset({"function_call_output", "custom_tool_call_output", "local_shell_call_output"})
"""Input items, beside messages of other roles, that the model did not write."""


def turns_of(items: str | list[Item]) -> int:
    """How many responses of the model an input holds: runs of items that the model wrote."""
    if isinstance(items, str):
        return 0
    spoken = [_by_model(item) for item in items]
    return sum(now and not before for before, now in zip([False, *spoken], spoken, strict=False))


def _by_model(item: Item) -> bool:
    if item.get("type", "message") == "message":
        return bool(item.get("role") == "assistant")
    return item["type"] not in GIVEN


def output_items(blocks: Iterable[Item], number: int) -> list[Item]:
    """The output of a response, from content blocks; the number makes ids unique."""
    return [_item(block, f"{number}_{at}") for at, block in enumerate(blocks)]


def _item(block: Item, name: str) -> Item:
    match block["type"]:
        case "thinking":
            summary = [{"type": "summary_text", "text": block["thinking"]}]
            return {
                "type": "reasoning", "id": f"rs_{name}", "summary": summary, "encrypted_content": block["signature"]
            }  # fmt: skip
        case "text":
            part = {"type": "output_text", "text": block["text"], "annotations": [], "logprobs": []}
            return {
                "type": "message",
                "id": f"msg_{name}",
                "role": "assistant",
                "status": "completed",
                "content": [part],
            }
        case "tool_use" if block.get("custom"):
            called = {"call_id": block["id"], "name": block["name"], "input": block["input"]}
            return {"type": "custom_tool_call", "id": f"ctc_{name}", "status": "completed", **called}
        case "tool_use":
            written = block["arguments"] if "arguments" in block else json.dumps(block["input"])
            called = {"call_id": block["id"], "name": block["name"], "arguments": written}
            return {"type": "function_call", "id": f"fc_{name}", "status": "completed", **called}
    return block


def usage(used: dict[str, int]) -> Item:
    """Tokens, from those of the Messages API: input includes what was cached."""
    given = used["input_tokens"] + used["cache_read_input_tokens"]
    return {
        "input_tokens": given,
        "input_tokens_details": {"cached_tokens": used["cache_read_input_tokens"], "cache_write_tokens": 0},
        "output_tokens": used["output_tokens"],
        "output_tokens_details": {"reasoning_tokens": used.get("reasoning_tokens", 0)},
        "total_tokens": given + used["output_tokens"],
    }


def whole(request: Item, output: list[Item], used: dict[str, int], *, name: str, stop: str) -> Item:
    """A response that has ended."""
    cut = {"reason": "max_output_tokens"} if stop == "max_tokens" else None
    return {
        "id": name, "object": "response", "created_at": 1, "model": request.get("model", "m"), "output": output,
        "status": "incomplete" if cut else "completed", "incomplete_details": cut, "error": None,
        "instructions": request.get("instructions"), "metadata": {}, "parallel_tool_calls": True,
        "previous_response_id": request.get("previous_response_id"), "temperature": 1.0, "top_p": 1.0,
        "tool_choice": request.get("tool_choice", "auto"), "tools": request.get("tools", []), "usage": usage(used),
    }  # fmt: skip


def events(response: Item) -> list[Item]:
    """The events of a stream that ends with this response."""
    begun = response | {"output": [], "status": "in_progress", "usage": None, "incomplete_details": None}
    told: list[Item] = [{"type": kind, "response": begun} for kind in ("response.created", "response.in_progress")]
    for at, item in enumerate(response["output"]):
        told += [each | {"output_index": at} for each in _item_events(item)]
    told.append({"type": f"response.{response['status']}", "response": response})
    return [event | {"sequence_number": number} for number, event in enumerate(told)]


def _item_events(item: Item) -> Iterator[Item]:
    known = {"item_id": item["id"]}
    empty = {"arguments": ""} if item["type"] == "function_call" else {"input": ""}
    hollow = {"message": {"content": []}, "reasoning": {"summary": []}}.get(item["type"], empty)
    yield {"type": "response.output_item.added", "item": item | hollow | {"status": "in_progress"}}
    match item["type"]:
        case "message":
            place = known | {"content_index": 0}
            part = item["content"][0]
            yield {"type": "response.content_part.added", **place, "part": part | {"text": ""}}
            for piece in pieces(part["text"]):
                yield {"type": "response.output_text.delta", **place, "delta": piece, "logprobs": []}
            yield {"type": "response.output_text.done", **place, "text": part["text"], "logprobs": []}
            yield {"type": "response.content_part.done", **place, "part": part}
        case "reasoning":
            place = known | {"summary_index": 0}
            part = item["summary"][0]
            yield {"type": "response.reasoning_summary_part.added", **place, "part": part | {"text": ""}}
            for piece in pieces(part["text"]):
                yield {"type": "response.reasoning_summary_text.delta", **place, "delta": piece}
            yield {"type": "response.reasoning_summary_text.done", **place, "text": part["text"]}
            yield {"type": "response.reasoning_summary_part.done", **place, "part": part}
        case "function_call":
            for piece in pieces(item["arguments"]):
                yield {"type": "response.function_call_arguments.delta", **known, "delta": piece}
            done = known | {"name": item["name"], "arguments": item["arguments"]}
            yield {"type": "response.function_call_arguments.done", **done}
        case "custom_tool_call":
            for piece in pieces(item["input"]):
                yield {"type": "response.custom_tool_call_input.delta", **known, "delta": piece}
            yield {"type": "response.custom_tool_call_input.done", **known, "input": item["input"]}
    yield {"type": "response.output_item.done", "item": item}


def pieces(words: str) -> list[str]:
    """Text as a stream cuts it."""
    return [words[start : start + 7] for start in range(0, len(words), 7)]
