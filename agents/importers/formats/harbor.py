"""Harbor: a folder of a job, with a folder for each trial: its result, and the trajectory of its agent."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agents.importers.formats.atif import Trajectory, info_of
from agents.importers.line_error import LineError
from agents.importers.traces.fields import an_object, as_text, number_in, object_in, rest_of, text_in
from agents.importers.traces.format import Bad, Episode, FileUse, Format, Head, Item, Options, Part
from agents.importers.traces.reading import members, per_part
from agents.importers.traces.transcript_writer import TranscriptWriter, Turn
from agents.importers.traces.usage import Usage

RESULT = "result.json"
TRAJECTORY = "agent/trajectory.json"

OWN_FAULT = frozenset({"AgentTimeoutError", "AgentMaxStepsError", "ContextLengthExceededError"})
"""Exceptions by which an agent ran out of time, steps or context by itself; all others are the harness's or the environment's."""

_SEGMENT = ".cont-"


def _trials(names: Sequence[str], head: Head) -> list[str]:
    """The folders of trials, in the order of their names."""
    found = [name.removesuffix(RESULT) for name in names if name.endswith(RESULT)]
    return sorted(folder for folder in found if {"trial_name", "task_name"} <= members(head(folder + RESULT)).keys())


def recognise(names: Sequence[str], head: Head) -> bool:
    """A result.json with trial_name and task_name."""
    return bool(_trials(names, head))


def plan(names: Sequence[str], head: Head) -> list[Part]:
    """A part for each trial: its result, then the trajectory, and its continuations."""
    known = set(names)
    parts = []
    for folder in _trials(names, head):
        more = [folder + TRAJECTORY] if folder + TRAJECTORY in known else []
        beginning = folder + TRAJECTORY.removesuffix(".json") + _SEGMENT
        more += sorted(name for name in names if name.startswith(beginning))
        run = folder.rstrip("/").rpartition("/")[0].rpartition("/")[2]
        parts.append(Part(run, (FileUse(folder + RESULT), *(FileUse(name) for name in more))))
    return parts


def _read(items: Sequence[Item], options: Options) -> Iterator[Episode | Bad]:
    first, *rest = items
    if not first.file.endswith(RESULT):
        raise LineError("", "the trial's result cannot be read")
    result = an_object(first.value, "")
    task = text_in(result, "task_name")
    if task is None:
        raise LineError("task_name", "missing")
    trouble = object_in(result, "exception_info")
    kind = text_in(trouble, "exception_type")
    status = "answered" if kind is None else "failed" if kind in OWN_FAULT else "infra_error"
    if kind is None and not text_in(result, "finished_at"):
        status = ""
    told = _told(rest)
    events = told.finish(answers=status == "answered") if told is not None else []
    if told is None:
        events = _untold(result)
    agent = object_in(result, "agent_info")
    run = text_in(object_in(result, "config"), "job_id") or first.run
    yield Episode(
        file=first.file, position="", run=run, task_key=task, trial=text_in(result, "trial_name"),
        version=None if told is None else text_in(told.value, "schema_version"), source=rest_of(result, "task_name", "trial_name"),
        record=result, system=None if told is None else told.system, events=events,
        info={"agent": _agent(agent)} if told is None else info_of(told),
        verdicts=() if status == "infra_error" else list(_checks(result, options)),
        status=status or None, error=None if kind is None else f"{kind}: {trouble.get('exception_message') or ''}",
        subagents=() if told is None else told.subagents, unreadable=() if told is None else told.unreadable,
        labels={"task_checksum": checksum} if (checksum := text_in(result, "task_checksum")) else {},
    )  # fmt: skip


def _told(items: Sequence[Item]) -> Trajectory | None:
    """The trajectory of a trial: the last segment begins with what it copied from those before it."""
    if not items:
        return None
    return Trajectory(an_object(items[0].value, ""), items[0]) if len(items) == 1 else _joined(items)


def _joined(items: Sequence[Item]) -> Trajectory:
    """A trajectory in several files. Steps that a segment copied from those before it are not told again."""
    value = dict(an_object(items[0].value, ""))
    steps = list(value.get("steps") or ())
    inner = list(value.get("subagent_trajectories") or ())
    for item in items[1:]:
        more = an_object(item.value, "")
        fresh = [
            step for step in more.get("steps") or () if not (isinstance(step, dict) and step.get("is_copied_context"))
        ]
        steps += fresh
        inner += more.get("subagent_trajectories") or ()
    read = Trajectory(value | {"steps": steps, "subagent_trajectories": inner}, items[0])
    read.writer.note("context_rewritten", {"kept": 0, "dropped": 0, "segments": len(items)})
    return read


def _untold(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The events of a trial without a trajectory: what its result says about usage."""
    used = object_in(result, "agent_result")
    usage = Usage(
        used.get("n_input_tokens") if isinstance(used.get("n_input_tokens"), int) else None,
        used.get("n_output_tokens") if isinstance(used.get("n_output_tokens"), int) else None,
        used.get("n_cache_tokens") if isinstance(used.get("n_cache_tokens"), int) else None,
        number_in(used, "cost_usd"),
    )
    writer = TranscriptWriter()
    if any(each is not None for each in usage):
        model = text_in(object_in(result, "agent_info", "model_info"), "name")
        writer.model(Turn(model=model, usage=usage))
        writer.note("content_left_out", {"reason": "not_recorded", "count": 1})
    return writer.finish(answers=False)


def _agent(agent: Mapping[str, Any]) -> dict[str, Any] | None:
    model = text_in(object_in(agent, "model_info"), "name")
    named = {"name": text_in(agent, "name"), "model": model, "version": text_in(agent, "version")}
    return {name: value for name, value in named.items() if value is not None} or None


def _checks(result: Mapping[str, Any], options: Options) -> Iterator[dict[str, Any]]:
    """A check for each reward: 1 passes, 0 fails, what is between is unknown unless --pass-at decides."""
    for name, reward in object_in(result, "verifier_result", "rewards").items():
        if isinstance(reward, bool) or not isinstance(reward, int | float):
            continue
        if options.pass_at is not None:
            status = "pass" if reward >= options.pass_at else "fail"
        else:
            status = "pass" if reward == 1 else "fail" if reward == 0 else "unknown"
        check = {"type": "check", "name": as_text(name), "status": status, "produced_by": "import:harbor"}
        yield check | ({"score": reward} if 0 <= reward <= 1 else {"hint": f"reward {reward}"})


FORMAT = Format(
    name="harbor",
    about="jobs of Harbor: a folder of trials, each with result.json and agent/trajectory.json",
    rollout="task / trial, in the order of their names",
    verdict="a check for each reward: 1 pass, 0 fail",
    unknown="what an agent without a trajectory did; counts of tests",
    recognise=recognise,
    plan=plan,
    read=per_part(_read),
    has_folders=True,
)
