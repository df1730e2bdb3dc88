"""A compliance run on Kafka under SIGKILL: runner and verifier are killed between rounds, and nothing that follows differs."""

import asyncio
import json
import random
from pathlib import Path

import pytest

from schemas.compliance import ComplianceEvalRecord
from streams.cluster.config import Settings
from streams.log.topic_setup import ensure_topics
from streams.log.topics import BRANCHES, COMPLIANCE_EVALS, DPO, PPO, SFT
from tests.live import Worker, assert_sinks_are_the_fold_of_the_log, records_of, until_records
from tests.processes import Forked, run_braid

pytestmark = [pytest.mark.faults, pytest.mark.long, pytest.mark.kafka, pytest.mark.timeout(400)]

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples" / "comply"
ROLLOUTS, BRANCHES_EACH = 9, 3


class Verifier(Worker):
    words = ("compliance-verifier",)


def words(script: Path, *more: str) -> list[str]:
    return ["comply", "run", str(EXAMPLES / "tasks.jsonl"), "--script", str(script), "--seeds", "1,2,3", *more]


async def run(settings: Settings, folder: Path, script: Path, chance: random.Random | None) -> None:
    """Run it to its end; with `chance` runner and verifier are killed again and again."""
    await ensure_topics(settings)
    env = Worker(settings, folder / "env.log")._env
    with Worker(settings, folder / "worker.log"), Verifier(settings, folder / "verifier.log") as verifier:
        first = words(script, "--id", "proof")
        process = Forked(first, env, folder / "run.log")
        kills = 0
        while chance is not None and kills < 6:
            await asyncio.sleep(chance.uniform(0.6, 2.0))
            if process.poll() is not None:
                break
            process.kill()
            process.wait()
            kills += 1
            if kills == 2:
                verifier.kill()
                verifier.start()
            process = Forked(words(script, "--resume", "proof"), env, folder / "run.log")
        assert await asyncio.to_thread(process.wait, 120) == 0, (folder / "run.log").read_text()
        assert chance is None or kills, "nothing was killed"
        await until_records(settings, COMPLIANCE_EVALS, ROLLOUTS * BRANCHES_EACH, 120)
        await asyncio.sleep(1)


def plain(record: object) -> str:
    """A row without what names the decisions of its own log: they have that log's times."""
    view = record.model_dump(mode="json", exclude={"record_id", "provenance"})  # type: ignore[attr-defined]
    return json.dumps(view, sort_keys=True)


async def test_killed_between_rounds_the_same_records_follow(settings: Settings, tmp_path: Path) -> None:
    script = tmp_path / "answers.toml"
    slow = (EXAMPLES / "answers.toml").read_text("utf-8").replace("[[answer]]", "[[answer]]\ndelay_ms = 60")
    script.write_text(slow, "utf-8")
    disturbed = settings.model_copy(update={"prefix": f"k{settings.prefix}"})
    for each, chance in ((settings, None), (disturbed, random.Random(7))):
        folder = tmp_path / each.prefix
        folder.mkdir()
        await run(each, folder, script, chance)
        await assert_sinks_are_the_fold_of_the_log(each)
    for topic in (BRANCHES, COMPLIANCE_EVALS):
        one, other = [
            {record.model_dump_json() for record in await records_of(each, topic)} for each in (settings, disturbed)
        ]
        assert one == other, topic.name
    for topic in (SFT, DPO, PPO):
        one, other = [{plain(record) for record in await records_of(each, topic)} for each in (settings, disturbed)]
        assert one == other, topic.name
        assert one, topic.name
    evals = [
        record for record in await records_of(disturbed, COMPLIANCE_EVALS) if isinstance(record, ComplianceEvalRecord)
    ]
    assert {each.status for each in evals} == {"pass", "fail"}
    env = Worker(disturbed, tmp_path / "env.log")._env
    done = await asyncio.to_thread(run_braid, "replay", "--verify", "--dry-run", env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
