"""The kinds of agent events: channel, fields of `data`, and a valid example of each.

The one table of them. Readers take a kind's default channel from it; docs/events.md and the gateway's /docs are made of it. Other
kinds are kept as they are: the table says which ones are read, not which ones are allowed.
"""

from typing import Any, Final, NamedTuple

from pydantic import BaseModel

from schemas.conversation import ChatMessage, ModelCall
from schemas.event_fields import EventField, may, model_table, must

OTHER_CHANNEL: Final = "status"
"""The channel of an unknown kind that does not say its own."""

CONVERSATION: Final = "conversation"
"""The channel of messages and model calls. Under another one these kinds are unknown."""

SUBAGENT_PREFIX: Final = "subagent_"
"""Kinds of a sub-agent that a file tells about: the kind of its event, with this before it."""

SUBAGENT_CHANNEL: Final = "subagent"


class EventKind(NamedTuple):
    """One kind of event."""

    name: str
    channel: str
    about: str
    """One or two sentences: when it is written, and its meaning for rows."""
    given: tuple[EventField, ...]
    """The fields of a kind without a model."""
    example: dict[str, Any]
    """Valid data of it."""
    model: type[BaseModel] | None = None
    """The model that its data is checked with, where there is one."""

    @property
    def fields(self) -> tuple[EventField, ...]:
        """The fields of its data: those of its model, where it has one. Made when asked for: it takes milliseconds."""
        return model_table(self.model) if self.model else self.given

    def event(self) -> dict[str, Any]:
        """The example as a whole event."""
        return {"channel": self.channel, "event": self.name, "data": self.example}


_STEP = may("step", "whole number", "The model turn, counted from 0.")
_CALL_ID = must("callId", "text", "The call; its result names it.")
_ACTION = must("actionId", "text", "The action, unique in the branch.")
_ARTIFACT = must("artifactId", "text", "The artifact, unique in the branch.")
_SOURCE = may("source", "object", "Fields of the imported element that have no other place.")

_TEXT = (
    EventKind(
        "run_start", "text", "The run begins. A second one keeps a reconstructed branch out of rows.",
        (
            must("task", "text", "The task as the model was given it."),
            may("agentConfig", "object", "model, tools (array), maxSteps."),
        ),
        {"task": "Make the tests pass", "agentConfig": {"model": "m", "tools": ["bash"], "maxSteps": 20}},
    ),
    EventKind(
        "assistant_message", "text", "Text of the model in one turn, as a file tells it (transcript).",
        (
            must("text", "text", "The words of the model."),
            _STEP,
            may("beforeTask", "true or false", "Whether it was said before the task."),
            _SOURCE,
        ),
        {"text": "I look at the failing test first.", "step": 0},
    ),
    EventKind(
        "final_answer", "text", "The answer. It ends the branch.",
        (
            must("answer", "any", "The answer; JSON that is no text is written as JSON."),
            may("type", "text", "The kind of answer, in the agent's words."),
            may("reply", "text", "A user message that followed the last model turn."),
        ),
        {"answer": "All tests pass."},
    ),
    EventKind(
        "error", "text", "The agent failed. It ends the branch; an error of the model's provider ends it as infra_error.",
        (must("error", "text or object", "The message, or code and message."), _STEP),
        {"error": "the plan has no next step", "step": 4},
    ),
)  # fmt: skip

_THINKING = (
    EventKind("step_start", "thinking", "A model turn begins.", (_STEP,), {"step": 0}),
    EventKind(
        "thinking_delta", "thinking", "A piece of the text that the model writes in a turn.",
        (must("delta", "text", "The piece."), _STEP),
        {"delta": "I look at ", "step": 0},
    ),
    EventKind(
        "planning", "thinking", "A plan of the agent. It reaches no row.",
        (
            _STEP,
            may("plan", "any", "The plan."),
            may("facts", "any", "Facts that it rests on."),
        ),
        {"step": 0, "plan": ["read", "fix", "test"], "facts": ["pytest is installed"]},
    ),
    EventKind(
        "reasoning", "thinking", "Reasoning of the model before its words (transcript). It never becomes content.",
        (
            must("text", "text", "The reasoning."),
            _STEP,
            may("signature", "text", "The provider's signature of it; it reaches no row."),
            _SOURCE,
        ),
        {"text": "The assertion names slug(), so I read it.", "step": 0},
    ),
)  # fmt: skip

_USER = (
    EventKind(
        "user_message", "user", "A user message after the first model turn (transcript).",
        (must("text", "text", "The words of the user."), _STEP, _SOURCE),
        {"text": "And on Windows?", "step": 2},
    ),
    EventKind(
        "context_message", "user",
        "Words given to the model without being a question to it: earlier messages, files, reminders (transcript). Before the first model "
        "turn they stand before the task, later where they are.",
        (
            must("text", "text", "The words."),
            may("role", "text", "user (default), system or developer."),
            _STEP,
            _SOURCE,
        ),
        {"text": "Here is my project."},
    ),
    EventKind(
        "user_tool_call", "user", "A simulated user calls a tool of its own. The model sees nothing of it: it reaches no row.",
        (must("toolName", "text", "The tool."), may("args", "object", "The arguments."), _CALL_ID, _SOURCE),
        {"toolName": "reboot_phone", "args": {}, "callId": "c1"},
    ),
    EventKind(
        "user_tool_result", "user", "The output of a simulated user's call. It reaches no row.",
        (
            _CALL_ID,
            may("toolName", "text", "The tool."),
            may("output", "any", "The output."),
            may("error", "text or object", "code and message, only where the tool failed."),
            _SOURCE,
        ),
        {"callId": "c1", "toolName": "reboot_phone", "output": "rebooted"},
    ),
)  # fmt: skip

_TOOL = (
    EventKind(
        "tool_call", "tool", "The model calls a tool.",
        (
            must("toolName", "text", "The tool. `name` is read, too."),
            may("args", "object", "The arguments."),
            may("argsText", "text", "Arguments that are no JSON object, as written; args is {} then."),
            may("argsError", "text", "Why they are none; rows with such a call are rejected (malformed_arguments)."),
            _CALL_ID,
            may("batchId", "text", "The model turn: parallel calls share it."),
            may("batchSize", "whole number", "How many calls the turn has."),
            may("stepIndex", "whole number", "The model turn, counted from 0."),
        ),
        {"toolName": "bash", "args": {"command": "make test"}, "callId": "c1", "batchId": "b1", "batchSize": 1, "stepIndex": 0},
    ),
    EventKind(
        "tool_result", "tool", "The output of a call. It is paired by callId, else by order and name.",
        (
            _CALL_ID,
            may("toolName", "text", "The tool."),
            may("output", "any", "The output as the tool gave it."),
            may("error", "text or object", "code and message, only where the tool failed."),
        ),
        {"callId": "c1", "toolName": "bash", "output": "9 passed"},
    ),
    EventKind(
        "tool_fallback_offered", "tool", "Another tool was offered after a failure. It reaches no row.",
        (may("toolName", "text", "The tool that failed."),),
        {"toolName": "bash"},
    ),
    EventKind(
        "tool_synthesised", "tool", "The agent made a tool. It reaches no row.",
        (may("toolName", "text", "The new tool."),),
        {"toolName": "count_lines"},
    ),
)  # fmt: skip

_MODEL = (
    EventKind(
        "model_start", "model", "A request to the model begins.",
        (may("modelId", "text", "The model."), _STEP),
        {"modelId": "m", "step": 0},
    ),
    EventKind(
        "model_done", "model", "A request to the model ended. Token counts are cumulative for the run.",
        (
            may("modelId", "text", "The model."),
            _STEP,
            may("finishReason", "text", "Why the response ended."),
            may("inputTokens", "whole number", "Tokens of all prompts so far, cached ones included."),
            may("outputTokens", "whole number", "Tokens of all responses so far."),
            may("cacheReadTokens", "whole number", "Tokens of all prompts so far that came from a cache."),
            may("estimatedUsd", "number", "Cost so far."),
        ),
        {"modelId": "m", "step": 0, "finishReason": "tool_calls", "inputTokens": 900, "outputTokens": 40},
    ),
)  # fmt: skip

_ACTION_KINDS = (
    EventKind(
        "action_proposed", "action", "The agent proposes an action. It is no decision yet.",
        (
            _ACTION,
            must("type", "text", "The kind of action."),
            may("path", "text", "The file that it concerns."),
            may("reason", "text", "Why."),
        ),
        {"actionId": "x1", "type": "edit", "path": "src/slug.py", "reason": "the test fails there"},
    ),
    EventKind("action_executing", "action", "The action begins.", (_ACTION,), {"actionId": "x1"}),
    EventKind(
        "action_completed", "action", "The action ended.",
        (
            _ACTION,
            may("durationMs", "whole number", "Milliseconds that it took."),
            may("success", "true or false", "Whether it worked."),
            may("error", "text or object", "Why it did not."),
        ),
        {"actionId": "x1", "durationMs": 12, "success": True},
    ),
)  # fmt: skip

_ARTIFACT_KINDS = (
    EventKind("artifact_stream_start", "artifact", "An artifact begins.", (_ARTIFACT,), {"artifactId": "report"}),
    EventKind(
        "artifact_delta", "artifact", "A piece of an artifact.",
        (_ARTIFACT, may("delta", "text", "The piece.")),
        {"artifactId": "report", "delta": "# Report"},
    ),
    EventKind(
        "artifact_stream_end", "artifact", "An artifact is complete.",
        (
            _ARTIFACT,
            may("contentHash", "text", "SHA-256 of its content."),
            may("totalBytes", "whole number", "Its length."),
        ),
        {"artifactId": "report", "contentHash": "9f86d081", "totalBytes": 8},
    ),
    EventKind(
        "compliance_attempt", "artifact", "One round of an answer that has to keep a specification. It is redacted, never summarized.",
        (
            must("mode", "text", "direct, prompt_retry or full_pcl."),
            must("round", "whole number", "The round, counted from 0: the draft."),
            must("strategy", "text", "direct, retry, patch, insert_section, regenerate_region or full."),
            may("target", "array of text", "The constraints that it was to repair."),
            may("base_round", "whole number", "The round whose text it began from."),
            must("output", "text", "The text of the round."),
            may("made_by", "text", "model (wholly or in part) or edit (by code alone)."),
            may("committed", "true or false", "Whether it became the text of the run."),
            may("rolled_back", "true or false", "Whether it was discarded although it changed the text."),
            may("reason", "text", "Why it was not committed."),
            may("passed", "true or false", "The claim of the runner. A verifier decides; a claim that differs is flagged."),
            may("violations", "array", "The violations of this text, as the runner sees them."),
            may("usage", "object", "input, output, cached."),
            may("latency_ms", "whole number", "The time it took."),
        ),
        {"mode": "direct", "round": 0, "strategy": "direct", "output": "A first draft.", "made_by": "model", "committed": True},
    ),
)  # fmt: skip

_STATUS = (
    EventKind("status", "status", "Progress, in the agent's words.", (may("message", "text", "The words."),), {"message": "installing"}),
    EventKind(
        "await_human_input", "status", "The agent waits for a person. It is no decision.",
        (may("question", "text", "The question."),),
        {"question": "May I delete build/?"},
    ),
    EventKind(
        "guardrail_tripwire", "status",
        "A rule stopped the agent, in the agent's words. Only a check verdict named policy counts as a decision.",
        (may("rule", "text", "The rule."),),
        {"rule": "no network"},
    ),
    EventKind(
        "supervisor_decision", "status",
        "A supervisor decided, in the agent's words. Only a check verdict named policy counts as a decision.",
        (may("decision", "text", "The decision."),),
        {"decision": "approved"},
    ),
    EventKind("handoff", "status", "Another agent takes over.", (may("to", "text", "The other agent."),), {"to": "reviewer"}),
    EventKind(
        "error_recovery", "status", "The agent goes on after an error.",
        (
            _STEP,
            may("kind", "text", "The error: rate_limited, timeout, ..."),
            may("action", "text", "retry or give_up."),
        ),
        {"step": 1, "kind": "timeout", "action": "retry"},
    ),
    EventKind(
        "goal_adaptation_proposed", "status", "The agent proposes another goal.",
        (may("goal", "text", "The other goal."),),
        {"goal": "support 3.14 only"},
    ),
    EventKind(
        "import_source", "status", "The origin of an imported branch: its first event. It is not in the raw digest.",
        (
            must("format", "text", "The format of the file."),
            may("version", "text", "The version of the format."),
            may("file", "text", "The name of the file."),
            may("position", "whole number or text", "The place in it."),
        ),
        {"format": "atif", "version": "1.8", "file": "run.json", "position": 3},
    ),
    EventKind(
        "unreadable", "status", "An element of an imported episode that could not be read.",
        (
            must("position", "whole number or text", "The place in the episode."),
            must("reason", "text", "Why."),
            may("raw", "any", "The element as it was."),
        ),
        {"position": 7, "reason": "expected an object, found a number", "raw": 5},
    ),
    EventKind(
        "content_left_out", "status", "Something that the model saw is not in an imported episode: it becomes no row.",
        (
            must(
                "reason", "text",
                "media, too_large, not_recorded, given_message (words put into the model's mouth), or parent_missing (of a fork).",
            ),
            must("count", "whole number", "How many."),
            may("media", "array", "References: type, media_type, bytes, digest."),
        ),
        {"reason": "media", "count": 1},
    ),
    EventKind(
        "context_rewritten", "status", "The agent dropped a part of its history.",
        (
            must("kept", "whole number", "Messages that stayed."),
            must("dropped", "whole number", "Messages that did not."),
        ),
        {"kept": 2, "dropped": 11},
    ),
)  # fmt: skip

_CONVERSATION = (
    EventKind(
        "message", CONVERSATION, "A message of a conversation, written once, when it comes into being. At most 1 MiB.",
        (),
        {"id": "u1", "role": "user", "content": "Which Python versions does it support?"},
        ChatMessage,
    ),
    EventKind(
        "model_call", CONVERSATION,
        "One request to a model: the messages that were sent, and the response or the error. A retried call is another call.",
        (),
        {
            "call_id": "c1", "context": {"after": None, "keep": 0, "add": ["u1"]}, "response": "a1", "model": "m",
            "sampling": {"temperature": 0.8}, "finish_reason": "stop", "usage": {"input": 20, "output": 6},
        },
        ModelCall,
    ),
)  # fmt: skip

_SUBAGENT = (
    EventKind(
        f"{SUBAGENT_PREFIX}*", SUBAGENT_CHANNEL,
        "An event of a sub-agent that a file tells about: subagent_tool_call, subagent_final_answer, ... It has a trace_id of its own, "
        "counts in the raw digest and reaches no row. An exact conversation names the sub-agent in `agent` instead.",
        (may("...", "any", "The fields of the kind without its prefix."),),
        {"toolName": "search", "args": {"query": "zeitreise"}, "callId": "c1"},
    ),
)  # fmt: skip

KINDS: Final = (
    *_CONVERSATION, *_TEXT, *_USER, *_THINKING, *_TOOL, *_MODEL, *_ACTION_KINDS, *_ARTIFACT_KINDS, *_STATUS, *_SUBAGENT,
)  # fmt: skip
"""All kinds, those of one channel side by side."""

BY_NAME: Final = {kind.name: kind for kind in KINDS}


def channel_of(kind: str) -> str:
    """The channel of an event that does not say it."""
    known = BY_NAME.get(kind)
    if known is not None:
        return known.channel
    return SUBAGENT_CHANNEL if kind.startswith(SUBAGENT_PREFIX) else OTHER_CHANNEL
