"""Read rollout-wire/v1: a whole branch in one record. Input from other systems is read tolerantly.

`braid export` writes this format. The objective status is the explicit one, else that of the build result, else that of
the score. It becomes a BuildVerdict with `produced_by: import`. An explicit `unknown` stays unknown.
"""

from collections.abc import Sequence
from math import isfinite
from typing import Any, Final, get_args

from agents.facts.fact import Fact
from agents.importers.line_error import LineError
from agents.importers.loose_events import event_of, new_fields, read_fields
from agents.importers.records import BUILD_STATUS, VerdictIds, is_id, is_index, make, read_build
from schemas.codec.maker import unchecked
from schemas.events import AgentEvent, AgentEvents, AgentInfo, BranchInfo, EndStatus, EventFields
from schemas.jsontext import compact, kind_of
from schemas.verdicts import BuildVerdict

_agent_events: Final = unchecked(AgentEvents)
_branch_info: Final = unchecked(BranchInfo)
_agent_info: Final = unchecked(AgentInfo)

END_STATUSES: Final = frozenset(get_args(EndStatus))

_MARKS = ("tool_call_sequence", "final_answer", "build_result", "objective_score", "objective_status", "session_id")


def is_wire(value: dict[str, Any]) -> bool:
    """Return whether an object without a type is a rollout-wire record, judged by its fields."""
    return "rollout_id" in value and "branch_index" in value and any(name in value for name in _MARKS)


def read_wire(value: dict[str, Any], ids: VerdictIds, *, for_fold: bool = False) -> list[Fact]:
    """Return the facts of a rollout-wire record: its events, its end, and its verdict. Raises LineError.

    With `for_fold`, events are EventFields, like those of a slice that the fold reads from the log.
    """
    attempt = value.get("attempt", 0)
    events = _events(value)
    answer = value.get("final_answer")
    if answer is not None:
        if not isinstance(answer, str):
            raise LineError("final_answer", f"expected a string, found {kind_of(answer)}")
        events.append(_made("text", "final_answer", {"answer": answer}))
    status = value.get("status")
    if status is None:
        status = "answered" if answer is not None else "failed"
    info = _info(value)
    piece = _slice(value, attempt, events if for_fold else [*map(event_of, events)], status, info)
    verdict = _verdict(value, attempt, ids)
    return [piece] if verdict is None else [piece, verdict]


def _slice(
    value: dict[str, Any], attempt: Any, events: Sequence[AgentEvent | EventFields], status: Any, info: BranchInfo
) -> AgentEvents:
    """Return the slice of a record. The model only explains the errors of a bad one. Raises LineError."""
    rollout_id, index = value.get("rollout_id"), value.get("branch_index")
    fields: dict[str, Any] = {
        "rollout_id": rollout_id, "branch_index": index, "attempt": attempt, "first_seq": 0, "events": tuple(events),
        "ended": True, "last_seq": len(events) - 1 if events else None, "status": status, "branch": info,
    }  # fmt: skip
    if is_id(rollout_id) and is_index(index) and is_index(attempt) and type(status) is str and status in END_STATUSES:
        return _agent_events(**fields)
    make(AgentEvents, fields | {"events": ()})
    raise AssertionError("the model takes what the check refuses")


def _info(value: dict[str, Any]) -> BranchInfo:
    """Return the branch of the record. The model is used only for conversions. Raises LineError."""
    temperature, seed = value.get("temperature"), value.get("seed")
    session_id, task, agent = value.get("session_id"), value.get("task"), _agent(value)
    if (
        (temperature is None or (type(temperature) is float and isfinite(temperature)))
        and (seed is None or (type(seed) is int and -(2**63) <= seed < 2**63))
        and (session_id is None or type(session_id) is str)
        and (task is None or type(task) is str)
    ):
        return _branch_info(temperature=temperature, seed=seed, session_id=session_id, task=task, agent=agent)
    return make(
        BranchInfo, {"temperature": temperature, "seed": seed, "session_id": session_id, "task": task, "agent": agent}
    )


def _events(value: dict[str, Any]) -> list[EventFields]:
    sequence = value.get("tool_call_sequence")
    if sequence is None:
        return []
    if not isinstance(sequence, list):
        raise LineError("tool_call_sequence", f"expected an array, found {kind_of(sequence)}")
    events: list[EventFields] = []
    for position, entry in enumerate(sequence):
        if isinstance(entry, dict) and "event" in entry:  # the usual case
            events.append(read_fields(entry, f"tool_call_sequence.{position}"))
        else:
            events += _entry(entry, f"tool_call_sequence.{position}")
    return events


def _made(channel: str, kind: str, data: dict[str, Any]) -> EventFields:
    """Build an event for data that a record holds in another form."""
    return new_fields(("", None, channel, kind, compact(data), None, None))


def _entry(entry: Any, field: str) -> list[EventFields]:
    """Read an event, or a call and its result from one object."""
    if not isinstance(entry, dict) or not ("tool_name" in entry or "name" in entry or "toolName" in entry):
        return [read_fields(entry, field)]
    name = entry.get("tool_name") or entry.get("toolName") or entry.get("name")
    arguments: Any = next((entry[key] for key in ("arguments", "args", "input") if entry.get(key) is not None), {})
    pair = [_made("tool", "tool_call", {"toolName": name, "args": arguments, "callId": field})]
    if any(key in entry for key in ("result", "output", "error")):
        result = {
            "toolName": name,
            "callId": field,
            "output": entry.get("result", entry.get("output")),
            "error": entry.get("error"),
        }
        said = {key: part for key, part in result.items() if part is not None}
        pair.append(_made("tool", "tool_result", said))
    return pair


def _agent(value: dict[str, Any]) -> AgentInfo | None:
    agent = value.get("agent")
    if agent is None:
        model = value.get("model")
        if model is None or type(model) is str:
            return None if model is None else _agent_info(model=model)
        agent = {"model": model}
    return make(AgentInfo, agent if isinstance(agent, dict) else {"name": agent}, "agent.")


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
            said["exit_code"] = 0  # `pass` is an outcome, not a build status: it needs no exit code
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
