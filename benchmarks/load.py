"""A load for the live benchmarks: small rollouts of four branches, their events packed into slices of a given size."""

from collections.abc import Iterator

from agents.rollouts.rollout import Fact
from schemas.events import AgentEvent, AgentEvents
from schemas.jsontext import compact
from schemas.lifecycle import Lifecycle, RolloutOpened
from schemas.verdicts import BuildVerdict

BRANCHES = 4
EVENTS = 128
"""Events of a branch: four turns."""

TURN = 32
"""Events of a turn: text token by token, one call with its result, usage and actions.

In the real logs of ../shared/conformance 96 % of all events are single tokens of 25 bytes; here 81 % are.
"""

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


def branch_events(branch: int) -> list[AgentEvent]:
    """Turn after turn, then the answer."""
    events: list[tuple[str, str, dict[str, object]]] = []
    for step in range(EVENTS // TURN):
        call = {"toolName": "run", "args": {"command": f"pytest -q tests/test_{step}.py"}, "callId": f"c{step}"}
        output = f"....F..... [100%]\nFAILED tests/test_{step}.py::test_it - assert {branch} == 2\n1 failed, 9 passed\n"
        usage = {"modelId": "m", "step": step, "inputTokens": 900 * step, "outputTokens": 80 * step}
        events += [
            ("thinking", "step_start", {"step": step}),
            *(
                ("thinking", "thinking_delta", {"delta": f" {_TOKENS[at % len(_TOKENS)]}", "step": step})
                for at in range(TURN - 6)
            ),
            ("model", "model_done", usage),
            ("action", "action_proposed", {"actionId": f"c{step}", "type": "run"}),
            ("tool", "tool_call", call | {"stepIndex": step}),
            ("tool", "tool_result", {"callId": f"c{step}", "output": output * 4}),
            ("action", "action_completed", {"actionId": f"c{step}", "durationMs": 40, "success": False}),
        ]
    events[-1] = ("text", "final_answer", {"answer": f"Branch {branch} is done: all tests pass now."})
    return [
        AgentEvent(
            trace_id="bench", channel=channel, event=kind, data=compact(data), timestamp_ms=1_768_000_000_000 + at
        )
        for at, (channel, kind, data) in enumerate(events)
    ]


def rollout_facts(rollout_id: str, slice_size: int) -> Iterator[Fact]:
    """One rollout, branches interleaved, verdicts last."""
    yield Lifecycle(opened=RolloutOpened(rollout_id=rollout_id, task="bench", branches=BRANCHES, required=("build",)))
    events = [branch_events(branch) for branch in range(BRANCHES)]
    for at in range(0, EVENTS, slice_size):
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
