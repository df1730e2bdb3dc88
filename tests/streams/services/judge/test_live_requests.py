"""The live worker and the judge worker together on a real Kafka: requests, votes, ties by content, and the same bytes."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from schemas.emission import JudgeConfig
from schemas.judging import CONTENT_JUDGE, JudgeRequest
from schemas.rankings import Ranking
from streams.cluster.config import Settings
from streams.jobs.ingest import ingest_files
from streams.jobs.judge.stored_votes import votes_of_prefixes
from streams.log.input_lines import Rejected
from streams.log.topics import JUDGE_REQUESTS, RANKINGS
from streams.views.judge_pages import stats_json
from tests.live import Worker, assert_sinks_are_the_fold_of_the_log, records_of, until_closed, until_records
from tests.model_server import Said, answer, model_server
from tests.streams.services.judge.running import judging, votes_of

pytestmark = pytest.mark.kafka

ANSWERS = ("tests passed, done", "tests passed, done", "I believe that it works", "gave up")


def lines() -> list[dict[str, object]]:
    found: list[dict[str, object]] = [
        {"type": "rollout", "rollout_id": "w", "task": "fix it", "branches": len(ANSWERS), "required": ["build"]}
    ]
    for index, said in enumerate(ANSWERS):
        event = {"event": "final_answer", "data": {"answer": said}}
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
    with live:
        await until_records(settings, JUDGE_REQUESTS, 2)
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
    behaviour = stats_json(await votes_of_prefixes(settings, [settings.prefix], lambda _what, _share: None), 4)[
        "judges"
    ]
    assert behaviour.keys() == {"rules-1"}
    assert (behaviour["rules-1"]["votes"], behaviour["rules-1"]["position_consistency"]) == (8, 1.0)


WEIGHTS = (
    '[{"key":"objective","weight":1,"component":"objective"},{"key":"scored","weight":1,"component":"judge_scalar"}]'
)


async def scored(settings: Settings, tmp_path: Path, env: dict[str, str], judge: JudgeConfig, **asked: Any) -> Ranking:
    """The ranking of the rollout when branches are scored, with the bytes checked against the log."""
    path = tmp_path / "lines.ndjson"
    path.write_text("\n".join(map(json.dumps, lines())))
    await ingest_files([path], settings, Rejected(None), close=False)
    with Worker(settings, tmp_path / "worker.log", BRAID_EMISSION__RANKING__WEIGHTS=WEIGHTS, **env):
        async with judging(settings, judge, **asked):
            await until_closed(settings, {"w"})
    await assert_sinks_are_the_fold_of_the_log(settings)
    (ranking,) = await records_of(settings, RANKINGS)
    assert isinstance(ranking, Ranking)
    return ranking


async def test_pairs_and_scores_are_asked_and_waited_for(settings: Settings, tmp_path: Path) -> None:
    """Both kinds of requests for the branches of each tier; a failing branch is scored, too, and stays below."""
    rules = tmp_path / "rules.toml"
    rules.write_text('judge = "rules-1"\n[[rule]]\nwhen = "tests passed"\nscore = 9\n[[rule]]\nscore = 2\n')
    kind = {"BRAID_EMISSION__JUDGE__KIND": "scripted", "BRAID_EMISSION__JUDGE__MODE": "pairwise+scalar"}
    ranking = await scored(settings, tmp_path, kind, JudgeConfig(kind="scripted"), rules=rules)
    assert ranking.close_cause == "complete"
    found = [(branch.branch_index, branch.judge_scalar, branch.total) for branch in ranking.branches]
    assert found == [(0, 9.0, 1.9), (1, 9.0, 1.9), (2, 2.0, 1.2), (3, 2.0, 0.2)]
    votes = {vote.vote_id: vote for vote in await votes_of(settings)}.values()
    assert Counter(vote.a for vote in votes if vote.b is None) == {0: 3, 1: 3, 2: 3, 3: 3}
    assert Counter(vote.judge for vote in votes if vote.b is not None) == {CONTENT_JUDGE: 1, "rules-1": 8}


async def test_a_model_scores_branches_and_a_missing_score_is_no_number(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three calls for each branch at temperature 0.1; what is no score in 0..10 becomes a cause; its branch has no score."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test")

    async def play(body: dict[str, Any], _number: int) -> Said:
        asked = str(body["messages"])
        score = 11 if "gave up" in asked else 8 if "tests passed" in asked else 3.5
        return answer({"score": score, "reasoning": "as {recorded}"})

    kind = {"BRAID_EMISSION__JUDGE__KIND": "anthropic", "BRAID_EMISSION__JUDGE__MODE": "scalar"}
    with model_server(play) as api:
        ranking = await scored(
            settings, tmp_path, kind, JudgeConfig(kind="anthropic", model="judge-model"), base_url=api.url
        )
    assert {body["temperature"] for body in api.bodies} == {0.1}
    assert api.calls == 3 * 3 + 3 * 3  # the unusable score is asked for twice more, each time
    assert [(branch.branch_index, branch.judge_scalar) for branch in ranking.branches] == [
        (0, 8.0), (1, 8.0), (2, 3.5), (3, None),
    ]  # fmt: skip
    assert {branch.judge_score for branch in ranking.branches} == {None}
    assert Counter(vote.cause for vote in await votes_of(settings)) == {None: 9, "unparseable": 3}
