"""OpenAI fine-tuning: chat JSONL, and the preference format, which compares one last message with another.

The service refuses what it does not know, so rows have its fields and no others.
"""

from collections.abc import Iterator
from itertools import takewhile
from typing import Any

from agents.training.formats.chat import message, tool_list
from agents.training.formats.shape import MESSAGES, Format, Group, Left, Row, Struct
from agents.training.messages import is_blank
from schemas.training import DpoRecord, Message


def sft(group: Group) -> Iterator[Row | Left]:
    """{messages, tools?, parallel_tool_calls?}."""
    for record in group.sft:
        yield Row({"messages": _messages(record.messages), **_offer(record.tools, record.messages)}, (record,))


def dpo(group: Group) -> Iterator[Row | Left]:
    """{input: {messages, tools?}, preferred_output, non_preferred_output}: one assistant message on each side.

    Where both sides are one message anyway, the input is all that they share; otherwise what the agents were given, and the
    outputs are the final answers.
    """
    for record in group.dpo:
        sides = _answers(record)
        if isinstance(sides, Left):
            yield sides
            continue
        shared, chosen, rejected = sides
        yield Row(
            {
                "input": {"messages": _messages(shared), **_offer(record.tools, shared)},
                "preferred_output": [{"role": "assistant", "content": chosen}],
                "non_preferred_output": [{"role": "assistant", "content": rejected}],
            },
            (record,),
        )


def _answers(record: DpoRecord) -> tuple[tuple[Message, ...], str, str] | Left:
    chosen, rejected = record.chosen_answer, record.rejected_answer
    if chosen is None or rejected is None or is_blank(chosen) or is_blank(rejected):
        return Left("empty_answer")
    if chosen == rejected:
        return Left("same_answer")
    if len(record.chosen) == len(record.rejected) == 1:
        return record.prompt, chosen, rejected
    given = tuple(takewhile(lambda said: said.role in ("system", "user"), record.prompt))
    return given, chosen, rejected


def _messages(said: tuple[Message, ...]) -> list[dict[str, Any]]:
    shown = [message(each, names=False) for each in said]
    for each in shown:
        if each["content"] is None and "tool_calls" in each:
            del each["content"]
    return shown


def _offer(tools: str, said: tuple[Message, ...]) -> dict[str, Any]:
    offered = tool_list(tools, said)
    return {"tools": offered, "parallel_tool_calls": True} if offered else {}


FORMATS = (
    Format(
        "openai-sft", "OpenAI supervised fine-tuning: chat JSONL", frozenset({"sft"}), sft,
        {"": {"messages": MESSAGES, "tools": "json", "parallel_tool_calls": "truth"}}, ("jsonl",),
    ),
    Format(
        "openai-dpo", "OpenAI preference fine-tuning: one message against another", frozenset({"dpo"}), dpo,
        {
            "": {
                "input": Struct({"messages": MESSAGES, "tools": "json", "parallel_tool_calls": "truth"}),
                "preferred_output": MESSAGES, "non_preferred_output": MESSAGES,
            }
        },
        ("jsonl",),
    ),
)  # fmt: skip
