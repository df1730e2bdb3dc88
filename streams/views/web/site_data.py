"""The site's data: JSON for programs, at the addresses of the pages."""

from typing import Any
from urllib.parse import quote

import orjson

from agents.workspace.snapshot import SnapshotError
from agents.workspace.snapshot_adapter import SnapshotStore
from schemas.base import Record
from schemas.errors import DecodeError
from streams.log.index_queries import Place, Wanted, letters_at
from streams.log.record import Placed
from streams.log.terminal_text import clean, json_of, line
from streams.log.topics import DPO, EVIDENCE, PPO, REJECTED, SFT, Topic
from streams.services.view.view_app import Answer, Asked
from streams.views.report import letter_json, report
from streams.views.web.list_page import SIZE
from streams.views.web.sights import BadQueryError, NotFoundError, Sights, place_among, whole_number
from streams.views.web.view_data import (
    LIMIT,
    branch_data,
    evidence_data,
    pair_data,
    row_data,
    some,
    turn_data,
    words_data,
    work_of,
)

JSON = "application/json"

OPEN = 2000
"""Open rollouts that are searched for waiting ones."""

LOOKUPS: dict[str, tuple[Topic, ...]] = {"rows": (SFT, DPO, PPO), "evidence": (EVIDENCE,), "rejected": (REJECTED,)}


class SiteData:
    """Everything below /v1."""

    def __init__(self, sights: Sights, snapshots: SnapshotStore) -> None:
        self._sights = sights
        self._snapshots = snapshots
        self._work: dict[str, tuple[object, list[dict[str, Any]]]] = {}

    async def answer(self, asked: Asked) -> Answer:
        """One answer. Raises NotFoundError and BadQueryError."""
        path, query = asked.path[1:], asked.query
        if path[:1] == ("snapshots",) and len(path) == 2:
            return self._snapshot(path[1])
        if path == ("work",) and query.get("format") == "lines":
            found = await self._waiting(asked, whole_number(query, "limit", SIZE, LIMIT))
            return Answer(200, "text/plain; charset=utf-8", "".join(map(_work_line, found)).encode())
        first, limit = whole_number(query, "first", 0, 10**9), whole_number(query, "limit", SIZE, LIMIT)
        return Answer(200, JSON, orjson.dumps(await self._found(asked, path, first, limit), default=str))

    async def _found(self, asked: Asked, path: tuple[str, ...], first: int, limit: int) -> object:  # noqa: PLR0911 - the table of all data
        query = asked.query
        match path:
            case ("rollouts",):
                total, rows = self._sights.index.rollouts(
                    Wanted(query.get("status") or None, query.get("q", "")[:200], asked.bound), limit, first
                )
                return {
                    "total": total,
                    "first": first,
                    "ready": self._sights.index.ready,
                    "rollouts": [row_data(row) for row in rows],
                }
            case ("rollouts", rollout_id):
                return report((await self._sights.sight(rollout_id)).account, self._sights.settings)
            case ("rollouts", rollout_id, "branches", branch):
                sight, strand = await self._sights.strand(rollout_id, branch)
                return branch_data(sight, strand, first, limit)
            case ("rollouts", rollout_id, "branches", branch, "turns", turn):
                _, strand = await self._sights.strand(rollout_id, branch)
                number = place_among(turn, len(strand.transcript.turns))
                transcript = strand.transcript
                seen = transcript.seen(number)
                return {
                    "exact": transcript.fidelity == "exact",
                    "total": len(seen),
                    "first": first,
                    "saw": some(seen[first:], words_data, limit),
                    "turn": turn_data(transcript.turns[number]),
                }
            case ("rollouts", rollout_id, "pairs", one, other):
                (sight, a), (_, b) = (
                    await self._sights.strand(rollout_id, one),
                    await self._sights.strand(rollout_id, other),
                )
                return pair_data(sight, a, b)
            case ("rollouts", rollout_id, "rows"):
                account = (await self._sights.sight(rollout_id)).account
                rows_ = (*account.rows, *account.rejected)
                return {"total": len(rows_), "first": first, "rows": some(rows_[first:], _row_data, limit)}
            case ("rollouts", rollout_id, "evidence"):
                return evidence_data(await self._sights.sight(rollout_id), await self._sights.checked(rollout_id))
            case (("rows" | "evidence" | "rejected") as kind, record_id):
                return await self._record(kind, record_id, asked.bound)
            case ("dead-letters",):
                total, places = self._sights.index.letters(limit, first, asked.bound or query.get("rollout") or None)
                return {
                    "total": total,
                    "first": first,
                    "dead_letters": clean([letter_json(each) for each in await letters_at(self._sights.log, places)]),
                }
            case ("work",):
                return {"needs": query.get("needs"), "branches": await self._waiting(asked, limit)}
        raise NotFoundError(f"there is nothing at /v1/{'/'.join(path)}")

    async def _record(self, kind: str, record_id: str, bound: str | None) -> object:
        """A record by its id: the index lists candidates, and the record itself must have the id."""
        for rollout_id, place in self._sights.index.named(record_id):
            if place.topic not in LOOKUPS[kind] or bound not in (None, rollout_id):
                continue
            found = await self._at(place)
            if found is not None and found.get("record_id") == record_id:
                return {
                    "topic": place.topic.name,
                    "partition": place.partition,
                    "offset": place.offset,
                    "rollout_id": rollout_id,
                    "record": found,
                }
        raise NotFoundError(f"no record {line(record_id)} among {kind}")

    async def _at(self, place: Place) -> dict[str, Any] | None:
        for record in await self._sights.log.at(place.topic, place.partition, [place.offset]):
            try:
                return json_of(await self._sights.log.decode(Placed(place.topic, place.partition, record)))
            except DecodeError:
                return None
        return None

    async def _waiting(self, asked: Asked, limit: int) -> list[dict[str, Any]]:
        needs = asked.query.get("needs", "")
        if not needs:
            raise BadQueryError("say which verdict: /v1/work?needs=build")
        found: list[dict[str, Any]] = []
        rollouts = [asked.bound] if asked.bound is not None else self._sights.index.unfinished(OPEN)
        for rollout_id in rollouts:
            key, version = f"{needs} {rollout_id}", self._sights.version(rollout_id)
            known = self._work.get(key)
            if known is None or known[0] != version:
                sight = await self._sights.sight(rollout_id)
                known = self._work[key] = (version, work_of(sight.account, sight.required, needs))
            found += known[1]
            if len(found) >= limit:
                break
        if len(self._work) > 4 * OPEN:
            self._work.clear()
        return found[:limit]

    def _snapshot(self, digest: str) -> Answer:
        try:
            return Answer(200, "application/x-tar", self._snapshots.archive(digest))
        except SnapshotError as error:
            raise NotFoundError(str(error)) from None


def _work_line(branch: dict[str, Any]) -> str:
    """A branch for a shell: the part of its addresses that names it, and the digest of its snapshot or a dash."""
    digest = "-" if branch["workspace"] is None else branch["workspace"]["digest"]
    return f"rollouts/{quote(branch['rollout_id'], safe='')}/branches/{branch['branch_index']}\t{digest}\n"


def _row_data(row: Record) -> dict[str, Any]:
    topic = next(topic for topic in (SFT, DPO, PPO, REJECTED) if topic.record is type(row))
    return {"topic": topic.name, **json_of(row)}
