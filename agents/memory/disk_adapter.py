"""Memory on disk: one SQLite file, searched by BM25, or by an embedding if one is given.

The id is the table's key: a repeated memory replaces the stored one. Several processes may use one file.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import orjson

from agents.memory.bm25 import Bm25
from agents.memory.embedding import Embed, cosine
from agents.memory.memory import Found, Memory, MemoryStoreError
from schemas.numbers import nine

WAIT_S = 30.0
"""How long to wait for another process that writes."""

TABLE = "CREATE TABLE IF NOT EXISTS memories (id TEXT PRIMARY KEY, memory TEXT NOT NULL, vector TEXT)"
UPSERT = "INSERT INTO memories VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET memory = excluded.memory, vector = excluded.vector"


class DiskMemory:
    """A store in a file."""

    def __init__(self, path: Path, embed: Embed | None = None) -> None:
        self._path = path
        self._embed = embed

    def upsert(self, memories: Sequence[Memory]) -> None:
        """Keep memories; one with an id that is there replaces it."""
        vectors = self._embed([each.text for each in memories]) if self._embed and memories else [None] * len(memories)
        with self._open() as store:
            for memory, vector in zip(memories, vectors, strict=True):
                kept = None if vector is None else orjson.dumps(list(vector)).decode()
                store.execute(UPSERT, (memory.id, memory.model_dump_json(), kept))

    def search(self, task: str, top_k: int, floor: float) -> list[Found]:
        """The best fitting, best first: at most `top_k`, none below `floor`."""
        with self._open() as store:
            rows = {name: (kept, vector) for name, kept, vector in store.execute("SELECT * FROM memories ORDER BY id")}
        memories = {name: Memory.model_validate_json(kept) for name, (kept, _) in rows.items()}
        ranked = self._by_vector(task, {name: vector for name, (_, vector) in rows.items()}) if self._embed else (
            Bm25({name: memory.text for name, memory in memories.items()}).search(task)
        )  # fmt: skip
        return [Found(memory=memories[name], score=score) for name, score in ranked[: max(0, top_k)] if score >= floor]

    def forget(self, ids: Sequence[str]) -> int:
        """Remove memories; return how many existed."""
        with self._open() as store:
            return sum(store.execute("DELETE FROM memories WHERE id = ?", (name,)).rowcount for name in ids)

    def count(self) -> int:
        """Return the number of memories."""
        with self._open() as store:
            return int(store.execute("SELECT count(*) FROM memories").fetchone()[0])

    def _by_vector(self, task: str, vectors: dict[str, str | None]) -> list[tuple[str, float]]:
        assert self._embed is not None
        (asked,) = self._embed([task])
        found = [
            (name, nine(max(0.0, cosine(asked, orjson.loads(kept)))))
            for name, kept in vectors.items()
            if kept is not None
        ]
        return sorted(found, key=lambda each: (-each[1], each[0]))

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self._path, timeout=WAIT_S)) as connection, connection:
                connection.execute(TABLE)
                yield connection
        except (sqlite3.Error, OSError) as error:
            raise MemoryStoreError(f"{self._path}: {error}; move it away to begin anew") from None
