"""The branches of an import as rows of numbers: rollout, position in the spool, and order. A row has forty bytes."""

from array import array
from collections.abc import Iterator
from hashlib import sha256

import numpy as np
import numpy.typing as npt

FIRST, LAST = -(2**63), 2**63 - 1


class BranchIndex:
    """An index of branches by rollout."""

    def __init__(self) -> None:
        self._rollouts = array("Q")
        """Two numbers per branch: the first 16 bytes of the SHA-256 of its rollout's id."""
        self._numbers = array("Q")
        self._times = array("q")
        self._ties = array("Q")

    def add(self, rollout_id: str, number: int, order: tuple[int, str] | None) -> None:
        """Add a branch.

        `order` is its start time and an id. Branches without it keep the order in which they were added.
        """
        digest = sha256(rollout_id.encode()).digest()
        self._rollouts.append(int.from_bytes(digest[:8], "big"))
        self._rollouts.append(int.from_bytes(digest[8:16], "big"))
        self._times.append(0 if order is None else max(FIRST, min(LAST, order[0])))
        tie = len(self._numbers) if order is None else int.from_bytes(sha256(order[1].encode()).digest()[:8], "big")
        self._ties.append(tie)
        self._numbers.append(number)

    @property
    def counts(self) -> tuple[int, int]:
        """Return the number of rollouts and of branches."""
        return len(np.unique(self._by_rollout(), axis=0)) if self._numbers else 0, len(self._numbers)

    def groups(self) -> Iterator[list[int]]:
        """Yield the numbers of each rollout's branches in order. Rollouts are in the order of their first branch."""
        if not self._numbers:
            return
        ordered = np.lexsort((np.asarray(self._ties), np.asarray(self._times)))
        rollouts = self._by_rollout()[ordered]
        _, first, which = np.unique(rollouts, axis=0, return_index=True, return_inverse=True)
        by_rollout = np.argsort(first[which.reshape(-1)], kind="stable")
        numbers = np.asarray(self._numbers)[ordered][by_rollout]
        begins = np.flatnonzero(np.diff(first[which.reshape(-1)][by_rollout])) + 1
        for group in _slices(numbers, begins):
            yield [int(number) for number in group]

    def _by_rollout(self) -> npt.NDArray[np.uint64]:
        return np.asarray(self._rollouts, dtype=np.uint64).reshape(-1, 2)


def _slices(numbers: npt.NDArray[np.uint64], begins: npt.NDArray[np.intp]) -> Iterator[npt.NDArray[np.uint64]]:
    """Do the same as np.split, but yield one slice at a time."""
    start = 0
    for end in (*begins, len(numbers)):
        yield numbers[start:end]
        start = end
