"""Verdicts of an agent that reaches the broker and has no trusted key: none of them counts, whatever it writes."""

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from agents.evidence.keys import generate_key
from agents.facts.fact import Fact, rollout_of
from agents.importers.lines import LineReader
from agents.rollouts.closure import close_now
from agents.rollouts.policy import ClosingPolicy
from agents.rollouts.rollout import Rollout
from agents.rollouts.settlement import settle_now
from agents.trust.trusted_keys import UNTRUSTED, TrustedKey
from agents.trust.verdict_signature import content_digest, sign_verdict
from schemas.closures import Closure
from schemas.codec.body import encode
from schemas.emission import EmissionConfig
from schemas.evidence import AepRecord
from schemas.rankings import Ranking
from schemas.verdicts import BuildVerdict, CheckVerdict, VisualVerdict
from schemas.versions import numbered
from streams.cluster.config import Settings
from streams.cluster.connections import partition_of, start_producer
from streams.jobs.ingest import ingest_files
from streams.jobs.verdict_trust import VerdictTrust
from streams.log.input_lines import Rejected
from streams.log.kafka_writer import FactWriter
from streams.log.letters import read_letter
from streams.log.topics import BUILD_VERDICTS, BY_RECORD, CLOSURES, DEAD_LETTERS, EVIDENCE, RANKINGS
from tests.live import (
    Worker,
    assert_sinks_are_the_fold_of_the_log,
    codec_of,
    read_all,
    records_of,
    until_closed,
    until_records,
)

pytestmark = pytest.mark.kafka

BUILDS, LINTS, AGENTS = generate_key("builds"), generate_key("lints"), generate_key("builds")
"""The verifier's, one that may speak for lint only, and the agent's own: it calls itself by the verifier's name."""

TRUSTED = json.dumps({"builds": BUILDS.public.hex(), "lints": {"public_key": LINTS.public.hex(), "kinds": ["lint"]}})
PASS = {"status": "success", "exit_code": 0}


def build(rollout_id: str, branch: int, verdict_id: str, **said: Any) -> BuildVerdict:
    about = {"rollout_id": rollout_id, "branch_index": branch, "verdict_id": verdict_id}
    return BuildVerdict.model_validate(about | said)


HONEST = sign_verdict(build("honest", 0, "look-0", **PASS), BUILDS)
REAL = [
    sign_verdict(build("attacked", branch, f"look-{branch}", status="failure", exit_code=1), BUILDS)
    for branch in (0, 1)
]


def attacks() -> list[Any]:
    """An agent's forged records about its own branches of `attacked`, with the ids that the verifier is going to use
    and others."""
    here = {"rollout_id": "attacked", "branch_index": 0}
    return [
        build("attacked", 0, "look-0", **PASS),
        build("attacked", 0, "mine", **PASS),
        sign_verdict(build("attacked", 0, "look-0", **PASS), AGENTS),
        sign_verdict(build("attacked", 1, "look-1", **PASS), generate_key("agent")),
        sign_verdict(build("attacked", 1, "lint-key", **PASS), LINTS),
        HONEST.model_copy(update={"rollout_id": "attacked"}),
        HONEST.model_copy(update={"rollout_id": "attacked", "branch_index": 1, "verdict_id": "moved"}),
        REAL[0].model_copy(update=PASS),
        REAL[0].model_copy(update={"attempt": 1} | PASS),
        REAL[1].model_copy(update={"verdict_id": "again"} | PASS),
        CheckVerdict(**here, verdict_id="c", name="build", status="pass"),
        CheckVerdict(**here, verdict_id="p", name="policy", status="pass"),
        VisualVerdict(**here, verdict_id="v", verdict="pass"),
    ]


async def write_as_agent(settings: Settings, verdicts: list[Any], raw: bytes | None = None) -> None:
    """Produce to the topics of verdicts, with nothing but the broker's address; `raw` is one more build verdict as bytes."""
    codec = await codec_of(settings)
    producer = await start_producer(settings)
    values = [(BY_RECORD[type(each)].name, codec.encode(each)) for each in verdicts]
    try:
        for topic, value in [*values, *([(BUILD_VERDICTS.name, raw)] if raw is not None else [])]:
            at = partition_of("attacked", settings.partitions)
            await producer.send_and_wait(settings.prefix + topic, value, key=b"attacked", partition=at)
    finally:
        await producer.stop()


def decided(facts: list[Fact]) -> list[Fact]:
    """A verdict of the agent's, with the decisions that a worker which believed it would write."""
    forged, rollout = build("decided", 0, "v", **PASS), Rollout("decided")
    for number, fact in enumerate([*facts, forged]):
        rollout.add(fact, 10, ("facts", 0, number))
    settled = Closure(settled=settle_now(rollout, EmissionConfig(), ClosingPolicy()))
    rollout.add(settled, 10, ("closures", 0, 0))
    return [forged, settled, Closure(closed=close_now(rollout))]


def before_signatures() -> bytes:
    """A verdict in the first version of its schema, which has no field for a signature."""
    mark = numbered(BuildVerdict, 1).fingerprint
    return b"\xc3\x01" + mark + encode(build("attacked", 1, "look-1", **PASS), 1)


def opened() -> list[Fact]:
    """Three rollouts whose branches have answered."""
    reader, rollouts = LineReader(), {"attacked": 2, "honest": 1, "decided": 1}
    lines: list[dict[str, Any]] = [
        {"type": "rollout", "rollout_id": name, "task": "t", "branches": branches}
        for name, branches in rollouts.items()
    ]
    answer = {"event": "final_answer", "data": {"answer": "a"}}
    lines += [
        {"type": "event", "rollout_id": name, "branch_index": branch, "event": answer}
        for name, branches in rollouts.items()
        for branch in range(branches)
    ]
    return [fact for line in lines for fact in reader.read_object(line)]


async def append(settings: Settings, facts: Iterable[Fact]) -> None:
    async with FactWriter(settings, "test") as log:
        for fact in facts:
            await log.append(fact)


async def ingest_unsigned(settings: Settings, folder: Path) -> list[str]:
    """A file with an unsigned verdict; returns the message for the operator."""
    filed = {"type": "build", "rollout_id": "attacked", "branch_index": 0, "verdict_id": "filed", **PASS}
    (folder / "filed.ndjson").write_text(json.dumps(filed))
    said: list[str] = []
    trust = VerdictTrust({"builds": TrustedKey(public_key=BUILDS.public.hex())}, say=said.append)
    await ingest_files([folder / "filed.ndjson"], settings, Rejected(None), close=False, trust=trust)
    return said


async def test_no_verdict_of_an_agent_counts_on_a_broker_that_takes_everything(
    settings: Settings, tmp_path: Path
) -> None:
    """Unsigned, self-signed under a trusted name, replayed, moved, changed, of an older schema: dead letters. Forged decisions that pin
    a forged verdict lead to nothing: that rollout is given up.
    """
    facts = opened()
    await append(settings, [*facts, HONEST])
    (said,) = await ingest_unsigned(settings, tmp_path)
    assert "filed.ndjson:1: the verdict is not signed" in said
    with Worker(settings, tmp_path / "worker.log", BRAID_TRUSTED_VERIFIERS=TRUSTED):
        await write_as_agent(settings, attacks(), before_signatures())
        await until_records(settings, DEAD_LETTERS, len(attacks()) + 2)
        await append(settings, REAL)
        await until_closed(settings, {"attacked", "honest"})
        await write_as_agent(settings, [build("attacked", 0, "look-0", **PASS)])  # a pinned id, and no repetition
        await until_records(settings, DEAD_LETTERS, len(attacks()) + 3)
        await assert_sinks_are_the_fold_of_the_log(settings)  # a fold that knows no keys
        await append(settings, decided([fact for fact in facts if rollout_of(fact) == "decided"]))
        await until_records(settings, DEAD_LETTERS, len(attacks()) + 5)
    letters = await read_all(settings, settings.prefix + DEAD_LETTERS.name)
    reasons = Counter((each.key, read_letter(each.key, each.value, each.headers).reason) for each in letters)
    assert reasons == {
        (b"attacked", UNTRUSTED): len(attacks()) + 3, (b"decided", UNTRUSTED): 1, (b"decided", "given_up"): 1,
    }  # fmt: skip
    rankings = {each.rollout_id: each for each in await records_of(settings, RANKINGS) if isinstance(each, Ranking)}
    statuses = {name: [each.objective_status for each in ranking.branches] for name, ranking in rankings.items()}
    assert statuses == {"attacked": ["fail", "fail"], "honest": ["pass"]}
    closures = [each.settled for each in await records_of(settings, CLOSURES) if isinstance(each, Closure)]
    (settled,) = [each for each in closures if each is not None and each.rollout_id == "attacked"]
    assert [pin.verdict_digests for pin in settled.branches] == [(content_digest(each),) for each in REAL]
    evidence = [each for each in await records_of(settings, EVIDENCE) if isinstance(each, AepRecord)]
    seen = [found for record in evidence if record.rollout_id == "attacked" for found in record.verifier_results]
    assert [(found.verifier_id, found.passed) for found in seen] == [("build", False), ("build", False)]
