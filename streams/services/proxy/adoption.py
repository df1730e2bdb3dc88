"""Calls without an identity (`--adopt`): conversations with the same opening are branches of one rollout.

The rollout is named by its opening messages, `cap-<digest>`. A call that continues the current history of a branch
belongs to it; any other call begins a branch. Branch numbers are kept on disk, so that a restarted proxy never uses one
twice.
"""

from collections import OrderedDict
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from agents.capture.protocol import HISTORY, Protocol
from agents.capture.request_delta import MAX_ITEMS, beginnings
from schemas.base import MAX_INDEX
from schemas.jsontext import compact, parse_object
from streams.services.proxy.identity import BranchId

MAX_ROLLOUTS = 4096
"""Rollouts whose branches are cached; the next call of an evicted rollout begins a branch."""

MAX_BRANCHES = 1024
"""The latest branches of a rollout that are cached."""

_OPENS = ("system", "developer")


class _Known:
    """The current history of a branch."""

    def __init__(self) -> None:
        self.tip = b""
        """The digest of all messages of its last call."""
        self.is_answered = False
        self.is_open = True
        """Whether a call is under way."""


class Adoption:
    """Finds the branches of calls that name none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._counts: dict[str, int] = {}
        self._known: OrderedDict[str, dict[int, _Known]] = OrderedDict()
        if path.exists():
            for line in path.read_text("utf-8").splitlines():
                name, _, count = line.rpartition(" ")
                if name and count.isdigit():
                    self._counts[name] = max(self._counts.get(name, 0), int(count))

    def assign(self, protocol: Protocol, body: bytes) -> BranchId:
        """Return the branch of a request."""
        try:
            request: Mapping[str, Any] = parse_object(body)
        except ValueError:
            request = {}
        given = request.get(HISTORY[protocol])
        items = given[:MAX_ITEMS] if isinstance(given, list) and given else [given]
        rollout_id = f"cap-{sha256(compact(_opening(request, items)).encode()).hexdigest()[:20]}"
        branches = self._known.setdefault(rollout_id, {})
        self._known.move_to_end(rollout_id)
        if len(self._known) > MAX_ROLLOUTS:
            self._known.popitem(last=False)
        places = {digest: length for length, digest in enumerate(beginnings(items), 1)}
        tip = next(reversed(places))
        index = _continued(branches, places, tip)
        if index is None:
            index = self._next(rollout_id)
        found = branches.setdefault(index, _Known())
        found.tip, found.is_open, found.is_answered = tip, True, False
        if len(branches) > MAX_BRANCHES:
            del branches[next(iter(branches))]
        return _branch(rollout_id, index)

    def finish(self, branch: BranchId, *, answered: bool) -> None:
        """Record that a call of an adopted branch has ended."""
        rollout_id, number = _number(branch)
        known = self._known.get(rollout_id, {}).get(number)
        if known is not None:
            known.is_open, known.is_answered = False, answered

    def _next(self, rollout_id: str) -> int:
        index = self._counts.get(rollout_id, 0)
        self._counts[rollout_id] = index + 1
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{rollout_id} {index + 1}\n")
        return index


def _branch(rollout_id: str, number: int) -> BranchId:
    """The branch with a number. Branches beyond the limit of a rollout go to a further, numbered rollout."""
    which, index = divmod(number, MAX_INDEX + 1)
    return BranchId(f"{rollout_id}-{which}" if which else rollout_id, index)


def _number(branch: BranchId) -> tuple[str, int]:
    """The name shared by all rollouts with an opening, and the number of a branch among all of theirs."""
    kind, digest, *which = branch.rollout_id.split("-")
    return f"{kind}-{digest}", branch.branch_index + (MAX_INDEX + 1) * int(which[0] if which else 0)


def _continued(branches: Mapping[int, _Known], places: Mapping[bytes, int], tip: bytes) -> int | None:
    """The branch that a request continues: the one with the longest common history. A failed call may be retried."""
    fitting = [
        (places[known.tip], -index)
        for index, known in branches.items()
        if not known.is_open and known.tip in places and (known.tip != tip or not known.is_answered)
    ]
    return -max(fitting)[1] if fitting else None


def _opening(request: Mapping[str, Any], items: list[Any]) -> list[Any]:
    """The system prompt, and the messages through the first one that is not a system message."""
    first = next(
        (at for at, item in enumerate(items) if not (isinstance(item, dict) and item.get("role") in _OPENS)),
        len(items) - 1,
    )
    return [request.get("system"), request.get("instructions"), items[: first + 1]]
