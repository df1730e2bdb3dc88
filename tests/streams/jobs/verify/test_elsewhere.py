"""`braid verify`: what cannot be verified, vectors of others, and the topics of a cluster."""

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from schemas.base import Record
from schemas.branches import BranchRecord
from schemas.training import SftRecord
from streams.cluster.config import Settings
from streams.cluster.connections import partition_of, registry_of, start_producer
from streams.jobs.verify.inspection import ROW_TOPICS
from streams.jobs.verify.verification import NothingToVerifyError
from streams.log.container import read_partition
from streams.log.reader import LookError
from streams.log.topic_setup import ensure_topics
from streams.log.topics import BY_RECORD, EVIDENCE
from streams.log.wire import Codec
from tests.conformance import conformance
from tests.streams.jobs.verify.conftest import Verify

# -- what cannot be verified ---------------------------------------------------------------------------------------------


def test_nothing_proves_nothing(verify: Verify, tmp_path: Path) -> None:
    """An empty file is not ok."""
    (tmp_path / "empty.jsonl").touch()
    ran = verify(tmp_path / "empty.jsonl", json=False)
    assert ran.code == 1
    assert "nothing to verify" in ran.out


def test_a_path_without_evidence_is_an_expected_failure(verify: Verify, finished: Path, tmp_path: Path) -> None:
    """A missing path, a directory of something else, and rows without their evidence: each says what to give."""
    with pytest.raises(NothingToVerifyError, match="no such file"):
        verify(tmp_path / "nowhere")
    with pytest.raises(NothingToVerifyError, match="give an output directory"):
        verify(tmp_path)
    with pytest.raises(NothingToVerifyError, match="give the directory"):
        verify(finished / "sft.jsonl")


# -- vectors of others ---------------------------------------------------------------------------------------------------


def test_the_shared_record_verifies_with_its_key(verify: Verify) -> None:
    """A record that another program signed, under its published key; not without it."""
    path, key = (
        conformance("aep", "aep-shared.jsonl"),
        orjson.loads(conformance("aep", "aep-shared.pubkey.json").read_bytes()),
    )
    ran = verify(path, "--public-key", f"{key['key_id']}={key['public_key_hex']}")
    assert (ran.code, ran.verdict["chain"]) == (0, "not-present")
    assert verify(path).code == 1


def test_the_shared_vectors_get_their_verdicts(verify: Verify, tmp_path: Path) -> None:
    """Two chained records are intact; the envelope over the base64 text is named, and not ok."""
    vectors = orjson.loads(conformance("aep", "aep-vectors.json").read_bytes())
    key = f"{vectors['r1']['signature']['key_id']}={vectors['pub']}"
    (tmp_path / "chain.jsonl").write_bytes(orjson.dumps(vectors["r1"]) + b"\n" + orjson.dumps(vectors["r2"]) + b"\n")
    (tmp_path / "dsse.json").write_bytes(orjson.dumps(vectors["dsse"]))
    ran = verify(tmp_path / "chain.jsonl", "--public-key", key)
    assert (ran.code, ran.verdict["chain"]) == (0, "intact")
    ran = verify(tmp_path / "dsse.json", "--public-key", key)
    assert (ran.code, ran.lines[0]["authenticity"]) == (1, "legacy-dsse")


# -- a cluster -----------------------------------------------------------------------------------------------------------


NEVER: dict[type[Record], dict[str, Any]] = {SftRecord: {}, BranchRecord: {"attempt": 7}}
"""A branch may have a record that evidence does not list, but not of an attempt that was never made."""


async def publish(settings: Settings, records: list[Record]) -> None:
    """Write records as a worker does."""
    topics = (*ROW_TOPICS, EVIDENCE)
    await ensure_topics(settings)
    registry = registry_of(settings)
    codec = Codec(registry, prefix=settings.prefix)
    await codec.register(topics)
    producer = await start_producer(settings)
    try:
        for record in records:
            rollout_id = str(getattr(record, "rollout_id", ""))
            name, partition = BY_RECORD[type(record)].name, partition_of(rollout_id, settings.partitions)
            await producer.send(
                settings.prefix + name, codec.encode(record), key=rollout_id.encode(), partition=partition
            )
    finally:
        await producer.stop()
        if registry is not None:
            await registry.close()


@pytest.fixture
def on_kafka(settings: Settings, verify: Verify, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The cluster as commands find it: by variables."""
    for name in ("kafka", "registry", "prefix", "partitions"):
        monkeypatch.setenv(f"BRAID_{name.upper()}", str(getattr(settings, name)))
    return settings


def written_by_a_run(finished: Path) -> list[Record]:
    codec = Codec()
    return [
        codec.decode(topic, stored.value)
        for topic in (*ROW_TOPICS, EVIDENCE)
        for stored in read_partition(finished / "log", topic.name, 0)
    ]


@pytest.mark.kafka
def test_the_topics_of_a_cluster_are_verified(verify: Verify, finished: Path, on_kafka: Settings) -> None:
    """A whole log is ok, also when a restarted worker wrote it twice; an inserted or changed record is found."""
    records = written_by_a_run(finished)
    asyncio.run(publish(on_kafka, records + records))
    ran = verify()
    assert ran.code == 0
    assert (ran.verdict["records"], ran.verdict["chain"]) == (20, "intact")
    assert all(chain["repeated"] == 5 for chain in ran.verdict["chains"])

    for kind in (SftRecord, BranchRecord):
        row = next(record for record in records if isinstance(record, kind))
        slipped_in = [
            row.model_copy(update={"task": "another"}),
            row.model_copy(update={"record_id": "0" * 32} | NEVER[kind]),
        ]
        asyncio.run(publish(on_kafka, [*slipped_in]))
        ran = verify()
        assert ran.code == 1
        place = f"{on_kafka.prefix}{BY_RECORD[kind].name}/"
        changed, unlisted = sorted(why for position, why in ran.faults.items() if position.startswith(place))
        assert changed.startswith("row: changed: its digest is not the one that was signed; see ")
        assert unlisted.endswith("does not list it")
    assert len(ran.faults) == 4


@pytest.mark.kafka
def test_a_cluster_without_the_topics_is_an_expected_failure(verify: Verify, on_kafka: Settings) -> None:
    """The error names the topic and says what to do."""
    with pytest.raises(LookError, match=r"no topic .*evidence\.aep\.v1.*braid up"):
        verify()
