"""OpenAI fine-tuning: chat JSONL, and the preference format, which compares one last message with another.

The service refuses what it does not know, so rows have its fields and no others.
"""

from collections.abc import Iterator
from typing import Any

from agents.formats.chat import message, tool_list
from agents.formats.shape import MESSAGES, Format, Group, Left, Row, Struct
from agents.training.messages import is_blank
from schemas.training import DpoRecord, Message


def sft(group: Group) -> Iterator[Row | Left]:
    """{messages, tools?, parallel_tool_calls?}."""
    for record in group.sft:
        yield Row({"messages": _messages(record.messages), **_offer(record.tools, record.messages)}, (record,))


def dpo(group: Group) -> Iterator[Row | Left]:
    """{input: {messages, tools?}, preferred_output, non_preferred_output}: one assistant message on each side.

    The sides are the first messages that differ, and the input is all that comes before them. An answer that followed other
    calls than the input shows is an answer to something else: such pairs are left out.
    """
    for record in group.dpo:
        reason = _unfit(record)
        if reason is not None:
            yield Left(reason)
            continue
        yield Row(
            {
                "input": {"messages": _messages(record.prompt), **_offer(record.tools, record.prompt)},
                "preferred_output": [{"role": "assistant", "content": record.chosen[0].content}],
                "non_preferred_output": [{"role": "assistant", "content": record.rejected[0].content}],
            },
            (record,),
        )


def _unfit(record: DpoRecord) -> str | None:
    """Why two messages cannot stand for a pair; None when they can."""
    chosen, rejected = record.chosen_answer, record.rejected_answer
    if is_blank(chosen) or is_blank(rejected):
        return "empty_answer"
    if chosen == rejected:
        return "same_answer"
    alone = all(len(side) == 1 and not side[0].tool_calls for side in (record.chosen, record.rejected))
    return None if alone else "differs_in_calls"


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
