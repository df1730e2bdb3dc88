"""A session as a tree: every path from a root to a leaf is a branch, and branches share prefixes.

Entries without text of their own (settings, reminders, progress) never make a branch. If only such entries follow an
entry, they are written right after it in every branch that contains it.
"""

from typing import Generic, TypeVar

from agents.importers.line_error import LineError

T = TypeVar("T")

MAX_BRANCHES = 1000
MAX_TOLD = 5_000_000
"""Maximum number of entries in all branches together: each branch repeats its shared prefix."""


class SessionTree(Generic[T]):
    """Entries with parents. A parent is always an earlier entry, so there are no cycles."""

    def __init__(self) -> None:
        self._parents: list[int | None] = []
        self._speaks: list[bool] = []
        self._values: list[T] = []

    def add(self, parent: int | None, value: T, *, speaks: bool) -> int:
        """Add an entry below an earlier one; returns its number."""
        self._parents.append(parent)
        self._speaks.append(speaks)
        self._values.append(value)
        return len(self._values) - 1

    def value(self, number: int) -> T:
        """Return the value of an entry."""
        return self._values[number]

    def __len__(self) -> int:
        return len(self._values)

    def paths(self) -> list[list[T]]:
        """Return the branches in the order of their leaves. Raises LineError if there are too many."""
        kept = self._kept()
        inner = {self._parents[number] for number in range(len(self)) if kept[number]}
        leaves = [number for number in range(len(self)) if kept[number] and number not in inner]
        beside = self._beside(kept)
        self._check(leaves)
        return [[*beside.get(None, ()), *self._path(leaf, beside)] for leaf in leaves]

    def _kept(self) -> list[bool]:
        """Return for each entry whether it or a descendant has text."""
        kept = list(self._speaks)
        for number in reversed(range(len(self))):
            parent = self._parents[number]
            if kept[number] and parent is not None:
                kept[parent] = True
        return kept

    def _beside(self, kept: list[bool]) -> dict[int | None, list[T]]:
        """Return entries that lead to no text, by the nearest ancestor that does."""
        hosts: dict[int, int | None] = {}
        beside: dict[int | None, list[T]] = {}
        for number, keeps in enumerate(kept):
            if not keeps:
                parent = self._parents[number]
                hosts[number] = parent if parent is None or kept[parent] else hosts[parent]
                beside.setdefault(hosts[number], []).append(self._values[number])
        return beside

    def _path(self, leaf: int, beside: dict[int | None, list[T]]) -> list[T]:
        numbers = []
        number: int | None = leaf
        while number is not None:
            numbers.append(number)
            number = self._parents[number]
        return [value for each in reversed(numbers) for value in (self._values[each], *beside.get(each, ()))]

    def _check(self, leaves: list[int]) -> None:
        depths: list[int] = []
        for parent in self._parents:
            depths.append(1 if parent is None else depths[parent] + 1)
        if len(leaves) > MAX_BRANCHES or sum(depths[leaf] for leaf in leaves) > MAX_TOLD:
            raise LineError("", f"{len(leaves)} branches, more than a session may have")
