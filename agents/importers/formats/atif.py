"""ATIF, Harbor's agent trajectory interchange format. Each trajectory is a branch."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from agents.importers.traces.episode_reader import base_name, data_files, first_value, guarded, is_json, is_part_of_job
from agents.importers.traces.fields import object_in, rest_of, text_in
from agents.importers.traces.format import Episode, FileUse, Format, Head, Item, Options, Part, Reading
from agents.importers.traces.own_rows import OwnRow
from agents.importers.traces.synthetic import end_of_error
from agents.importers.traces.trajectory import MARK, Trajectory


def _is_trajectory(name: str, head: Head) -> bool:
    return (
        is_json(name)
        and first_value(head(name))[:1] == b"{"
        and b'"schema_version"' in head(name)
        and MARK in head(name)
    )


def recognise(names: Sequence[str], head: Head) -> bool:
    """Recognise `schema_version` ATIF-v1.*. Trajectories inside a benchmark's job belong to that job."""
    return not is_part_of_job(names) and any(_is_trajectory(name, head) for name in names)


def plan(names: Sequence[str], head: Head) -> list[Part]:
    """Plan a part for each file, together with its continuations (trajectory.cont-1.json) and the files of its
    sub-agents.
    """
    own = [name for name in data_files(names) if len(names) == 1 or _is_trajectory(name, head)]
    return [Part(base_name(first), tuple(map(FileUse, files))) for first, files in families(own).items()]


def families(names: Sequence[str]) -> dict[str, list[str]]:
    """Return for each trajectory file the list of that file and the files that belong to it."""
    found: dict[str, list[str]] = {}
    for name in sorted(names, key=lambda name: (is_piece(name), name)):
        home = f"{name.rpartition('/')[0]}/trajectory.json".removeprefix("/")
        found.setdefault(home if is_piece(name) and home in found else name, []).append(name)
    return found


def is_piece(name: str) -> bool:
    """Return whether a file name marks a part of another trajectory in the same folder."""
    return name.rpartition("/")[2].startswith(("trajectory.cont-", "trajectory.summarization-"))


def read(items: Iterable[Item], _options: Options) -> Reading:
    """Read one trajectory at a time, or all files of a part together."""
    first: Item | None = None
    beside: dict[str, Any] = {}
    for item in items:
        if is_piece(item.file):
            beside[item.file.rpartition("/")[2]] = item.value
        elif first is None and item.file.rpartition("/")[2] == "trajectory.json":
            first = item
        else:
            yield from guarded(item, _episodes(item, {}))
    if first is not None:
        yield from guarded(first, _episodes(first, beside))


def _episodes(item: Item, beside: Mapping[str, Any]) -> Iterator[Episode]:
    own = OwnRow(object_in(item.value, "extra") if isinstance(item.value, dict) else {})
    told = Trajectory(item, beside, is_own=own.is_own)
    told.tell()
    extra = object_in(told.value, "extra")
    status = own.status if own.is_own else "answered" if told.done else None
    if told.error is not None and not own.is_own:
        status = end_of_error(told.error)
    session = text_in(told.value, "session_id", "trajectory_id")
    key = session or (item.run if item.position in ("", "[0]") else f"{item.run} {item.position}")
    events = told.writer.finish(answers=own.answers(status), task=text_in(extra, "task"))
    subagents = told.subagents(events)
    if not subagents:
        events = told.exact.beside(events)
    yield Episode(
        file=item.file, position=item.position, run=key, task_key=key, version=text_in(told.value, "schema_version"),
        events=events, subagents=subagents, source=rest_of(told.value, "steps", "schema_version", "subagent_trajectories"),
        record=told.value, system=told.system, tools=tools_of(told), info=info_of(told), unreadable=told.unreadable,
        status=status, error=own.error if own.is_own else told.error, verdicts=own.verdicts("atif"), **own.place(),
    )  # fmt: skip


def tools_of(told: Trajectory) -> list[Any] | None:
    """Return the tools that the model was offered."""
    tools = told.agent.get("tool_definitions")
    return tools if isinstance(tools, list) else None


def info_of(told: Trajectory) -> dict[str, Any]:
    """Return the session and the agent of the branch."""
    agent = {"name": text_in(told.agent, "name"), "version": text_in(told.agent, "version"), "model": told.model}
    return {"session_id": text_in(told.value, "session_id"), "agent": agent}


FORMAT = Format(
    name="atif",
    about="ATIF v1.0 to v1.8: trajectory.json, or lines of trajectories",
    rollout="session",
    verdict="none, except in files that `braid export` wrote",
    unknown="whether an answer was right; which results are errors, unless the writer marks them",
    recognise=recognise,
    plan=plan,
    read=read,
)
