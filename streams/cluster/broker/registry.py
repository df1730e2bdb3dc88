"""The schema registry: Apicurio with its tables in a file (H2), asked through its Confluent API, on loopback only.

Schema ids must survive every failure, because they precede every record in Kafka. An id that was issued, lost in a
crash and issued again for another schema would make records unreadable, so each commit is synced to the file at once.
"""

import http.client
from pathlib import Path

from streams.cluster.broker import artifacts
from streams.cluster.broker.java import Java
from streams.cluster.broker.ports import LOOPBACK, Ports
from streams.cluster.broker.service import Home

API = "/apis/ccompat/v7"
HEAP = "-Xmx384m"
# By default H2 writes a commit up to half a second later. The path is relative to the registry's folder, as Kafka's is.
DATABASE = "jdbc:h2:file:./data/registry;WRITE_DELAY=0"
# One developer's registry needs no 20 open connections.
CONNECTIONS = 2
ASKING_SECONDS = 5.0


class Registry:
    """The schema registry."""

    name = "registry"
    artifact = artifacts.REGISTRY
    listeners = ("client",)

    def address(self, port: int) -> str:
        """The base URL of the Confluent API."""
        return f"http://{LOOPBACK}:{port}{API}"

    def command(self, home: Home, ports: Ports, java: Java, jars: Path) -> list[str]:  # noqa: ARG002 - Service's form
        """Return the command that runs it. Settings are system properties, so that a user's environment cannot override
        them.
        """
        settings = {
            "quarkus.http.host": LOOPBACK,
            "quarkus.http.port": ports["client"],
            "quarkus.http.access-log.enabled": "false",
            "quarkus.log.console.format": "%d{yyyy-MM-dd HH:mm:ss,SSS} %p %s%e (%c{1.})%n",
            "apicurio.storage.kind": "sql",
            "apicurio.storage.sql.kind": "h2",
            "apicurio.datasource.url": DATABASE,
            "apicurio.datasource.jdbc.initial-size": CONNECTIONS,
            "apicurio.datasource.jdbc.min-size": CONNECTIONS,
        }
        return [
            str(java.executable),
            HEAP,
            # It starts often and serves little: quick compilation and a small collector save a second and memory.
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-XX:+ExitOnOutOfMemoryError",
            *(f"-D{key}={value}" for key, value in settings.items()),
            "-jar",
            str(next(jars.glob(artifacts.REGISTRY.proof))),
        ]

    def answers(self, port: int) -> bool:
        """Whether it lists its subjects, which needs its database."""
        # The plain client: it uses no proxies, and is cheap enough to call many times a second.
        connection = http.client.HTTPConnection(LOOPBACK, port, timeout=ASKING_SECONDS)
        try:
            connection.request("GET", f"{API}/subjects")
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
