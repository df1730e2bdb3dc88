"""OpenAI fine-tuning: chat JSONL, and the preference format, which compares one last message with another.

The service refuses unknown fields, so rows have only its own: no reasoning, no `developer`, and `weight` 0 for
assistant messages that were given to the model.
"""

from collections.abc import Iterator
from typing import Any

from agents.formats.chat import is_given, is_trained, message, tool_list
from agents.formats.shape import MESSAGES, Format, Group, Left, Row, Speech, Struct
from agents.training.messages import is_blank
from schemas.training import DpoRecord, Message

_SPEECH = Speech(reasoning=False, answered=True, names=False)


def sft(group: Group) -> Iterator[Row | Left]:
    """{messages, tools?, parallel_tool_calls?}."""
    for record in group.sft:
        weighed = [_message(said) | ({"weight": 0} if is_given(said) else {}) for said in record.messages]
        yield Row({"messages": weighed, **_offer(record.tools, record.messages)}, (record,))


def dpo(group: Group) -> Iterator[Row | Left]:
    """{input: {messages, tools?}, preferred_output, non_preferred_output}: one assistant message on each side.

    The sides are the first assistant messages that differ, with their calls, and the input is everything before them. A
    pair whose sides begin with the same message and differ after later results has no such two messages, and is left
    out: its answers follow calls that the input does not show.
    """
    for record in group.dpo:
        said = (*record.prompt, *record.chosen[:1], *record.rejected[:1])
        (chosen,), (rejected,) = _messages(record.chosen[:1]), _messages(record.rejected[:1])
        reason = _unfit(record, chosen, rejected)
        if reason is not None:
            yield Left(reason)
            continue
        yield Row(
            {
                "input": {"messages": _messages(record.prompt), **_offer(record.tools, said)},
                "preferred_output": [chosen],
                "non_preferred_output": [rejected],
            },
            (record,),
        )


def _unfit(record: DpoRecord, chosen: dict[str, Any], rejected: dict[str, Any]) -> str | None:
    """Why two messages cannot represent a pair; None if they can."""
    if record.chosen[0] == record.rejected[0]:
        return "differs_in_calls"
    if not is_trained(record.chosen[0]) or not is_trained(record.rejected[0]):
        return "given_message"
    if any("tool_calls" not in side and is_blank(side["content"]) for side in (chosen, rejected)):
        return "empty_answer"
    return "same_answer" if chosen == rejected else None


def _messages(said: tuple[Message, ...]) -> list[dict[str, Any]]:
    return [_message(each) for each in said]


def _message(said: Message) -> dict[str, Any]:
    shown = message(said, _SPEECH)
    if shown["content"] is None and "tool_calls" in shown:
        del shown["content"]
    return shown


def _offer(tools: str, said: tuple[Message, ...]) -> dict[str, Any]:
    offered = tool_list(tools, said)
    return {"tools": offered, "parallel_tool_calls": True} if offered else {}


FORMATS = (
    Format(
        "openai-sft", "OpenAI supervised fine-tuning: chat JSONL", frozenset({"sft"}), sft,
        {"": {"messages": MESSAGES, "tools": "json", "parallel_tool_calls": "truth"}}, ("jsonl",),
        speech=_SPEECH,
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
        speech=_SPEECH,
    ),
)  # fmt: skip
