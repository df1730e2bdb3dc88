"""Which result belongs to which call: ids that repeat get a number, and a result goes to the nearest call that waits for it."""

from collections.abc import Callable
from typing import NamedTuple


class _Open(NamedTuple):
    call_id: str
    given: str | None
    name: str


Fits = Callable[[_Open], bool]


class Pairing:
    """The calls of one branch."""

    def __init__(self) -> None:
        self._used: dict[str, int] = {}
        self._made = 0
        self._open: list[_Open] = []

    def call(self, given: str | None, name: str) -> str:
        """Note a call; returns its id in the branch: the second use of an id is `<id>#2`."""
        call_id = self._unique(given or f"call_{self._made}")
        self._made += 1
        self._open.append(_Open(call_id, given, name))
        return call_id

    def result(self, given: str | None, name: str | None) -> tuple[str, str | None]:
        """The id and the name of the call that a result answers; an id of its own where none waits for it."""
        found = None
        if given is not None:
            found = self._nearest(lambda each: each.given == given)
        elif name is None:
            found = self._first(lambda _each: True)
        if found is None and name is not None:
            found = self._first(lambda each: each.name == name and (given is None or each.given is None))
        if found is None:
            return self._unique(given or "unpaired"), name
        self._open.remove(found)
        return found.call_id, name or found.name

    @property
    def waiting(self) -> int:
        """How many calls have no result yet."""
        return len(self._open)

    def _unique(self, call_id: str) -> str:
        count = self._used[call_id] = self._used.get(call_id, 0) + 1
        if count == 1:
            return call_id
        numbered = f"{call_id}#{count}"
        return self._unique(numbered) if numbered in self._used else self._taken(numbered)

    def _taken(self, call_id: str) -> str:
        self._used[call_id] = 1
        return call_id

    def _nearest(self, fits: Fits) -> _Open | None:
        return next((each for each in reversed(self._open) if fits(each)), None)

    def _first(self, fits: Fits) -> _Open | None:
        return next((each for each in self._open if fits(each)), None)
