"""rollout-wire/v1: a whole branch in one record, as other systems write it. Read tolerantly; written by `braid export`.

The objective status is the explicit one, else what the build result says, else the score; it travels as a BuildVerdict with
`produced_by: import`. An explicit `unknown` stays unknown.
"""

from typing import Any, Final

from agents.facts.fact import Fact
from agents.importers.line_error import LineError
from agents.importers.loose_events import read_event
from agents.importers.records import BUILD_STATUS, VerdictIds, make, read_build
from schemas.codec.maker import unchecked
from schemas.events import AgentEvent, AgentEvents, AgentInfo, BranchInfo
from schemas.jsontext import compact, kind_of
from schemas.verdicts import BuildVerdict

_event: Final = unchecked(AgentEvent)

_MARKS = ("tool_call_sequence", "final_answer", "build_result", "objective_score", "objective_status", "session_id")


def is_wire(value: dict[str, Any]) -> bool:
    """Whether an object without a type is a rollout-wire record: told apart by its fields."""
    return "rollout_id" in value and "branch_index" in value and any(name in value for name in _MARKS)


def read_wire(value: dict[str, Any], ids: VerdictIds) -> list[Fact]:
    """The facts in a rollout-wire record: its events, its end, and its verdict. Raises LineError."""
    index, rollout_id = value.get("branch_index"), value.get("rollout_id")
    attempt = value.get("attempt", 0)
    events = _events(value)
    answer = value.get("final_answer")
    if answer is not None and not isinstance(answer, str):
        raise LineError("final_answer", f"expected a string, found {kind_of(answer)}")
    status = value.get("status")
    if status is None:
        status = "answered" if answer is not None else "failed"
    info = make(
        BranchInfo,
        {
            "temperature": value.get("temperature"),
            "seed": value.get("seed"),
            "session_id": value.get("session_id"),
            "task": value.get("task"),
            "agent": _agent(value),
        },
    )
    piece = make(
        AgentEvents,
        {
            "rollout_id": rollout_id,
            "branch_index": index,
            "attempt": attempt,
            "first_seq": 0,
            "events": events,
            "ended": True,
            "last_seq": len(events) - 1 if events else None,
            "status": status,
            "branch": info,
        },
    )
    verdict = _verdict(value, attempt, ids)
    return [piece] if verdict is None else [piece, verdict]


def _events(value: dict[str, Any]) -> tuple[AgentEvent, ...]:
    sequence = value.get("tool_call_sequence")
    if sequence is None:
        sequence = []
    if not isinstance(sequence, list):
        raise LineError("tool_call_sequence", f"expected an array, found {kind_of(sequence)}")
    events: list[AgentEvent] = []
    for position, entry in enumerate(sequence):
        events += _entry(entry, f"tool_call_sequence.{position}")
    answer = value.get("final_answer")
    if answer is not None:
        events.append(_event(channel="text", event="final_answer", data=compact({"answer": answer})))
    return tuple(events)


def _entry(entry: Any, field: str) -> list[AgentEvent]:
    """An AgentEvent, or a call with its result in one object."""
    if (
        isinstance(entry, dict)
        and "event" not in entry
        and ("tool_name" in entry or "name" in entry or "toolName" in entry)
    ):
        name = entry.get("tool_name") or entry.get("toolName") or entry.get("name")
        arguments: Any = next((entry[key] for key in ("arguments", "args", "input") if entry.get(key) is not None), {})
        call_id = f"{field}"
        pair = [
            _event(
                channel="tool",
                event="tool_call",
                data=compact({"toolName": name, "args": arguments, "callId": call_id}),
            )
        ]
        if any(key in entry for key in ("result", "output", "error")):
            result = {
                "toolName": name,
                "callId": call_id,
                "output": entry.get("result", entry.get("output")),
                "error": entry.get("error"),
            }
            pair.append(
                _event(
                    channel="tool",
                    event="tool_result",
                    data=compact({key: part for key, part in result.items() if part is not None}),
                )
            )
        return pair
    return [read_event(entry, field)]


def _agent(value: dict[str, Any]) -> AgentInfo | None:
    agent = value.get("agent")
    if agent is None and value.get("model") is not None:
        agent = {"model": value["model"]}
    return None if agent is None else make(AgentInfo, agent if isinstance(agent, dict) else {"name": agent}, "agent.")


def _verdict(value: dict[str, Any], attempt: int, ids: VerdictIds) -> BuildVerdict | None:
    common = {
        "rollout_id": value.get("rollout_id"),
        "branch_index": value.get("branch_index"),
        "attempt": attempt,
        "produced_by": "import",
    }
    build = value.get("build_result")
    explicit = value.get("objective_status")
    if explicit is not None:
        if explicit not in ("pass", "fail", "unknown", "not_required"):
            raise LineError("objective_status", "expected pass, fail, unknown or not_required")
        outcome = {"pass": "success", "fail": "failure"}.get(explicit)
    elif isinstance(build, dict) and str(build.get("status", "")).lower() in BUILD_STATUS:
        said = {
            name: build[name]
            for name in ("status", "exit_code", "exitCode", "stage", "stdout", "stderr", "tests", "coverage")
            if build.get(name) is not None
        }
        if str(said["status"]).lower() in ("pass", "passed") and "exit_code" not in said and "exitCode" not in said:
            said["exit_code"] = 0  # `pass` is an outcome, not a build's own word: it needs no exit code
        return read_build(common | said, ids)
    else:
        outcome = _by_score(value.get("objective_score"))
    if outcome is None:
        return None
    return read_build(common | {"status": outcome, "exit_code": 0 if outcome == "success" else 1}, ids)


def _by_score(score: Any) -> str | None:
    if score is None:
        return None
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise LineError("objective_score", f"expected a number, found {kind_of(score)}")
    return {1.0: "success", 0.0: "failure"}.get(float(score))
