"""Every agent does the task against the played APIs with its base URL alone: the baseline of what is captured."""

from pathlib import Path

import pytest

from tests.model_server import model_server
from tests.real_agents.agent_runs import AGENTS, Agent, Bases, run_agent
from tests.real_agents.played_task import TASK, branches_of, does, played

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
def test_an_agent_does_the_task_with_its_base_url_alone(agent: Agent, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    with model_server(played(branches_of(["hello"]))) as api:
        said = run_agent(agent, TASK, Bases(api.chat_url, api.url), tmp_path / "home", work)
    assert does(work)
    assert "Wrote hello." in said
    assert len([body for body in api.bodies if body.get("tools")]) == 2
