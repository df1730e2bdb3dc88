"""The live worker and the judge worker together on a real Kafka: requests, votes, ties by content, and the same bytes."""

import json
from collections import Counter
from pathlib import Path

import pytest

from schemas.emission import JudgeConfig
from schemas.judging import CONTENT_JUDGE, JudgeRequest
from schemas.rankings import Ranking
from streams.commands.judge import read_votes
from streams.config import Settings
from streams.ingest import ingest_files
from streams.inputs import Rejected
from streams.judging.looks import stats_json
from streams.topics import JUDGE_REQUESTS, RANKINGS
from tests.live import Worker, assert_sinks_are_the_fold_of_the_log, records_of, until, until_closed
from tests.streams.judging.running import judging, votes_of

pytestmark = pytest.mark.kafka

ANSWERS = ("tests passed, done", "tests passed, done", "I believe that it works", "gave up")


def lines() -> list[dict[str, object]]:
    found: list[dict[str, object]] = [
        {"type": "rollout", "rollout_id": "w", "task": "fix it", "branches": len(ANSWERS), "required": ["build"]}
    ]
    for index, answer in enumerate(ANSWERS):
        event = {"event": "final_answer", "data": {"answer": answer}}
        found.append({"type": "event", "rollout_id": "w", "branch_index": index, "event": event})
        build = {"status": "success", "exit_code": 0} if index < 3 else {"status": "failure", "exit_code": 1}
        found.append({"type": "build", "rollout_id": "w", "branch_index": index, **build})
    return found


async def test_requests_become_votes_and_the_rollout_closes_complete(settings: Settings, tmp_path: Path) -> None:
    """Passing branches are compared, the two identical ones tie by content, a killed live worker asks again with the same ids."""
    path = tmp_path / "lines.ndjson"
    path.write_text("\n".join(map(json.dumps, lines())))
    assert (await ingest_files([path], settings, Rejected(None), close=False)).bad_lines == 0
    rules = tmp_path / "rules.toml"
    rules.write_text('judge = "rules-1"\n[[rule]]\nprefer = "contains"\ntext = "tests passed"\n')
    live = Worker(settings, tmp_path / "worker.log", BRAID_EMISSION__JUDGE__KIND="scripted")

    async def asked() -> bool:
        return len(await records_of(settings, JUDGE_REQUESTS)) >= 2

    with live:
        await until(asked, "requests")
    with live:
        async with judging(settings, JudgeConfig(kind="scripted"), rules=rules):
            await until_closed(settings, {"w"})
    requests = [each for each in await records_of(settings, JUDGE_REQUESTS) if isinstance(each, JudgeRequest)]
    distinct = {request.request_id: request for request in requests}
    assert sorted((r.a.branch_index, r.b.branch_index if r.b else None) for r in distinct.values()) == [(0, 2), (1, 2)]
    assert len({request.model_dump_json() for request in requests}) == 2
    votes = {vote.vote_id: vote for vote in await votes_of(settings)}.values()
    assert Counter((v.a, v.b, v.preferred) for v in votes) == {(0, 1, "tie"): 1, (0, 2, "a"): 4, (1, 2, "a"): 4}
    assert Counter(vote.judge for vote in votes) == {CONTENT_JUDGE: 1, "rules-1": 8}
    await assert_sinks_are_the_fold_of_the_log(settings)
    (ranking,) = await records_of(settings, RANKINGS)
    assert isinstance(ranking, Ranking)
    assert ranking.close_cause == "complete"
    assert [branch.branch_index for branch in ranking.branches] == [0, 1, 2, 3]
    assert ranking.stats.tie_rate == 0.0
    behaviour = stats_json(await read_votes(None, settings), 4)["judges"]
    assert behaviour.keys() == {"rules-1"}
    assert (behaviour["rules-1"]["votes"], behaviour["rules-1"]["position_consistency"]) == (8, 1.0)
