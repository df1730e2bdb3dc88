"""The text of /docs: descriptions, examples and the shapes of answers. Nothing here decides anything."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from schemas.event_kinds import BY_NAME, KINDS

DESCRIPTION = """
Agents, verifiers and operators write what happened in a rollout; an answer comes when the broker has it.

**Bodies.** One JSON object, an array (`application/json`), one object per line (`application/x-ndjson`), or CloudEvents
(`application/cloudevents+json`, `application/cloudevents-batch+json`, or `ce-` headers with `application/json`).

**Answers.** `202`: all of it is in the log, at these offsets. `207`: some of it is; every other item has an error with its
index, line, field and reason. `400`, `403`, `413`, `422`: nothing was written, for these reasons. `503`: the broker is
away; send it again after `Retry-After`. Sending something twice does no harm.

**Roles.** `agent` writes events, `verifier` verdicts and votes, `operator` rollouts, cancelling, closing, and events. A
token may be bound to one rollout and one branch.
"""

TAGS = [
    {"name": "rollouts", "description": "A task is forked, given up, or settled. Role: operator."},
    {
        "name": "events",
        "description": "What an agent does in a branch. Role: agent or operator. Kinds: "
        f"{', '.join(kind.name for kind in KINDS)}. Other kinds are kept as they are.",
    },
    {"name": "verdicts", "description": "What verifiers and judges say of branches. Only with the role verifier."},
    {"name": "lines", "description": "All of these, mixed. Each line needs the role of its type."},
    {"name": "operations", "description": "Health and metrics of the gateway itself."},
]


class RecordView(BaseModel):
    """A record in the log."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    topic: str = Field(examples=["rollouts.agent-events.v1"])
    """The topic, with its prefix."""
    partition: int
    """The partition; the same for all records of a rollout."""
    offset: int
    """Its place there."""
    record: str = Field(examples=["AgentEvents"])
    """The item."""
    id: str = Field(examples=["r1/b0/a0/s7"])
    """Its CloudEvents id: a function of its content."""
    first_seq: int | None = None
    """Of a slice: the seq of its first event."""
    last_seq: int | None = None
    """Of a slice: the seq of its last event."""


class ErrorView(BaseModel):
    """An item that was refused."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    index: int | None
    """The item, counted from 0; null when it is about the request as a whole."""
    line: int | None
    """The line, counted from 1, where the body has lines."""
    field: str
    """Which field; empty when the item could not be read."""
    reason: str
    """Why."""
    status: int
    """The HTTP status that it would have by itself."""


class WarningView(BaseModel):
    """An accepted item with a warning."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    index: int
    """Which item, from 0."""
    line: int | None
    """Its line, from 1, if the body has lines."""
    field: str
    """The field that it needs to have an effect."""
    reason: str
    """The effect of the verdict as sent, and the field to add."""


class AnswerView(BaseModel):
    """The outcome of a request."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    accepted: int
    """Items that are in the log now."""
    records: list[RecordView]
    """Their positions in the log; several events may share one record."""
    errors: list[ErrorView]
    """Refused items."""
    warnings: list[WarningView]
    """Verdicts that were taken and will be neither pass nor fail."""


_WORDS = {
    202: "All of it is in the log.",
    207: "Some of it is in the log, some was refused.",
    400: "Nothing was written: not readable, or for several reasons.",
    401: "No token, or not one of ours.",
    403: "The token's role or binding does not allow it; nothing was written.",
    413: "The body, or an item in it, is too large.",
    415: "Not a content type that is read here.",
    422: "Nothing was written: the content is not right.",
    503: "The broker is away, or too much is under way; send it again after Retry-After.",
}

RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": AnswerView, "description": words} for status, words in _WORDS.items()
}

EVENT = {"trace_id": "t1", "timestamp_ms": 1767225600000, **BY_NAME["tool_call"].event()}
_RESULT = EVENT | BY_NAME["tool_result"].event()
_CLOUD = {"specversion": "1.0", "id": "1", "source": "/agents/a", "type": "agent.event", "sequence": "7", "data": EVENT}


def _compact(*values: object) -> str:
    import orjson

    return "\n".join(orjson.dumps(value).decode() for value in values)


def body(
    examples: dict[str, Any], *, lines: list[dict[str, Any]] | None = None, required: bool = True
) -> dict[str, Any]:
    """The OpenAPI of a request body: these examples as JSON, and some lines."""
    content: dict[str, Any] = {
        "application/json": {
            "schema": {"oneOf": [{"type": "object"}, {"type": "array", "items": {"type": "object"}}]},
            "examples": {name: {"value": value} for name, value in examples.items()},
        },
    }
    if lines is not None:
        content["application/x-ndjson"] = {"schema": {"type": "string"}, "example": _compact(*lines)}
    return {"requestBody": {"required": required, "content": content}}


EVENTS_BODY = body(
    {
        "an event with its seq": {"seq": 7, "event": EVENT},
        "several": [{"seq": 7, "event": EVENT}, {"seq": 8, "event": _RESULT}],
        "a bare event, with ?first_seq=7": EVENT,
        "the first event, with what is known of the branch": {
            "seq": 0, "temperature": 0.8, "seed": 1, "agent": {"name": "coder", "model": "m"}, "event": EVENT,
        },
        **{kind.name: {"seq": 7, "event": kind.event()} for kind in KINDS},
    },
    lines=[{"seq": 7, "event": EVENT}, {"seq": 8, "event": _RESULT}],
)  # fmt: skip
EVENTS_BODY["requestBody"]["content"] |= {
    "application/cloudevents+json": {"schema": {"type": "object"}, "example": _CLOUD},
    "application/cloudevents-batch+json": {
        "schema": {"type": "array", "items": {"type": "object"}},
        "example": [_CLOUD],
    },
}
EVENTS_BODY["requestBody"]["required"] = False

_CHAT = {"model": "m", "messages": [{"role": "user", "content": "Make the tests pass"}]}
_SAID = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Done."}, "finish_reason": "stop"}]}
_CALL = {
    "kind": "call", "id": "c1", "protocol": "openai-chat", "request": _CHAT, "response": _SAID, "status": 200, "error": None,
    "started_ms": 1768467600000, "latency_ms": 900,
}  # fmt: skip
_BESIDE = {"kind": "event", "id": "e1", "at_ms": 1768467600000, "event": {"event": "tool_call", "data": EVENT["data"]}}
_OVER = {"kind": "end", "id": "z", "status": "answered", "answer": "Done."}
CAPTURES_BODY = body(
    {"a model call": _CALL, "an event beside the calls": _BESIDE, "the end": _OVER, "several": [_CALL, _OVER]},
    lines=[_CALL, _OVER],
)

_ROLLOUT = {
    "rollout_id": "r1", "task": "Make the tests pass", "branches": 4, "required": ["build"], "deadline_ms": 600000,
    "system_prompt": None, "tools": [], "labels": {"team": "a"},
}  # fmt: skip
_BUILD = {"status": "success", "exit_code": 0, "tests": {"passed": 9, "failed": 0, "skipped": 0, "total": 9}}
_VOTE = {"a": 0, "b": 2, "order": "ab", "sample": 0, "preferred": "a", "judge": "m"}

ROLLOUT_BODY = body({"a rollout of four branches": _ROLLOUT})
CANCEL_BODY = body({"why": {"reason": "the task was wrong"}}, required=False)
CLOSE_BODY = body({"nothing": {}}, required=False)
VERDICT_BODY = body(
    {
        "build": _BUILD,
        "visual": {"verdict": "pass", "uncaught_errors": [], "renders_non_empty": True},
        "check": {"name": "lint", "status": "pass"},
    }
)
VOTES_BODY = body({"a vote": _VOTE, "several": [_VOTE, _VOTE | {"order": "ba"}]})
LINES_BODY = body(
    {"one line": {"type": "rollout", **_ROLLOUT}},
    lines=[
        {"type": "rollout", **_ROLLOUT},
        {"type": "event", "rollout_id": "r1", "branch_index": 0, "seq": 0, "event": EVENT},
        {"type": "end", "rollout_id": "r1", "branch_index": 0, "status": "answered"},
        {"type": "build", "rollout_id": "r1", "branch_index": 0, **_BUILD},
        {"type": "vote", "rollout_id": "r1", **_VOTE},
    ],
)
