"""MCP-Atlas: CSV tables with a conversation in each row. The scorer adds its columns when it has run."""

import csv
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite
from typing import Any

from agents.importers.line_error import LineError
from agents.importers.traces.chat import tell
from agents.importers.traces.episode_reader import base_name, guarded
from agents.importers.traces.fields import an_array, an_object, rest_of, text_in
from agents.importers.traces.format import Bad, Episode, FileUse, Format, Head, Item, Options, Part, Reading
from agents.importers.traces.verdicts import scored
from schemas.jsontext import parse

NAME = "mcp-atlas"
HISTORY, SCORE = "raw_conversation_history", "coverage_score"
ENOUGH = 0.75
"""MCP-Atlas counts a task as done from this share of claims on."""

_CONFIG = "run_config.json"


def recognise(names: Sequence[str], head: Head) -> bool:
    """Recognise CSV tables with the columns task_id, raw_conversation_history and response."""
    return any(_is_table(_columns(name, head)) for name in names)


def _columns(name: str, head: Head) -> list[str]:
    if not name.removesuffix(".gz").removesuffix(".zst").endswith(".csv"):
        return []
    first = head(name).removeprefix(b"\xef\xbb\xbf").partition(b"\n")[0].decode(errors="replace").rstrip("\r")
    try:
        return next(csv.reader([first]), [])
    except csv.Error:
        return []


def _is_table(columns: Sequence[str]) -> bool:
    return {"task_id", HISTORY, "response"} <= set(columns)


def plan(names: Sequence[str], head: Head) -> list[Part]:
    """Plan each table with the run's settings and tasks from its folder. A scored table replaces the unscored copy."""
    columns = {name: _columns(name, head) for name in names}
    tables = [name for name in names if _is_table(columns[name])]
    judged = {_folder(name) for name in tables if SCORE in columns[name]}
    parts = []
    for name in tables:
        folder = _folder(name)
        if folder in judged and SCORE not in columns[name]:
            continue
        beside = [FileUse(f"{folder}{_CONFIG}")] if f"{folder}{_CONFIG}" in names else []
        beside += [
            FileUse(each, "csv")
            for each in names
            if _folder(each) == folder and {"TASK", "PROMPT"} <= set(columns[each])
        ]
        parts.append(Part(base_name(name), (*beside, FileUse(name, "csv"))))
    return parts


def _folder(name: str) -> str:
    return name[: name.rfind("/") + 1]


def read(items: Iterable[Item], options: Options) -> Reading:
    """Read the episodes of a table."""
    config: dict[str, Any] = {}
    tasks: dict[str, str] = {}
    known = ChainMap({}, dict(options.tasks), tasks)
    for item in items:
        row = item.value
        if item.file.endswith(_CONFIG):
            config = row if isinstance(row, dict) else {}
        elif isinstance(row, dict) and "TASK" in row and HISTORY not in row:
            tasks[str(row["TASK"])] = str(row.get("PROMPT") or "")
        else:
            yield from guarded(item, _read(item, config, known, options))


def _read(item: Item, config: Mapping[str, Any], tasks: Mapping[str, str], options: Options) -> Iterator[Episode | Bad]:
    row = an_object(item.value, "")
    task_id = text_in(row, "task_id")
    if task_id is None:
        raise LineError("task_id", "missing")
    task = text_in(row, "PROMPT") or tasks.get(task_id) or None
    history, response = _history(row), text_in(row, "response")
    asked = [{"role": "user", "content": task}] if task else []
    chat = tell([*asked, *history], item, _error, where=HISTORY)
    last = history[-1].get("content") if history and isinstance(history[-1], dict) else None
    trouble = response is not None and response.startswith("ERROR:") and response != last
    model = text_in(config, "model")
    yield Episode(
        file=item.file, position=item.position, run=item.run, task_key=task_id, record=row,
        source=rest_of(row, "task_id", "PROMPT", HISTORY, *(("response",) if response == last else ()))
        | ({"run_config": dict(config)} if config else {}),
        info={"agent": {"model": model}} if model else {}, system=chat.system,
        events=chat.writer.finish(answers=not trouble), unreadable=chat.unreadable,
        status="infra_error" if trouble else "answered", error=response if trouble else None,
        verdicts=() if trouble else scored(NAME, "claims", _number(row.get(SCORE)), options, passes=ENOUGH),
    )  # fmt: skip


def _history(row: Mapping[str, Any]) -> list[Any]:
    text = text_in(row, HISTORY)
    if text is None:
        return []
    try:
        return an_array(parse(text), HISTORY)
    except ValueError as error:
        raise LineError(HISTORY, f"not JSON: {error}") from None


def _error(_message: Mapping[str, Any], output: Any) -> dict[str, str] | None:
    return {"message": output} if isinstance(output, str) and output.startswith("Error:") else None


def _number(text: Any) -> float | None:
    try:
        value = float(text)
    except (TypeError, ValueError):
        return None
    return value if isfinite(value) else None


FORMAT = Format(
    name=NAME,
    about="outputs of MCP-Atlas: CSV with task_id, raw_conversation_history, response; run_config.json and tasks beside",
    rollout="task_id / file",
    verdict="check claims: coverage_score, pass from 0.75 on",
    unknown="the task without a PROMPT column or --tasks; system prompt, tokens, times; which tools failed beside texts with Error:",
    recognise=recognise,
    plan=plan,
    read=read,
)
