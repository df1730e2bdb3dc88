"""Find the branch of a span: by braid.* attributes of the span or its ancestors, else of its resource, else by its
trace.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from agents.importers.otlp.spans import Span
from agents.importers.traces.span_tree import SpanTree
from schemas.base import MAX_ID, MAX_INDEX

ROLLOUT, BRANCH, ATTEMPT = "braid.rollout_id", "braid.branch_index", "braid.attempt"


class BranchName(NamedTuple):
    """The branch that a trace names."""

    rollout_id: str
    branch_index: int
    attempt: int


def names(tree: SpanTree[Span]) -> dict[str, BranchName | None]:
    """Return the branch of each span, or None if its trace is its rollout."""
    said: dict[str, tuple[_Said, _Said]] = {}
    for key in tree.spans:
        way: list[str] = []
        at: str | None = key
        while at is not None and at not in said:
            way.append(at)
            at = tree.parent(at)
        above = (NOTHING, NOTHING) if at is None else said[at]
        for each in reversed(way):
            span = tree.spans[each]
            above = said[each] = (_said(span.attributes, above[0]), _said(span.resource, above[1]))
    return {key: _name(*said[key]) for key in tree.spans}


class _Said(NamedTuple):
    """The nearest values from a span upwards, of attributes or of resources."""

    rollout_id: str | None
    branch_index: int | None
    attempt: int | None


NOTHING = _Said(None, None, None)


def _said(said: Mapping[str, Any], above: _Said) -> _Said:
    if ROLLOUT not in said and BRANCH not in said and ATTEMPT not in said:
        return above
    own = _Said(_text(said), _index(said, BRANCH), _index(said, ATTEMPT))
    return _Said(*(mine if mine is not None else theirs for mine, theirs in zip(own, above, strict=True)))  # type: ignore[arg-type]


def _name(attributes: _Said, resources: _Said) -> BranchName | None:
    """Return the branch name. Attributes take precedence over resources."""
    rollout = resources.rollout_id if attributes.rollout_id is None else attributes.rollout_id
    if rollout is None:
        return None
    index = resources.branch_index if attributes.branch_index is None else attributes.branch_index
    attempt = resources.attempt if attributes.attempt is None else attributes.attempt
    return BranchName(rollout, index or 0, attempt or 0)


def declares(span: Span) -> bool:
    """Return whether a span itself names its branch: then it is the branch's root."""
    return ROLLOUT in span.attributes or BRANCH in span.attributes


def _text(said: Mapping[str, Any]) -> str | None:
    found = said.get(ROLLOUT)
    return found if isinstance(found, str) and 0 < len(found) <= MAX_ID else None


def _index(said: Mapping[str, Any], name: str) -> int | None:
    found = said.get(name)
    if isinstance(found, str) and found.isdecimal() and len(found) < 7:
        found = int(found)
    return found if isinstance(found, int) and not isinstance(found, bool) and 0 <= found <= MAX_INDEX else None
