"""Write Google ADK events, in camelCase or snake_case, to a transcript."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from agents.importers.line_error import LineError
from agents.importers.traces.content import Content, reference
from agents.importers.traces.fields import array_in, as_text, millis, object_in, rest_of, text_in
from agents.importers.traces.format import Bad, Item
from agents.importers.traces.transcript_writer import Called, TranscriptWriter, Turn
from agents.importers.traces.usage import NONE, Usage, read_usage
from agents.summarize.event_reader import is_provider_trouble
from schemas.jsontext import kind_of

PROVIDER_CODES = frozenset(
    ("RESOURCE_EXHAUSTED", "UNAVAILABLE", "INTERNAL", "DEADLINE_EXCEEDED", "UNAUTHENTICATED", "PERMISSION_DENIED", "CANCELLED",
     "ABORTED", "DATA_LOSS", "UNKNOWN", "UNKNOWN_ERROR")
)  # fmt: skip
"""Codes of a failed API call. All other codes are reasons why the model stopped."""

_REWIND = "rewind_before_invocation_id"

_NOT_KEPT = ("content", "author", "partial", "timestamp", "id", "usage_metadata", "usageMetadata", "finish_reason",
             "finishReason", "model_version", "modelVersion", "invocation_id", "invocationId", "branch")  # fmt: skip


@lru_cache(maxsize=256)
def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def named(value: Mapping[str, Any], name: str) -> Any:
    """Return the member of that name, in snake_case or camelCase."""
    found = value.get(name)
    return value.get(_camel(name)) if found is None else found


class Told(NamedTuple):
    """The written events of one agent or branch."""

    writer: TranscriptWriter
    unreadable: list[Bad]
    status: str | None
    error: str | None
    author: str | None
    """The name of the first agent."""
    model: str | None


class Rewound(NamedTuple):
    """The events of one branch of a session."""

    number: int | None
    """None if the session has one branch."""
    events: list[tuple[str, Any]]
    source: dict[str, Any]
    """The rewind event that started this branch."""


def rewound(events: Sequence[tuple[str, Any]]) -> list[Rewound]:
    """Return the branches of a session.

    A rewind to before an invocation ends the current branch. It begins a new branch with everything before that
    invocation. A rewind to an unknown invocation is written as an event.
    """
    branches: list[Rewound] = []
    told: list[tuple[str, Any]] = []
    source: dict[str, Any] = {}
    for each in events:
        target = named(object_in(each[1], "actions"), _REWIND) if isinstance(each[1], dict) else None
        start = next((at for at, (_, event) in enumerate(told) if _is_of(event, target)), None) if target else None
        if start is None:
            told.append(each)
            continue
        branches.append(Rewound(len(branches), told, source))
        told, source = told[:start], {"rewind": each[1]}
    last = Rewound(len(branches), told, source)
    return [*branches, last] if branches else [last._replace(number=None)]


def _is_of(event: Any, invocation: Any) -> bool:
    return isinstance(event, dict) and named(event, "invocation_id") == invocation


class _Said(NamedTuple):
    """An event that is being written."""

    event: Mapping[str, Any]
    author: str
    time: int | None
    source: Mapping[str, Any]


class _Teller:
    """Writes events one after the other."""

    def __init__(self) -> None:
        self.writer = TranscriptWriter()
        self.error: tuple[str, str] | None = None
        """Code and message of a failure that is the last event."""
        self.is_open = True
        """False if the last event is a final text of the model."""
        self.model: str | None = None
        self._turns: dict[str, int] = {}
        """Number of model turns, by agent."""
        self._agent: str | None = None

    @property
    def author(self) -> str | None:
        """The name of the first agent."""
        return next(iter(self._turns), None)

    def tell(self, event: Any) -> None:
        """Write one event. Raises LineError."""
        if not isinstance(event, dict):
            raise LineError("", f"expected an event, found {kind_of(event)}")
        if event.get("partial") is True or object_in(event, "options").get("partial") is True:
            return  # a partial event; the complete one follows
        source = {name: value for name, value in rest_of(event, *_NOT_KEPT).items() if not _is_empty(value)}
        said = _Said(event, text_in(event, "author") or "", millis(event.get("timestamp")), source)
        parts = _parts(event.get("content"))
        if said.author == "user" and not any(named(part, "function_response") for part in parts):
            self._user(parts, said)
        elif parts:
            self._agent_event(parts, said)
        code = named(event, "error_code")
        if code is not None:
            self.error = (str(code), as_text(named(event, "error_message") or ""))
            self.writer.note("status", {"message": ": ".join(filter(None, self.error)), "source": source}, said.time)
        self._act(object_in(event, "actions"), said)

    def _act(self, actions: Mapping[str, Any], said: "_Said") -> None:
        target = named(actions, "transfer_to_agent")
        if isinstance(target, str):
            self.writer.note("handoff", {"to": target, "from": said.author}, said.time)
        if named(actions, "compaction") or named(actions, _REWIND):
            data = {"kept": 0, "dropped": self.writer.turns, "source": said.source}
            self.writer.note("context_rewritten", data, said.time)

    def _user(self, parts: Sequence[Mapping[str, Any]], said: "_Said") -> None:
        content = _content(parts)
        if content.text is not None or content.media:
            self.writer.user(content, said.time, said.source)
            self.error, self.is_open = None, True

    def _agent_event(self, parts: Sequence[Mapping[str, Any]], said: "_Said") -> None:
        """Write a model response, or results of its calls. The response includes tools that the service runs."""
        usage, left = read_usage(named(said.event, "usage_metadata")), list(parts)
        while left:
            count = _leading(left, results=True)
            for part in left[:count]:
                self._result(part, said.time)
            left = left[count:]
            count = _leading(left, results=False)
            if count:
                self._turn(left[:count], said, usage)
                usage = NONE
            left = left[count:]

    def _turn(self, parts: Sequence[Mapping[str, Any]], said: "_Said", usage: Usage) -> None:
        if self._agent is not None and said.author != self._agent:  # other agents' messages are user messages
            others = sum(count for name, count in self._turns.items() if name != said.author)
            data = {"kept": self._turns.get(said.author, 0), "dropped": others}
            self.writer.note("context_rewritten", data, said.time)
        self._agent, self._turns[said.author] = said.author, self._turns.get(said.author, 0) + 1
        calls = [_called(part) for part in parts if named(part, "function_call") or named(part, "executable_code")]
        model = text_in(said.event, "model_version", "modelVersion")
        finish = text_in(said.event, "finish_reason", "finishReason")
        turn = Turn(_content(parts), calls, text_in(said.event, "id"), model, finish, usage, said.time, said.source)
        self.writer.model(turn)
        self.model = self.model or model
        self.error, self.is_open = None, bool(calls)

    def _result(self, part: Mapping[str, Any], time: int | None) -> None:
        response = named(part, "function_response")
        if response is None:
            ran = object_in({"": named(part, "code_execution_result")}, "")
            outcome = text_in(ran, "outcome") or ""
            failed = None if outcome.endswith("OK") else {"code": outcome, "message": as_text(ran.get("output") or "")}
            self.writer.result(None, "code_execution", ran.get("output"), failed, time)
            return
        if not isinstance(response, dict):
            raise LineError("function_response", f"expected an object, found {kind_of(response)}")
        output = response.get("response")
        source = rest_of(response, "id", "name", "response")
        self.writer.result(text_in(response, "id"), text_in(response, "name"), output, _error(output), time, source)
        self.is_open = True


def tell_events(events: Iterable[tuple[str, Any]], item: Item) -> Told:
    """Write events, each with its position. An event that cannot be read becomes an `unreadable` event."""
    teller, unreadable = _Teller(), list[Bad]()
    for place, event in events:
        try:
            teller.tell(event)
        except LineError as error:
            unreadable.append(Bad(item.file, item.position, f"{place}.{error.field}".strip("."), error.reason, event))
            teller.writer.note("unreadable", {"position": place, "reason": error.reason, "raw": event})
    status, why = _end(teller)
    return Told(teller.writer, unreadable, status, why, teller.author, teller.model)


def _end(teller: _Teller) -> tuple[str | None, str | None]:
    if teller.error is not None:
        code, message = teller.error
        infra = code in PROVIDER_CODES or is_provider_trouble(f"{code} {message}")
        return "infra_error" if infra else "failed", f"{code}: {message}" if message else code
    return (None, None) if teller.is_open or teller.writer.waiting else ("answered", None)


# -- parts -------------------------------------------------------------------------------------------------------------


def _parts(content: Any) -> list[dict[str, Any]]:
    if content is None:
        return []
    if not isinstance(content, dict):
        raise LineError("content", f"expected an object, found {kind_of(content)}")
    parts = array_in(content, "parts")
    if not all(isinstance(part, dict) for part in parts):
        raise LineError("content.parts", "expected objects")
    return parts


def _leading(parts: Sequence[Mapping[str, Any]], *, results: bool) -> int:
    """Count the leading parts that are results; if `results` is false, those that are not."""
    kinds = [
        named(part, "function_response") is not None or named(part, "code_execution_result") is not None
        for part in parts
    ]
    return next((number for number, is_result in enumerate(kinds) if is_result != results), len(kinds))


def _content(parts: Sequence[Mapping[str, Any]]) -> Content:
    texts = [part["text"] for part in parts if isinstance(part.get("text"), str) and part.get("thought") is not True]
    thoughts = tuple(
        (part["text"], text_in(part, "thought_signature", "thoughtSignature"))
        for part in parts
        if part.get("thought") is True and isinstance(part.get("text"), str)
    )
    data = (named(part, "inline_data") or named(part, "file_data") for part in parts)
    media = tuple(reference({"type": "file", **each}) for each in data if isinstance(each, dict))
    return Content("".join(texts) if texts else None, thoughts, media)


def _called(part: Mapping[str, Any]) -> Called:
    call = named(part, "function_call")
    if call is None:
        return Called("code_execution", named(part, "executable_code"))
    if not isinstance(call, dict) or text_in(call, "name") is None:
        raise LineError("function_call.name", "missing")
    signature = text_in(part, "thought_signature", "thoughtSignature")
    return Called(call["name"], call.get("args"), text_in(call, "id"), {"signature": signature} if signature else None)


def _error(output: Any) -> dict[str, str] | None:
    """Return the error of a response that has `error` or an error status."""
    if not isinstance(output, dict):
        return None
    if output.get("error"):
        return {"message": as_text(output["error"])}
    if str(output.get("status")).lower() != "error":
        return None
    return {"message": as_text(output.get("error_message") or output.get("message") or output)}


def _is_empty(value: Any) -> bool:
    """Return whether a field is empty: ADK writes empty actions and nodes, too."""
    return not value or (isinstance(value, dict) and all(_is_empty(each) for each in value.values()))
