"""Audit of dataset rows of any trainer: can its trainer learn from each line?

The shape is recognised by the members of a row. A bad row gets its reasons and does not stop the others. The checks
cover members; roles, order and calls of messages; empty and equal sides; and invalid numbers.
"""

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any, Final

from schemas.jsontext import compact, parse

ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
SPEAKERS: Final = {"human": "user", "gpt": "assistant", "system": "system", "tool": "tool", "function_call": "assistant",
                   "observation": "tool", "user": "user", "assistant": "assistant"}  # fmt: skip


SHAPES: Final = (
    ("rl-transitions", ("observation", "action", "next_observation")),
    ("preference", ("chosen", "rejected")),
    ("openai-preference", ("input", "preferred_output", "non_preferred_output")),
    ("ranked", ("context", "completions")),
    ("stepwise", ("completions", "labels")),
    ("kto", ("prompt", "completion", "label")),
    ("prompt-completion", ("prompt", "completion")),
    ("adp", ("schema_version", "content")),
    ("atif", ("schema_version", "steps")),
    ("rollout-wire", ("schema_version", "branch_index", "tool_call_sequence")),
    ("messages", ("messages",)),
    ("sharegpt", ("conversations",)),
    ("prompt", ("prompt",)),
    ("text", ("text",)),
)
"""Shapes by their characteristic members, the most specific first."""


INSIDE: Final = ("value", "text", "content", "message", "messages", "completion")
"""Members of objects in a row that contain conversation text."""


def format_of(row: Mapping[str, Any]) -> str:
    """The shape of a row; `unknown` if no supported trainer takes it."""
    return next((form for form, names in SHAPES if all(name in row for name in names)), "unknown")


def problems(row: Mapping[str, Any]) -> list[str]:
    """Return the reasons why a row is useless for training; empty for a good row."""
    form = format_of(row)
    checks = {
        "messages": _messages_row, "preference": _preference, "kto": _kto, "prompt-completion": _completed, "prompt": _prompted,
        "text": _text_row, "sharegpt": _sharegpt, "rl-transitions": _transition, "stepwise": _stepwise, "adp": _trajectory,
        "openai-preference": _openai_preference, "ranked": _ranked, "atif": _steps, "rollout-wire": _branch,
    }  # fmt: skip
    check = checks.get(form)
    found = (
        [
            "no shape of a trainer: none of messages, prompt, chosen, preferred_output, text, conversations, steps, observation"
        ]
        if check is None
        else [*check(row)]
    )
    return [*found, *_numbers(row)]


def text_of(row: Mapping[str, Any]) -> list[str]:
    """Return the texts of a row that could repeat a question: all content, without names and ids."""
    found: list[str] = []
    named = ("messages", "prompt", "completion", "chosen", "rejected", "text", "task", "question", "conversations", "observation",
             "action", "content", "completions", "input", "preferred_output", "non_preferred_output", "context", "steps")  # fmt: skip
    waiting: list[Any] = [row[name] for name in reversed(named) if name in row]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            found.append(each)
        elif isinstance(each, list):
            waiting += reversed(each)
        elif isinstance(each, dict):
            waiting += [each[name] for name in INSIDE if name in each]
    return found


def _numbers(row: Mapping[str, Any]) -> Iterator[str]:
    for name in ("reward", "score", "margin", "advantage", "weight"):
        value = row.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value)):
            yield f"{name}: not a finite number"


def _messages_row(row: Mapping[str, Any]) -> Iterator[str]:
    yield from _messages("messages", row["messages"], answered=True)


def _preference(row: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"{side}: empty" for side in ("chosen", "rejected") if _is_empty(row[side]))
    if row["chosen"] == row["rejected"]:
        yield "chosen and rejected are the same"
    if "prompt" in row and _is_empty(row["prompt"]):
        yield "prompt: empty"
    for side in ("prompt", "chosen", "rejected"):
        if isinstance(row.get(side), list):
            yield from _messages(side, row[side], answered=side != "prompt", alone=False)


def _openai_preference(row: Mapping[str, Any]) -> Iterator[str]:
    asked = row["input"].get("messages") if isinstance(row["input"], dict) else None
    yield from _messages("input.messages", [] if asked is None else asked, answered=False)
    for side in ("preferred_output", "non_preferred_output"):
        yield from _messages(side, row[side], answered=True, alone=False)
    if row["preferred_output"] == row["non_preferred_output"]:
        yield "preferred_output and non_preferred_output are the same"


def _ranked(row: Mapping[str, Any]) -> Iterator[str]:
    yield from _messages("context", row["context"], answered=False)
    ranked = row["completions"]
    if not isinstance(ranked, list) or len(ranked) < 2 or not all(isinstance(each, dict) for each in ranked):
        yield "completions: fewer than two, or no objects"
        return
    for at, each in enumerate(ranked):
        if not isinstance(each.get("rank"), int):
            yield f"completions[{at}]: no rank"
        yield from _messages(f"completions[{at}].completion", each.get("completion", []), answered=True, alone=False)
    if all(each.get("completion") == ranked[0].get("completion") for each in ranked):
        yield "completions: all the same"


def _steps(row: Mapping[str, Any]) -> Iterator[str]:
    steps = row["steps"]
    if not isinstance(steps, list) or not steps:
        yield "steps: no array with something in it"
        return
    for at, each in enumerate(steps):
        if not isinstance(each, dict) or each.get("source") not in ("system", "user", "agent"):
            yield f"steps[{at}]: no source that is known"
    if not any(isinstance(each, dict) and each.get("source") == "agent" for each in steps):
        yield "steps: nothing that the agent did"


def _branch(row: Mapping[str, Any]) -> Iterator[str]:
    if _is_empty(row.get("task")):
        yield "task: empty"
    if _is_empty(row["tool_call_sequence"]) and _is_empty(row.get("final_answer")):
        yield "neither a call nor an answer"


def _kto(row: Mapping[str, Any]) -> Iterator[str]:
    yield from _completed(row)
    if not isinstance(row["label"], bool):
        yield "label: neither true nor false"


def _completed(row: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"{side}: empty" for side in ("prompt", "completion") if _is_empty(row[side]))
    for side in ("prompt", "completion"):
        if isinstance(row[side], list):
            yield from _messages(side, row[side], answered=side == "completion", alone=False)


def _prompted(row: Mapping[str, Any]) -> Iterator[str]:
    if _is_empty(row["prompt"]):
        yield "prompt: empty"
    if isinstance(row["prompt"], list):
        yield from _messages("prompt", row["prompt"], answered=False)


def _text_row(row: Mapping[str, Any]) -> Iterator[str]:
    if not isinstance(row["text"], str) or _is_empty(row["text"]):
        yield "text: empty, or no text"


def _sharegpt(row: Mapping[str, Any]) -> Iterator[str]:
    said = row["conversations"]
    if not isinstance(said, list) or not said:
        yield "conversations: no array with something in it"
        return
    for at, each in enumerate(said):
        if not isinstance(each, dict) or each.get("from", each.get("role")) not in SPEAKERS:
            yield f"conversations[{at}]: no `from` that is known"
        elif not isinstance(each.get("value", each.get("content")), str):
            yield f"conversations[{at}]: no text"
    if all(
        isinstance(each, dict) and SPEAKERS.get(str(each.get("from", each.get("role")))) != "assistant" for each in said
    ):
        yield "conversations: nothing that the model said"


def _transition(row: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"{side}: empty" for side in ("observation", "action") if _is_empty(row[side]))
    if not isinstance(row.get("done"), bool):
        yield "done: neither true nor false"
    if row.get("done") is False and row.get("reward") is not None:
        yield "reward: before the end of the episode"


def _stepwise(row: Mapping[str, Any]) -> Iterator[str]:
    steps, labels = row["completions"], row["labels"]
    if not isinstance(steps, list) or not isinstance(labels, list) or len(steps) != len(labels) or not steps:
        yield "completions and labels: not the same number of them"
    elif not all(isinstance(each, bool) for each in labels):
        yield "labels: neither true nor false"


def _trajectory(row: Mapping[str, Any]) -> Iterator[str]:
    open_calls: set[str] = set()
    seen: set[str] = set()
    if not isinstance(row["content"], list):
        yield "content: no array"
        return
    for at, each in enumerate(row["content"]):
        call_id = each.get("tool_call_id") if isinstance(each, dict) else None
        kind = each.get("class_") if isinstance(each, dict) else None
        if kind in ("api_action", "code_action") and isinstance(call_id, str):
            if call_id in seen:
                yield f"content[{at}]: the id {call_id} is there already"
            seen.add(call_id)
            open_calls.add(call_id)
        elif kind in ("text_observation", "web_observation") and call_id is not None:
            if call_id not in open_calls:
                yield f"content[{at}]: an observation of no action"
            open_calls.discard(str(call_id))
        elif kind not in ("api_action", "code_action", "message_action", "text_observation", "web_observation"):
            yield f"content[{at}]: no class_ that is known"
    yield from (f"{call_id}: an action without an observation" for call_id in sorted(open_calls))


def _messages(name: str, said: Any, *, answered: bool, alone: bool = True) -> Iterator[str]:
    if not isinstance(said, list):
        if not isinstance(said, str):
            yield f"{name}: neither messages nor a text"
        return
    if not said:
        yield f"{name}: empty"
        return
    open_calls: set[str] = set()
    for at, each in enumerate(said):
        yield from (f"{name}[{at}]: {reason}" for reason in _message(each, open_calls, alone=alone))
    if answered and not any(isinstance(each, dict) and each.get("role") == "assistant" for each in said):
        yield f"{name}: nothing that the model said"


def _message(said: Any, open_calls: set[str], *, alone: bool) -> Iterator[str]:
    if not isinstance(said, dict) or said.get("role") not in ROLES:
        yield "no role that is known"
        return
    calls = said.get("tool_calls") or []
    if (
        said["role"] == "assistant"
        and not calls
        and _is_empty(said.get("content"))
        and not said.get("reasoning_content")
    ):
        yield "an assistant message that says nothing"
    for call in calls if isinstance(calls, list) else []:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"]:
            yield "a call without a name"
            continue
        if isinstance(function.get("arguments"), str) and not _is_json(function["arguments"]):
            yield "arguments of a call are no JSON"
        if isinstance(call.get("id"), str):
            open_calls.add(call["id"])
    if (
        said["role"] == "tool"
        and alone
        and said.get("tool_call_id") is not None
        and said["tool_call_id"] not in open_calls
    ):
        yield "a result of no call"


def _is_json(text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


def _is_empty(value: Any) -> bool:
    if isinstance(value, str):
        return not value.strip()
    return value is None or value in ([], {}) or (isinstance(value, list) and not compact(value).strip("[]{} "))
