"""Write one branch of a Pi session to a transcript."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from agents.importers.traces.chat import marked, read_calls, tell_result
from agents.importers.traces.content import Content, read_content
from agents.importers.traces.episode_reader import tell_unreadable
from agents.importers.traces.fields import as_text, millis, object_in, rest_of, text_in
from agents.importers.traces.format import Bad
from agents.importers.traces.transcript_writer import TranscriptWriter, Turn
from agents.importers.traces.usage import read_usage

_ENTRY = ("type", "id", "parentId", "timestamp", "message")
_MESSAGE = (
    "role", "content", "model", "usage", "stopReason", "timestamp", "toolCallId", "toolName", "isError", "errorMessage", "responseId",
)  # fmt: skip
_SAYING = ("user", "assistant", "toolResult")
_COUNTS = ("input", "output", "cacheRead", "cacheWrite", "cost")


class PiEntry(NamedTuple):
    """An entry of the tree."""

    position: str
    value: Mapping[str, Any]
    bad: Bad | None = None
    """The reason why it is unreadable or misplaced."""

    @property
    def speaks(self) -> bool:
        """Return whether it is a message of the conversation."""
        return self.value.get("type") == "message" and object_in(self.value, "message").get("role") in _SAYING


class PiBranch:
    """Writes entries one after the other."""

    def __init__(self) -> None:
        self.writer = TranscriptWriter()
        self.status: str | None = None
        self.error: str | None = None
        self.model: str | None = None
        self.position = ""
        self.leaf: str | None = None
        self._said: list[str | None] = []
        """The entries that the model sees, in order."""

    def tell(self, path: Iterable[PiEntry]) -> None:
        """Write the entries of a path."""
        for entry in path:
            if entry.bad is not None:
                tell_unreadable(self.writer, entry.bad)
            if entry.value:
                self._entry(entry)

    def _entry(self, entry: PiEntry) -> None:
        value = entry.value
        self.position = entry.position
        if entry.speaks:
            self.leaf = text_in(value, "id") or self.leaf
        kind, time = value.get("type"), millis(value.get("timestamp"))
        source = rest_of(value, *_ENTRY) | ({"id": value["id"]} if text_in(value, "id") else {})
        if kind == "message":
            self._message(object_in(value, "message"), time, source)
        elif kind in ("custom_message", "branch_summary"):
            content = (
                read_content(value.get("content"))
                if kind == "custom_message"
                else Content(as_text(value.get("summary")))
            )
            self.writer.context(content, time, source | {"type": kind})
        elif kind == "compaction":
            self._compacted(value, time)
        else:
            self.model = text_in(value, "modelId") or self.model
            self.writer.note("status", {"message": as_text(kind), "source": source}, time)
            return
        self._said.append(text_in(value, "id"))

    def _message(self, message: Mapping[str, Any], time: int | None, source: dict[str, Any]) -> None:
        role = message.get("role")
        left = source | rest_of(message, *_MESSAGE)
        if role == "user":
            self.writer.user(read_content(message.get("content")), time, left)
            self.status = None
        elif role == "assistant":
            self._respond(message, time, left)
        elif role == "toolResult":
            failed = message.get("isError") is True
            call, name = text_in(message, "toolCallId"), text_in(message, "toolName")
            tell_result(
                self.writer,
                call,
                name,
                message.get("content"),
                lambda output: marked(output, failed=failed),
                time,
                left,
            )
            self.status = None
        elif role == "bashExecution" and message.get("excludeFromContext") is not True:
            words = f"{as_text(message.get('command'))}\n{as_text(message.get('output'))}"
            self.writer.context(words, time, left | {"role": "bashExecution"})
        elif role == "custom":
            self.writer.context(read_content(message.get("content")), time, left)
        elif role in ("branchSummary", "compactionSummary"):
            self.writer.context(as_text(message.get("summary")), time, left)
        else:
            self.writer.note("status", {"message": f"message {as_text(role)}", "source": left}, time)

    def _respond(self, message: Mapping[str, Any], time: int | None, left: dict[str, Any]) -> None:
        stop = text_in(message, "stopReason")
        content, calls = read_content(message.get("content")), read_calls(message)
        self.model = text_in(message, "model") or self.model
        error = text_in(message, "errorMessage") or f"stopReason {stop}"
        if stop == "error" and not (content.text or calls):
            self.writer.note("api_error", {"message": error, "source": left}, time)
        else:
            usage = object_in(message, "usage")
            spent = read_usage({**usage, "cost": object_in(usage, "cost").get("total")})
            details = rest_of(usage, *_COUNTS)
            self.writer.model(
                Turn(content, calls, text_in(message, "responseId"), self.model, stop, spent, time, left, details)
            )
        self.status = _END.get(stop or "stop", None if calls else "answered")
        self.error = error if self.status == "infra_error" else None

    def _compacted(self, entry: Mapping[str, Any], time: int | None) -> None:
        first = text_in(entry, "firstKeptEntryId")
        kept = len(self._said) - self._said.index(first) if first in self._said else 0
        data = {"kept": kept, "dropped": len(self._said) - kept, "source": rest_of(entry, *_ENTRY, "summary")}
        self.writer.note("context_rewritten", data, time)
        self.writer.context(as_text(entry.get("summary")), time)


_END = {"error": "infra_error", "aborted": "aborted", "length": "failed", "toolUse": None}
"""The end of a branch, by the stop reason of its last message."""
