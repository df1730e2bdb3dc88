"""The kept log of a run of Claude Code and Codex through the proxy: its captures fold to the same events, and those to ranked rows.

`tests/real_agents/make_log.py` wrote it, with the versions in `installed.py`.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from agents.capture.capture_fold import CaptureFold
from schemas.captures import Capture
from schemas.events import AgentEvents
from streams.log.file_reader import FileReader
from streams.log.topics import AGENT_EVENTS, CAPTURES, DPO, RANKINGS, SFT, Topic
from tests.conftest import Braid
from tests.real_agents.branch_runs import captured_runs
from tests.real_agents.played_task import TASK

LOG = Path(__file__).parent / "log"
AGENTS = ("claude", "codex")


async def archived(topic: Topic, folder: Path = LOG / "archive") -> list[Any]:
    """The records of a topic, in their order."""
    async with FileReader(folder) as reader:
        spans = (await reader.spans([topic]))[topic.name]
        return [
            reader.codec.decode(topic, stored.value)
            for partition, span in spans.items()
            async for block in reader.blocks(topic, partition, span)
            for stored in block
        ]


async def test_the_captures_of_real_agents_fold_to_the_same_events() -> None:
    folds: dict[tuple[str, int], CaptureFold] = {}
    made: list[AgentEvents] = []
    for offset, capture in enumerate(await archived(CAPTURES)):
        assert isinstance(capture, Capture)
        branch = (capture.rollout_id, capture.branch_index)
        made += folds.setdefault(branch, CaptureFold(*branch)).take(capture, offset)
    written = await archived(AGENT_EVENTS)
    assert len(written) == len(made) > 0
    assert sorted(map(shown, made)) == sorted(map(shown, written))


def shown(piece: AgentEvents) -> str:
    """The place of a slice, its events and its end."""
    fields = {"rollout_id", "branch_index", "attempt", "first_seq", "events", "ended", "last_seq", "status", "error"}
    return piece.model_dump_json(include=fields)


async def test_captured_events_are_what_the_agents_wrote_to_their_own_logs() -> None:
    slices: list[AgentEvents] = await archived(AGENT_EVENTS)
    told = json.loads((LOG / "told.json").read_text())
    for agent in AGENTS:
        runs = captured_runs(slices, f"{agent}-hello")
        assert len(runs) == len(told[agent]) == 4
        for branch, run in runs.items():
            logged = told[agent][str(branch)]
            assert [list(step) for step in run.steps] == logged["steps"]
            assert list(run.usage) == logged["usage"]
            if agent == "claude":  # Codex tells its model of a failed command in words alone
                assert run.failed == logged["failed"]


@pytest.fixture(scope="module")
def made(braid: Braid, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a replay of the log."""
    out = tmp_path_factory.mktemp("rows") / "made"
    code, _said, complaints = braid(
        "replay", "--from-dir", LOG / "archive", "--out", out, "--no-sign", "--processes", 1
    )
    assert code == 0, complaints
    return out


@pytest.mark.parametrize("agent", AGENTS)
async def test_the_log_of_real_agents_gives_ranked_exact_rows(made: Path, agent: str) -> None:
    """The rank of branches, pairs of every passing with every failing one, and a row of each passing one's work."""
    rankings, sft, dpo = [
        [each for each in await archived(topic, made) if each.rollout_id == f"{agent}-hello"]
        for topic in (RANKINGS, SFT, DPO)
    ]
    assert [branch.branch_index for branch in rankings[0].branches] == [0, 2, 1, 3]
    assert sorted((row.chosen_branch, row.rejected_branch) for row in dpo) == [(0, 1), (0, 3), (2, 1), (2, 3)]
    assert [row.branch_index for row in sft if row.main] == [0, 2]
    assert len(sft) == (3 if agent == "claude" else 2), "Claude Code also asks for a title; equal ones are one row"
    assert {row.fidelity for row in (*sft, *dpo)} == {"exact"}
    prompt = [message.content for message in dpo[0].prompt]
    assert any(TASK in (text or "") for text in prompt)
