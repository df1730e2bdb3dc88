"""tau2-bench: a run's results with their simulations, in the same file or in the folder `simulations/`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from agents.importers.line_error import LineError
from agents.importers.traces.chat import tell
from agents.importers.traces.episode_reader import base_name, guarded, is_json, members
from agents.importers.traces.fields import (
    an_array,
    an_object,
    array_in,
    as_text,
    millis,
    number_in,
    object_in,
    rest_of,
    text_in,
    whole_in,
)
from agents.importers.traces.format import Bad, Episode, FileUse, Format, Head, Item, Options, Part, Reading
from agents.importers.traces.pairing import Pairing
from agents.importers.traces.transcript_writer import TranscriptWriter, read_arguments
from agents.importers.traces.usage import Usage, read_usage
from agents.importers.traces.verdicts import scored

NAME = "tau2"
ANSWERED = ("user_stop", "agent_stop")
FAILED = ("max_steps", "timeout", "too_many_errors", "agent_error", "context_window_exceeded")
"""Termination reasons that the agent itself causes.

All others come from the harness, the simulated user or a provider.
"""

_FOLDER = "simulations/"


def recognise(names: Sequence[str], head: Head) -> bool:
    """Recognise an object with `tasks` and with `info` about agent and simulated user, or its simulations in a
    folder.
    """
    return any(is_json(name) and _is_results(members(head(name))) for name in names)


def _is_results(found: Mapping[str, bytes]) -> bool:
    info = found.get("info", b"")
    known = b'"num_trials"' in info and (b'"user_info"' in info or b'"agent_info"' in info)
    return known or ({"info", "tasks", "simulations"} <= found.keys() and b'"task_id"' in found["simulations"])


def plan(names: Sequence[str], head: Head) -> list[Part]:
    """Plan each results file with its simulations.

    Without a results file, plan the files with simulations themselves.
    """
    files = [name for name in names if is_json(name)]
    inside = [name for name in files if name.startswith(_FOLDER) or f"/{_FOLDER}" in name]
    results = [name for name in files if name not in inside and _is_results(members(head(name)))]
    if not results:
        return [Part(base_name(name), (FileUse(name, streamed=("simulations",)),)) for name in files]
    parts = []
    for name in results:
        folder = name.rpartition("/")[0]
        beside = f"{folder}/{_FOLDER}" if folder else _FOLDER
        uses = [FileUse(each) for each in inside if each.startswith(beside)]
        named = folder.rsplit("/", 1)[-1] if base_name(name) == "results" else base_name(name)
        parts.append(Part(named, (FileUse(name, streamed=("simulations",)), *uses)))
    return parts


class _Run(NamedTuple):
    """The results file without its simulations."""

    info: dict[str, Any]
    tasks: dict[str, dict[str, Any]]
    rest: dict[str, Any]


def read(items: Iterable[Item], options: Options) -> Reading:
    """Read the episodes of one run."""
    run = _Run({}, {}, {})
    for item in items:
        value = item.value
        if not item.position and isinstance(value, dict) and "termination_reason" not in value:
            tasks = [task for task in array_in(value, "tasks") if isinstance(task, dict)]
            by_id = {as_text(task.get("id")): task for task in tasks}
            run = _Run(object_in(value, "info"), by_id, rest_of(value, "tasks", "simulations", "simulation_index"))
        else:
            yield from guarded(item, _read(item, run, options))
            run = run._replace(rest={})  # only in the first simulation


def _read(item: Item, run: _Run, options: Options) -> Iterator[Episode | Bad]:
    simulation = an_object(item.value, "")
    if "task_id" not in simulation:
        raise LineError("task_id", "missing")
    said = simulation.get("messages")
    if simulation.get("ticks") or simulation.get("mode") == "full_duplex" or _has_audio(said):
        raise LineError("ticks", "a voice run: only text runs are read")
    reason = text_in(simulation, "termination_reason")
    status = "answered" if reason in ANSWERED else "failed" if reason in FAILED else "infra_error"
    messages = _flat(an_array([] if said is None else said, "messages"))
    chat = tell(messages, item, _error, _usage, aside=_UserTools())
    task = run.tasks.get(as_text(simulation["task_id"]), {})
    text = _instructions(task)
    yield Episode(
        file=item.file, position=item.position, run=item.run, task_key=simulation["task_id"], trial=simulation.get("trial"),
        branches=_branches(run.info), task=text, task_shown=text is None,
        source=rest_of(simulation, "task_id", "trial", "messages", "ticks", "id", "seed")
        | ({"task": rest_of(task, "user_scenario")} if task else {}) | ({"run": run.rest} if run.rest else {}),
        record=simulation, info=_about(simulation, run.info), system=chat.system,
        events=chat.writer.finish(answers=status == "answered"), unreadable=chat.unreadable, status=status,
        verdicts=() if status == "infra_error" else _verdicts(object_in(simulation, "reward_info"), options),
        error=None if status == "answered" else reason or "no termination_reason",
    )  # fmt: skip


def _has_audio(messages: Any) -> bool:
    return isinstance(messages, list) and any(
        isinstance(each, dict) and each.get("is_audio") is True for each in messages
    )


def _flat(messages: Sequence[Any]) -> list[Any]:
    """Return the messages and split bundles of tool messages. A tool message has its call's id in `id`."""
    made: list[Any] = []
    for message in messages:
        if not isinstance(message, dict) or message.get("role") != "tool":
            made.append(message)
            continue
        bundled = message.get("tool_messages")
        made.extend(
            {**each, "tool_call_id": each.get("id")} if isinstance(each, dict) else each
            for each in (bundled if isinstance(bundled, list) else [message])
        )
    return made


class _UserTools:
    """Writes tool calls of the simulated user, which the model did not see.

    The user's call ids may equal the agent's.
    """

    def __init__(self) -> None:
        self._pairing = Pairing()
        self._turns = 0

    def __call__(self, writer: TranscriptWriter, message: Mapping[str, Any]) -> bool:
        time, role = millis(message.get("timestamp")), message.get("role")
        if role == "tool" and message.get("requestor") == "user":
            self._result(writer, message, time)
            return True
        dropped = object_in(message, "context_truncation")
        if role == "assistant" and dropped:
            counts = {
                "kept": whole_in(dropped, "messages_kept") or 0,
                "dropped": whole_in(dropped, "messages_dropped") or 0,
            }
            writer.note("context_rewritten", counts, time)
        calls = message.get("tool_calls")
        if role != "user" or not isinstance(calls, list) or not calls:
            return False
        self._calls(writer, message, calls, time)
        return True

    def _calls(self, writer: TranscriptWriter, message: Mapping[str, Any], calls: list[Any], time: int | None) -> None:
        """Write the calls of a message.

        It goes to the environment, not to the agent; its text stays with the first call.
        """
        rest = rest_of(message, "role", "tool_calls", "timestamp")
        self._turns += 1
        for call in calls:
            called = call if isinstance(call, dict) else {}
            name = text_in(called, "name") or "unknown"
            data = {
                "toolName": name, **read_arguments(called.get("arguments")),
                "callId": self._pairing.call(text_in(called, "id"), name, self._turns), "batchSize": len(calls),
            }  # fmt: skip
            writer.note("user_tool_call", data | ({"source": rest} if rest else {}), time, "user")
            rest = {}

    def _result(self, writer: TranscriptWriter, message: Mapping[str, Any], time: int | None) -> None:
        call_id, name = self._pairing.result(text_in(message, "id"), None)
        data = {"callId": call_id, "toolName": name, "output": message.get("content"), "error": _error(message, None)}
        rest = rest_of(message, "role", "id", "tool_call_id", "content", "error", "requestor", "timestamp")
        known = {key: value for key, value in data.items() if value is not None}
        writer.note("user_tool_result", known | ({"source": rest} if rest else {}), time, "user")


def _error(message: Mapping[str, Any], _output: Any) -> dict[str, str] | None:
    return {"message": as_text(message.get("content") or "")} if message.get("error") is True else None


def _usage(message: Mapping[str, Any]) -> Usage:
    return read_usage(message.get("usage"))._replace(usd=number_in(message, "cost"))


def _instructions(task: Mapping[str, Any]) -> str | None:
    """Return the instructions of the simulated user, which the model never saw."""
    found = object_in(task, "user_scenario").get("instructions")
    return as_text(found) if found else text_in(task, "ticket")


def _branches(info: Mapping[str, Any]) -> int | None:
    count = whole_in(info, "num_trials")
    return count if count is not None and 1 <= count <= 100_000 else None


def _about(simulation: Mapping[str, Any], info: Mapping[str, Any]) -> dict[str, Any]:
    agent = object_in(info, "agent_info")
    seed = whole_in(simulation, "seed")
    return {
        "session_id": text_in(simulation, "id"), "seed": seed if seed is None or seed < 2**63 else None,
        "temperature": number_in(object_in(agent, "llm_args"), "temperature"),
        "agent": {"name": text_in(agent, "implementation"), "model": text_in(agent, "llm")} if agent else None,
    }  # fmt: skip


def _verdicts(reward: Mapping[str, Any], options: Options) -> list[dict[str, Any]]:
    parts = object_in(reward, "reward_breakdown")
    hint = ", ".join(f"{name} {as_text(value)}" for name, value in sorted(parts.items()))
    return scored(NAME, "reward", reward.get("reward"), options, hint=hint or None)


FORMAT = Format(
    name=NAME,
    about="results of tau2-bench: {info, tasks, simulations}, or results.json beside simulations/*.json",
    rollout="task_id / trial",
    verdict="check reward, pass at 1",
    unknown="the agent's whole system prompt (its policy is kept); voice runs are not read",
    recognise=recognise,
    plan=plan,
    read=read,
)
