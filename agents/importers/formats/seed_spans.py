"""Read traces in the seed importers' shapes (`--shape seed`): flat spans in lines, grouped by trace."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from agents.importers.formats.seed_results import words
from agents.importers.traces.content import Content
from agents.importers.traces.episode_reader import guarded
from agents.importers.traces.fields import an_object, as_text, millis, object_in, rest_of, text_in
from agents.importers.traces.format import Episode, Item, Options, Read, Reading
from agents.importers.traces.transcript_writer import Called, TranscriptWriter, Turn
from agents.summarize.event_reader import is_provider_trouble

_ARGUMENTS = ("arguments", "args", "input", "inputs", "parameters")
_OUTPUTS = ("output", "outputs", "result", "response")


Spans = Mapping[str, Mapping[str, Any]]
"""Spans by id."""


class Dialect(NamedTuple):
    """How one system writes its spans."""

    fields: Sequence[str]
    """Members that identify its lines. A name with ! must be absent."""
    trace: "Callable[[Spans], Callable[[Mapping[str, Any]], str]]"
    """Returns the trace of a span. It needs all spans, because the trace may follow from the parents."""
    id: Sequence[str]
    time: Sequence[str]
    tell: "Callable[[_Story, Mapping[str, Any]], None]"


class _Story:
    """A trace that is being written."""

    def __init__(self) -> None:
        self.writer = TranscriptWriter()
        self.error: str | None = None
        self.model: str | None = None

    def call(
        self, span: Mapping[str, Any], name: str, arguments: Any, output: Any, call_id: str | None, time: int | None
    ) -> None:
        """Write a tool call with its output or its error."""
        error = span.get("error")
        known = {"error": error} if error else {}
        self.writer.model(Turn(calls=[Called(name, arguments, call_id)], time=time))
        if output is not None or error:
            message = {"message": as_text(error)} if known else None
            self.writer.result(call_id, name, as_text(error) if output is None else output, message, time)

    def turn(self, text: str | None, model: str | None, time: int | None, source: Mapping[str, Any]) -> None:
        """Write a model response."""
        self.model = self.model or model
        self.writer.model(Turn(Content(text), model=model, time=time, source=source))


def _first(value: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((value[name] for name in names if value.get(name) is not None), None)


def _moment(span: Mapping[str, Any], dialect: Dialect) -> int | None:
    return millis(_first(span, dialect.time))


def spans(format_name: str, dialect: Dialect) -> Read:
    """Return a reader of spans. It groups the spans of a file by trace and sorts them by time and id."""

    def read(items: Iterable[Item], _options: Options) -> Reading:
        found: list[tuple[Item, dict[str, Any]]] = []
        for item in items:
            yield from guarded(item, _kept(item, found))
        by_id = {as_text(name): span for _, span in found if (name := _first(span, dialect.id)) is not None}
        traces: dict[str, list[tuple[Item, dict[str, Any]]]] = {}
        trace_of = dialect.trace(by_id)
        for item, span in found:
            traces.setdefault(trace_of(span), []).append((item, span))
        for trace, members in sorted(traces.items()):
            ordered = sorted(
                members, key=lambda each: (_moment(each[1], dialect) or 0, as_text(_first(each[1], dialect.id) or ""))
            )
            yield from guarded(
                ordered[0][0], _episode(format_name, trace, [span for _, span in ordered], ordered[0][0], dialect)
            )

    return read


def _kept(item: Item, found: list[tuple[Item, dict[str, Any]]]) -> Iterator[Episode]:
    found.append((item, an_object(item.value, "")))
    yield from ()


def _episode(
    format_name: str, trace: str, members: Sequence[dict[str, Any]], item: Item, dialect: Dialect
) -> Iterator[Episode]:
    story = _Story()
    for span in members:
        dialect.tell(story, span)
    infra = story.error is not None and is_provider_trouble(story.error)
    status = "infra_error" if infra else "failed" if story.error else "answered"
    first = members[0]
    agent = {"name": text_in(first, "agent_name"), "model": story.model}
    yield Episode(
        file=item.file, position=item.position, run=item.run, task_key=trace, record=first, version="seed",
        source={"spans": [rest_of(span, "inputs", "outputs", "content") for span in members]},
        info={"session_id": text_in(first, "session_id"), "agent": agent if any(agent.values()) else None},
        events=story.writer.finish(answers=status == "answered"), status=status, error=story.error,
        labels={"shape": "seed", "source": format_name},
    )  # fmt: skip


def _by_trace_id(_by_id: Spans) -> Callable[[Mapping[str, Any]], str]:
    return lambda span: as_text(span.get("trace_id") or span.get("traceId") or "unknown")


def _by_root(by_id: Spans) -> Callable[[Mapping[str, Any]], str]:
    """Return the first ancestor of a run. Parents may be missing or form a cycle."""
    roots: dict[str, str] = {}

    def root(span: Mapping[str, Any]) -> str:
        name = as_text(span.get("id") or "")
        path: dict[str, None] = {}
        while name not in roots and name not in path:
            path[name] = None
            parent = by_id.get(name, {}).get("parent_run_id")
            if parent is None or as_text(parent) not in by_id:
                roots[name] = name
            else:
                name = as_text(parent)
        found = roots.get(name) or min(list(path)[list(path).index(name) :])
        roots.update(dict.fromkeys(path, found))
        return found

    return root


# -- dialects ----------------------------------------------------------------------------------------------------------


def _adk(story: _Story, span: Mapping[str, Any]) -> None:
    """type model_response, function_call, function_response, agent_transfer or final_response, with free `content`."""
    kind, content, time = span.get("type"), object_in(span, "content"), millis(span.get("timestamp"))
    name = text_in(content, "function_name", "name", "tool_name")
    if kind == "function_call":
        story.call(span, name or "unknown", _first(content, _ARGUMENTS), None, text_in(content, "call_id", "id"), time)
    elif kind == "function_response":
        error = {"message": as_text(span["error"])} if span.get("error") else None
        story.writer.result(text_in(content, "call_id", "id"), name, _first(content, _OUTPUTS), error, time)
    elif kind == "agent_transfer":
        story.writer.note("handoff", {"to": text_in(content, "agent_name", "to") or "", "source": dict(content)}, time)
    elif kind in ("model_response", "final_response"):
        if kind == "final_response":
            story.error = as_text(span["error"]) if span.get("error") else story.error
        story.turn(words(content), text_in(content, "model"), time, rest_of(content, "text", "content", "model"))
    else:
        story.writer.note("status", {"message": as_text(kind or ""), "source": dict(span)}, time)


def _oai_agents(story: _Story, span: Mapping[str, Any]) -> None:
    """type agent.run, llm.generate, tool.call, handoff, guardrail or custom, with free `attributes`."""
    kind, found, time = span.get("type"), object_in(span, "attributes"), millis(span.get("started_at"))
    if kind == "tool.call":
        name = text_in(found, "tool_name") or text_in(span, "name") or "unknown"
        story.call(span, name, _first(found, _ARGUMENTS), _first(found, _OUTPUTS), text_in(span, "span_id"), time)
    elif kind == "llm.generate":
        asked = words(_first(found, ("input", "prompt")))
        if asked and not story.writer.turns:
            story.writer.user(asked, time)
        story.turn(
            words(_first(found, _OUTPUTS)) or words(found),
            text_in(found, "model"),
            time,
            rest_of(found, "model", *_OUTPUTS),
        )
    elif kind == "guardrail":
        tripped = found.get("triggered") is True
        story.writer.note(
            "guardrail_tripwire" if tripped else "status", {"rule": text_in(span, "name"), "source": found}, time
        )
    else:
        story.writer.note(
            "handoff" if kind == "handoff" else "status",
            {"message": text_in(span, "name") or "", "source": found},
            time,
        )
    if span.get("error") and kind != "tool.call":
        story.error = as_text(span["error"])


def _langsmith(story: _Story, run: Mapping[str, Any]) -> None:
    """run_type chain, llm, tool, ..., linked by parent_run_id."""
    kind, time = run.get("run_type"), millis(run.get("start_time"))
    inputs, outputs = run.get("inputs"), run.get("outputs")
    if kind == "tool":
        given = _first(outputs, _OUTPUTS) if isinstance(outputs, dict) and len(outputs) == 1 else None
        story.call(
            run,
            text_in(run, "name") or "unknown",
            inputs,
            outputs or None if given is None else given,
            text_in(run, "id"),
            time,
        )
    elif kind == "llm":
        if not story.writer.turns and (asked := words(inputs)):
            story.writer.user(asked, time)
        params = object_in(run, "extra", "invocation_params")
        story.turn(
            words(outputs), text_in(params, "model") or text_in(run, "name"), time, rest_of(run, "inputs", "outputs")
        )
    elif run.get("parent_run_id") is None and (
        asked := words(inputs) or text_in(object_in(run, "inputs"), "input", "question")
    ):
        story.writer.user(asked, time)
    if run.get("error") and kind != "tool":
        story.error = as_text(run["error"])


def _otel(story: _Story, span: Mapping[str, Any]) -> None:
    """Flat spans: names that begin with `tool` are calls; `guardrail` and `policy` are rules."""
    found = object_in(span, "attributes") or object_in(span, "tags")
    name, time = (
        text_in(span, "name", "operationName") or "",
        millis(_first(span, ("start_time", "startTime", "timestamp"))),
    )
    story.model = story.model or text_in(found, "model", "llm.model", "gen_ai.request.model")
    if name.lower() == "guardrail" or "policy" in name.lower():
        tripped = found.get("triggered") is True
        story.writer.note("guardrail_tripwire" if tripped else "status", {"rule": name, "source": found}, time)
    elif name.lower().startswith("tool") or text_in(found, "tool_name"):
        tool = text_in(found, "tool_name", "rpc.method") or name
        story.call(
            span, tool, _first(found, _ARGUMENTS), _first(found, _OUTPUTS), text_in(span, "span_id", "spanId"), time
        )
    else:
        story.writer.note("status", {"message": name, "source": found}, time)


DIALECTS: Mapping[str, Dialect] = {
    "adk": Dialect(("event_id", "trace_id", "type"), _by_trace_id, ("event_id",), ("timestamp",), _adk),
    "oai-agents": Dialect(
        ("span_id", "trace_id", "type", "started_at"), _by_trace_id, ("span_id",), ("started_at",), _oai_agents
    ),
    "langsmith": Dialect(("id", "run_type", "start_time"), _by_root, ("id",), ("start_time",), _langsmith),
    "otel": Dialect(
        ("name", "attributes", "!type"),
        _by_trace_id,
        ("span_id", "spanId"),
        ("start_time", "startTime", "timestamp"),
        _otel,
    ),
}
