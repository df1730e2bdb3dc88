"""Write one branch of a Claude Code session to a transcript."""

from collections.abc import Iterable, Mapping
from typing import Any

from agents.importers.sessions.claude_nodes import Line, Node, is_prompt, is_response, parts_of
from agents.importers.traces.chat import read_calls, tell_result_part
from agents.importers.traces.content import Content, read_content
from agents.importers.traces.episode_reader import tell_unreadable
from agents.importers.traces.fields import array_in, as_text, millis, object_in, rest_of, text_in
from agents.importers.traces.synthetic import end_of_error
from agents.importers.traces.transcript_writer import TranscriptWriter, Turn
from agents.importers.traces.usage import NONE, Usage, read_usage

_LINE = ("type", "message", "timestamp", "parentUuid", "isSidechain")
_MESSAGE = ("id", "role", "model", "content", "stop_reason", "type")
_COUNTS = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")

INTERRUPTED = "[Request interrupted by user"

REWRITES = {"compact_boundary": "preservedMessages", "microcompact_boundary": None}
"""Lines that mark a rewritten context, and their field with the kept messages."""


class ClaudeBranch:
    """Writes nodes one after the other."""

    def __init__(self, common: Mapping[str, Any]) -> None:
        self.writer = TranscriptWriter()
        self.status: str | None = None
        """The status of the branch after the last node."""
        self.error: str | None = None
        self.model: str | None = None
        self.position = ""
        self.leaf: str | None = None
        """The uuid of the last line with text."""
        self.agents: dict[str, str] = {}
        """The id of the call that started a sub-agent, by the sub-agent's id."""
        self.prompts: dict[str, str] = {}
        """The id of the call that started a sub-agent, by the sub-agent's prompt."""
        self._common = common
        self._said = 0
        """The number of messages so far."""

    def tell(self, nodes: Iterable[Node]) -> None:
        """Write the nodes of a path."""
        for node in nodes:
            self._tell(node)

    def _tell(self, node: Node) -> None:
        if node.bad is not None:
            tell_unreadable(self.writer, node.bad)
        if not node.lines:
            return
        self.position = node.lines[-1].position
        if node.response is not None or is_prompt(node.lines[0].value):
            self.leaf = text_in(node.lines[-1].value, "uuid") or self.leaf
        if node.response is not None:
            self._respond(node)
            return
        for line in node.lines:
            self._line(line)

    # -- the model -----------------------------------------------------------------------------------------------------

    def _respond(self, node: Node) -> None:
        said = [line for line in node.lines if is_response(line.value)]
        messages = [object_in(line.value, "message") for line in said]
        content = [part for message in messages for part in _parts(message.get("content"))]
        calls = read_calls({"content": content})
        first, last = said[0].value, messages[-1]
        self.model = text_in(last, "model") or self.model
        finish = next((found for each in reversed(messages) if (found := text_in(each, "stop_reason"))), None)
        source = self._source(first) | rest_of(last, *_MESSAGE, "usage") | _usage_rest(last)
        self.writer.model(
            Turn(
                read_content(content), calls, text_in(last, "id"), self.model, finish, _most(messages),
                millis(first.get("timestamp")), source,
            )
        )  # fmt: skip
        self._said += 1
        for call in calls:
            if call.id and isinstance(call.arguments, dict) and isinstance(prompt := call.arguments.get("prompt"), str):
                self.prompts[prompt] = call.id
        for part in content:
            if str(part.get("type")).endswith("_tool_result"):  # of a tool that the provider runs
                self._result(part, first)
        self.status, self.error = _end(calls=bool(calls), finish=finish), None
        for line in node.lines:
            if not is_response(line.value):
                self._results(line)

    def _results(self, line: Line) -> None:
        """Write a line with results and additional text."""
        for part in parts_of(line.value, "tool_result"):
            self._result(part, line.value)
        rest = [
            part
            for part in _parts(object_in(line.value, "message").get("content"))
            if part.get("type") != "tool_result"
        ]
        if rest:
            self._words(read_content(rest), line)

    def _result(self, part: Mapping[str, Any], line: Mapping[str, Any]) -> None:
        call = text_in(part, "tool_use_id")
        agent = text_in(object_in(line, "toolUseResult"), "agentId")
        if agent is not None and call is not None:
            self.agents[agent] = call
        tell_result_part(self.writer, part, millis(line.get("timestamp")), self._source(line))
        self._said += 1
        self.status = None

    # -- others --------------------------------------------------------------------------------------------------------

    def _line(self, line: Line) -> None:
        value, kind = line.value, line.value.get("type")
        if kind == "user":
            if value.get("isCompactSummary") is True:
                self._rewritten(value, {})
            if parts_of(value, "tool_result"):
                self._results(line)
            else:
                self._words(read_content(object_in(value, "message").get("content")), line)
        elif kind == "assistant":
            self._in_its_place(line)
        elif kind == "attachment":
            self._attachment(line)
        else:
            self._system(line)

    def _words(self, content: Content, line: Line) -> None:
        """Write text to the model from a person or from the program."""
        value, time = line.value, millis(line.value.get("timestamp"))
        interrupted = (content.text or "").startswith(INTERRUPTED)
        if is_prompt(value) and not interrupted:
            self.writer.user(content, time, self._source(value))
            self.status = None
        else:
            self.writer.context(content, time, self._source(value))
            self.status = "aborted" if interrupted else self.status
        self._said += 1

    def _in_its_place(self, line: Line) -> None:
        """Write an assistant message of the program: an API error, or text that the model receives as its own."""
        message, time = object_in(line.value, "message"), millis(line.value.get("timestamp"))
        text = read_content(message.get("content")).text or ""
        source = self._source(line.value)
        if line.value.get("isApiErrorMessage") is True:
            self.writer.note("api_error", {"message": text, "source": source}, time)
            self.status, self.error = end_of_error(text), text
        else:
            self.writer.given(Content(text), time, source)

    def _attachment(self, line: Line) -> None:
        attachment, time = object_in(line.value, "attachment"), millis(line.value.get("timestamp"))
        if is_prompt(line.value):
            source = self._source(line.value) | rest_of(attachment, "prompt")
            self.writer.user(read_content(attachment.get("prompt")), time, source)
            self.status = None
            self._said += 1
            return
        text = _attached(attachment)
        source = self._source(line.value) | {"attachment": rest_of(attachment, *_ATTACHED)}
        if text is None:
            self.writer.note("status", {"message": f"attachment {attachment.get('type')}", "source": source}, time)
        else:
            self.writer.context(text, time, source)

    def _system(self, line: Line) -> None:
        value, subtype = line.value, text_in(line.value, "subtype")
        if subtype in REWRITES:
            self._rewritten(value, self._source(value))
            return
        words = " ".join(word for word in (text_in(value, "type"), subtype) if word)
        self.writer.note("status", {"message": words, "source": self._source(value)}, millis(value.get("timestamp")))

    def _rewritten(self, line: Mapping[str, Any], source: Mapping[str, Any]) -> None:
        """Note a rewritten context. The boundary line notes it; the summary after it does not note it again."""
        if not self._said:
            return
        name = REWRITES.get(text_in(line, "subtype") or "")
        kept = len(array_in(object_in(line, "compactMetadata", name), "uuids")) if name else 0
        data: dict[str, Any] = {"kept": kept, "dropped": max(self._said - kept, 0)}
        self.writer.note(
            "context_rewritten", data | ({"source": source} if source else {}), millis(line.get("timestamp"))
        )
        self._said = 0

    def _source(self, line: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a line that have no other place, without those that all lines share."""
        left = rest_of(line, *_LINE, "attachment")
        return {name: value for name, value in left.items() if name not in self._common or self._common[name] != value}


_ATTACHED = ("content", "snippet", "addedLines")


def _attached(attachment: Mapping[str, Any]) -> str | None:
    """Return the text of an attachment as far as the file has it.

    The frame that the program added is not in the file.
    """
    content = attachment.get("content")
    if isinstance(content, dict):  # a file
        content = object_in(content, "file").get("content")
    if isinstance(content, str) and content:
        return content
    lines = [each for each in array_in(attachment, "addedLines") if isinstance(each, str)]
    return text_in(attachment, "snippet") or "\n".join(lines) or None


def _parts(content: Any) -> list[dict[str, Any]]:
    found = content if isinstance(content, list) else [content]
    return [part if isinstance(part, dict) else {"type": "text", "text": as_text(part)} for part in found]


def _most(messages: Iterable[Mapping[str, Any]]) -> Usage:
    """Return the usage of a response. Each of its lines has the counts at the time of its writing."""
    most = NONE
    for message in messages:
        read = read_usage(message.get("usage"))
        most = Usage(
            _larger(most.input, read.input),
            _larger(most.output, read.output),
            _larger(most.cached, read.cached),
            read.usd,
        )
    return most


def _larger(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else max(one, other)


def _usage_rest(message: Mapping[str, Any]) -> dict[str, Any]:
    left = rest_of(object_in(message, "usage"), *_COUNTS)
    return {"usage": left} if left else {}


def _end(*, calls: bool, finish: str | None) -> str | None:
    if finish in ("max_tokens", "model_context_window_exceeded"):
        return "failed"
    return None if calls else "answered"
