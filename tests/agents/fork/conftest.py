"""Sandboxes of every kind behind one name, so that one suite says what a sandbox is."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agents.fork.e2b_adapter import E2bOptions, E2bSandboxes
from agents.fork.local_adapter import LocalSandboxes
from agents.fork.sandbox_adapter import LocalOptions
from tests.e2b_service import e2b_service

collect_ignore = ["tasks"]
"""Their tests are for what agents leave, not for us."""


@pytest.fixture
async def local(tmp_path: Path) -> AsyncIterator[LocalSandboxes]:
    """Sandboxes on this machine, closed in by namespaces."""
    made = await LocalSandboxes.open(tmp_path / "sandboxes")
    yield made
    await made.close()


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
