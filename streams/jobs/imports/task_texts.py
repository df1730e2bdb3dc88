"""`--tasks FILE`: texts of tasks by their id."""

from pathlib import Path
from typing import Any

from agents.importers.traces.fields import an_object, as_text, text_in
from agents.importers.traces.format import Bad, FileUse
from streams.jobs.imports.trace_files import TraceFiles
from streams.jobs.imports.trace_items import read_items
from streams.log.input_lines import InputError

IDS = ("task_id", "TASK", "id", "key")
TEXTS = ("task", "prompt", "PROMPT", "instruction", "question", "text")


def read_tasks(path: Path) -> dict[str, str]:
    """The texts of a file of JSON lines, a JSON array or object, or CSV. Raises InputError for a line without a text."""
    files = TraceFiles(path)
    name = files.names[0]
    shape = "csv" if path.suffix == ".csv" else "json"
    found: dict[str, str] = {}
    for item in read_items(files, FileUse(name, shape), "", lambda _count: None):  # type: ignore[arg-type]  # one of two
        if isinstance(item, Bad):
            raise InputError(f"{path}: {item.position}: {item.reason}")
        value = an_object(item.value, "")
        key = next((as_text(value[each]) for each in IDS if value.get(each) is not None), None)
        text = _text(value)
        if key is not None and text is not None:
            found[key] = text
        elif all(isinstance(each, str) for each in value.values()):  # {id: text, ...}
            found |= value
        else:
            raise InputError(f"{path}: {item.position}: expected {' or '.join(IDS)}, and {' or '.join(TEXTS)}")
    return found


def _text(value: dict[str, Any]) -> str | None:
    """The text of a task; in chat questions (a list of messages) it is the last user message."""
    said = text_in(value, *TEXTS)
    if said is not None:
        return said
    turns = value.get("question")
    while isinstance(turns, list) and turns:
        last = turns[0] if isinstance(turns[0], list) else turns[-1]
        if isinstance(last, dict):
            return text_in(last, "content")
        turns = last
    return None
