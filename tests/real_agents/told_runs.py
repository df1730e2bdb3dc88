"""A run as a list of what happened, whether its model calls were captured or its agent's own log was imported: the two must be equal."""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

Event = dict[str, Any]
"""An event with its data as a value."""


class ToldRun(NamedTuple):
    """The acts of an agent."""

    steps: list[tuple[Any, ...]]
    """Reasoning, texts, calls with their arguments, results by the number of their call; in the order of the turns."""
    usage: tuple[int, int, int]
    """Tokens in, out and read from the cache, summed."""
    failed: list[int]
    """Numbers of the calls whose result is marked as an error."""


def captured_run(events: Iterable[Event]) -> ToldRun:
    """The run that captured events tell; calls without tools, such as those for a title, are no part of it."""
    messages: dict[str, dict[str, Any]] = {}
    steps: list[tuple[Any, ...]] = []
    numbers: dict[str, int] = {}
    told: set[str] = set()
    failed: list[int] = []
    usage = [0, 0, 0]
    for event in events:
        data = event["data"]
        if event["event"] == "message":
            messages[data["id"]] = data
        elif event["event"] == "model_call" and (data.get("tools") or data.get("tools_digest")):
            results = [messages[each] for each in data["context"]["add"] if messages[each]["role"] == "tool"]
            steps += sorted(("result", numbers[each["tool_call_id"]], _text(each["content"])) for each in results)
            failed += [numbers[each["tool_call_id"]] for each in results if each.get("is_error")]
            for place, name in enumerate(("input", "output", "cached")):
                usage[place] += data.get("usage", {}).get(name) or 0
            if data.get("response") and data["response"] not in told:
                told.add(data["response"])
                steps += _said(messages[data["response"]], numbers)
    return ToldRun(steps, (usage[0], usage[1], usage[2]), failed)


def _said(message: dict[str, Any], numbers: dict[str, int]) -> list[tuple[Any, ...]]:
    steps: list[tuple[Any, ...]] = [("reasoning", message["reasoning"])] if message.get("reasoning") else []
    steps += [("text", _text(message["content"]))] if message.get("content") else []
    for call in message.get("tool_calls", ()):
        steps.append(("call", call["name"], json.loads(call["arguments"])))
        numbers[call["id"]] = len(numbers)
    return steps


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def imported_run(events: Iterable[Event]) -> ToldRun:
    """The run that the events of an import tell."""
    steps: list[tuple[Any, ...]] = []
    waiting: list[tuple[Any, ...]] = []
    numbers: dict[str, int] = {}
    failed: list[int] = []
    usage = (0, 0, 0)
    for event in events:
        kind, data = event["event"], event["data"]
        if kind == "tool_result":
            said = data["error"]["message"] if "error" in data and "output" not in data else data["output"]
            waiting.append(("result", numbers[data["callId"]], said))
            failed += [numbers[data["callId"]]] if "error" in data else []
            continue
        if kind == "model_done":
            usage = (data["inputTokens"], data["outputTokens"], data.get("cacheReadTokens", 0))
            continue
        steps += sorted(waiting)
        waiting = []
        if kind == "reasoning":
            steps.append(("reasoning", data["text"]))
        elif kind == "assistant_message":
            steps.append(("text", data["text"]))
        elif kind == "final_answer":
            steps.append(("text", data["answer"]))
        elif kind == "tool_call":
            steps.append(("call", data["toolName"], data["args"]))
            numbers[data["callId"]] = len(numbers)
    return ToldRun(steps, usage, failed)
