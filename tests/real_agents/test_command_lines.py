"""Claude Code and Codex, as npm installs them, through the proxy by one documented command: ranked, and told as their own logs tell it."""

import re
from pathlib import Path

import pytest

from schemas.events import AgentEvents
from schemas.training import DpoRecord, PpoRecord, RejectedRecord, SftRecord
from streams.cluster.config import Settings
from streams.log.topics import BY_RECORD
from tests.live import records_of
from tests.model_server import model_server
from tests.real_agents.branch_runs import captured_runs, imported_runs, run_branches
from tests.real_agents.played_task import TASK, four_branches, played
from tests.real_agents.served import served_calls, trained_calls
from tests.real_agents.services import services

pytestmark = [pytest.mark.long, pytest.mark.kafka, pytest.mark.timeout(900)]


@pytest.mark.parametrize("agent", ["claude", "codex"])
async def test_one_command_turns_an_unchanged_agent_into_ranked_rows(
    agent: str, settings: Settings, tmp_path: Path
) -> None:
    with model_server(played(four_branches())) as api, services(settings, tmp_path, api.url) as running:
        page = run_branches(agent, "hello", running, api, tmp_path)
        slices: list[AgentEvents] = await records_of(settings, BY_RECORD[AgentEvents])  # type: ignore[assignment]
        sft: list[SftRecord] = await records_of(settings, BY_RECORD[SftRecord])  # type: ignore[assignment]
        dpo: list[DpoRecord] = await records_of(settings, BY_RECORD[DpoRecord])  # type: ignore[assignment]
        ppo: list[PpoRecord] = await records_of(settings, BY_RECORD[PpoRecord])  # type: ignore[assignment]
        left: list[RejectedRecord] = await records_of(settings, BY_RECORD[RejectedRecord])  # type: ignore[assignment]
    assert api.others == [], "a WebSocket is refused by the proxy, and a count of tokens was not asked for"
    ranked = re.findall(r"^ +(\d+) +\S+ +(\d+) +(pass|fail) ", page, re.MULTILINE)
    assert [(branch, objective) for _, branch, objective in ranked] == [
        ("0", "pass"), ("2", "pass"), ("1", "fail"), ("3", "fail"),
    ]  # fmt: skip
    assert {(row.chosen_branch, row.rejected_branch) for row in dpo} == {(0, 1), (0, 3), (2, 1), (2, 3)}
    assert {row.branch_index for row in sft if row.main} == {0, 2}
    assert {row.fidelity for row in (*sft, *dpo, *ppo)} == {"exact"}
    assert trained_calls(ppo) == served_calls(api)
    assert all(
        (row.prompt[-1].content and TASK in row.prompt[-1].content) or row.prompt[-1].role == "system" for row in dpo
    )
    assert "not_representable" not in {reason for row in left for reason in row.reasons}
    captured, logged = captured_runs(slices, "hello"), imported_runs(agent, tmp_path)
    assert len(captured) == len(logged) == 4
    for branch, run in logged.items():
        assert captured[branch].steps == run.steps
        assert captured[branch].usage == run.usage
        if agent == "claude":  # Codex tells its model of a failed command in words alone; its log knows the exit code
            assert captured[branch].failed == run.failed
