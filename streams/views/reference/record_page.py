"""docs/records.md: every record on the log with its fields, from the models."""

from collections.abc import Iterator

from pydantic import BaseModel

from schemas import versions
from streams.log.topics import TOPICS
from streams.views.reference.field_table import about, models_in, table

_HEAD = """\
<!-- Generated from schemas/: braid schemas page records > docs/records.md -->

# Records

Every record on the log, by its topic ([all topics](architecture.md#topics)), and the records inside of it. Their Avro, one file for
each version, is in `schemas/avro/`. A field with a default may be missing in records of earlier versions. Whole numbers are never
cut, and unknown is `null`, never 0.
"""


def record_page() -> str:
    """The page, in Markdown."""
    lines = [_HEAD]
    named: set[type[BaseModel]] = {topic.record for topic in TOPICS if topic.record is not None}
    inside: dict[type[BaseModel], None] = {}
    for topic in TOPICS:
        if topic.record is not None:
            number = versions.latest(topic.record).number
            lines += [
                f"## {topic.record.__name__}\n",
                f"Topic `{topic.name}`, schema version {number}. {about(topic.record)}\n",
            ]
            lines += [*table(topic.record), ""]
            inside |= dict.fromkeys(_inside(topic.record, named))
    lines.append("## Records inside of records\n")
    for model in inside:
        lines += [f"### {model.__name__}\n", f"{about(model)}\n", *table(model), ""]
    return "\n".join(lines)


def _inside(model: type[BaseModel], seen: set[type[BaseModel]]) -> Iterator[type[BaseModel]]:
    """Yield the models below a model, each once, in the order of the fields."""
    for field in model.model_fields.values():
        for found in models_in(field.annotation):
            if found not in seen:
                seen.add(found)
                yield found
                yield from _inside(found, seen)
