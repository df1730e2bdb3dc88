"""ShareGPT with tools, as LLaMA-Factory reads it: people and observations at even positions, the model at odd ones.

Calls are JSON in a `function_call` turn, an array when they are parallel, and their results one `observation`. The
model's text before its calls has no place in `value`; it is kept as `text`. The loader drops conversations that do not
alternate, and learns from every turn of the model: rows that do not fit are left out here, with a reason.
"""

from collections.abc import Iterator
from typing import Any

from agents.formats.chat import arguments, tool_text, unanswered
from agents.formats.shape import Format, Group, Left, ListOf, Row, Speech, Struct
from schemas.jsontext import compact
from schemas.training import Message, SftRecord

_SYSTEM = ("system", "developer")


def conversations(group: Group) -> Iterator[Row | Left]:
    """{conversations: [{from, value}], system, tools}."""
    for record in group.sft:
        said = list(record.messages)
        system = said.pop(0).content or "" if said and said[0].role in _SYSTEM else ""
        turns = _turns(said)
        if not _alternates(said, turns):
            yield Left("not_alternating")
            continue
        yield Row(
            {
                "conversations": turns,
                "system": system,
                "tools": _tools(record),
                "rollout_id": record.rollout_id,
                "record_id": record.record_id,
            },
            (record,),
        )


def _turns(said: list[Message]) -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = []
    results: list[str] = []
    for each in said:
        if each.role == "tool":
            results.append(each.content or "")
            continue
        if results:
            turns.append({"from": "observation", "value": _one_or_all(results)})
            results = []
        if each.tool_calls:
            calls = [
                {"name": call.function.name, "arguments": arguments(call.function.arguments)}
                for call in each.tool_calls
            ]
            text = {"text": each.content} if each.content else {}
            turns.append({"from": "function_call", "value": compact(calls[0] if len(calls) == 1 else calls), **text})
        else:
            turns.append({"from": "human" if each.role == "user" else "gpt", "value": each.content or ""})
    if results:
        turns.append({"from": "observation", "value": _one_or_all(results)})
    return turns


def _alternates(said: list[Message], turns: list[dict[str, Any]]) -> bool:
    """Whether people and observations alternate with the model, which is last, with every call answered."""
    spoken = [turn["from"] in ("gpt", "function_call") for turn in turns]
    in_turn = spoken == [place % 2 == 1 for place in range(len(spoken))] and len(spoken) % 2 == 0
    return in_turn and all(each.role not in _SYSTEM for each in said) and unanswered(said) is None


def _one_or_all(results: list[str]) -> str:
    return results[0] if len(results) == 1 else compact(results)


def _tools(record: SftRecord) -> str:
    return tool_text(record.tools, record.messages)


FORMATS = (
    Format(
        "sharegpt", "ShareGPT conversations with tools, as LLaMA-Factory reads them", frozenset({"sft"}), conversations,
        {
            "": {
                "conversations": ListOf(Struct({"from": "text", "value": "text", "text": "text"})),
                "system": "text", "tools": "text", "rollout_id": "text", "record_id": "text",
            }
        },
        speech=Speech(reasoning=False, given=False),
    ),
)  # fmt: skip
