"""Build an episode from the spans of one branch: calls, tool runs, notes, verdicts and its end."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agents.importers.otlp import gen_ai, openinference
from agents.importers.otlp.attribute_tree import nested, parsed
from agents.importers.otlp.branch_name import BranchName, declares
from agents.importers.otlp.known_messages import KnownMessages
from agents.importers.otlp.model_span import ModelSpan
from agents.importers.otlp.spans import Span, trouble_of
from agents.importers.otlp.told_calls import calls_once
from agents.importers.traces.fields import text_in
from agents.importers.traces.span_tree import SpanTree
from agents.importers.traces.spoken_chat import Unread
from agents.importers.traces.tool_join import RunCall, ToolRun
from agents.importers.traces.traced_end import TracedEnd, traced_end
from agents.importers.traces.traced_run import RunNote, TracedRun
from agents.importers.traces.tracker import TracedCall


def kind_of(span: Span) -> str | None:
    """Return model, tool, agent, chain, guardrail or evaluator. Returns None for any other span."""
    return openinference.kind_of(span) or gen_ai.kind_of(span)


def key_of(span: Span) -> str:
    """Return a key for a span that is unique among several traces."""
    return f"{span.trace_id}/{span.span_id}"


class BranchSpans:
    """The spans of a branch, sorted into calls, tool runs and notes."""

    def __init__(self, tree: SpanTree[Span], outside: frozenset[str]) -> None:
        """`outside` holds the keys of spans whose parent belongs to another branch."""
        self.tree = tree
        self._outside = outside
        self.unread = Unread()
        self.kinds = {key: kind_of(span) for key, span in tree.spans.items()}
        self._ordered = sorted(tree.spans.values(), key=lambda each: each.at)
        self.root = min(tree.roots(), key=lambda each: each.at)
        """The earliest span without a parent in this branch."""
        self.session = self._session()
        self._agents = self._agents_of()
        self._known = KnownMessages()
        read = {key: self._model(tree.spans[key]) for key in self._models_in_time()}
        told = {key: read[key] for key, kind in self.kinds.items() if kind == "model"}
        self._calls = calls_once(told, tree)
        self.run = TracedRun(
            [self._call(each) for each in self._calls], list(self._tools()), list(self._notes()), self._task()
        )

    @property
    def tells_something(self) -> bool:
        """Return whether any span is a model, tool or agent span."""
        return any(kind is not None for kind in self.kinds.values())

    def end(self) -> TracedEnd:
        """Return the end of the branch."""
        tops = sorted(
            (span for key, span in self.tree.spans.items() if self.tree.parent(key) is None), key=lambda each: each.at
        )
        ended = bool(tops) and all(span.end > 0 and self._is_top(span) for span in tops)
        failed = [
            found for span in tops if self.kinds[key_of(span)] != "model" and (found := trouble_of(span)) is not None
        ]
        words = [f"{kind}: {message}" if kind and kind not in message else message for message, kind in failed]
        return traced_end(ended=ended, last_trouble=self.run.last_trouble, error=words[-1] if words else None)

    def evaluations(self) -> Iterator[Mapping[str, Any]]:
        """Yield the results of evaluators."""
        for span in self._ordered:
            yield from gen_ai.evaluations(span)
            yield from openinference.evaluations(span)

    def record(self) -> dict[str, Any]:
        """Return all fields for --group-by: attributes of the first root and of its resource."""
        root = self.root
        attributes = nested(root.attributes, "")
        metadata = parsed(root.attributes.get("metadata"))
        return {
            "trace_id": root.trace_id, "name": root.name, "resource": nested(root.resource, ""), "attributes": attributes,
            "metadata": metadata if isinstance(metadata, dict) else {}, "session": {"id": self.session},
        }  # fmt: skip

    def _session(self) -> str | None:
        """Return the session or conversation that a span names."""
        for span in self._ordered:
            found = text_in(span.attributes, "session.id", "gen_ai.conversation.id")
            if found is not None:
                return found
        return None

    def info(self) -> dict[str, Any]:
        """Return session, agent and sampling of the branch."""
        models = {each.facts.model for each in self._calls}
        agents = sorted(
            (span for key, span in self.tree.spans.items() if self.kinds[key] == "agent"), key=lambda each: each.at
        )
        agent = {
            "name": self._name(agents[0]) if agents else text_in(self.root.resource, "service.name"),
            "model": next(iter(models)) if len(models) == 1 else None,
            "version": text_in(self.root.resource, "service.version"),
        }
        known = {name: value for name, value in agent.items() if value is not None}
        return {"session_id": self.session} | ({"agent": known} if known else {})

    # -- spans ---------------------------------------------------------------------------------------------------------

    def _models_in_time(self) -> list[str]:
        """Return model spans in call order: each call begins with the history of the previous one."""
        return [key for each in self._ordered if self.kinds[key := key_of(each)] == "model"]

    def _model(self, span: Span) -> ModelSpan:
        if openinference.kind_of(span) == "model":
            return openinference.read_model(span, self.unread, self._known)
        return gen_ai.read_model(span, self.unread, self._known)

    def _call(self, told: ModelSpan) -> RunCall:
        key = key_of(told.span)
        first = told.choices[0] if told.choices else None
        call = TracedCall(told.messages or (), first, told.span.span_id, self._agents[key], told.facts)
        return RunCall(told.span.at, call, self.tree.parent(key) or "", told.is_recorded, told.choices[1:])

    def _tools(self) -> Iterator[ToolRun]:
        for key, kind in self.kinds.items():
            span = self.tree.spans[key]
            if kind != "tool" or self._is_told(key, span):
                continue
            found = trouble_of(span)
            error = None if found is None else {**({"code": found[1]} if found[1] else {}), "message": found[0]}
            dialect = openinference if openinference.kind_of(span) == "tool" else gen_ai
            yield dialect.read_tool(span, self.tree.parent(key) or "", self._agents[key], error)

    def _is_told(self, key: str, span: Span) -> bool:
        """Return whether an enclosing tool span describes the same run."""
        parent = self.tree.parent(key)
        while parent is not None and self.kinds[parent] is None:
            parent = self.tree.parent(parent)
        if parent is None or self.kinds[parent] != "tool":
            return False
        return _tool_name(self.tree.spans[parent]) == _tool_name(span)

    def _notes(self) -> Iterator[RunNote]:
        for key, kind in self.kinds.items():
            if kind == "guardrail":
                span = self.tree.spans[key]
                data = {"message": f"guardrail {span.name}", "source": dict(span.attributes)}
                yield RunNote(span.at, "status", data, span.started_ms)

    def _task(self) -> str | None:
        """Return the input of the outermost agent span if it is a text."""
        agents = [span for key, span in self.tree.spans.items() if self.kinds[key] in ("agent", "chain")]
        for span in sorted(agents, key=lambda each: each.at):
            given = span.attributes.get("input.value")
            if isinstance(given, str) and given and not isinstance(parsed(given), dict | list):
                return given
        return None

    def _agents_of(self) -> dict[str, str | None]:
        """Return for each span the name of its nearest enclosing agent."""
        found: dict[str, str | None] = {}
        for key in self.tree.spans:
            way = []
            at: str | None = key
            while at is not None and at not in found:
                way.append(at)
                at = self.tree.parent(at)
            name = None if at is None else found[at]
            for each in reversed(way):
                name = self._name(self.tree.spans[each]) if self.kinds[each] == "agent" else name
                found[each] = name
        return found

    def _name(self, span: Span) -> str | None:
        if openinference.kind_of(span) == "agent":
            return openinference.agent_name(span)
        return gen_ai.agent_name(span)

    def _is_top(self, span: Span) -> bool:
        """Return whether a span without a parent here is a real root; otherwise its parent has not arrived yet."""
        return span.parent_id is None or span.is_remote or declares(span) or key_of(span) in self._outside


def _tool_name(span: Span) -> str:
    return text_in(span.attributes, "gen_ai.tool.name", "tool.name") or span.name


def order_of(spans: Sequence[Span]) -> tuple[int, str]:
    """Return the start time of a branch and an id, for sorting."""
    return min((span.start, key_of(span)) for span in spans)


def named(name: BranchName) -> str:
    """Return the branch's name for display."""
    return f"branch {name.branch_index} attempt {name.attempt} of {name.rollout_id}"
