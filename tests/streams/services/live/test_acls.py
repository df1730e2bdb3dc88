"""The ACLs that docs/trust.md shows, on a real Kafka with an authorizer: every role does its work, and no more."""

import asyncio
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from aiokafka.errors import TopicAuthorizationFailedError
from pydantic import SecretStr

from schemas.rankings import Ranking
from streams.cluster.broker import places
from streams.cluster.broker.kafka import settings as plain_settings
from streams.cluster.broker.lifecycle import kafka_tool
from streams.cluster.config import Security, Settings
from streams.cluster.connections import start_producer
from streams.demo.show import RULES
from streams.log.topics import RANKINGS, TOPICS
from tests.live import records_of, until_records
from tests.processes import Forked, run_braid
from tests.streams.services.live.secured import _await, _free_port

PAGE = Path(__file__).parents[4] / "docs" / "trust.md"
ROLES = ("agent", "runner", "worker", "build-verifier", "hack-verifier", "visual-verifier", "judge", "gateway")
WORDS = {
    "worker": ("worker",),
    "build-verifier": ("build-verifier",),
    "hack-verifier": ("hack-verifier",),
    "visual-verifier": ("visual-verifier",),
    "judge": ("judge", "worker"),
    "gateway": ("gateway", "--port", "0", "--json"),
}

pytestmark = pytest.mark.long


@contextmanager
def guarded_kafka(folder: Path) -> Iterator[tuple[str, str]]:
    """A broker that asks who one is and what one may do; its own address and that for users."""
    ports = {name: _free_port() for name in ("client", "controller", "users")}
    inside = [f"PLAINTEXT://127.0.0.1:{ports['client']}", f"CONTROLLER://127.0.0.1:{ports['controller']}"]
    users = f"USERS://127.0.0.1:{ports['users']}"
    known = " ".join(f'user_{name}="{name}"' for name in ROLES)
    properties = dict(plain_settings(ports)) | {
        "listeners": ",".join([*inside, users]),
        "advertised.listeners": ",".join([inside[0], users]),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,USERS:SASL_PLAINTEXT",
        "listener.name.users.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.users.plain.sasl.jaas.config":
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {known};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",  # clients of the inner listener
    }  # fmt: skip
    (folder / "server.properties").write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    (folder / "data").mkdir()
    cache, log = places.cache_dir(), folder / "broker.log"
    words = ("format", "--cluster-id", "AAAAAAAAQACAAAAAAAAAAA", "--config", "server.properties")
    subprocess.run(kafka_tool(cache, "kafka.tools.StorageTool", *words), cwd=folder, check=True, capture_output=True)
    with log.open("wb") as out:
        process = subprocess.Popen(
            kafka_tool(cache, "kafka.Kafka", "server.properties"), cwd=folder, stdout=out, stderr=out
        )
    try:
        for port in ports.values():
            _await(port, process, log)
        yield f"127.0.0.1:{ports['client']}", f"127.0.0.1:{ports['users']}"
    finally:
        process.kill()
        process.wait()


@contextmanager
def running(address: str, folder: Path) -> Iterator[None]:
    """A process of every role that has one."""
    started = [
        Forked(words, as_role(name, address, folder), folder / f"{name}.log", folder / f"{name}.log")
        for name, words in WORDS.items()
    ]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def as_role(name: str, address: str, folder: Path) -> dict[str, str]:
    """The environment of a process of a role."""
    return os.environ | {
        "BRAID_KAFKA": address, "BRAID_PARTITIONS": "2", "BRAID_SECURITY__PROTOCOL": "SASL_PLAINTEXT",
        "BRAID_SECURITY__MECHANISM": "PLAIN", "BRAID_SECURITY__USERNAME": name, "BRAID_SECURITY__PASSWORD": name,
        "BRAID_STATE_DIR": str(folder / "state"), "BRAID_TRUSTED_VERIFIERS": "local",
        "BRAID_EMISSION__JUDGE__KIND": "scripted", "BRAID_JUDGE__RULES": str(RULES),
    }  # fmt: skip


async def test_every_role_does_its_work_and_an_agent_writes_events_only(cluster: Settings, tmp_path: Path) -> None:
    """A fork closes as runner, worker and build verifier; the agent's principal is refused by every other topic."""
    folder = tmp_path / "kafka"
    folder.mkdir()
    with guarded_kafka(folder) as (own, users):
        settings = Settings(kafka=own, partitions=2)
        up = run_braid("up", env=os.environ | {"BRAID_KAFKA": own, "BRAID_PARTITIONS": "2", "BRAID_REGISTRY": ""})
        assert up.returncode == 0, up.stderr
        tool = tmp_path / "kafka-acls.sh"
        tool.write_text(
            f'exec {shlex.join(kafka_tool(places.cache_dir(), "org.apache.kafka.tools.AclCommand"))} "$@"\n'
        )
        acls = f"bash {tool} --bootstrap-server {own}"
        (script,) = re.findall(r"```sh\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
        done = await asyncio.to_thread(
            subprocess.run, ["bash", "-euc", script], env=os.environ | {"ACLS": acls}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        with running(users, tmp_path):
            words = ("fork", "csv-table", "--branches", "2", "--id", "forked")
            forked = run_braid(*words, env=as_role("runner", users, tmp_path))
            assert forked.returncode == 0, forked.stderr
            await until_records(settings, RANKINGS, 1, 90)
            for name in ("judge", "visual-verifier"):
                assert '"event": "ready"' in (tmp_path / f"{name}.log").read_text(), name
            (url,) = re.findall(r'"url":"([^"]+)"', (tmp_path / "gateway.log").read_text())
            lint = {"type": "check", "rollout_id": "x", "branch_index": 0, "name": "lint", "status": "pass"}
            answer = httpx.post(f"{url}/v1/lines", json=lint)
            assert answer.status_code == 202, answer.text
        (ranking,) = await records_of(settings, RANKINGS)
        assert isinstance(ranking, Ranking)
        assert [each.objective_status for each in ranking.branches] == ["pass", "fail"]
        assert await refused_topics(users) == {topic.name for topic in TOPICS} - {"rollouts.agent-events.v1"}


async def refused_topics(address: str) -> set[str]:
    """The topics that do not take a record of the agent's principal."""
    security = Security(protocol="SASL_PLAINTEXT", mechanism="PLAIN", username="agent", password=SecretStr("agent"))
    refused = set()
    for topic in TOPICS:
        producer = await start_producer(Settings(kafka=address, security=security))
        try:
            await asyncio.wait_for(producer.send_and_wait(topic.name, b"x", key=b"k"), 20)
        except (TopicAuthorizationFailedError, TimeoutError):
            refused.add(topic.name)
        finally:
            await producer.stop()
    return refused
