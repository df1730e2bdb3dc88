"""Kafka: one node that is broker and controller at once (KRaft), formatted once, on loopback only.

All paths in its settings are relative to its folder, in which it runs: so no character of the user's path needs quoting
in a properties file, and the folder can be moved.
"""

import base64
import socket
import struct
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path

from aiokafka.protocol.api import RequestHeader_v1, ResponseHeader_v0
from aiokafka.protocol.metadata import MetadataRequest_v1

from streams.cluster.broker import artifacts
from streams.cluster.broker.errors import BrokerError
from streams.cluster.broker.java import Java
from streams.cluster.broker.ports import LOOPBACK, Ports
from streams.cluster.broker.service import Home

LOGGING = Path(__file__).with_name("log4j2.properties")
# The largest topic limit in use is 10 MiB (dead letters); the slack is for batch headers around such a record.
MESSAGE_BYTES = 10 * 1024 * 1024 + 64 * 1024
# The broker was measured at 320 MB resident; this leaves room for load without claiming a laptop.
HEAP = "-Xmx768m"
TOOL_HEAP = "-Xmx256m"
ASKING_SECONDS = 2.0


class Kafka:
    """The broker."""

    name = "kafka"
    artifact = artifacts.KAFKA
    listeners = ("client", "controller")

    def address(self, port: int) -> str:
        """The bootstrap address."""
        return f"{LOOPBACK}:{port}"

    def command(self, home: Home, ports: Ports, java: Java, jars: Path) -> list[str]:
        """Write server.properties, format the data folder if it is new, and return the command that runs the broker."""
        properties = "".join(f"{key}={value}\n" for key, value in settings(ports).items())
        (home.folder / "server.properties").write_text(properties, encoding="ascii")
        # Formatting writes this file last, so a format that was interrupted is done again.
        if not (home.data / "meta.properties").exists():
            _format(home, java, jars)
        return java_command(java, jars, HEAP, "info", "kafka.Kafka", "server.properties")

    def answers(self, port: int) -> bool:
        """Whether a metadata request names the broker itself: it listens well before it is admitted to its cluster."""
        request = MetadataRequest_v1([])
        payload = RequestHeader_v1(request, correlation_id=1, client_id="braid-broker").encode() + request.encode()
        try:
            with socket.create_connection((LOOPBACK, port), timeout=ASKING_SECONDS) as connection:
                connection.sendall(struct.pack(">i", len(payload)) + payload)
                with connection.makefile("rb") as answers:
                    (size,) = struct.unpack(">i", answers.read(4))
                    body = answers.read(size)
            header = len(ResponseHeader_v0(1).encode())
            metadata = request.RESPONSE_TYPE.decode(body[header:])
        # The last two: another program listens there, or the connection broke off.
        except (OSError, struct.error, ValueError):
            return False
        return any(advertised == port for _, _, advertised, _ in metadata.brokers)


def settings(ports: Ports) -> Mapping[str, object]:
    """The broker's settings. Other settings have Kafka's defaults."""
    client, controller = ports["client"], ports["controller"]
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "listeners": f"PLAINTEXT://{LOOPBACK}:{client},CONTROLLER://{LOOPBACK}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{client}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@{LOOPBACK}:{controller}",
        "log.dirs": "data",
        # Topics are made on purpose, with their partitions and retention; a misspelt name must be an error.
        "auto.create.topics.enable": "false",
        "delete.topic.enable": "true",
        # One node holds every replica. Few partitions of the internal topics: each costs files and start time.
        "default.replication.factor": 1,
        "min.insync.replicas": 1,
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 4,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "share.coordinator.state.topic.num.partitions": 4,
        # The first member of a group begins at once instead of waiting 3 s for others.
        "group.initial.rebalance.delay.ms": 0,
        # After a crash the restarted broker is refused until the session of the killed one is over: 9 s by default.
        "broker.session.timeout.ms": 3000,
        "broker.heartbeat.interval.ms": 500,
        # A year, not a week: a worker that was off over a holiday continues where it stopped.
        "offsets.retention.minutes": 365 * 24 * 60,
        "message.max.bytes": MESSAGE_BYTES,
        "replica.fetch.max.bytes": MESSAGE_BYTES,
        # Kafka's default, set here because it must stay above the largest produce request: several such messages.
        "socket.request.max.bytes": 100 * 1024 * 1024,
        # The compaction buffer: 128 MiB by default, most of which a single machine never fills.
        "log.cleaner.dedupe.buffer.size": 16 * 1024 * 1024,
    }


def java_command(java: Java, jars: Path, heap: str, log_level: str, main_class: str, *arguments: str) -> list[str]:
    """How a class of Kafka's is run: the broker, or one of its tools."""
    return [
        str(java.executable),
        heap,
        # Quick compilation only. Measured on two cores: a start takes 4.0 s of processor time instead of 6.7 s, and the
        # first 800,000 records 5.3 s instead of 11.9 s; the slow compiler pays off only after much longer.
        "-XX:TieredStopAtLevel=1",
        # A broker without memory must die and be seen dead, not linger.
        "-XX:+ExitOnOutOfMemoryError",
        f"-Dlog4j2.configurationFile={LOGGING.as_uri()}",
        f"-Dbraid.log.level={log_level}",
        "-cp",
        f"{jars}/*",
        main_class,
        *arguments,
    ]


def _format(home: Home, java: Java, jars: Path) -> None:
    arguments = ("format", "--cluster-id", _cluster_id(), "--config", "server.properties")
    command = java_command(java, jars, TOOL_HEAP, "warn", "kafka.tools.StorageTool", *arguments)
    run = subprocess.run(
        command,
        cwd=home.folder,
        capture_output=True,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if run.returncode != 0:
        raise BrokerError(
            f"Kafka could not format {home.data}: {(run.stderr or run.stdout).strip()} "
            "Check that the disk is writable and not full, then start again."
        )


def _cluster_id() -> str:
    """A random id in Kafka's form: 16 bytes in URL-safe base64. Not with a leading dash: tools read it as an option."""
    identifier = "-"
    while identifier.startswith("-"):
        identifier = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
    return identifier
