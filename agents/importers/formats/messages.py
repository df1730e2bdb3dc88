"""Chat datasets: lines with `messages`."""

from collections.abc import Iterator, Sequence
from functools import partial

from agents.importers.traces.chat import tell
from agents.importers.traces.fields import an_array, an_object, as_text, rest_of, text_in
from agents.importers.traces.format import Episode, Format, Head, Item, Options
from agents.importers.traces.reading import each_alone, is_json, per_item, says, top_keys


def recognise(names: Sequence[str], head: Head) -> bool:
    """Objects with `messages` of {role, content} on the first level."""
    return any(
        is_json(name) and says(head(name), b"messages", b"role") and "messages" in top_keys(head(name))
        for name in names
    )


def _read(item: Item, _options: Options) -> Iterator[Episode]:
    row = an_object(item.value, "")
    chat = tell(an_array(row.get("messages"), "messages"), item)
    key = row.get("id")
    tools = row.get("tools")
    yield Episode(
        file=item.file, position=item.position, run=item.run, task_key=item.position if key is None else as_text(key),
        source=rest_of(row, "messages", "tools", "id"), record=row, system=chat.system,
        tools=tools if isinstance(tools, list) else None, events=chat.writer.finish(),
        info={"agent": {"model": model}} if (model := text_in(row, "model")) else {},
        unreadable=chat.unreadable, status="answered",
    )  # fmt: skip


FORMAT = Format(
    name="messages",
    about="chat datasets: lines (or an array) with `messages` [{role, content, tool_calls}]",
    rollout="id, else the line",
    verdict="none",
    unknown="whether an answer was right; usage; which calls failed",
    recognise=recognise,
    plan=partial(each_alone, fits=is_json),
    read=per_item(_read),
)
