"""A load for the live benchmarks: small rollouts of four branches, their events packed into slices of a given size."""

from collections.abc import Iterator
from typing import NamedTuple

from agents.facts.fact import Fact
from schemas.events import AgentEvent, AgentEvents
from schemas.jsontext import compact
from schemas.lifecycle import Lifecycle, RolloutOpened
from schemas.verdicts import BuildVerdict

BRANCHES = 4


class Shape(NamedTuple):
    """The parts of a branch: turns of text token by token, some of them with a call and its result."""

    name: str
    turns: int
    tokens: int
    """Of a turn."""
    calls: int
    """Turns with a tool call."""

    @property
    def events(self) -> int:
        """Of a branch."""
        return 2 + self.turns * (self.tokens + 2) + 4 * self.calls


BUSY = Shape("a call in every turn, 80 % tokens", turns=4, tokens=26, calls=4)
REAL = Shape("as in the real logs, 96 % tokens", turns=2, tokens=68, calls=0)
"""The logs of ../shared/conformance have 142 events a run, 96 % of them single tokens of 25 bytes, and 0.15 calls."""

_TOKENS = [
    "I",
    "will",
    "read",
    "the",
    "file",
    "first",
    ",",
    "then",
    "change",
    "the",
    "function",
    "and",
    "run",
    "all",
    "of",
    "the",
    "tests",
    "again",
    "to",
    "see",
]


def branch_events(branch: int, shape: Shape = BUSY) -> list[AgentEvent]:
    """Turn after turn, then the answer."""
    events: list[tuple[str, str, dict[str, object]]] = [("text", "run_start", {"task": "bench"})]
    for step in range(shape.turns):
        usage = {"modelId": "m", "step": step, "inputTokens": 900 * step, "outputTokens": 80 * step}
        events += [
            ("thinking", "step_start", {"step": step}),
            *(
                ("thinking", "thinking_delta", {"delta": f" {_TOKENS[at % len(_TOKENS)]}", "step": step})
                for at in range(shape.tokens)
            ),
            ("model", "model_done", usage),
        ]
        if step < shape.calls:
            events += _call(branch, step)
    events.append(("text", "final_answer", {"answer": f"Branch {branch} is done: all tests pass now."}))
    return [
        AgentEvent(
            trace_id="bench", channel=channel, event=kind, data=compact(data), timestamp_ms=1_768_000_000_000 + at
        )
        for at, (channel, kind, data) in enumerate(events)
    ]


def _call(branch: int, step: int) -> list[tuple[str, str, dict[str, object]]]:
    command = {"command": f"pytest -q tests/test_{step}.py"}
    output = f"....F..... [100%]\nFAILED tests/test_{step}.py::test_it - assert {branch} == 2\n1 failed, 9 passed\n"
    return [
        ("action", "action_proposed", {"actionId": f"c{step}", "type": "run"}),
        ("tool", "tool_call", {"toolName": "run", "args": command, "callId": f"c{step}", "stepIndex": step}),
        ("tool", "tool_result", {"callId": f"c{step}", "output": output * 4}),
        ("action", "action_completed", {"actionId": f"c{step}", "durationMs": 40, "success": False}),
    ]


def rollout_facts(rollout_id: str, slice_size: int, shape: Shape = BUSY) -> Iterator[Fact]:
    """One rollout, branches interleaved, verdicts last."""
    yield Lifecycle(opened=RolloutOpened(rollout_id=rollout_id, task="bench", branches=BRANCHES, required=("build",)))
    events = [branch_events(branch, shape) for branch in range(BRANCHES)]
    for at in range(0, shape.events, slice_size):
        for branch in range(BRANCHES):
            piece = tuple(events[branch][at : at + slice_size])
            yield AgentEvents(rollout_id=rollout_id, branch_index=branch, first_seq=at, events=piece)
    for branch in range(BRANCHES):
        status, code = (("success", 0), ("failure", 1))[branch % 2]
        yield BuildVerdict.model_validate(
            {
                "rollout_id": rollout_id,
                "branch_index": branch,
                "verdict_id": f"{rollout_id}/{branch}",
                "status": status,
                "exit_code": code,
            }
        )
