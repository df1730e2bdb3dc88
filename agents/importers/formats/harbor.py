"""Harbor: the folder of a job, which has a folder with result.json and agent/trajectory.json for each trial."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agents.importers.formats.atif import families, info_of, is_piece, tools_of
from agents.importers.line_error import LineError
from agents.importers.traces.episode_reader import per_part, says
from agents.importers.traces.fields import an_object, array_in, object_in, rest_of, text_in
from agents.importers.traces.format import Bad, Episode, FileUse, Format, Head, Item, Options, Part
from agents.importers.traces.synthetic import end_of_error
from agents.importers.traces.trajectory import Trajectory
from agents.importers.traces.usage import Usage, read_usage
from agents.importers.traces.verdicts import rewarded

OWN_LIMITS = (
    "AgentTimeoutError", "ContextWindowExceededError", "ContextLengthExceededError", "OutputTokenExceededError",
    "OutputLengthExceededError",
)  # fmt: skip
"""Exceptions that count as the agent's own failure: it ran out of time, context or output tokens.

It is not responsible for others.
"""

STOPPED = ("CancelledError", "KeyboardInterrupt")

_RESULT = "result.json"


def _is_trial(name: str, head: Head) -> bool:
    """Return whether a file is a trial's result. The job has a result.json, too."""
    return name.rpartition("/")[2] == _RESULT and says(head(name), b"task_name", b"trial_name")


def recognise(names: Sequence[str], head: Head) -> bool:
    """Recognise result.json of trials, with task_name and trial_name."""
    return any(_is_trial(name, head) for name in names)


def plan(names: Sequence[str], head: Head) -> list[Part]:
    """Plan a part for each trial: its result, then its trajectories."""
    parts = []
    for name in names:
        if _is_trial(name, head) or len(names) == 1:
            folder = name.removesuffix(_RESULT)
            logs = [each for each in names if each.startswith(folder) and _is_log(each.removeprefix(folder))]
            parts.append(Part(folder.rstrip("/"), (FileUse(name), *map(FileUse, _in_order(logs)))))
    return parts


def _is_log(name: str) -> bool:
    """Return whether a file of a trial is a trajectory of its agent or of one of its steps."""
    folder, _, last = name.rpartition("/")
    is_agent = folder == "agent" or (folder.startswith("steps/") and folder.endswith("/agent"))
    return is_agent and (last == "trajectory.json" or is_piece(name))


def _in_order(names: Sequence[str]) -> list[str]:
    return [name for files in families(names).values() for name in files]


def _read(items: Sequence[Item], options: Options) -> Iterator[Episode | Bad]:
    result = an_object(items[0].value, "")
    if text_in(result, "task_name") is None:
        raise LineError("task_name", "missing")
    logs: dict[str, dict[str, Item]] = {}
    for item in items[1:]:
        folder, _, last = item.file.rpartition("/agent/")
        logs.setdefault(folder.rpartition("steps/")[2] if "steps/" in folder else "", {})[last] = item
    steps = [step for step in array_in(result, "step_results") if isinstance(step, dict)]
    if not steps:
        yield from _episode(items[0], result, result, None, logs.get("", {}), options)
    for step in steps:
        name = text_in(step, "step_name") or ""
        yield from _episode(items[0], result, step, name, logs.get(name, {}), options)


def _episode(
    item: Item,
    result: Mapping[str, Any],
    step: Mapping[str, Any],
    name: str | None,
    logs: Mapping[str, Item],
    options: Options,
) -> Iterator[Episode | Bad]:
    """Build the branch of a trial or of one of its steps."""
    exception = object_in(step, "exception_info") or object_in(result, "exception_info")
    status, error = _end(exception)
    log = logs.get("trajectory.json")
    if log is None:
        log = Item(item.file, item.position, {"steps": []}, item.run)
    told = Trajectory(log, {file: each.value for file, each in logs.items()})
    told.tell(_spent(object_in(step, "agent_result")))
    if status == "answered" and told.error is not None:  # the provider failed, and no exception was raised
        status, error = end_of_error(told.error), told.error
    events = told.writer.finish(answers=status == "answered")
    subagents = told.subagents(events)
    if not subagents:
        events = told.exact.beside(events)
    task, trial = result["task_name"], text_in(result, "trial_name") or item.run
    info = info_of(told)
    yield Episode(
        file=item.file, position=item.position, run=_job(result), task_key=task if name is None else [task, name], trial=trial,
        version=text_in(told.value, "schema_version"), events=events, subagents=subagents,
        source={"result": rest_of(result, "task_name")} | ({"trajectory": left} if (left := rest_of(told.value, "steps")) else {}),
        record=result, system=told.system, tools=tools_of(told), info={**info, "agent": _agent(result, info["agent"])},
        verdicts=() if status in ("infra_error", "aborted") else _verdicts(step, options),
        status=status, error=error, unreadable=told.unreadable,
    )  # fmt: skip


def _job(result: Mapping[str, Any]) -> str:
    """Return the job of a trial: its id or the name of its folder."""
    config = object_in(result, "config")
    folder = (text_in(result, "trial_uri") or "").rstrip("/").rpartition("/")[0]
    return text_in(config, "job_id") or folder.rpartition("/")[2] or text_in(config, "trials_dir") or "job"


def _end(exception: Mapping[str, Any]) -> tuple[str, str | None]:
    if not exception:
        return "answered", None
    kind = text_in(exception, "exception_type") or "exception"
    words = f"{kind}: {text_in(exception, 'exception_message') or ''}".rstrip(": ")
    return "failed" if kind in OWN_LIMITS else "aborted" if kind in STOPPED else "infra_error", words


def _verdicts(step: Mapping[str, Any], options: Options) -> list[dict[str, Any]]:
    """Return a check for each reward: 1 passes, 0 fails, any other value is unknown."""
    rewards = object_in(step, "verifier_result", "rewards")
    return [each for name, value in rewards.items() for each in rewarded("harbor", name, value, options)]


def _agent(result: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    info = object_in(result, "agent_info")
    said = {
        "name": text_in(info, "name"),
        "version": text_in(info, "version"),
        "model": text_in(object_in(info, "model_info"), "name"),
    }
    return {name: found.get(name) or value for name, value in said.items()}


def _spent(context: Mapping[str, Any]) -> Usage:
    names = {
        "n_input_tokens": "prompt_tokens",
        "n_output_tokens": "completion_tokens",
        "n_cache_tokens": "cached_tokens",
    }
    return read_usage({names.get(name, name): value for name, value in context.items()})


FORMAT = Format(
    name="harbor",
    about="jobs of Harbor: */result.json of the trials, agent/trajectory.json (ATIF) beside",
    rollout="task_name / trial; of trials with several steps, each step",
    verdict="check for each reward: 1 passes, 0 fails",
    unknown="what agents without a trajectory did; which results are errors, unless the agent's converter marks them",
    recognise=recognise,
    plan=plan,
    read=per_part(_read),
)
