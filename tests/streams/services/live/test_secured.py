"""Everything over TLS, with a password and with a certificate, on a real broker that refuses anything else."""

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from streams.cluster.config import Settings
from streams.log.topics import RANKINGS
from tests.live import Worker, records_of, until_records
from tests.processes import run_braid
from tests.sample.sample_lines import write_sample
from tests.streams.services.live.secured import PASSWORD, Door, SecuredKafka, secured_kafka

CLOSED = 9
"""Of the sample's twelve rollouts; the others wait for their deadlines."""


@pytest.fixture(scope="module")
def kafka(cluster: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    folder = tmp_path_factory.mktemp("secured")
    with secured_kafka(folder) as running:
        yield running


def braid(door: Door, prefix: str, *words: object, **more: str) -> tuple[int, str]:
    """A command in a process of its own, as a user would give it: exit code and everything it said."""
    environment = os.environ | door.environment() | {"BRAID_PREFIX": prefix, "BRAID_PARTITIONS": "2"} | more
    done = run_braid(*words, env=environment, timeout=120)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["passwords", "certificates"])
async def test_the_whole_way_over_tls(kafka: SecuredKafka, tmp_path: Path, name: str) -> None:
    """Topics, producers, the Faust worker, its tables, looking and replaying: every client knows how to get in."""
    door: Door = getattr(kafka, name)
    prefix = f"{name}."
    settings = Settings(kafka=door.address, security=door.security, prefix=prefix, partitions=2)
    write_sample(tmp_path / "sample.ndjson")
    code, said = await asyncio.to_thread(braid, door, prefix, "ingest", tmp_path / "sample.ndjson")
    assert code == 0, said
    with Worker(settings, tmp_path / "worker.log", **door.environment()):
        await until_records(settings, RANKINGS, CLOSED)
        assert len(await records_of(settings, RANKINGS)) == CLOSED
    code, said = await asyncio.to_thread(braid, door, prefix, "replay", "--verify", "--dry-run", "--json")
    assert code == 0, said
    assert json.loads(said.splitlines()[-1])["verified"]["ok"]
    assert PASSWORD not in (tmp_path / "worker.log").read_text()


def test_who_does_not_get_in_is_told_why(kafka: SecuredKafka) -> None:
    """A wrong password, no certificate, an authority that is not trusted, and no TLS at all: an error each, without the
    password."""
    inside, outside = kafka.passwords, kafka.certificates
    cases = {
        "password": (inside.but(password=SecretStr("not the right one")), "SaslAuthenticationFailed"),
        "authority": (inside.but(cafile=None), "certificate"),
        "plain": (inside.but(protocol="SASL_PLAINTEXT"), "the [security] settings"),
        "certificate": (outside.but(certfile=None), "the [security] settings"),
    }
    assert braid(inside.but(mechanism="PLAIN"), "x.", "up")[0] == 0
    for name, (door, expected) in cases.items():
        code, said = braid(door, "x.", "up")
        assert (name, code) == (name, 1), said
        assert expected in said, (name, said)
        assert "Traceback" not in said, (name, said)
        assert "not the right one" not in said
        assert PASSWORD not in said
