"""A local stand-in for E2B: the REST routes that the SDK calls, and envd's Connect service from the SDK's own interface
definition, with real processes and real files behind them. Not a virtual machine: what it plays is the protocol."""

import asyncio
import os
import socket
import threading
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import uvicorn
from connectrpc.code import Code
from connectrpc.errors import ConnectError
from e2b.envd.process import process_pb as pb
from e2b.envd.process.process_connect import Process, ProcessASGIApplication
from protobuf import Oneof
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from agents.fork.folder_adapter import remove


class E2bService:
    """Machines by id; each has a folder, and the processes that were started in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.machines: dict[str, dict[int, asyncio.subprocess.Process]] = {}
        self.created: list[dict[str, Any]] = []
        self.most_alive = 0
        self.url = ""

    # -- the API -------------------------------------------------------------------------------------------------------

    async def create(self, request: Request) -> Response:
        if request.headers.get("x-api-key") != "e2b_test":
            return JSONResponse({"code": 401, "message": "wrong key"}, 401)
        self.created.append(await request.json())
        name = uuid.uuid4().hex[:12]
        self.machines[name] = {}
        self.most_alive = max(self.most_alive, len(self.machines))
        body = {
            "templateID": "base",
            "sandboxID": name,
            "clientID": "c",
            "envdVersion": "0.6.7",
            "envdAccessToken": name,
        }
        return JSONResponse(body, 201)

    async def end(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self.machines:
            return JSONResponse({"code": 404, "message": "not found"}, 404)
        self.lose(name)
        return Response(status_code=204)

    def lose(self, name: str) -> None:
        """The machine ends, with all its processes."""
        for process in self.machines.pop(name).values():
            with suppress(psutil.NoSuchProcess):
                keeper = psutil.Process(process.pid)
                for each in (*keeper.children(recursive=True), keeper):
                    with suppress(psutil.NoSuchProcess):
                        each.kill()
        remove(self.folder)  # a machine's disk goes with it; one machine at a time, here

    # -- envd ----------------------------------------------------------------------------------------------------------

    def machine(self, headers: Any) -> dict[int, asyncio.subprocess.Process] | None:
        return self.machines.get(headers.get("x-access-token") or "")

    async def read(self, request: Request) -> Response:
        if self.machine(request.headers) is None:
            return JSONResponse({"code": 502, "message": "The sandbox was not found"}, 502)
        path = Path(request.query_params["path"])
        if not path.exists():
            return JSONResponse({"code": 404, "message": f"path {path} does not exist"}, 404)
        if not path.is_file():
            return JSONResponse({"code": 400, "message": f"path {path} is a directory"}, 400)
        return Response(path.read_bytes(), media_type="application/octet-stream")

    async def write(self, request: Request) -> Response:
        if self.machine(request.headers) is None:
            return JSONResponse({"code": 502, "message": "The sandbox was not found"}, 502)
        content = await request.body()
        path = Path(request.query_params["path"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return JSONResponse([{"name": path.name, "type": "file", "path": str(path)}])

    async def health(self, request: Request) -> Response:
        return Response(status_code=502 if self.machine(request.headers) is None else 204)


class Envd(Process):
    """envd's process service."""

    def __init__(self, service: E2bService) -> None:
        self.service = service

    async def start(self, request: pb.StartRequest, ctx: Any, /) -> AsyncIterator[pb.StartResponse]:
        running = self.service.machine(ctx.request_headers)
        if running is None:
            raise ConnectError(Code.UNAVAILABLE, "The sandbox was not found")
        config = request.process
        assert config is not None
        process = await asyncio.create_subprocess_exec(
            config.cmd, *config.args, cwd=config.cwd if config.has_field("cwd") else None,
            env={"PATH": os.environ["PATH"], "HOME": str(self.service.folder), **dict(config.envs)},
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        running[process.pid] = process
        queue: asyncio.Queue[tuple[str, bytes] | None] = asyncio.Queue()

        async def drain(name: str, stream: asyncio.StreamReader) -> None:
            while chunk := await stream.read(32_768):
                await queue.put((name, chunk))
            await queue.put(None)

        assert process.stdout is not None
        assert process.stderr is not None
        drains = [
            asyncio.create_task(drain("stdout", process.stdout)),
            asyncio.create_task(drain("stderr", process.stderr)),
        ]
        yield _event(Oneof("start", pb.ProcessEvent.StartEvent(pid=process.pid)))
        open_streams = len(drains)
        while open_streams:
            item = await queue.get()
            if item is None:
                open_streams -= 1
                continue
            yield _event(Oneof("data", pb.ProcessEvent.DataEvent(output=Oneof(item[0], item[1]))))  # type: ignore[arg-type]
        code = await process.wait()
        running.pop(process.pid, None)
        end = pb.ProcessEvent.EndEvent(
            exit_code=code if code >= 0 else -1, exited=code >= 0, status=f"exit status {code}"
        )
        yield _event(Oneof("end", end))

    async def send_signal(self, request: pb.SendSignalRequest, ctx: Any, /) -> pb.SendSignalResponse:
        running = self.service.machine(ctx.request_headers) or {}
        assert request.process is not None
        selector = request.process.selector
        process = running.get(selector.value) if selector is not None else None  # type: ignore[arg-type]
        if process is None:
            raise ConnectError(Code.NOT_FOUND, "no such process")
        process.send_signal(int(request.signal))
        return pb.SendSignalResponse()


def _event(event: Any) -> pb.StartResponse:
    return pb.StartResponse(event=pb.ProcessEvent(event=event))


@contextmanager
def e2b_service(folder: Path) -> Iterator[E2bService]:
    """The service on a free port of loopback; the environment names it as E2B's SDK wants it."""
    service = E2bService(folder)
    envd = ProcessASGIApplication(Envd(service))
    app = Starlette(
        routes=[
            Route("/sandboxes", service.create, methods=["POST"]),
            Route("/v2/sandboxes", service.create, methods=["POST"]),
            Route("/sandboxes/{name}", service.end, methods=["DELETE"]),
            Route("/files", service.read, methods=["GET"]),
            Route("/files", service.write, methods=["POST"]),
            Route("/health", service.health, methods=["GET"]),
            Mount("/", envd),
        ]
    )
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    service.url = f"http://127.0.0.1:{bound.getsockname()[1]}"
    server = uvicorn.Server(
        uvicorn.Config(app, log_level="error", lifespan="off", timeout_graceful_shutdown=1, ws="none")
    )
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([bound])), daemon=True)
    thread.start()
    named = {
        "E2B_API_KEY": "e2b_test",
        "E2B_API_URL": service.url,
        "E2B_SANDBOX_URL": service.url,
        "E2B_HTTP_VERSION": "1.1",
    }
    before = {name: os.environ.get(name) for name in named}
    os.environ.update(named)
    try:
        yield service
    finally:
        for name in list(service.machines):
            service.lose(name)
        server.should_exit = server.force_exit = True
        thread.join(10)
        bound.close()
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
