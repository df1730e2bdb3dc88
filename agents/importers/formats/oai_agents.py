"""Traces of the OpenAI Agents SDK: lines of `trace` and `trace.span` objects, ordered by the end of the span.

Generation spans have the messages of a call. Response spans (Responses API) have only its id and usage. `turn` and
`task` spans repeat the usage of their calls and are not counted.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from agents.importers.line_error import LineError
from agents.importers.traces.call_facts import CallFacts
from agents.importers.traces.episode_reader import each_alone, is_json, members, per_item
from agents.importers.traces.fields import an_object, millis, nanos, object_in, rest_of, text_in
from agents.importers.traces.format import Bad, Episode, Format, Head, Item, Options, Piece
from agents.importers.traces.span_tree import SpanTree, told_once
from agents.importers.traces.spoken_chat import Unread, merged, read_messages
from agents.importers.traces.tool_join import Moment, RunCall, ToolRun
from agents.importers.traces.traced_end import TracedEnd, call_trouble, traced_end
from agents.importers.traces.traced_run import RunNote, TracedRun
from agents.importers.traces.tracker import TracedCall
from agents.importers.traces.usage import read_usage

Span = dict[str, Any]

_OBJECT = re.compile(rb'"object"\s*:\s*"trace(\.span)?"')
_REPEATED = ("turn", "task")
"""Custom spans of the SDK that repeat the usage of the calls below them."""


def recognise(names: Sequence[str], head: Head) -> bool:
    """Recognise objects of the kind `trace` or `trace.span`."""
    return any(
        is_json(name)
        and _OBJECT.search(head(name)) is not None
        and not {"object", "data"}.isdisjoint(members(head(name)))
        for name in names
    )


def _scatter(item: Item, options: Options) -> Iterator[Piece | Bad]:
    """Yield the objects of an item, grouped by trace. The exporter sends them in batches: {data}."""
    value = an_object(item.value, "")
    if "object" not in value and isinstance(value.get("data"), list):
        for number, each in enumerate(value["data"]):
            yield from _scatter(item._replace(value=an_object(each, f"data[{number}]")), options)
        return
    kind = value.get("object")
    if kind not in ("trace", "trace.span"):
        raise LineError("object", f"expected trace or trace.span, found {kind!r}")
    if text_in(value, "id") is None:
        raise LineError("id", "missing")
    trace = text_in(value, "id" if kind == "trace" else "trace_id")
    if trace is None:
        raise LineError("trace_id", "missing")
    if kind == "trace.span":
        an_object(value.get("span_data"), "span_data")
    yield Piece(f"trace {trace}", value)


def _read(item: Item, _options: Options) -> Iterator[Episode]:
    objects = told_once(item.value, lambda each: f"{each['object']} {each['id']}")
    trace: dict[str, Any] = next((each for each in objects.values() if each["object"] == "trace"), {})
    spans = {str(each["id"]): each for each in objects.values() if each["object"] == "trace.span"}
    reading = _Reading(SpanTree(spans, lambda span: text_in(span, "parent_id")))
    run = TracedRun(reading.calls, reading.tools, reading.notes)
    end = reading.end(run)
    yield Episode(
        file=item.file, position=item.position, run=item.run, task_key=item.position.removeprefix("trace "),
        order=min((_at(span) for span in spans.values()), default=(0, "")), source=rest_of(trace, "object", "id"),
        record=trace, events=run.events(answered=end.status == "answered"), info=reading.info(trace),
        status=end.status, error=end.error,
        unreadable=[Bad(item.file, item.position, field, reason, raw) for field, reason, raw in reading.unread.found],
    )  # fmt: skip


class _Reading:
    """The spans of one trace, sorted into calls, tool runs and notes."""

    def __init__(self, tree: SpanTree[Span]) -> None:
        self._tree = tree
        self.calls: list[RunCall] = []
        self.tools: list[ToolRun] = []
        self.notes: list[RunNote] = []
        self.unread = Unread()
        for span in tree.spans.values():
            data, kind = span["span_data"], _kind(span)
            if kind in ("generation", "response"):
                self.calls.append(self._call(span, data))
            elif kind == "function":
                self.tools.append(self._tool(span, data))
            elif kind == "guardrail":
                self.notes.append(_guardrail(span, data))
            elif kind == "handoff":
                fields = {"to": data.get("to_agent"), "from": data.get("from_agent")}
                self.notes.append(
                    _note(span, "handoff", {name: each for name, each in fields.items() if each is not None})
                )
            elif kind != "agent" and not (kind == "custom" and _sdk_kind(data) in _REPEATED):
                self.notes.append(
                    _note(span, "status", {"message": f"{kind} {data.get('name') or ''}".strip(), "source": data})
                )

    def _call(self, span: Span, data: Mapping[str, Any]) -> RunCall:
        config = object_in(data, "model_config")
        error = _error(span)
        facts = CallFacts(
            model=text_in(data, "model"),
            sampling={name: config.get(name) for name in ("temperature", "top_p", "max_tokens")},
            usage=read_usage(data.get("usage")),
            error=None if error is None else call_trouble(error),
            started_ms=millis(span.get("started_at")),
            ended_ms=millis(span.get("ended_at")),
            source=_source(data, "model", "model_config", "usage", "input", "output", "type")
            | ({"model_config": rest} if (rest := rest_of(config, "temperature", "top_p", "max_tokens")) else {}),
        )
        place = f"span {span['id']}"
        given, said = data.get("input"), data.get("output")
        response = None if said is None else merged(read_messages(said, f"{place} output", self.unread))
        sent = {"role": "user", "content": given} if isinstance(given, str) else given
        messages = [] if sent is None else read_messages(sent, f"{place} input", self.unread)
        call = TracedCall(messages, response, str(span["id"]), self._agent(span), facts)
        recorded = bool(messages) and (response is not None or error is not None)
        return RunCall(_at(span), call, self._turn(span), recorded)

    def _tool(self, span: Span, data: Mapping[str, Any]) -> ToolRun:
        error = object_in(span, "error")
        details = object_in(error, "data")
        return ToolRun(
            _at(span), text_in(data, "name"), data.get("input"), data.get("output"),
            {"message": text_in(details, "error") or text_in(error, "message") or "failed"} if error else None,
            turn=self._turn(span), ended_ms=millis(span.get("ended_at")), agent=self._agent(span),
            source=_source(data, "name", "input", "output", "type"),
        )  # fmt: skip

    def _turn(self, span: Span) -> str:
        return self._tree.parent(str(span["id"])) or ""

    def _agent(self, span: Span) -> str | None:
        """Return the agent that a span belongs to."""
        above = (each["span_data"] for each in self._tree.ancestors(str(span["id"])) if _kind(each) == "agent")
        return next((text_in(each, "name") for each in above), None)

    def end(self, run: TracedRun) -> TracedEnd:
        """Return the end of the run. Its error is that of a root or of an agent that no other agent called."""
        roots = self._tree.roots()
        outer = [span for name, span in self._tree.spans.items() if self._is_outer(name, span)]
        errors = [error for span in sorted(outer, key=_at) if (error := _error(span)) is not None]
        ended = bool(roots) and all(span.get("ended_at") and span.get("parent_id") is None for span in roots)
        return traced_end(ended=ended, last_trouble=run.last_trouble, error=errors[-1] if errors else None)

    def _is_outer(self, name: str, span: Span) -> bool:
        """Return whether a span is an agent that no other agent called, or one of its turns: its error is the run's
        error.
        """
        depth = sum(_kind(each) == "agent" for each in self._tree.ancestors(name))
        if _kind(span) == "custom":
            return depth == 0 or (depth == 1 and _sdk_kind(span["span_data"]) == "turn")
        return _kind(span) == "agent" and depth == 0

    def info(self, trace: Mapping[str, Any]) -> dict[str, Any]:
        """Return the agent and the session of the branch."""
        agents = sorted((span for span in self._tree.spans.values() if _kind(span) == "agent"), key=_at)
        models = {each.call.facts.model for each in self.calls}
        fields = {
            "name": text_in(agents[0]["span_data"], "name") if agents else None,
            "model": next(iter(models)) if len(models) == 1 else None,
        }
        agent = {name: value for name, value in fields.items() if value is not None}
        return {"session_id": text_in(trace, "group_id")} | ({"agent": agent} if agent else {})


def _guardrail(span: Span, data: Mapping[str, Any]) -> RunNote:
    name = text_in(data, "name")
    if data.get("triggered") is True:
        return _note(span, "guardrail_tripwire", {"rule": name})
    return _note(span, "status", {"message": f"guardrail {name}: not triggered"})


def _note(span: Span, event: str, data: dict[str, Any]) -> RunNote:
    return RunNote(_at(span), event, data, millis(span.get("started_at")))


def _source(data: Mapping[str, Any], *read: str) -> dict[str, Any]:
    return rest_of(data, *read)


def _error(span: Span) -> str | None:
    """Return the error text of a span."""
    error = span.get("error")
    if error is None:
        return None
    if not isinstance(error, dict):
        return str(error)
    words = (text_in(error, "message"), text_in(object_in(error, "data"), "error"))
    return ": ".join(each for each in words if each) or "failed"


def _at(span: Span) -> Moment:
    return nanos(span.get("started_at")) or 0, str(span["id"])


def _kind(span: Span) -> str:
    return text_in(span["span_data"], "type") or "unknown"


def _sdk_kind(data: Mapping[str, Any]) -> str | None:
    return text_in(object_in(data, "data"), "sdk_span_type") or text_in(data, "name")


FORMAT = Format(
    name="oai-agents",
    about="traces of the OpenAI Agents SDK: lines of objects trace and trace.span",
    rollout="trace; --group-by metadata.<field> for several traces of a task",
    verdict="none",
    unknown="texts of response spans (Responses API), tool definitions, whether an answer was right",
    recognise=recognise,
    plan=partial(each_alone, fits=is_json),
    read=per_item(_read),
    scatter=_scatter,
)
