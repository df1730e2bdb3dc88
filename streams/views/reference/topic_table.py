"""The topics as a table for docs/architecture.md."""

from schemas import versions
from streams.log.topics import MIB, TOPICS, topic_config

_KINDS = {
    "fact": "fact", "raw": "raw material", "work": "work", "derived": "derived", "sink": "sink", "letters": "dead letters",
}  # fmt: skip


def topic_table() -> str:
    """The table, in Markdown."""
    lines = ["| topic | record | written by | kind | largest record |", "|---|---|---|---|---|"]
    for topic in TOPICS:
        record = "the original bytes, with the reason in headers"
        if topic.record is not None:
            name = topic.record.__name__
            record = f"[{name}](records.md#{name.lower()}) v{versions.latest(topic.record).number}"
        size = f"{topic.max_bytes // MIB} MiB"
        lines.append(f"| `{topic.name}` | {record} | {topic.written_by} | {_KINDS[topic.kind]} | {size} |")
    kept = {topic_config(topic)["retention.ms"] for topic in TOPICS}
    assert kept == {"-1"}, "the page says that records are kept for ever"
    return "\n".join([*lines, ""])
