"""Memory with its configuration: which store, which embedding, and which branches of a log to remember."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from agents.memory.embedding import Embed, hashed_words
from agents.memory.memory import Found, Memory, MemoryStore, MemoryStoreError, is_remembered, memories_of
from schemas.base import Record
from schemas.branches import BranchRecord
from schemas.errors import DecodeError
from schemas.extras import needs
from schemas.rankings import Ranking
from streams.cluster.broker import places
from streams.cluster.config import Settings
from streams.log.reader import LogReader
from streams.log.record import Placed
from streams.log.topics import BRANCHES, RANKINGS


def memory_store(settings: Settings) -> MemoryStore:
    """The configured store. Raises MemoryStoreError."""
    wanted = settings.memory
    embed = embedding(wanted.embedding) if wanted.embedding else None
    if wanted.qdrant:
        with needs("memory", "memory.qdrant"):
            from qdrant_client import QdrantClient

            from agents.memory.qdrant_adapter import QdrantMemory

        client = QdrantClient(url=wanted.qdrant, api_key=wanted.qdrant_key.get_secret_value() or None, timeout=30)
        return QdrantMemory(client, wanted.collection, embed or hashed_words)
    from agents.memory.disk_adapter import DiskMemory

    return DiskMemory(memory_path(settings), embed)


def memory_path(settings: Settings) -> Path:
    """The file of the embedded store."""
    return settings.memory.path or (settings.state_dir or places.state_dir()) / "memory.sqlite"


def embedding(named: str) -> Embed:
    """The function that `module:function` names. Raises MemoryStoreError."""
    module, _, name = named.partition(":")
    try:
        found: Embed = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise MemoryStoreError(
            f"memory.embedding is {named!r}: {error}; expected module:function, from texts to vectors"
        ) from None
    return found


def recall(settings: Settings, task: str, top_k: int | None = None, floor: float | None = None) -> list[Found]:
    """Memories that fit a task."""
    wanted = settings.memory
    return memory_store(settings).search(
        task, wanted.top_k if top_k is None else top_k, wanted.floor if floor is None else floor
    )


async def remembered(log: LogReader, rollouts: Sequence[str] = ()) -> list[Memory]:
    """The memories that the closed rollouts of a log leave; of some of them only, when they are named."""
    rankings: dict[str, Ranking] = {}
    async for placed in log.records([RANKINGS]):
        record = await _decoded(log, placed)
        if isinstance(record, Ranking) and (not rollouts or record.rollout_id in rollouts):
            rankings.setdefault(record.rollout_id, record)
    wanted = {
        (ranking.rollout_id, ranked.branch_index, ranked.attempt)
        for ranking in rankings.values()
        for ranked in ranking.branches
        if is_remembered(ranked)
    }
    records: dict[str, dict[tuple[int, int], BranchRecord]] = {}
    async for placed in log.records([BRANCHES]):
        record = await _decoded(log, placed)
        if isinstance(record, BranchRecord):
            place = (record.rollout_id, record.branch_index, record.attempt)
            if place in wanted:
                records.setdefault(record.rollout_id, {})[place[1:]] = record
    return [
        memory
        for rollout_id, ranking in sorted(rankings.items())
        for memory in memories_of(ranking, records.get(rollout_id, {}))
    ]


async def _decoded(log: LogReader, placed: Placed) -> Record | None:
    try:
        return await log.decode(placed)
    except DecodeError:
        return None  # `braid dead-letters list` reports it
