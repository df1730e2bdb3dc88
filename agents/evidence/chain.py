"""Follows the links between records: detects removed, reordered, added and forked ones.

Decides, in file order, whether each record's link is valid: the record it names must come before it, and no other
record may link to the same one. Chains may be interleaved; a record belongs to the chain of the record it names and to
the chain of its rollout (or, outside rollouts, of its run_id). A rollout's last record, `<rollout_id>/ranking`, has the
number of records before it, so that truncation at either end is detected. An exact repetition of a record has no
effect. Keeps one small entry per record, never the records.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from agents.evidence.structure import closing_of, printable, quoted

# `<rollout_id>/b<index>/a<attempt>`: a branch's record.
_BRANCH_RUN = re.compile(r"(?s)(?P<rollout>.+)/b[0-9]+/a[0-9]+")
# Most faults that are listed for one item: enough to see the cause.
MAX_REASONS = 20


class ChainState(StrEnum):
    """The result of checking the links of a chain."""

    INTACT = "intact"
    PARTIAL = "partial"
    NOT_PRESENT = "not-present"
    BROKEN = "broken"
    ORPHANED = "orphaned"


@dataclass(frozen=True)
class ChainVerdict:
    """One chain: its rollout or run, its number of records, and the state of its links."""

    chain: str
    state: ChainState
    records: int
    repeated: int
    reasons: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether the chain has no fault; a run that was never chained has none."""
        return self.state in {ChainState.INTACT, ChainState.NOT_PRESENT}

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as a JSON object."""
        return {
            "chain": self.chain,
            "verdict": str(self.state),
            "ok": self.ok,
            "records": self.records,
            "repeated": self.repeated,
            "reasons": list(self.reasons),
        }


@dataclass(slots=True, eq=False)
class _Chain:
    name: str
    records: int = 0
    repeated: int = 0
    links: int = 0
    starts: int = 0
    dangling: int = 0
    closings: int = 0
    faults: int = 0
    reasons: list[str] = field(default_factory=list)
    joined: "_Chain | None" = None

    def blame(self, position: str, fault: str) -> None:
        self.faults += 1
        if len(self.reasons) < MAX_REASONS:
            self.reasons.append(f"{position}: {fault}")


@dataclass(slots=True, eq=False)
class _Node:
    chain: _Chain
    length: int | None
    """Number of records from the start of the chain to this one; None after a fault."""
    faulty: bool
    followed: bool = False


@dataclass(slots=True, eq=False)
class _Rollout:
    chain: _Chain
    branches: int = 0
    closed: bool = False


class ChainTracker:
    """Reads records one by one, returns the faults of each link, and at the end the state of each chain."""

    def __init__(self) -> None:
        self._nodes: dict[bytes, _Node] = {}
        self._chains: dict[str, _Chain] = {}
        self._rollouts: dict[str, _Rollout] = {}
        self._awaited: dict[bytes, _Chain] = {}

    def add(self, record: Mapping[str, Any], record_hash: str | None, position: str) -> list[str]:
        """Take the next record (its hash is None when it has no canonical bytes); return the faults of its link."""
        own = bytes.fromhex(record_hash) if record_hash else None
        if own is not None and (known := self._nodes.get(own)):
            _root(known.chain).repeated += 1
            return ["repeats a record whose link is faulty"] if known.faulty else []

        named = _as_hash(record.get("prev_record_hash"))
        before = self._nodes.get(named) if named else None
        chain, rollout = self._chain_for(record, before, position)
        chain.records += 1
        faults: list[str] = []
        if record.get("prev_record_hash") is None:
            chain.starts += 1
        elif before is None:
            faults.append("the record before it is missing, changed, or comes later")
            chain.dangling += 1
            if named:
                self._awaited[named] = chain
        elif before.followed:
            faults.append("a second record follows the same one: the chain forks")
        else:
            before.followed = True
            chain.links += 1
        if own is not None:
            faults += self._order_faults(own, chain)
        length = None if faults else _length_after(before)
        if rollout is not None:
            faults += _rollout_faults(rollout, record, length)
        if own is not None:
            self._nodes[own] = _Node(chain, length, faulty=bool(faults))
        for fault in faults:
            _root(chain).blame(position, fault)
        return faults

    def finish(self) -> list[ChainVerdict]:
        """Judge every chain, in the order in which they began."""
        unclosed: dict[int, list[str]] = {}
        for name, rollout in self._rollouts.items():
            if not rollout.closed:
                unclosed.setdefault(id(_root(rollout.chain)), []).append(name)
        chains = {id(chain): chain for chain in self._chains.values() if chain.joined is None}
        return [_verdict(chain, unclosed.get(key, [])) for key, chain in chains.items()]

    def _chain_for(
        self, record: Mapping[str, Any], before: _Node | None, position: str
    ) -> tuple[_Chain, _Rollout | None]:
        run_id = record.get("run_id")
        if not isinstance(run_id, str):
            run_id = position
        closing = closing_of(record)
        branch = _BRANCH_RUN.fullmatch(run_id)
        name = branch["rollout"] if branch else run_id.rpartition("/")[0] if closing is not None else run_id
        chain = self._chains.get(name)
        if chain is None:
            chain = self._chains[name] = _Chain(name) if before is None else _root(before.chain)
        chain = _root(chain) if before is None else _join(_root(chain), _root(before.chain))
        if branch is None and closing is None:
            return chain, None
        rollout = self._rollouts.get(name)
        if rollout is None:
            rollout = self._rollouts[name] = _Rollout(chain)
        return chain, rollout

    def _order_faults(self, own: bytes, chain: _Chain) -> list[str]:
        waiting = self._awaited.pop(own, None)
        if waiting is None:
            return []
        _join(_root(chain), _root(waiting))
        return ["comes after the record that names it: the order was changed"]


def _length_after(before: _Node | None) -> int | None:
    if before is None:
        return 1
    return before.length + 1 if before.length else None


def _rollout_faults(rollout: _Rollout, record: Mapping[str, Any], length: int | None) -> list[str]:
    closing = closing_of(record)
    late = rollout.closed
    if closing is None:
        rollout.branches += 1
        return ["comes after the closing record of its rollout"] if late else []
    rollout.closed = True
    _root(rollout.chain).closings += 1
    if late:
        return ["a second closing record of the rollout"]
    stated = closing.get("records")
    if stated != rollout.branches:
        return [f"the closing record states {quoted(stated)} records, {rollout.branches} came before it"]
    if length is not None and length != rollout.branches + 1:
        return [f"the closing record states {quoted(stated)} records, the chain behind it has {length - 1}"]
    return []


def _verdict(chain: _Chain, unclosed: list[str]) -> ChainVerdict:
    reasons = list(chain.reasons)
    if chain.faults > len(reasons):
        reasons.append(f"and {chain.faults - len(reasons)} more faults")
    reasons += [f"the closing record of rollout {printable(name)} is missing" for name in unclosed[:MAX_REASONS]]
    unlinked = max(chain.starts - 1, 0) if chain.links else 0
    if unlinked:
        reasons.append(f"{unlinked} records do not name the one before them")
    if chain.faults:
        state = ChainState.ORPHANED if chain.records == chain.dangling == 1 else ChainState.BROKEN
    elif unclosed or unlinked:
        state = ChainState.PARTIAL
    elif chain.links or chain.closings:
        state = ChainState.INTACT
    else:
        state = ChainState.NOT_PRESENT
    return ChainVerdict(printable(chain.name), state, chain.records, chain.repeated, tuple(reasons))


def _as_hash(text: object) -> bytes | None:
    """Read 64 lower-case hex digits: the only form in which a hash is written."""
    if not isinstance(text, str) or not re.fullmatch(r"[0-9a-f]{64}", text):
        return None
    return bytes.fromhex(text)


def _root(chain: _Chain) -> _Chain:
    while chain.joined is not None:
        chain = chain.joined
    return chain


def _join(chain: _Chain, other: _Chain) -> _Chain:
    """Join two chains, under the name of the one that has more records."""
    if chain is other:
        return chain
    if chain.records < other.records:
        chain, other = other, chain
    for name in ("records", "repeated", "links", "starts", "dangling", "closings", "faults"):
        setattr(chain, name, getattr(chain, name) + getattr(other, name))
    chain.reasons = (chain.reasons + other.reasons)[:MAX_REASONS]
    other.joined = chain
    return chain
