"""Rollouts as the pages need them: read at their offsets, made once for each change, and kept for a while."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from schemas.errors import BraidError
from streams.cluster.config import Settings
from streams.jobs.verify.findings import Finding
from streams.jobs.verify.inspection import ROW_TOPICS
from streams.jobs.verify.verification import Verification
from streams.log.index_queries import Wanted
from streams.log.reader import LogReader, unknown_rollout
from streams.log.record import Placed
from streams.log.rollout_index import RolloutIndex
from streams.log.terminal_text import line
from streams.log.topics import EVIDENCE
from streams.services.view.follower import Follower
from streams.views.account import account_of
from streams.views.web.row_page import Checked
from streams.views.web.sight import Sight, sight_of
from streams.views.web.strands import Strand

KEPT = 6
"""Rollouts that are kept ready."""
LARGEST = 150_000
"""Largest rollout that is shown, in records: a larger one would use up the server's memory."""

Value = TypeVar("Value")


class NotFoundError(BraidError):
    """There is no such page."""


class BadQueryError(BraidError):
    """A query that makes no sense."""


class Kept(dict[str, tuple[Any, Any]]):
    """A cache of the last few results, each with the version of its inputs."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size
        self._order: OrderedDict[str, None] = OrderedDict()
        self._locks: dict[str, asyncio.Lock] = {}

    async def get_or_make(self, key: str, version: object, make: Callable[[], Awaitable[Value]]) -> Value:
        """The thing of a version; made once, however many ask for it at once."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            known = self.get(key)
            if known is None or known[0] != version:
                try:
                    self[key] = (version, await make())
                finally:
                    if key not in self:  # keys come from addresses: any number of them may name nothing
                        self._locks.pop(key, None)
            self._order[key] = None
            self._order.move_to_end(key)
            while len(self._order) > self._size:
                gone, _ = self._order.popitem(last=False)
                self.pop(gone, None)
                self._locks.pop(gone, None)
            found: Value = self[key][1]
            return found


class Sights:
    """The rollouts of the log that a follower reads."""

    def __init__(self, settings: Settings, follower: Follower, keys: Mapping[str, bytes], verify_with: str) -> None:
        self.settings = settings
        self.follower = follower
        self._keys = keys
        self._verify_with = verify_with
        self._sights = Kept(KEPT)
        self._checks = Kept(KEPT)

    @property
    def log(self) -> LogReader:
        """The log. Raises BraidError while it cannot be read."""
        reader = self.follower.reader
        if reader is None:
            raise BraidError(f"the log cannot be read at the moment: {self.follower.trouble}")
        return reader

    @property
    def index(self) -> RolloutIndex:
        """Its index. Raises BraidError while it cannot be read."""
        index = self.follower.index
        if index is None:
            raise BraidError(f"the log cannot be read at the moment: {self.follower.trouble}")
        return index

    def version(self, rollout_id: str) -> tuple[int, int]:
        """Changes whenever the rollout does. Raises NotFoundError."""
        changed = self.index.changed(rollout_id)
        if changed is None or not rollout_id:
            known = [row.rollout_id for row in self.index.rollouts(Wanted(), 500)[1]]
            raise NotFoundError(unknown_rollout(rollout_id, self.follower.place, known))
        return self.follower.generation, changed

    async def sight(self, rollout_id: str) -> Sight:
        """A rollout, read again when it has changed. Raises NotFoundError."""
        version = self.version(rollout_id)

        async def make() -> Sight:
            places = self.index.places(rollout_id)
            count = sum(len(offsets) for offsets in places.values())
            if count > LARGEST:
                raise BraidError(
                    f"{line(rollout_id)} has {count:,} records, too many for a page; `braid show` reads it"
                )
            account = await account_of(self.log, rollout_id, self.index)
            return sight_of(account, self.settings, self.index.row(rollout_id), self._verify_with)

        return await self._sights.get_or_make(rollout_id, version, make)

    async def strand(self, rollout_id: str, branch: str) -> tuple[Sight, Strand]:
        """A rollout and one of its branches. Raises NotFoundError."""
        sight = await self.sight(rollout_id)
        strand = sight.strand(int(branch)) if branch.isdecimal() and len(branch) < 8 else None
        if strand is None:
            raise NotFoundError(f"{line(rollout_id)} has no branch {line(branch)}")
        return sight, strand

    async def checked(self, rollout_id: str) -> Checked | None:
        """The result of verifying a rollout's evidence; None if there is none."""
        version = self.version(rollout_id)

        async def make() -> Checked | None:
            records = []
            for (topic, partition), offsets in self.index.places(rollout_id, (EVIDENCE, *ROW_TOPICS)).items():
                records += [Placed(topic, partition, record) for record in await self.log.at(topic, partition, offsets)]
            return await check_records(self.log, records, self._keys)

        return await self._checks.get_or_make(rollout_id, version, make)


async def check_records(log: LogReader, records: list[Placed], keys: Mapping[str, bytes]) -> Checked | None:
    """Verify the evidence of one rollout with the code of `braid verify`; None if there is none."""
    if not any(placed.topic is EVIDENCE for placed in records):
        return None
    findings: list[Finding] = []
    verification = Verification(keys, allow_unsigned=False, tell=findings.append, say=lambda _step, _share: None)
    unlisted = await verification.rollout(log, records)
    outcome = verification.outcome
    warnings = list(outcome.warnings)
    if unlisted:
        warnings.append(
            f"{unlisted} branch records are not listed by evidence: their branches settled otherwise, or not yet"
        )
    bad = tuple((line(each.position), line("; ".join(each.reasons), 1000)) for each in findings if not each.ok)
    good = frozenset(str(each.more["record_id"]) for each in findings if each.ok and "record_id" in each.more)
    chains = tuple(f"chain {chain.state}" for chain in outcome.chains)
    return Checked(outcome.ok, bad, tuple(line(text, 1000) for text in warnings), chains, good)


def whole_number(query: Mapping[str, str], name: str, default: int, most: int) -> int:
    """An integer parameter of a query. Raises BadQueryError."""
    given = query.get(name, "")
    if not given:
        return default
    if not given.isdecimal() or len(given) > 10:
        raise BadQueryError(f"{name}: a whole number is expected, found {line(given)!r}")
    return min(most, int(given))


def place_among(text: str, count: int) -> int:
    """The index that a text names among `count` items; `last` is the last one. Raises NotFoundError."""
    if text == "last" and count:
        return count - 1
    if not text.isdecimal() or len(text) > 8 or int(text) >= count:
        raise NotFoundError(f"there is no number {line(text)} among {count}")
    return int(text)
