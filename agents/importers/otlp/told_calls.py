"""Deduplicate the model calls of a branch: an SDK and an instrumentation may both write a span for one call.

Two spans describe one call in three cases: one is nested in the other and in its time; they overlap in time and have
the same response id; or one without messages lies in the time of another under the same parent. The richest span is
read. The other spans fill its gaps, and usage counts once.
"""

from collections.abc import Mapping, Sequence

from agents.importers.otlp.model_span import ModelSpan, merged_facts
from agents.importers.otlp.spans import Span
from agents.importers.traces.span_tree import SpanTree


def calls_once(told: Mapping[str, ModelSpan], tree: SpanTree[Span]) -> list[ModelSpan]:
    """Return the calls of model spans, which are given by their keys in the tree."""
    groups = _Groups(told)
    for key in told:
        outer = _outer(key, told, tree)
        if outer is not None and _meet(told[key].span, told[outer].span):
            groups.join(outer, key)
    for one, other in [*_same_response(told), *_beside(told, tree)]:
        groups.join(one, other)
    calls: list[ModelSpan] = []
    for members in groups.all():
        calls += _one_or_more([told[key] for key in members])
    return calls


def _outer(key: str, told: Mapping[str, ModelSpan], tree: SpanTree[Span]) -> str | None:
    """Return the nearest enclosing model span with no tool or agent in between."""
    parent = tree.parent(key)
    while parent is not None:
        if parent in told:
            return parent
        if tree.spans[parent].attributes.get("gen_ai.operation.name") in ("execute_tool", "invoke_agent"):
            return None
        if tree.spans[parent].attributes.get("openinference.span.kind") in ("TOOL", "AGENT"):
            return None
        parent = tree.parent(parent)
    return None


def _meet(one: Span, other: Span) -> bool:
    """Return whether two spans overlap in time.

    A span without an end is still running. Parents may be wrong or cyclic.
    """
    return (not other.end or one.start <= other.end) and (not one.end or other.start <= one.end)


def _same_response(told: Mapping[str, ModelSpan]) -> list[tuple[str, str]]:
    """Return pairs of spans that overlap in time and have the same response id: some servers use one id for all
    responses.
    """
    by_id: dict[tuple[str, str], list[str]] = {}
    for key, each in told.items():
        if each.response_id is not None:
            by_id.setdefault((each.span.trace_id, each.response_id), []).append(key)
    found = []
    for keys in by_id.values():
        ordered = sorted(keys, key=lambda key: told[key].span.at)
        last = ordered[0]
        for key in ordered[1:]:
            if told[key].span.start < told[last].span.end:
                found.append((last, key))
            if told[key].span.end > told[last].span.end:
                last = key
    return found


def _beside(told: Mapping[str, ModelSpan], tree: SpanTree[Span]) -> list[tuple[str, str]]:
    """Return pairs of a span without messages and a neighbouring span whose time includes it."""
    recorded: dict[str | None, list[str]] = {}
    for key, each in told.items():
        if each.messages is not None:
            recorded.setdefault(tree.parent(key), []).append(key)
    found = []
    for key, each in told.items():
        if each.messages is not None or each.response_id is not None:
            continue
        span = each.span
        for other in recorded.get(tree.parent(key), ()):
            around = told[other]
            same_model = each.facts.model is None or each.facts.model == around.facts.model
            if same_model and around.span.start <= span.start and span.end <= around.span.end:
                found.append((key, other))
                break
    return found


def _one_or_more(members: Sequence[ModelSpan]) -> list[ModelSpan]:
    """Return the calls of a group: one call, or several inside a summarising span.

    Failed attempts inside are calls, too.
    """
    if len(members) == 1:
        return list(members)
    ordered = sorted(members, key=lambda each: (each.span.start, -each.span.end, each.span.span_id))
    inner = [each for each in ordered if each.is_recorded and each.choices]
    ids = {each.response_id for each in inner if each.response_id is not None}
    if len(ids) > 1 and len(inner) > len(ids):  # the outer span repeats the last of several calls
        inner = [each for each in inner if each.response_id is not None]
    if len(ids) > 1:
        return inner
    best = max(ordered, key=lambda each: (each.richness, -each.span.start, each.span.span_id))
    retries = [each for each in ordered if each.facts.error is not None and each is not best]
    whole = best
    for each in ordered:
        if each is not best and each not in retries:
            whole = whole._replace(facts=merged_facts(whole.facts, each.facts))
    if best.facts.error is not None:  # all spans describe the same failure
        return [whole]
    tried = [each._replace(messages=best.messages) for each in retries if not each.choices]
    begun = max((each.span.end for each in tried), default=0)  # the answered attempt came after the others
    return [*tried, whole._replace(span=best.span._replace(start=max(begun, best.span.start)))]


class _Groups:
    """Groups of keys that belong together (union-find)."""

    def __init__(self, keys: Mapping[str, object]) -> None:
        self._parents = {key: key for key in keys}

    def join(self, one: str, other: str) -> None:
        self._parents[self._root(other)] = self._root(one)

    def all(self) -> list[list[str]]:
        found: dict[str, list[str]] = {}
        for key in self._parents:
            found.setdefault(self._root(key), []).append(key)
        return list(found.values())

    def _root(self, key: str) -> str:
        while self._parents[key] != key:
            self._parents[key] = self._parents[self._parents[key]]
            key = self._parents[key]
        return key
