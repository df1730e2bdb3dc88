"""Spans by their parents. Cycles are cut, so walking up the ancestors always ends."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from schemas.jsontext import compact

S = TypeVar("S")
V = TypeVar("V")


class SpanTree(Generic[S]):
    """The spans of one trace. A parent that is missing, or that leads back to its child, counts as none."""

    def __init__(self, spans: Mapping[str, S], parent_of: Callable[[S], str | None]) -> None:
        self.spans = spans
        self.parent_of = parent_of
        self._parents: dict[str, str | None] = {}
        for name, span in spans.items():
            parent = parent_of(span)
            self._parents[name] = parent if parent in spans and parent != name else None
        self._cut_cycles()

    def parent(self, name: str) -> str | None:
        """Return the id of a span's parent, or None for a root."""
        return self._parents[name]

    def ancestors(self, name: str) -> Iterator[S]:
        """Yield a span's parent, its parent, and so on."""
        parent = self._parents[name]
        while parent is not None:
            yield self.spans[parent]
            parent = self._parents[parent]

    def roots(self) -> list[S]:
        """Return the spans without a parent."""
        return [span for name, span in self.spans.items() if self._parents[name] is None]

    def _cut_cycles(self) -> None:
        """Make the smallest span of each cycle a root, so that the result does not depend on the order of spans."""
        known: set[str] = set()
        for name in sorted(self.spans):
            way: dict[str, None] = {}
            at: str | None = name
            while at is not None and at not in known and at not in way:
                way[at] = None
                at = self._parents[at]
            if at is not None and at in way:
                circle = list(way)[list(way).index(at) :]
                self._parents[min(circle)] = None
            known.update(way)


def told_once(values: Iterable[V], id_of: Callable[[V], str], size_of: Callable[[V], str] = compact) -> dict[str, V]:
    """Return values by id, in the order of ids. Of several versions of a value the longest is kept."""
    found: dict[str, V] = {}
    for value in values:
        name = id_of(value)
        known = found.get(name)
        if known is None or _longer(size_of(value), size_of(known)):
            found[name] = value
    return {name: found[name] for name in sorted(found)}


def _longer(one: str, other: str) -> bool:
    return (len(one), one) > (len(other), other)
