"""ToolSandbox: a result summary, with the conversation of each scenario in the same folder."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from agents.importers.traces.chat import tell
from agents.importers.traces.episode_reader import guarded, members
from agents.importers.traces.fields import rest_of, text_in
from agents.importers.traces.format import Bad, Episode, FileUse, Format, Head, Item, Options, Part, Reading
from agents.importers.traces.verdicts import scored

NAME = "tool-sandbox"
_SUMMARY, _SCENARIOS = "result_summary.json", "per_scenario_results"
_CONVERSATION = re.compile(r"trajectories/([^/]+)/conversation\.json")
_RAISED = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception): ")
"""The form in which the model sees a tool's exception."""


def recognise(names: Sequence[str], head: Head) -> bool:
    """Recognise a folder with result_summary.json whose scenarios have a similarity."""
    return any(_SCENARIOS in members(head(base + _SUMMARY)) for base in _runs(names))


def _runs(names: Sequence[str]) -> list[str]:
    return [name.removesuffix(_SUMMARY) for name in names if f"/{name}".endswith(f"/{_SUMMARY}")]


def plan(names: Sequence[str], _head: Head) -> list[Part]:
    """Plan each summary with its conversations."""
    parts = []
    for base in _runs(names):
        found = [each for each in names if each.startswith(base) and _CONVERSATION.fullmatch(each.removeprefix(base))]
        summary = FileUse(base + _SUMMARY, streamed=(_SCENARIOS,))
        parts.append(Part(base.rstrip("/").rsplit("/", 1)[-1], (summary, *map(FileUse, found))))
    return parts


def read(items: Iterable[Item], options: Options) -> Reading:
    """Read the episodes of a run: first those with a conversation, then scenarios without one."""
    results: dict[str, Item] = {}
    for file, group in groupby(items, key=lambda item: item.file):
        found = _CONVERSATION.search(file)
        if found is None:
            results |= {name: each for each in group if (name := _name(each)) is not None}
        else:
            messages = list(group)
            yield from guarded(messages[0], _read(messages, found[1], results.pop(found[1], None), options))
    for name, item in results.items():
        yield from guarded(item, _read([], name, item, options))


def _name(item: Item) -> str | None:
    return text_in(item.value, "name") if item.position and isinstance(item.value, dict) else None


def _read(messages: Sequence[Item], name: str, scored_as: Item | None, options: Options) -> Iterator[Episode | Bad]:
    result: Mapping[str, Any] = {} if scored_as is None else scored_as.value
    first = messages[0] if messages else scored_as
    assert first is not None  # a scenario has a conversation, a result, or both
    chat = tell([item.value for item in messages], first._replace(position=""), _error, where="")
    raised = text_in(result, "exception_type")
    status = "infra_error" if raised else "answered" if result else None
    yield Episode(
        file=first.file, position="" if messages else first.position, run=first.run, task_key=name, record=result,
        source=rest_of(result, "name"), system=chat.system, events=chat.writer.finish(answers=status == "answered"),
        unreadable=chat.unreadable, status=status, error=_why(result) if raised else None,
        verdicts=() if raised else scored(NAME, "similarity", result.get("similarity"), options, fails=0),
    )  # fmt: skip


def _why(result: Mapping[str, Any]) -> str:
    """Return the last line of the traceback, which names the exception."""
    lines = (text_in(result, "traceback") or "").strip().splitlines()
    return lines[-1][:1000] if lines else str(result["exception_type"])


def _error(_message: Mapping[str, Any], output: Any) -> dict[str, str] | None:
    if not isinstance(output, str) or not _RAISED.match(output):
        return None
    kind, _, message = output.partition(": ")
    return {"code": kind, "message": message}


FORMAT = Format(
    name=NAME,
    about="results of ToolSandbox: result_summary.json, trajectories/<scenario>/conversation.json",
    rollout="scenario",
    verdict="check similarity: 1 pass, 0 fail, else unknown",
    unknown="model, tokens, times; a similarity between 0 and 1 (--pass-at)",
    recognise=recognise,
    plan=plan,
    read=read,
    has_folders=True,
)
