"""tau-bench: an array of runs. Each run has a conversation with a simulated user and a reward."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from agents.importers.line_error import LineError
from agents.importers.traces.chat import tell
from agents.importers.traces.episode_reader import each_alone, is_json, members, per_item
from agents.importers.traces.fields import an_array, an_object, object_in, rest_of, text_in
from agents.importers.traces.format import Episode, Format, Head, Item, Options
from agents.importers.traces.verdicts import scored


def recognise(names: Sequence[str], head: Head) -> bool:
    """Recognise an array of {task_id, reward, info, traj, trial}."""
    return any(is_json(name) and {"task_id", "reward", "traj"} <= members(head(name)).keys() for name in names)


def _read(item: Item, options: Options) -> Iterator[Episode]:
    run = an_object(item.value, "")
    if "task_id" not in run:
        raise LineError("task_id", "missing")
    info, trajectory = object_in(run, "info"), an_array(run.get("traj"), "traj")
    trouble = info.get("error") is not None
    chat = tell(trajectory, item, _error, where="traj")
    instruction = text_in(object_in(info, "task"), "instruction")
    yield Episode(
        file=item.file, position=item.position, run=item.run, task_key=run["task_id"], trial=run.get("trial"),
        source=rest_of(run, "task_id", "traj", "trial"), record=run,
        task=instruction, task_shown=instruction is None, system=chat.system, events=chat.writer.finish(answers=not trouble),
        verdicts=() if trouble else scored("tau-bench", "reward", run.get("reward"), options), unreadable=chat.unreadable,
        status="infra_error" if trouble else "answered", error=str(info["error"]) if trouble else None,
    )  # fmt: skip


def _error(_message: Mapping[str, Any], output: Any) -> dict[str, str] | None:
    return {"message": output} if isinstance(output, str) and output.startswith("Error") else None


FORMAT = Format(
    name="tau-bench",
    about="results of tau-bench: an array of {task_id, reward, info, traj, trial}",
    rollout="task_id / trial",
    verdict="check reward, pass at 1",
    unknown="usage, models, times; the user's instruction was never shown to the model",
    recognise=recognise,
    plan=partial(each_alone, fits=is_json),
    read=per_item(_read),
)
