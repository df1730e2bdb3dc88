"""Pair results with calls: repeated ids get a number, and a result goes to the nearest turn with a waiting call.

Results of a turn come in the order of its calls. So if several calls of a turn share an id, the first waiting one is
answered.
"""

from collections.abc import Callable
from typing import NamedTuple


class _Open(NamedTuple):
    call_id: str
    given: str | None
    name: str
    turn: int


Fits = Callable[[_Open], bool]


class Pairing:
    """The calls of one branch."""

    def __init__(self) -> None:
        self._used: dict[str, int] = {}
        self._made = 0
        self._open: list[_Open] = []

    def call(self, given: str | None, name: str, turn: int) -> str:
        """Add a call of a turn and return its id in the branch. The second use of an id becomes `<id>#2`."""
        call_id = self._unique(given or f"call_{self._made}")
        self._made += 1
        self._open.append(_Open(call_id, given, name, turn))
        return call_id

    def result(self, given: str | None, name: str | None) -> tuple[str, str | None]:
        """Return id and name of the call that a result answers.

        If no call is waiting, the result gets an id of its own.
        """
        found = None
        if given is not None:
            found = self._of_id(given, name)
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
        """Return the number of calls without a result."""
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

    def _of_id(self, given: str, name: str | None) -> _Open | None:
        """Return the first call with this id in the nearest turn. A call that also has this name is preferred."""
        found = [each for each in self._open if each.given == given]
        near = [each for each in found if each.turn == found[-1].turn]
        return next((each for each in near if each.name == name), near[0] if near else None)

    def _first(self, fits: Fits) -> _Open | None:
        return next((each for each in self._open if fits(each)), None)
