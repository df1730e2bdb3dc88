"""The findings of `braid doctor` about local sandboxes."""

import os
import sys

import pytest

from streams.cluster.config import ForkConfig, Settings
from streams.views.sandbox_checks import check_sandboxes


async def test_doctor_says_as_whom_commands_run() -> None:
    """Root's sandboxes have users of their own; without namespaces that is a warning."""
    closed = await check_sandboxes(Settings())
    user = "users that only one sandbox has" if os.geteuid() == 0 else "as this user"
    assert (closed.result, user in closed.detail, "1024 MiB" in closed.detail) == ("ok", True, True)
    open_ones = await check_sandboxes(Settings(fork=ForkConfig(isolation="processes")))
    assert (open_ones.result, "limits only" in open_ones.detail) == ("warning", True)


async def test_doctor_says_why_sandboxes_do_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the reason and what to do."""
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    refused = await check_sandboxes(Settings())
    assert (refused.result, "/no/such/python" in refused.detail) == ("warning", True)
    assert "user namespaces" in refused.advice
