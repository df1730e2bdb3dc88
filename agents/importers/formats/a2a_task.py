"""A2A tasks, versions 0.x and 1: JSON-RPC answers of agents, complete or as a stream of updates."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from agents.importers.line_error import LineError
from agents.importers.traces.content import Content, reference
from agents.importers.traces.episode_reader import each_alone, guarded, is_json, members
from agents.importers.traces.fields import array_in, as_text, millis, object_in, rest_of, text_in
from agents.importers.traces.format import Bad, Episode, Format, Head, Item, Options, Piece, Reading
from agents.importers.traces.transcript_writer import Called, TranscriptWriter, Turn
from schemas.jsontext import compact, kind_of

NAME = "a2a-task"
ENDS = {
    "completed": "answered",
    "failed": "failed",
    "rejected": "failed",
    "canceled": "aborted",
    "cancelled": "aborted",
}
RUNNING = ("submitted", "working")
"""In these states a message is a progress report, not an answer of the agent."""

_WRAPPED = {"task": "task", "statusUpdate": "status-update", "artifactUpdate": "artifact-update", "message": "message",
            "status_update": "status-update", "artifact_update": "artifact-update"}  # fmt: skip
_KINDS = tuple(b'"%b"' % kind.encode() for kind in ("task", "status-update", "artifact-update"))


def recognise(names: Sequence[str], head: Head) -> bool:
    """A task, an update of one, or a JSON-RPC result that is one."""
    return any(is_json(name) and _is_ours(members(head(name))) for name in names)


def _is_ours(found: Mapping[str, bytes]) -> bool:
    if "jsonrpc" in found and "result" in found:
        found = members(found["result"])
    for name in _WRAPPED:
        if len(found) == 1 and name in found:
            return b"TASK_STATE_" in found[name] or b"artifactId" in found[name]
    if found.get("kind") in _KINDS:
        return bool({"status", "artifact"} & found.keys())
    return bool({"id", "taskId"} & found.keys()) and b'"TASK_STATE_' in found.get("status", b"")


class _Task:
    """The known state of a task."""

    def __init__(self, item: Item, name: str) -> None:
        self.item = item
        self.name = name
        self.told: list[tuple[str, dict[str, Any]]] = []
        """Messages and progress reports, in order."""
        self._known: set[str] = set()
        """The ids of the task's messages."""
        self.artifacts: dict[str, dict[str, Any]] = {}
        self.status: dict[str, Any] = {}
        self.rest: dict[str, Any] = {}
        self.record: dict[str, Any] = {}

    @property
    def state(self) -> str:
        """Return the state in the spelling of version 0.x."""
        return (text_in(self.status, "state") or "unknown").removeprefix("TASK_STATE_").lower().replace("_", "-")

    def snapshot(self, task: Mapping[str, Any]) -> None:
        """Read a complete task. Its fields replace the earlier values."""
        history = [each for each in array_in(task, "history") if isinstance(each, dict)]
        if history or not self.told:
            self.told = [("message", each) for each in history]
            self._known = {name for each in history if (name := text_in(each, "messageId"))}
        artifacts = [each for each in array_in(task, "artifacts") if isinstance(each, dict)]
        if artifacts:
            self.artifacts = {
                as_text(each.get("artifactId") or number): dict(each) for number, each in enumerate(artifacts)
            }
        self.record = dict(task)
        self.rest |= rest_of(task, "id", "history", "artifacts", "status", "kind")
        self._stands(object_in(task, "status"))

    def update(self, news: Mapping[str, Any]) -> None:
        """Read a new status."""
        self.rest |= rest_of(news, "taskId", "task_id", "status", "kind", "final")
        self._stands(object_in(news, "status"))

    def _stands(self, status: dict[str, Any]) -> None:
        self.status = status
        message = object_in(status, "message")
        if not message:
            return
        name = text_in(message, "messageId")
        if name is not None and name in self._known:
            return
        self._known |= {name} if name is not None else set()
        time = {"timestamp": status["timestamp"]} if "timestamp" in status else {}
        self.told.append(("news" if self.state in RUNNING else "message", {**time, **message}))

    def produce(self, update: Mapping[str, Any]) -> None:
        """Read an artifact or a chunk of one."""
        piece = object_in(update, "artifact")
        name = as_text(piece.get("artifactId") or "")
        known = self.artifacts.get(name)
        if update.get("append") is not True or known is None:
            self.artifacts[name] = {**piece, "parts": list(array_in(piece, "parts"))}
            return
        known |= rest_of(piece, "parts")
        known["parts"] = array_in(known, "parts")
        known["parts"] += array_in(piece, "parts")


def read(items: Iterable[Item], _options: Options) -> Reading:
    """Read the tasks of a file, each in its latest state. A task and its updates are pieces of one group."""
    asked: dict[str, dict[str, Any]] = {}
    for item in items:
        if item.is_group:
            yield from _whole(item)
        else:
            yield from guarded(item, _take(item, asked))


def _take(item: Item, asked: dict[str, dict[str, Any]]) -> Iterator[Episode | Bad | Piece]:
    value = item.value
    if not isinstance(value, dict):
        raise LineError("", f"expected a task or an update, found {kind_of(value)}")
    call = as_text(value.get("id") or "") if "jsonrpc" in value else ""
    if "method" in value:
        asked[call] = object_in(value, "params", "message")
        return
    if "jsonrpc" in value and "error" in value:
        yield from _refused(item, object_in(value, "error"), asked.get(call))
        return
    kind, body = _unwrapped(value)
    name = text_in(body, "id") if kind == "task" else text_in(body, "taskId", "task_id")
    if name is None and kind == "message":
        name = text_in(body, "contextId", "messageId")
    if name is None:
        raise LineError("id" if kind == "task" else "taskId", "missing")
    yield Piece(name, [item.position, value, asked.pop(call, {})])


def _whole(item: Item) -> Iterator[Episode | Bad]:
    """Build the episode of a task from all its pieces."""
    news = [(Item(item.file, position, value, item.run), question) for position, value, question in item.value]
    task = _Task(news[0][0], item.position)
    for each, question in news:
        yield from guarded(each, _told(task, each, question))
    yield from guarded(task.item, _episode(task))


def _told(task: _Task, item: Item, question: dict[str, Any]) -> Iterator[Episode]:
    kind, body = _unwrapped(item.value)
    _note_question(task, question, body)
    if kind == "task":
        task.snapshot(body)
    elif kind == "status-update":
        task.update(body)
    elif kind == "artifact-update":
        task.produce(body)
    else:
        task.told.append(("message", body))
        task.status = task.status or {"state": "completed"}
    yield from ()


def _note_question(task: _Task, message: dict[str, Any], body: Mapping[str, Any]) -> None:
    """Add the request that a response answers, if the task's history does not contain it."""
    known = {text_in(each, "messageId") for each in array_in(body, "history") if isinstance(each, dict)}
    if message and not array_in(body, "history") and text_in(message, "messageId") not in known:
        task.told.append(("message", message))


def _refused(item: Item, error: Mapping[str, Any], question: dict[str, Any] | None) -> Iterator[Episode | Bad]:
    """Build an episode for a call that the server refused, if the file contains the request. The task never began."""
    message = text_in(error, "message") or compact(error)
    if not question:
        raise LineError("error", f"a call that failed: {message}")
    task = _Task(item, text_in(question, "taskId", "messageId") or item.position)
    task.told = [("message", question)]
    yield _episode_of(task, "infra_error", message)


def _unwrapped(told: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the kind of a result and the result itself. Version 1 wraps the result; 0.x has a field `kind`."""
    value = told.get("result") if "jsonrpc" in told else told
    if not isinstance(value, dict):
        raise LineError("result", f"expected a task or an update, found {kind_of(value)}")
    for name, kind in _WRAPPED.items():
        if len(value) == 1 and isinstance(value.get(name), dict):
            return kind, value[name]
    said = value.get("kind")
    if said in ("task", "status-update", "artifact-update", "message"):
        return str(said), value
    if "status" in value and ("history" in value or "id" in value):
        return "task", value
    if "artifact" in value:
        return "artifact-update", value
    if "status" in value:
        return "status-update", value
    raise LineError("kind", "neither a task nor an update of one")


# -- the conversation --------------------------------------------------------------------------------------------------


def _episode(task: _Task) -> Iterator[Episode]:
    status = ENDS.get(task.state)
    message = _text(array_in(object_in(task.status, "message"), "parts"))
    yield _episode_of(task, status, None if status in (None, "answered") else message or task.state)


def _episode_of(task: _Task, status: str | None, error: str | None) -> Episode:
    writer, answer = TranscriptWriter(), ""
    for kind, message in task.told:
        answer = _tell(writer, message, news=kind == "news") or answer
    whole, media = _answer(task.artifacts.values())
    if (whole and whole != answer) or media:
        names = [rest_of(each, "parts") for each in task.artifacts.values()]
        writer.model(Turn(Content(whole or None, media=tuple(media)), source={"artifacts": names}))
    item = task.item
    return Episode(
        file=item.file, position=item.position, run=item.run, task_key=task.name, record=task.record,
        source=task.rest | rest_of(task.status, "message"), info={"session_id": text_in(task.rest, "contextId")},
        events=writer.finish(answers=status == "answered"), status=status, error=error,
    )  # fmt: skip


def _tell(writer: TranscriptWriter, message: Mapping[str, Any], *, news: bool) -> str | None:
    """Write a message and return the text of an agent.

    The text of a progress report becomes a status; its calls become calls.
    """
    parts = [part for part in array_in(message, "parts") if isinstance(part, dict)]
    time, source = (
        millis(message.get("timestamp")),
        rest_of(message, "parts", "kind", "role", "taskId", "contextId", "timestamp"),
    )
    plain = [part for part in parts if _adk(part) is None]
    text, media = _text([part for part in plain if not _is_thought(part)]), _media(plain)
    if str(message.get("role")).lower().removeprefix("role_") == "user":
        writer.user(Content(text, media=media), time, source)
        return None
    if news and text:
        writer.note("status", {"message": text, "source": source}, time)
    thoughts = tuple((found, None) for part in plain if _is_thought(part) and (found := _text([part])))
    calls = [_called(part) for part in parts if _adk(part) in ("function_call", "executable_code")]
    said = None if news else text
    if said or calls or media or thoughts:
        writer.model(
            Turn(Content(said, thoughts, media), calls, text_in(message, "messageId"), time=time, source=source)
        )
    for part in parts:
        if _adk(part) in ("function_response", "code_execution_result"):
            _result(writer, object_in(part, "data"), time)
    return said


def _adk(part: Mapping[str, Any]) -> str | None:
    """Return the type of a data part, if the agent names one."""
    return text_in(object_in(part, "metadata"), "adk_type") if "data" in part else None


def _is_thought(part: Mapping[str, Any]) -> bool:
    return object_in(part, "metadata").get("adk_thought") is True


def _called(part: Mapping[str, Any]) -> Called:
    data = object_in(part, "data")
    if _adk(part) == "executable_code":
        return Called("code_execution", data)
    return Called(text_in(data, "name") or "unknown", data.get("args"), text_in(data, "id"))


def _result(writer: TranscriptWriter, data: Mapping[str, Any], time: int | None) -> None:
    output = data.get("response", data.get("output"))
    failed = output.get("error") if isinstance(output, dict) else None
    error = {"message": as_text(failed)} if failed else None
    writer.result(
        text_in(data, "id"),
        text_in(data, "name"),
        output,
        error,
        time,
        rest_of(data, "id", "name", "response", "output"),
    )


def _text(parts: Sequence[Any]) -> str | None:
    """Return the text of parts. Data that is not a call becomes JSON text."""
    found = [
        part["text"] if isinstance(part.get("text"), str) else compact(part["data"])
        for part in parts
        if isinstance(part, dict) and (isinstance(part.get("text"), str) or part.get("data") is not None)
    ]
    return "".join(found) if found else None


def _media(parts: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    files = (part for part in parts if "text" not in part and "data" not in part)
    return tuple(reference({"type": "file", **_file(part)}) for part in files)


def _file(part: Mapping[str, Any]) -> dict[str, Any]:
    inner = object_in(part, "file") or part
    data = inner.get("bytes", inner.get("raw"))
    return {
        "data": data,
        "url": inner.get("uri", inner.get("url")),
        "media_type": text_in(inner, "mimeType", "mediaType"),
    }


def _answer(artifacts: Iterable[Mapping[str, Any]]) -> tuple[str, list[dict[str, Any]]]:
    """Return the text and the files of all artifacts: they are the answer of the task."""
    texts, media = [], list[dict[str, Any]]()
    for artifact in artifacts:
        parts = [part for part in array_in(artifact, "parts") if isinstance(part, dict)]
        texts.append(_text(parts))
        media += _media(parts)
    return "\n\n".join(text for text in texts if text), media


FORMAT = Format(
    name=NAME,
    about="A2A tasks: JSON-RPC results, bare tasks, streams of status and artifact updates; versions 0.x and 1",
    rollout="task id",
    verdict="none",
    unknown="the model, its prompt, tokens; tools of agents that do not tell them",
    recognise=recognise,
    plan=partial(each_alone, fits=is_json),
    read=read,
)
