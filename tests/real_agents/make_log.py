"""Run Claude Code and Codex on the played task, and keep the log of it as a sample of real captures.

    .venv/bin/python -m tests.real_agents.make_log tests/real_agents/log

The captures of the run lose the texts of the products; a second worker makes its events and closures of what is left, and that log is
archived. `told.json` has the runs as `braid import` reads them from the agents' own session logs.
"""

import asyncio
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from schemas.captures import Capture
from streams.cluster import broker
from streams.cluster.broker import places
from streams.cluster.config import Settings
from streams.log.kafka_writer import FactWriter
from streams.log.topics import CAPTURES, CHECK_VERDICTS, LIFECYCLE
from tests.live import Worker, records_of, until_closed
from tests.model_server import model_server
from tests.processes import run_braid
from tests.real_agents.branch_runs import imported_runs, run_branches
from tests.real_agents.played_task import four_branches, played
from tests.real_agents.removed_text import without_product_text
from tests.real_agents.services import services

AGENTS = ("claude", "codex")


async def main(out: Path) -> None:
    """Run both agents, and write the archive and the runs as their own logs tell them."""
    with tempfile.TemporaryDirectory(prefix="braid-agents-") as held:
        work = Path(held)
        endpoint = broker.start(work / "broker", places.cache_dir())
        try:
            raw = Settings(
                kafka=endpoint.bootstrap,
                registry=endpoint.registry or "",
                state_dir=work / "state",
                prefix="raw.",
                partitions=2,
            )
            kept = raw.model_copy(update={"prefix": ""})
            told: dict[str, Any] = {}
            for agent in AGENTS:
                told |= {agent: await _run(agent, raw, work / agent)}
            await _keep(raw, kept, work)
            _archive(kept, out)
            (out / "told.json").write_text(
                json.dumps(told, indent=1, ensure_ascii=False).replace(str(work), "/workspace") + "\n"
            )
        finally:
            broker.stop(work / "broker", wipe=True)


async def _run(agent: str, settings: Settings, folder: Path) -> dict[int, Any]:
    """Run four branches of an agent; returns the runs that its own logs tell."""
    folder.mkdir()
    with model_server(played(four_branches())) as api, services(settings, folder, api.url) as running:
        run_branches(agent, f"{agent}-hello", running, api, folder)
    return {branch: run._asdict() for branch, run in imported_runs(agent, folder).items()}


async def _keep(raw: Settings, kept: Settings, work: Path) -> None:
    """Write the facts of the run again, without product texts, and let a worker fold them."""
    captures: list[Capture] = await records_of(raw, CAPTURES)  # type: ignore[assignment]
    folders = {f"{agent}-hello": _folder(captures, f"{agent}-hello", work / agent) for agent in AGENTS}
    clean = [
        each
        for rollout, folder in folders.items()
        for each in without_product_text([one for one in captures if one.rollout_id == rollout], folder)
    ]
    async with FactWriter(kept, "sample") as writer:
        for facts in (await records_of(raw, LIFECYCLE), clean, await records_of(raw, CHECK_VERDICTS)):
            for fact in facts:
                await writer.append(fact)
    with Worker(kept, work / "worker.log", BRAID_STATE_DIR=str(work / "state")):
        await until_closed(kept, {*folders}, 120)


def _folder(captures: list[Capture], rollout: str, folder: Path) -> str:
    """The path that the agent worked in, as its requests name it."""
    text = b"".join(each.body for each in captures if each.rollout_id == rollout).decode()
    found = re.findall(re.escape(str(folder)) + r"/tmp\.\w+", text)
    return found[0] if found else str(folder)


def _archive(settings: Settings, out: Path) -> None:
    env = os.environ | {
        "BRAID_KAFKA": settings.kafka, "BRAID_REGISTRY": settings.registry, "BRAID_PREFIX": settings.prefix, "BRAID_PARTITIONS": "2",
        "BRAID_STATE_DIR": str(settings.state_dir),
    }  # fmt: skip
    done = run_braid("archive", "--out", out / "archive", env=env)
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
