"""`braid judge again` on a real Kafka: a rollout that closed while the judge was away gets its votes, in topics of their own."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agents.formats import FORMATS
from agents.rollouts.emission import emit
from schemas.emission import EmissionConfig, JudgeConfig
from schemas.rankings import Ranking
from streams.cluster.config import Settings
from streams.cluster.judge_client import Budget, make_judge
from streams.jobs.export.export import export
from streams.jobs.export.recipe import Recipe
from streams.jobs.ingest import ingest_files
from streams.jobs.judge.again import Judged, into_topics, judge_again
from streams.jobs.judge.asker import Spent
from streams.jobs.judge.closed_rollouts import ClosedRollouts
from streams.jobs.judge.stored_votes import votes_of_prefixes
from streams.jobs.targets import TargetError
from streams.log.input_lines import Rejected
from streams.log.kafka_reader import KafkaReader
from streams.log.topics import CLOSURES, EVIDENCE, JUDGE_VOTES, RANKINGS
from tests.live import Worker, read_all, records_of, sinks_of, until_closed
from tests.model_server import Said, answer, model_server
from tests.streams.services.judge.test_live_requests import lines

pytestmark = pytest.mark.kafka

AWAY = {"BRAID_EMISSION__JUDGE__KIND": "anthropic", "BRAID_EMISSION__JUDGE__MODEL": "judge-model"}


async def play(body: dict[str, Any], _number: int) -> Said:
    """Prefers the run that is not only sure of itself, wherever it is shown."""
    first, second = str(body["messages"]).split("BEGIN RUN B")
    sure = "I believe"
    return answer({"preferred": "b" if sure in first else "a" if sure in second else "tie", "reasoning": "evidence"})


async def again(settings: Settings, prefix: str, calls: int = 1000) -> tuple[Judged, Spent]:
    judge = make_judge(settings, Budget(calls).allow)
    try:
        async with KafkaReader(settings) as source, into_topics(settings, prefix, None) as results:
            return await judge_again(ClosedRollouts(source), results, judge, settings.emission.judge, 2)
    finally:
        await judge.close()


async def test_a_rollout_that_closed_without_its_judge_is_judged_later(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The facts stay; a spent budget stops it and the next run goes on; a third one has nothing to do; another rubric needs
    another place."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test")
    said = lines()
    said[0] |= {"judge_deadline_ms": 300}
    open_one = {"type": "rollout", "rollout_id": "open", "task": "t", "branches": 2}
    path = tmp_path / "lines.ndjson"
    path.write_text("\n".join(map(json.dumps, [*said, open_one])))
    await ingest_files([path], settings, Rejected(None), close=False)
    with Worker(settings, tmp_path / "worker.log", **AWAY):
        await until_closed(settings, {"w"})
    facts = {topic.name: await read_all(settings, settings.prefix + topic.name) for topic in (JUDGE_VOTES, CLOSURES)}
    (before,) = await records_of(settings, RANKINGS)
    assert isinstance(before, Ranking)
    assert before.close_cause == "judge_deadline"

    prefix = f"{settings.prefix}again."
    there = settings.model_copy(update={"prefix": prefix})
    with model_server(play) as api:
        judge = JudgeConfig(kind="anthropic", model="judge-model")
        asked = settings.judge.model_copy(update={"base_url": api.url})
        chosen = settings.model_copy(update={"judge": asked, "emission": EmissionConfig(judge=judge)})
        counts, spent = await again(chosen, prefix, calls=5)
        assert (counts.judged, counts.unfinished, counts.open, spent.missing) == (0, 1, 1, {"budget": 3})
        assert len(await read_all(there, prefix + JUDGE_VOTES.name)) == 5
        counts, spent = await again(chosen, prefix)
        assert (counts.judged, counts.unfinished, spent.asked, spent.known) == (1, 0, 3, 5)
        assert api.calls == 8
        counts, spent = await again(chosen, prefix)
        assert (counts.there, counts.judged, spent.asked, api.calls) == (1, 0, 0, 8)
        other = EmissionConfig(judge=judge.model_copy(update={"rubric": "Brevity."}))
        with pytest.raises(TargetError, match="a --to-prefix of its own"):
            await again(chosen.model_copy(update={"emission": other}), prefix)
        with pytest.raises(TargetError, match="where the facts are"):
            await again(chosen, settings.prefix)
    assert {
        topic.name: await read_all(settings, settings.prefix + topic.name) for topic in (JUDGE_VOTES, CLOSURES)
    } == facts
    (now,) = await records_of(there, RANKINGS)
    assert isinstance(now, Ranking)
    assert (now.close_cause, [branch.branch_index for branch in now.branches]) == ("complete", [0, 1, 2, 3])
    assert [branch.judge_score is None for branch in now.branches] == [False, False, False, True]
    assert len(await records_of(there, CLOSURES)) == 2
    assert len(await records_of(there, EVIDENCE)) == 5
    both = await votes_of_prefixes(settings, [settings.prefix, prefix], lambda _what, _share: None)
    assert Counter(timed.vote.judge for timed in both)["judge-model"] == 8
    exported = await export(KafkaReader(there), tmp_path / "dpo", Recipe.of(FORMATS["trl-dpo"], None))
    assert (exported.rollouts, exported.incomplete) == (1, 0)


async def test_closed_rollouts_are_folded_again_to_the_same_records(settings: Settings, tmp_path: Path) -> None:
    """Folding a log once more gives the worker's records; open rollouts are counted and left alone."""
    told = [line | {"rollout_id": name} for name in ("one", "two") for line in lines()]
    path = tmp_path / "lines.ndjson"
    path.write_text("\n".join(map(json.dumps, [*told, {"type": "rollout", "rollout_id": "open", "task": "t"}])))
    await ingest_files([path], settings, Rejected(None), close=False)
    with Worker(settings, tmp_path / "worker.log"):
        await until_closed(settings, {"one", "two"})
    async with KafkaReader(settings) as source:
        closed = ClosedRollouts(source)
        emissions = [emit(rollout) async for rollout in closed.rollouts()]
    assert (closed.open, closed.broken, closed.undecodable) == (1, [], 0)
    sinks = await sinks_of(settings)
    assert {each.ranking.ranking_id for each in emissions} == sinks.bodies[RANKINGS.name].keys()
    found = {record.record_id for each in emissions for record in each.evidence}
    assert found == sinks.bodies[EVIDENCE.name].keys()
