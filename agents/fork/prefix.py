"""A recorded beginning, played again: the conversation as it was, and a workspace in which the same calls were made."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from agents.fork.model import Answers, Assistant, Entry, Tokens, ToolAnswer, ToolUse
from agents.fork.observed import observed
from agents.fork.tools import Tools
from agents.summarize.loose_fields import first, whole_or_none
from schemas.emission import SummaryLimits
from schemas.events import AgentEvent
from schemas.jsontext import parse_object


class Prefix(NamedTuple):
    """What a fork from the middle starts with."""

    events: tuple[AgentEvent, ...]
    entries: tuple[Entry, ...]
    steps: int
    tokens: Tokens


def read_prefix(events: Sequence[AgentEvent], limits: Callable[[str], SummaryLimits], *, redacting: bool) -> Prefix:
    """The conversation that recorded events amount to; every turn in them is whole."""
    entries: list[Entry] = []
    said: list[str] = []
    calls: list[ToolUse] = []
    answers: dict[str, ToolAnswer] = {}
    steps, tokens = 0, Tokens()
    for event in events:
        data = parse_object(event.data)
        match event.event:
            case "step_start":
                steps = whole_or_none(data.get("step")) or steps
            case "thinking_delta":
                said.append(str(data.get("delta") or ""))
            case "model_done":
                counts = [whole_or_none(data.get(name)) for name in ("inputTokens", "outputTokens", "cacheReadTokens")]
                tokens = Tokens(*(count or 0 for count in counts))
            case "tool_call":
                call = ToolUse(
                    str(first(data, "callId", "call_id")), str(first(data, "toolName", "name")), data["args"]
                )
                calls.append(call)
            case "tool_result":
                name = str(first(data, "toolName", "name"))
                content, failed = observed(event, name, limits, redacting=redacting)
                answer = ToolAnswer(str(first(data, "callId", "call_id")), content, failed)
                answers[answer.call_id] = answer
                if len(answers) == len(calls):
                    entries += [
                        Assistant("".join(said), tuple(calls)),
                        Answers(tuple(answers[c.call_id] for c in calls)),
                    ]
                    said, calls, answers = [], [], {}
    return Prefix(tuple(events), tuple(entries), steps, tokens)


async def replay(prefix: Prefix, tools: Tools) -> list[str]:
    """Make the prefix's calls again, so that the workspace is as it was; returns the calls that answered otherwise.

    What the model sees stays what was recorded: a command that prints the time is no reason to change the past.
    """
    recorded = {}
    for event in prefix.events:
        if event.event == "tool_result":
            data = parse_object(event.data)
            recorded[str(first(data, "callId", "call_id"))] = (data.get("output"), data.get("error") is not None)
    differing = []
    for entry in prefix.entries:
        if isinstance(entry, Assistant):
            for call in entry.calls:
                outcome = await tools.call(call.name, call.arguments)
                if (outcome.output, outcome.error is not None) != recorded[call.call_id]:
                    differing.append(call.call_id)
    return differing
