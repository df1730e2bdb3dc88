"""Checks whether local sandboxes work on this machine, and how well they are isolated for the current user."""

import tempfile
from pathlib import Path

from agents.fork.local_adapter import LocalSandboxes
from agents.fork.sandbox import SandboxError
from schemas.extras import MissingExtraError
from streams.cluster.config import Settings
from streams.log.terminal_text import line
from streams.services.fork.fork_setup import local_sandboxes
from streams.views.machine_checks import Check

NAME = "sandboxes"


async def check_sandboxes(settings: Settings) -> Check:
    """Try one out, in a folder of its own that is gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            sandboxes = await local_sandboxes(settings, Path(folder))
        except MissingExtraError as error:
            return Check(NAME, "skipped", str(error))
        except SandboxError as error:
            what, _, advice = line(str(error), 600).partition("; ")
            return Check(NAME, "warning", f"local ones do not work here: {what}", advice or "use --sandbox e2b")
        await sandboxes.close()
    return describe(settings, sandboxes)


def describe(settings: Settings, sandboxes: LocalSandboxes) -> Check:
    """Report the limits of the commands in working sandboxes."""
    user = {
        "others": f"as users that only one sandbox has, from {settings.fork.first_uid} on",
        "root": "as root",
        "this user": "as this user",
    }[sandboxes.runs_as]
    if settings.fork.isolation == "processes":
        advice = "unset BRAID_FORK__ISOLATION where this machine is not thrown away; verdicts of tests apart from the work are unknown"
        return Check(NAME, "warning", f"limits only, {user}: the machine's network and files are within reach", advice)
    limits = f"processes and disk are limited, {settings.fork.workspace_mb} MiB for a workspace"
    return Check(NAME, "ok", f"namespaces, {user}; {limits}")
