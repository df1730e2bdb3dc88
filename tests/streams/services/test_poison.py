"""Poison in every topic: no reader falls over it, workers bury it and go on with the honest work behind it."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from aiokafka import TopicPartition

from agents.fork.task_adapter import find_task, load_task
from agents.importers.lines import LineReader
from schemas.base import Record
from schemas.closures import Closure, RolloutClosed
from schemas.emission import JudgeConfig
from schemas.judging import JudgeVote
from streams.cluster.config import Settings
from streams.cluster.connections import start_admin, start_consumer
from streams.log.kafka_writer import FactWriter
from streams.log.letters import Letter, read_letter
from streams.log.topic_setup import ensure_topics
from streams.log.topics import (
    BRANCHES,
    BUILD_VERDICTS,
    BY_RECORD,
    DEAD_LETTERS,
    FACTS,
    JUDGE_REQUESTS,
    JUDGE_VOTES,
    RANKINGS,
    TOPICS,
    VISUAL_VERDICTS,
    Topic,
)  # fmt: skip
from streams.services.live.live_worker import run_worker
from streams.services.verifiers.build import run_build_verifier
from streams.services.verifiers.visual import run_visual_verifier
from tests.agents.judge.asking import request_of
from tests.conftest import Braid
from tests.live import read_all, until
from tests.poison import HUGE, Place, Shape, poison
from tests.streams.services.judge.running import judging
from tests.streams.services.judge.running import put as put_requests
from tests.streams.services.verifiers.running import branch_of, put, put_fork, verifying, with_state

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]

HONEST: list[dict[str, Any]] = [
    {"type": "rollout", "task": "t", "branches": 1, "required": []},
    {"type": "event", "branch_index": 0, "event": {"event": "final_answer", "data": {"answer": "yes"}}},
]


class Poisoned(NamedTuple):
    """A log whose every topic begins with poison, with honest work behind it, all in one partition."""

    settings: Settings
    written: dict[Place, Shape]


def good_records() -> dict[Topic, Record]:
    """A record for each topic that a worker reads, about the honest rollout."""
    lines = [
        *HONEST,
        {"type": "build", "branch_index": 0, "status": "failure", "exit_code": 1},
        {"type": "visual", "branch_index": 0, "verdict": "fail"},
        {"type": "check", "branch_index": 0, "name": "lint", "status": "fail"},
    ]
    reader = LineReader()
    found = [fact for line in lines for fact in reader.read_object({"rollout_id": "honest"} | line)]
    others = (
        request_of(rollout="honest"), branch_of("honest", 0, None),
        JudgeVote(vote_id="v", rollout_id="honest", a=0, b=1, preferred="a"),
        Closure(closed=RolloutClosed(closed_id="c", rollout_id="honest", settled_id="s", cause="complete", decided_at_ms=1)),
    )  # fmt: skip
    return {BY_RECORD[type(record)]: record for record in (*found, *others)}


async def write(settings: Settings) -> dict[Place, Shape]:
    """Poison first, then the work."""
    await ensure_topics(settings)
    written = await poison(settings, good_records())
    reader = LineReader()
    async with FactWriter(settings, "test") as writer:
        for line in HONEST:
            for fact in reader.read_object({"rollout_id": "honest"} | line):
                await writer.write(fact)
    await put_requests(settings, [request_of(rollout="judged")])
    for name in ("csv-table", "price-page"):
        await put_fork(settings, load_task(find_task(name)), name, {})
        await put(settings, [branch_of(name, 0, None)])
    return written


@pytest.fixture(scope="module")
def poisoned(cluster: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Poisoned]:
    prefix = f"t{uuid4().hex[:8]}."
    settings = with_state(
        cluster.model_copy(update={"prefix": prefix, "partitions": 1}), tmp_path_factory.mktemp("poisoned")
    )
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("KAFKA", settings.kafka), ("REGISTRY", settings.registry), ("PREFIX", prefix)):
            patch.setenv(f"BRAID_{name}", value)
        patch.setenv("BRAID_PARTITIONS", "1")
        yield Poisoned(settings, asyncio.run(write(settings)))


def worker(kind: str, settings: Settings, folder: Path) -> Any:
    """A worker in this process, its group, the topics it takes and a topic that its honest work ends in."""
    if kind == "live":
        return verifying(run_worker, settings), settings.group, FACTS, RANKINGS
    if kind == "judge":
        rules = folder / "rules.toml"
        rules.write_text('[[rule]]\nprefer = "longest"\n')
        judge = judging(settings, JudgeConfig(kind="scripted"), rules=rules)
        return judge, settings.judge_group, (JUDGE_REQUESTS,), JUDGE_VOTES
    run, sink = {"build": (run_build_verifier, BUILD_VERDICTS), "visual": (run_visual_verifier, VISUAL_VERDICTS)}[kind]
    return verifying(run, settings), settings.verifier_group(kind), (BRANCHES,), sink


async def letters_of(settings: Settings) -> dict[Place, Letter]:
    """Every dead letter by the place of its original; poison in the topic itself is none."""
    stored = await read_all(settings, settings.prefix + DEAD_LETTERS.name)
    found = [read_letter(each.key, each.value, each.headers) for each in stored if (each.headers or ())[6:]]
    return {
        Place(letter.topic, letter.partition, letter.offset): letter for letter in found if letter.reason != "unknown"
    }


@pytest.mark.parametrize("kind", ["live", "judge", "build", "visual"])
async def test_a_worker_buries_every_bad_record_and_does_the_work_behind_it(
    kind: str, poisoned: Poisoned, tmp_path: Path
) -> None:
    """It stays up, commits past the poison, and every letter has the bytes, the place and the reason."""
    settings = poisoned.settings
    running, group, topics, sink = worker(kind, settings, tmp_path)
    names = {settings.prefix + topic.name for topic in topics}
    wanted = {place: shape for place, shape in poisoned.written.items() if place.topic in names}
    work = TopicPartition(settings.prefix + sink.name, 0)
    before = sum(place.topic == work.topic for place in poisoned.written)
    admin, consumer = await start_admin(settings), await start_consumer(settings)
    try:
        async with running as task:

            async def passed() -> bool:
                assert not task.done(), task.exception()
                done = (await consumer.end_offsets([work]))[work] > before
                committed = await admin.list_consumer_group_offsets(group) if done else {}
                return done and all(committed.get(place[:2], (0, ""))[0] > place.offset for place in wanted)

            await until(passed, f"{kind}: the poison is committed, the work done")
    finally:
        await consumer.stop()
        await admin.close()
    letters = await letters_of(settings)
    assert wanted.keys() <= letters.keys()
    for place, shape in wanted.items():
        assert letters[place].message
        assert letters[place].reason == "undecodable"
        check(letters[place], shape)


def check(letter: Letter, shape: Shape) -> None:
    """A letter holds what was written; of a record that no letter can hold, its beginning."""
    assert (letter.value or b"") == (shape.value or b"")[: len(letter.value or b"")]
    if letter.cut:
        assert DEAD_LETTERS.max_bytes < len(shape.key or b"") + len(shape.value or b"") + sum(
            len(c or b"") for _, c in shape.headers
        )
        return
    assert (letter.key, letter.value or None) == (shape.key, shape.value or None)


@pytest.mark.long
def test_everything_that_reads_the_log_gets_past_poison(poisoned: Poisoned, braid: Braid, tmp_path: Path) -> None:
    """Commands end with what they found; 1 where poison stands in decisions or sinks, which is for people to look at."""
    prefix, archive = poisoned.settings.prefix, tmp_path / "archive"
    fine: list[tuple[object, ...]] = [
        *(("tail", topic.name, "--from-beginning", "--limit", 11) for topic in TOPICS),
        ("rollouts",), ("show", "honest"), ("show", "honest", "--json"), ("memory", "add", "--json"), ("judge", "stats"),
        ("export", "--format", "trl-sft", "--out", tmp_path / "sft"),
    ]  # fmt: skip
    complaining: list[tuple[object, ...]] = [
        ("archive", "--all", "--out", archive), ("replay", "--from-dir", archive, "--dry-run"),
        ("replay", "--dry-run", "--verify"), ("verify",),
    ]  # fmt: skip
    ended = {words: braid(*words)[0] for words in (*fine, *complaining)}
    assert ended == dict.fromkeys(fine, 0) | dict.fromkeys(complaining, 1)
    assert braid("archive", "restore", archive, "--to-prefix", f"{prefix}again.")[0] == 0


def test_letters_of_every_shape_are_listed_shown_and_put_back_where_that_makes_sense(
    poisoned: Poisoned, braid: Braid
) -> None:
    """Also one that holds nothing, and one that holds a part; neither of them is put back."""
    letters = braid("dead-letters", "list", "--topic", "judge-requests", "--limit", 0, "--json")[1]["letters"]
    bad = {place: shape for place, shape in poisoned.written.items() if "judge-requests" in place.topic}
    assert {each["id"] for each in letters} == {"/".join(map(str, place)) for place in bad}
    outcomes = braid("dead-letters", "retry", "--topic", "judge-requests", "--dry-run", "--json")[1]["letters"]
    refused = {each["id"]: each["why"] for each in outcomes if each["step"] == "refused"}
    for place, shape in bad.items():
        name, nothing = "/".join(map(str, place)), shape.key is None and not shape.value
        cut = HUGE in (shape.key, shape.value, *(content for _, content in shape.headers))
        why = "neither a key nor a value" if nothing else "holds only a part" if cut else ""
        assert why in refused.get(name, "")
        assert (name in refused) is bool(why)
        if why:
            code, page, _ = braid("dead-letters", "show", name)
            assert (code, name in page, ("all of it stands in" in " ".join(page.split())) is cut) == (0, True, True)
