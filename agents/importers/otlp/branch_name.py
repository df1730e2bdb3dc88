"""Which branch a span belongs to: braid.* attributes of it or a span around it, else of its resource, else its trace."""

from collections.abc import Iterable, Mapping
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
    """By span, the branch that it names; None where its trace is its rollout."""
    return {key: _name((span, *tree.ancestors(key))) for key, span in tree.spans.items()}


def _name(way: Iterable[Span]) -> BranchName | None:
    spans = list(way)
    said = [each.attributes for each in spans] + [each.resource for each in spans]
    rollout = next((found for each in said if (found := _text(each)) is not None), None)
    if rollout is None:
        return None
    numbers = [
        next((index for each in said if (index := _index(each, name)) is not None), 0) for name in (BRANCH, ATTEMPT)
    ]
    return BranchName(rollout, *numbers)


def declares(span: Span) -> bool:
    """Whether a span itself names its branch: it is the branch's root."""
    return ROLLOUT in span.attributes or BRANCH in span.attributes


def _text(said: Mapping[str, Any]) -> str | None:
    found = said.get(ROLLOUT)
    return found if isinstance(found, str) and 0 < len(found) <= MAX_ID else None


def _index(said: Mapping[str, Any], name: str) -> int | None:
    found = said.get(name)
    if isinstance(found, str) and found.isdecimal() and len(found) < 7:
        found = int(found)
    return found if isinstance(found, int) and not isinstance(found, bool) and 0 <= found <= MAX_INDEX else None
