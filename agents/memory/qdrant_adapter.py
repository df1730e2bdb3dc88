"""Memory in a Qdrant: one point for each memory, under an id that is a function of the memory's own."""

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from qdrant_client import QdrantClient
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse
from qdrant_client.models import Distance, PointIdsList, PointStruct, VectorParams

from agents.memory.embedding import Embed, hashed_words
from agents.memory.memory import Found, Memory, MemoryStoreError
from schemas.numbers import nine

NAMES = uuid.UUID("5f1d7c9e-9f0a-5c56-9a33-6d2f6f0b7a11")
"""Points have UUIDs; this is the name space of ours."""

BATCH = 256


class QdrantMemory:
    """A store in a collection."""

    def __init__(self, client: QdrantClient, collection: str, embed: Embed = hashed_words) -> None:
        self._client = client
        self._collection = collection
        self._embed = embed

    def upsert(self, memories: Sequence[Memory]) -> None:
        """Store memories. A memory replaces the stored one with the same id."""
        for first in range(0, len(memories), BATCH):
            some = memories[first : first + BATCH]
            vectors = self._embed([each.text for each in some])
            points = [
                PointStruct(id=point_id(memory.id), vector=list(vector), payload=memory.model_dump())
                for memory, vector in zip(some, vectors, strict=True)
            ]
            with _said_plainly(self._collection):
                self._make(len(vectors[0]))
                self._client.upsert(self._collection, points, wait=True)

    def search(self, task: str, top_k: int, floor: float) -> list[Found]:
        """The best fitting, best first: at most `top_k`, none below `floor`."""
        if top_k < 1:
            return []
        (vector,) = self._embed([task])
        with _said_plainly(self._collection):
            if not self._client.collection_exists(self._collection):
                return []
            answer = self._client.query_points(self._collection, query=list(vector), limit=top_k, with_payload=True)
        found = [
            Found(memory=Memory.model_validate(point.payload), score=nine(min(1.0, max(0.0, point.score))))
            for point in answer.points
        ]
        return sorted((each for each in found if each.score >= floor), key=lambda each: (-each.score, each.memory.id))

    def forget(self, ids: Sequence[str]) -> int:
        """Remove memories; return how many existed."""
        before = self.count()
        if before:
            with _said_plainly(self._collection):
                points = PointIdsList(points=[point_id(name) for name in ids])
                self._client.delete(self._collection, points, wait=True)
        return before - self.count()

    def count(self) -> int:
        """Return the number of memories."""
        with _said_plainly(self._collection):
            there = self._client.collection_exists(self._collection)
            return self._client.count(self._collection, exact=True).count if there else 0

    def _make(self, size: int) -> None:
        if not self._client.collection_exists(self._collection):
            self._client.create_collection(
                self._collection, vectors_config=VectorParams(size=size, distance=Distance.COSINE)
            )


def point_id(memory_id: str) -> str:
    """The point of a memory."""
    return str(uuid.uuid5(NAMES, memory_id))


@contextmanager
def _said_plainly(collection: str) -> Iterator[None]:
    try:
        yield
    except (UnexpectedResponse, ResponseHandlingException, ValueError, OSError) as error:
        raise MemoryStoreError(f"Qdrant, collection {collection}: {error}") from error
