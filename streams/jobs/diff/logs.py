"""The logs that `braid replay --out`, `braid run --out` and `braid archive --all` make: the sink topics as files.

A row that is only on one side is looked up among the rejected rows of the other side, with the reasons given there.
"""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson

from schemas.base import Record
from schemas.closures import Closure
from schemas.errors import DecodeError
from schemas.jsontext import compact
from schemas.rankings import Ranking
from schemas.training import DpoRecord, PpoRecord, RejectedRecord, SftRecord
from streams.jobs.diff.side import About, Row, hashed
from streams.jobs.errors import ReplayError
from streams.jobs.export.ledger import branches_of
from streams.log.file_reader import FileReader
from streams.log.topics import CLOSURES, DPO, PPO, RANKINGS, REJECTED, SFT, Topic

ROWS: dict[Topic, str] = {RANKINGS: "ranking", SFT: "sft", DPO: "dpo", PPO: "ppo"}


def _settings(configs: Iterable[str]) -> dict[str, list[str]]:
    """The configurations that rollouts were settled under, setting by setting: each with all its values."""
    found: dict[str, set[str]] = {}
    left: list[tuple[str, Any]] = [("emission", orjson.loads(config)) for config in configs]
    for name, value in left:
        if isinstance(value, dict) and value:
            left += [(f"{name}.{key}", inner) for key, inner in value.items()]
        else:
            found.setdefault(name, set()).add(compact(value))
    return {name: sorted(values) for name, values in found.items()}


class LogSide:
    """The rows of one log."""

    def __init__(self, directory: Path, *, unfinished: bool) -> None:
        self._log = FileReader(directory, unfinished=unfinished)
        self.kinds = list(ROWS.values())
        self.rows: dict[About, Row] = {}
        self.rollouts: set[str] = set()
        self.rules: dict[str, Any] = dict(self._log.files.manifest.get("rules", {}))
        self._reasons: dict[tuple[str, str], list[tuple[tuple[int, ...], str]]] = {}
        """By kind and rollout: the branches left out, and why."""
        self._configs: set[str] = set()
        asyncio.run(self._read())
        self.rules |= _settings(self._configs)
        if not self.rollouts:
            raise ReplayError(
                f"{directory} holds no rankings; give what `braid replay --out`, `braid run --out` or `braid export` made"
            )

    async def _read(self) -> None:
        async for topic, partition, record in self._log.records((CLOSURES, *ROWS, REJECTED)):
            try:
                self._take(topic, self._log.codec.decode(topic, record.value))
            except DecodeError as error:
                raise ReplayError(f"{self._log.place}: {topic.name}/{partition}@{record.offset}: {error}") from None

    def _take(self, topic: Topic, record: Record) -> None:
        if isinstance(record, Closure):
            if record.settled is not None:
                self._configs.add(record.settled.config)
        elif isinstance(record, RejectedRecord):
            why = record.reasons[0] if record.reasons else "no reason given"
            left = self._reasons.setdefault((record.kind, record.rollout_id), [])
            left.append((branches_of(record), why))
        elif isinstance(record, Ranking | SftRecord | DpoRecord | PpoRecord):
            self.rollouts.add(record.rollout_id)
            about = About(ROWS[topic], record.rollout_id, branches_of(record))
            self.rows[about] = Row(hashed(record.plain()))

    def why(self, about: About, _: Row, /) -> str:
        """The recorded reason for leaving it out."""
        if about.rollout_id not in self.rollouts:
            return "the rollout is not there"
        left = self._reasons.get((about.kind, about.rollout_id), [])
        # Pairs that were left out together are named by all branches of the rollout.
        exact = (why for inside, why in left if inside == about.branches)
        return next(exact, next((why for inside, why in left if set(about.branches) <= set(inside)), "not made"))
