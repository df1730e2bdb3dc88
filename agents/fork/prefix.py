"""A recorded beginning, played again: the conversation as it was, and a workspace in which the same calls were made."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from agents.fork.chat_log import read_message
from agents.fork.observed import observed
from agents.fork.tools import Tools, call_tool
from agents.models.conversation import Message, ToolCall
from agents.models.model import TokenUsage
from agents.summarize.loose_fields import first, whole_or_none
from schemas.emission import SummaryLimits
from schemas.events import AgentEvent
from schemas.jsontext import compact, parse_object


class Prefix(NamedTuple):
    """The start of a fork from the middle of a recorded branch."""

    events: tuple[AgentEvent, ...]
    messages: tuple[Message, ...]
    steps: int
    tokens: TokenUsage


def read_prefix(events: Sequence[AgentEvent], limits: Callable[[str], SummaryLimits], *, redacting: bool) -> Prefix:
    """The conversation that recorded events amount to; every turn in them is whole."""
    messages: list[Message] = []
    told: dict[str, Message] = {}
    response: Message | None = None
    said: list[str] = []
    calls: list[ToolCall] = []
    answers: dict[str, Message] = {}
    steps, tokens = 0, TokenUsage()
    for event in events:
        data = parse_object(event.data)
        match event.event:
            case "step_start":
                steps = whole_or_none(data.get("step")) or steps
            case "message":
                told[str(data["id"])] = read_message(data)
            case "model_call":
                response = told.get(str(data.get("response")))
            case "thinking_delta":
                said.append(str(data.get("delta") or ""))
            case "model_done":
                counts = [whole_or_none(data.get(name)) for name in ("inputTokens", "outputTokens", "cacheReadTokens")]
                tokens = TokenUsage(*(count or 0 for count in counts))
            case "tool_call":
                args = data["args"]
                call = ToolCall(
                    str(first(data, "callId", "call_id")), str(first(data, "toolName", "name")),
                    args if isinstance(args, str) else compact(args),
                )  # fmt: skip
                calls.append(call)
            case "tool_result":
                name = str(first(data, "toolName", "name"))
                content, failed = observed(event, name, limits, redacting=redacting)
                call_id = str(first(data, "callId", "call_id"))
                answers[call_id] = Message("tool", content, tool_call_id=call_id, name=name, is_error=failed)
                if len(answers) == len(calls):
                    turn = response or Message("assistant", "".join(said), tool_calls=tuple(calls))
                    messages += [turn, *(answers[each.id] for each in calls)]
                    said, calls, answers, response = [], [], {}, None
    return Prefix(tuple(events), tuple(messages), steps, tokens)


async def replay(prefix: Prefix, tools: Tools) -> list[str]:
    """Make the prefix's calls again, so that the workspace is as it was; returns the calls that answered otherwise.

    The model sees the recorded text: a command that prints the time is no reason to change the past.
    """
    recorded = {}
    for event in prefix.events:
        if event.event == "tool_result":
            data = parse_object(event.data)
            recorded[str(first(data, "callId", "call_id"))] = (data.get("output"), data.get("error") is not None)
    differing = []
    for call in (call for message in prefix.messages for call in message.tool_calls):
        outcome = await call_tool(tools, call)
        if (outcome.output, outcome.error is not None) != recorded[call.id]:
            differing.append(call.id)
    return differing
