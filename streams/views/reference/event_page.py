"""The page about events, docs/events.md: made from the table of kinds, so that it cannot contradict it."""

from typing import Any, Final, NamedTuple

import orjson

from schemas.event_kinds import KINDS, OTHER_CHANNEL, EventKind

_HEAD = f"""\
<!-- Generated from schemas/event_kinds.py: braid schemas page events > docs/events.md -->

# Events

An agent writes events: [lines](lines.md) of type `event`, bodies of the [gateway](gateway.md), or slices on Kafka. Every event has
these fields; `traceId`, `parentTraceId` and `timestampMs` are read, too.

| field | type | required | |
|---|---|---|---|
| `event` | text | yes | The kind. |
| `channel` | text | | The group of the kind; when left out, that of the table, `{OTHER_CHANNEL}` for an unknown kind. |
| `data` | object | | The fields of the kind. |
| `trace_id`, `parent_trace_id` | text | | The producer's ids. |
| `timestamp_ms` | whole number | | Milliseconds since 1970, by the producer's clock. |

**Unknown kinds and fields are kept.** They stay on the log as they came, count in the branch's raw digest, and are in archives and
replays. Rows have nothing of them. An unknown kind on the channel `text` keeps a reconstructed branch out of the rows
(`not_representable`): it may hold words that the model saw or said.

The data of `message` and `model_call` is checked where it comes in: a bad one is refused with its field and reason, its neighbours
go on. The data of other kinds is not checked; a field of another type counts as missing. In these, `toolName` and `tool_name`,
`callId` and `call_id` are the same, and so on; `message` and `model_call` have one spelling.
"""

_FORMS_HEAD = """\
## Three forms of a branch

Rows say how their messages are known (`fidelity`). The form follows from the events of the branch, never from the word of its sender.
"""


class BranchForm(NamedTuple):
    """A form of a branch."""

    name: str
    about: str
    task: str
    """The task of the example."""
    events: tuple[dict[str, Any], ...]
    """The events of the example: a kind, and its data."""

    def lines(self) -> str:
        """The example as lines of a complete rollout."""
        place = {"rollout_id": self.name, "branch_index": 0}
        opened = {"type": "rollout", "rollout_id": self.name, "task": self.task, "branches": 1, "required": ["build"]}
        ended = {"type": "end", **place, "status": "answered"}
        build = {"type": "build", **place, "status": "success", "exit_code": 0}
        events = [{"type": "event", **place, "event": event} for event in self.events]
        return "".join(orjson.dumps(line).decode() + "\n" for line in (opened, *events, ended, build))


def _event(kind: str, **data: Any) -> dict[str, Any]:
    return {"event": kind, "data": data}


_EXACT = """\
It has `model_call` events. Every call names the messages that were sent and the one that came back, so rows hold what the model saw
and said, and nothing else: not even the rollout's task, unless a message says it. Sub-agents, compactions and side calls become rows
of their own. Agents that make their own requests should write this form."""

_TRANSCRIPT = """\
It has no calls, but the conversation in its order: `user_message`, `assistant_message`, `reasoning`, `tool_call`, `tool_result` and
`final_answer`, or `message` alone. Each turn is taken to have seen everything before it. Readers of files write this form."""

_RECONSTRUCTED = """\
It has the steps of an agent alone: `run_start`, `thinking_delta`, `tool_call`, `tool_result`, `final_answer`. Rows are put together
from the task, the turns and their results; outputs are summaries unless the branch says `observed: raw`. Such a row may differ from
the request that was sent."""

FORMS: Final = (
    BranchForm(
        "exact", _EXACT, "Capitals",
        (
            _event("message", id="u1", role="user", content="Capital of France?"),
            _event("message", id="a1", role="assistant", content="Paris."),
            _event("model_call", call_id="c1", context={"add": ["u1"]}, response="a1", model="m"),
            _event("message", id="u2", role="user", content="And of Italy?"),
            _event("message", id="a2", role="assistant", content="Rome."),
            _event("model_call", call_id="c2", context={"after": "c1", "keep": 2, "add": ["u2"]}, response="a2", model="m"),
        ),
    ),
    BranchForm(
        "transcript", _TRANSCRIPT, "Capital of France?",
        (
            _event("run_start", task="Capital of France?", agentConfig={"model": "m"}),
            _event("assistant_message", text="Paris.", step=0),
            _event("user_message", text="And of Italy?", step=1),
            _event("final_answer", answer="Rome."),
        ),
    ),
    BranchForm(
        "reconstructed", _RECONSTRUCTED, "Count the tests",
        (
            _event("run_start", task="Count the tests", agentConfig={"model": "m"}),
            _event("tool_call", toolName="read_file", args={"path": "tests.txt"}, callId="c1", stepIndex=0),
            _event("tool_result", callId="c1", output="test_a test_b"),
            _event("final_answer", answer="Two."),
        ),
    ),
)  # fmt: skip


def event_page() -> str:
    """The page, in Markdown."""
    forms = [f"### {form.name}\n\n{form.about}\n\n```ndjson\n{form.lines()}```\n" for form in FORMS]
    return "\n".join((_HEAD, _FORMS_HEAD, *forms, "## Kinds\n", _overview(), *map(_section, KINDS)))


def _overview() -> str:
    channels: dict[str, list[str]] = {}
    for kind in KINDS:
        channels.setdefault(kind.channel, []).append(f"`{kind.name}`")
    rows = [f"| {channel} | {', '.join(names)} |" for channel, names in channels.items()]
    return "\n".join(("| channel | kinds |", "|---|---|", *rows, ""))


def _section(kind: EventKind) -> str:
    rows = [
        f"| `{field.name}` | {field.type} | {'yes' if field.required else ''} | {field.about} |"
        for field in kind.fields
    ]
    table = ["| field of data | type | required | |", "|---|---|---|---|", *rows, ""]
    example = orjson.dumps(kind.event()).decode()
    return "\n".join((f"### {kind.name}\n", f"{kind.about} Channel `{kind.channel}`.\n", *table, f"    {example}\n"))
