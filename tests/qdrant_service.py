"""A Qdrant on loopback for tests: its HTTP API for one kind of vector, answered by the client's own in-memory engine."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI
from qdrant_client import QdrantClient
from qdrant_client.models import PointIdsList, PointStruct, VectorParams


def _answer(result: Any) -> dict[str, Any]:
    return {"result": result, "status": "ok", "time": 0.0}


def service() -> FastAPI:
    """The routes that a store of memories uses."""
    engine, app = QdrantClient(":memory:"), FastAPI()

    @app.get("/")
    def root() -> dict[str, str]:
        return {"title": "qdrant", "version": "1.16.0", "commit": ""}

    @app.get("/collections/{name}/exists")
    def exists(name: str) -> dict[str, Any]:
        return _answer({"exists": engine.collection_exists(name)})

    @app.put("/collections/{name}")
    def create(name: str, body: dict[str, Any]) -> dict[str, Any]:
        return _answer(engine.create_collection(name, vectors_config=VectorParams.model_validate(body["vectors"])))

    @app.put("/collections/{name}/points")
    def upsert(name: str, body: dict[str, Any]) -> dict[str, Any]:
        engine.upsert(name, [PointStruct.model_validate(point) for point in body["points"]])
        return _answer({"operation_id": 0, "status": "completed"})

    @app.post("/collections/{name}/points/query")
    def query(name: str, body: dict[str, Any]) -> dict[str, Any]:
        found = engine.query_points(name, query=body["query"]["nearest"], limit=body["limit"], with_payload=True)
        return _answer(found.model_dump(mode="json"))

    @app.post("/collections/{name}/points/delete")
    def delete(name: str, body: dict[str, Any]) -> dict[str, Any]:
        engine.delete(name, PointIdsList(points=body["points"]))
        return _answer({"operation_id": 0, "status": "completed"})

    @app.post("/collections/{name}/points/count")
    def count(name: str) -> dict[str, Any]:
        return _answer({"count": engine.count(name).count})

    return app


@contextmanager
def qdrant_service() -> Iterator[str]:
    """The service, running; its URL."""
    server = uvicorn.Server(uvicorn.Config(service(), port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        thread.join(0.02)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(10)
