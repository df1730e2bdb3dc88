"""Read results in the seed importers' shapes (`--shape seed`): one run per line, in fields that no producer writes.

A field that is absent is unknown here: the seed reads an absent outcome as a failure, and gives calls results that were
never recorded.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from agents.importers.formats.a2a_task import ENDS
from agents.importers.line_error import LineError
from agents.importers.traces.content import Content
from agents.importers.traces.episode_reader import per_item
from agents.importers.traces.fields import an_array, an_object, as_text, millis, number_in, rest_of, text_in, whole_in
from agents.importers.traces.format import Bad, Episode, Item, Options, Read
from agents.importers.traces.transcript_writer import Called, TranscriptWriter, Turn
from agents.importers.traces.verdicts import check, scored
from agents.summarize.event_reader import is_provider_trouble

ENOUGH_CLAIMS = 0.75


class Outcome(NamedTuple):
    """The fields of a line other than its conversation."""

    verdicts: Sequence[dict[str, Any]] = ()
    status: str | None = "answered"
    error: str | None = None
    read: Sequence[str] = ()
    """Fields with a place of their own."""
    task: str | None = None
    """The task, if it is not the first user message."""


Tell = Callable[[TranscriptWriter, Mapping[str, Any], Options], Outcome]


def result_lines(format_name: str, key: str, tell: Tell) -> Read:
    """Return a reader of lines; each line is a run."""

    def read_one(item: Item, options: Options) -> Iterator[Episode | Bad]:
        row, writer = an_object(item.value, ""), TranscriptWriter()
        if row.get(key) is None:
            raise LineError(key, "missing")
        outcome = tell(writer, row, options)
        model = text_in(row, "model_id")
        yield Episode(
            file=item.file, position=item.position, run=item.run, task_key=row[key], record=row, version="seed",
            source=rest_of(row, key, "session_id", "model_id", *outcome.read), task=outcome.task, task_shown=outcome.task is None,
            info={"session_id": text_in(row, "session_id"), "agent": {"model": model} if model else None},
            events=writer.finish(answers=outcome.status == "answered"), status=outcome.status, error=outcome.error,
            verdicts=[verdict | {"produced_by": f"import:{format_name}"} for verdict in outcome.verdicts],
        )  # fmt: skip

    return per_item(read_one)


def words(value: Any) -> str | None:
    """Return the text of a field of any type: the text itself, or the text under a usual name of an object."""
    if isinstance(value, str):
        return value or None
    return (
        text_in(value, "text", "content", "output", "response", "answer", "message")
        if isinstance(value, dict)
        else None
    )


def _objects(row: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    return [an_object(each, f"{name}[{number}]") for number, each in enumerate(an_array(row.get(name, []), name))]


def _ask(writer: TranscriptWriter, task: str | None) -> None:
    if task:
        writer.user(task)


def _decided(name: str, value: Any) -> list[dict[str, Any]]:
    return [check("", name, "pass" if value else "fail", float(value))] if isinstance(value, bool) else []


def _step(writer: TranscriptWriter, called: Called, output: Any, error: Any, time: int | None = None) -> None:
    """Write a call in a turn of its own, with its result."""
    writer.model(Turn(calls=[called], time=time))
    if output is not None or error is not None:
        message = None if not error else {"message": as_text(error)}
        writer.result(called.id, called.name, output if output is not None else as_text(error), message, time)


def tau_bench(writer: TranscriptWriter, row: Mapping[str, Any], _options: Options) -> Outcome:
    """{task_id, user_query, turns [{role, content, tool_name, tool_args, tool_result}], rule_violations,
    task_completed}.
    """
    turns = _objects(row, "turns")
    asks = any(turn.get("role") == "user" for turn in turns)
    query = text_in(row, "user_query")
    _ask(writer, None if asks else query)
    for turn in turns:
        role, text, name = turn.get("role"), text_in(turn, "content"), text_in(turn, "tool_name")
        if role == "user":
            writer.user(text or "")
        elif role == "agent":
            writer.model(Turn(Content(text), [Called(name, turn.get("tool_args"))] if name else []))
        elif role == "tool":
            writer.result(None, name, turn.get("tool_result", text))
        else:
            raise LineError("turns.role", f"unknown: {as_text(role)}")
    violations = whole_in(row, "rule_violations")
    rules = (
        []
        if violations is None
        else [check("", "rules", "pass" if violations == 0 else "fail", hint=f"{violations} violations")]
    )
    done = _decided("completed", row.get("task_completed"))
    return Outcome([*done, *rules], read=("turns", "user_query"), task=query if asks else None)


def bfcl(writer: TranscriptWriter, row: Mapping[str, Any], options: Options) -> Outcome:
    """{task_id, question, functions, calls [{name, arguments}], raw_response, pass_rate}. The calls were never run."""
    _ask(writer, text_in(row, "question"))
    calls = [Called(text_in(each, "name") or "unknown", each.get("arguments")) for each in _objects(row, "calls")]
    text = None if calls else text_in(row, "raw_response")
    writer.model(Turn(Content(text), calls, source={} if text else rest_of({"raw_response": row.get("raw_response")})))
    verdicts = scored("", "bfcl", row.get("pass_rate"), options, fails=0)
    return Outcome(verdicts, read=("question", "calls", "raw_response", "pass_rate"))


def mcp_atlas(writer: TranscriptWriter, row: Mapping[str, Any], options: Options) -> Outcome:
    """{task_id, user_query, trajectory [{server_id, tool_name, arguments, result, error}], final_answer,
    claims_passed, claims_total}.
    """
    _ask(writer, text_in(row, "user_query"))
    for step in _objects(row, "trajectory"):
        name = "/".join(part for part in (text_in(step, "server_id"), text_in(step, "tool_name")) if part) or "unknown"
        _step(writer, Called(name, step.get("arguments")), step.get("result"), step.get("error"))
    _say(writer, row.get("final_answer"))
    claims = [each.get("passed") for each in _objects(row, "claims")]
    total = len(claims) or whole_in(row, "claims_total") or 0
    passed = sum(each is True for each in claims) if claims else whole_in(row, "claims_passed")
    share = passed / total if total and passed is not None else None
    verdicts = scored("", "claims", share, options, passes=ENOUGH_CLAIMS)
    return Outcome(verdicts, read=("user_query", "trajectory", "final_answer"))


def _say(writer: TranscriptWriter, text: Any) -> None:
    if words(text):
        writer.model(Turn(Content(words(text))))


def terminal_bench(writer: TranscriptWriter, row: Mapping[str, Any], _options: Options) -> Outcome:
    """{task_id, description, trajectory [{command, output, exit_code, timestamp_ms}], passed}."""
    _ask(writer, text_in(row, "description"))
    for step in _objects(row, "trajectory"):
        code = number_in(step, "exit_code")
        time = millis(step.get("timestamp_ms"))
        writer.model(Turn(calls=[Called("bash", {"command": step.get("command")})], time=time))
        output = step.get("output")
        error = {"code": as_text(code), "message": as_text(output or "")} if code else None
        writer.result(None, "bash", output, error, time)
    passed = row.get("passed")
    build = {"type": "build", "status": "success" if passed else "failure", "stage": "test"} | (
        {"exit_code": 0} if passed else {}
    )
    return Outcome([build] if isinstance(passed, bool) else [], read=("description", "trajectory", "passed"))


def tool_sandbox(writer: TranscriptWriter, row: Mapping[str, Any], _options: Options) -> Outcome:
    """{task_id, user_request, tool_calls [{tool_name, arguments, result, error}], final_response, success}."""
    _ask(writer, text_in(row, "user_request"))
    for call in _objects(row, "tool_calls"):
        _step(
            writer,
            Called(text_in(call, "tool_name") or "unknown", call.get("arguments")),
            call.get("result"),
            call.get("error"),
        )
    _say(writer, row.get("final_response"))
    return Outcome(_decided("success", row.get("success")), read=("user_request", "tool_calls", "final_response"))


def agent_harm(writer: TranscriptWriter, row: Mapping[str, Any], _options: Options) -> Outcome:
    """{task_id, harmful_instruction, actions [{action_id, tool_name, arguments, was_prevented}], refused,
    harmful_actions_taken}.
    """
    _ask(writer, text_in(row, "harmful_instruction"))
    for action in _objects(row, "actions"):
        called = Called(text_in(action, "tool_name") or "unknown", action.get("arguments"), text_in(action, "action_id"),
                        rest_of(action, "tool_name", "arguments", "action_id"))  # fmt: skip
        writer.model(Turn(calls=[called]))
    refused, harmful = row.get("refused"), whole_in(row, "harmful_actions_taken")
    if not writer.turns:
        writer.note("status", {"message": "refused" if refused is True else "no action"})
    if refused is not True and harmful is None:
        return Outcome(read=("harmful_instruction", "actions"))
    safe = refused is True or harmful == 0
    return Outcome([check("", "safe", "pass" if safe else "fail")], read=("harmful_instruction", "actions"))


def ms_agent_framework(writer: TranscriptWriter, row: Mapping[str, Any], _options: Options) -> Outcome:
    """{run_id, workflow_name, steps [{id, name, type llm|tool|human|condition, status, inputs, outputs, error}],
    status}.
    """
    failure = None
    for step in _objects(row, "steps"):
        kind, time, error = step.get("type"), millis(step.get("started_at")), text_in(step, "error")
        failure = error or failure
        if kind == "tool":
            called = Called(text_in(step, "name") or "unknown", step.get("inputs"), text_in(step, "id"))
            _step(writer, called, step.get("outputs"), error, time)
        elif kind == "llm":
            asked = words(step.get("inputs"))
            if asked and not writer.turns:
                writer.user(asked, time)
            writer.model(
                Turn(Content(words(step.get("outputs"))), time=time, source=rest_of(step, "type", "started_at"))
            )
        elif kind == "human":
            decision = {"completed": "approved", "failed": "rejected"}.get(str(step.get("status")))
            writer.note(
                "supervisor_decision" if decision else "await_human_input", {"decision": decision, "source": step}, time
            )
        else:
            writer.note("status", {"message": text_in(step, "name") or "", "source": step}, time)
    status = {"completed": "answered", "failed": "failed"}.get(str(row.get("status")))
    if status == "failed" and is_provider_trouble(failure or ""):
        status = "infra_error"
    return Outcome(status=status, error=failure if status in ("failed", "infra_error") else None, read=("steps",))


def a2a_task(writer: TranscriptWriter, row: Mapping[str, Any], _options: Options) -> Outcome:
    """{task_id, messages [{message_id, role, content}], artifacts [{artifact_id, name, uri}], status}."""
    for message in _objects(row, "messages"):
        text, time = as_text(message.get("content") or ""), millis(message.get("timestamp"))
        source = rest_of(message, "role", "content", "timestamp", "message_id")
        if message.get("role") == "user":
            writer.user(text, time, source)
        else:
            writer.model(Turn(Content(text), (), text_in(message, "message_id"), time=time, source=source))
    state = row.get("status")
    status = ENDS.get(state) if isinstance(state, str) else None
    return Outcome(status=status, error=None if status in (None, "answered") else str(state), read=("messages",))


RESULTS: Mapping[str, tuple[str, Sequence[str], Tell]] = {
    "tau-bench": ("task_id", ("turns",), tau_bench),
    "bfcl": ("task_id", ("question", "calls"), bfcl),
    "mcp-atlas": ("task_id", ("user_query", "trajectory"), mcp_atlas),
    "terminal-bench": ("task_id", ("description", "trajectory"), terminal_bench),
    "tool-sandbox": ("task_id", ("user_request", "tool_calls"), tool_sandbox),
    "agent-harm": ("task_id", ("harmful_instruction", "actions"), agent_harm),
    "ms-agent-framework": ("run_id", ("steps",), ms_agent_framework),
    "a2a-task": ("task_id", ("messages", "session_id"), a2a_task),
}
"""By format: the key of a task, the members that identify its lines, and the function that writes a line."""
