"""Sandboxes of every kind behind one name, so that one suite says what a sandbox is."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agents.fork.build_verdict import Run, run_stages
from agents.fork.e2b_adapter import E2bOptions, E2bSandboxes
from agents.fork.local_adapter import LocalSandboxes
from agents.fork.looks import RunTests
from agents.fork.pool import KernelPool
from agents.fork.sandbox_adapter import LocalOptions
from agents.fork.task import Task
from agents.workspace.files import Files
from tests.e2b_service import e2b_service

collect_ignore = ["tasks"]
"""Their tests are for what agents leave, not for us."""


@pytest.fixture
async def local(tmp_path: Path) -> AsyncIterator[LocalSandboxes]:
    """Sandboxes on this machine, closed in by namespaces."""
    made = await LocalSandboxes.open(tmp_path / "sandboxes")
    yield made
    await made.close()


@pytest.fixture
async def run_tests(local: LocalSandboxes) -> AsyncIterator[RunTests]:
    """Runs tests in fresh sandboxes on this machine."""
    pool = KernelPool(local.create, 1)

    async def run(task: Task, files: Files, env: Mapping[str, str]) -> Run:
        async with pool.lease() as sandbox:
            return await run_stages(task, files, sandbox, env)

    yield run
    await pool.close()


@pytest.fixture(params=["namespaces", "processes", "e2b"])
async def sandboxes(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    """Every kind of sandbox."""
    async with sandboxes_of(request.param, tmp_path) as made:
        yield made


@asynccontextmanager
async def sandboxes_of(kind: str, tmp_path: Path) -> AsyncIterator[Any]:
    """Sandboxes of one kind. E2B's service is played on loopback, with its SDK's own protocol."""
    if kind != "e2b":
        made = await LocalSandboxes.open(
            tmp_path / "sandboxes", LocalOptions("namespaces" if kind == "namespaces" else "processes")
        )
        yield made
        await made.close()
        return
    with e2b_service(tmp_path / "e2b") as service:
        yield E2bSandboxes(E2bOptions(root=str(tmp_path / "e2b" / "home" / "workspace")))
        assert service.machines == {}, "a machine was left running"
