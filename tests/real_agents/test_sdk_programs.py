"""Programs with real SDKs through the proxy, unchanged but for their base URL: each becomes ranked rows of what its server saw."""

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from schemas.training import DpoRecord, PpoRecord, SftRecord
from streams.cluster.config import Settings
from streams.log.topics import DPO, PPO, SFT
from tests.live import records_of, until_closed
from tests.model_server import ModelServer, model_server
from tests.real_agents.agent_runs import SDK_PROGRAMS, Agent, run_agent
from tests.real_agents.played_task import TASK, branches_of, does, played
from tests.real_agents.served import served_calls, trained_calls
from tests.real_agents.services import Services, services

pytestmark = [pytest.mark.long, pytest.mark.kafka, pytest.mark.timeout(900)]


class Bench(NamedTuple):
    """Everything that runs while programs do."""

    settings: Settings
    api: ModelServer
    running: Services


@pytest.fixture(scope="module")
def bench(cluster: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One worker, gateway and proxy for all programs, before one played API."""
    settings = cluster.model_copy(update={"prefix": f"t{uuid.uuid4().hex[:8]}.", "partitions": 2})
    folder = tmp_path_factory.mktemp("services")
    with model_server(played([])) as api, services(settings, folder, api.url) as running:
        yield Bench(settings, api, running)


def run_branches(agent: Agent, running: Services, folder: Path) -> None:
    """Run two branches of the task by a program, and judge each by what it left."""
    gateway, rollout = f"{running.gateway}/v1/rollouts", agent.name
    with httpx.Client(timeout=30) as client:

        def post(url: str, content: dict[str, object]) -> None:
            client.post(url, json=content).raise_for_status()

        opening = {"task": TASK, "branches": 2, "required": ["check"], "repo_commit": "c0ffee"}
        post(gateway, {"rollout_id": rollout, **opening})
        for branch in (0, 1):
            work = folder / "work"  # always the same: some agents tell the model where they are
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir()
            run_agent(agent, TASK, running.bases(rollout, branch), folder / "home", work)
            post(f"{running.proxy}/r/{rollout}/b/{branch}/end", {})
            status = "pass" if does(work) else "fail"
            post(f"{gateway}/{rollout}/branches/{branch}/verdicts/check", {"name": "check", "status": status})


@pytest.mark.parametrize("agent", SDK_PROGRAMS, ids=lambda agent: agent.name)
async def test_a_program_with_an_sdk_becomes_ranked_rows_of_what_its_server_saw(
    agent: Agent, bench: Bench, tmp_path: Path
) -> None:
    bench.api.play = played(branches_of(["hello", "goodbye"]))
    before = bench.api.calls
    run_branches(agent, bench.running, tmp_path)
    await until_closed(bench.settings, {agent.name}, 60)
    sft: list[SftRecord] = await records_of(bench.settings, SFT)  # type: ignore[assignment]
    dpo: list[DpoRecord] = await records_of(bench.settings, DPO)  # type: ignore[assignment]
    ppo: list[PpoRecord] = await records_of(bench.settings, PPO)  # type: ignore[assignment]
    sft, dpo, ppo = ([row for row in rows if row.rollout_id == agent.name] for rows in (sft, dpo, ppo))  # type: ignore[attr-defined]
    assert [(row.chosen_branch, row.rejected_branch) for row in dpo] == [(0, 1)]
    assert [row.branch_index for row in sft if row.main] == [0]
    assert {row.fidelity for row in (*sft, *dpo, *ppo)} == {"exact"}
    assert trained_calls(ppo) == served_calls(bench.api, before)
