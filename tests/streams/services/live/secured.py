"""A real Kafka that only talks over TLS: one door for passwords (SCRAM, PLAIN), one for certificates."""

import ipaddress
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from streams.cluster.broker import places
from streams.cluster.broker.kafka import settings as plain_settings
from streams.cluster.broker.lifecycle import kafka_tool
from streams.cluster.config import Security

USER, PASSWORD = "braid", "s3cret of the broker"
START_S = 60.0


class Authority(NamedTuple):
    """A certificate authority of our own, with what it made."""

    folder: Path

    @property
    def ca(self) -> Path:
        return self.folder / "ca.pem"

    def made(self, name: str) -> Path:
        """A key with its certificate."""
        return self.folder / f"{name}.pem"


def authority(folder: Path) -> Authority:
    """Certificates for the broker (on loopback) and for a client."""
    folder.mkdir(parents=True)
    key, name = ec.generate_private_key(ec.SECP256R1()), _name("tests")
    root = _builder(name, name, key).add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    (folder / "ca.pem").write_bytes(_pem(root.sign(key, hashes.SHA256())))
    for subject in ("broker", "client"):
        own = ec.generate_private_key(ec.SECP256R1())
        here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        signed = _builder(_name(subject), name, own).add_extension(here, critical=False).sign(key, hashes.SHA256())
        secret = own.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        (folder / f"{subject}.pem").write_bytes(secret + _pem(signed))
    return Authority(folder)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    return (
        builder.serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=2))
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


class Door(NamedTuple):
    """Where to connect, and how."""

    address: str
    security: Security

    def but(self, **changes: object) -> "Door":
        """The same, otherwise."""
        return self._replace(security=self.security.model_copy(update=changes))

    def environment(self) -> dict[str, str]:
        """The same for a process of its own."""
        given = self.security.model_dump(exclude_defaults=True) | {
            "password": self.security.password.get_secret_value()
        }
        named = {f"BRAID_SECURITY__{name.upper()}": str(value) for name, value in given.items() if value}
        return {"BRAID_KAFKA": self.address} | named


class SecuredKafka(NamedTuple):
    """The two doors."""

    passwords: Door
    certificates: Door
    log: Path


@contextmanager
def secured_kafka(folder: Path) -> Iterator[SecuredKafka]:
    """Run the broker for a while."""
    made = authority(folder / "certificates")
    ports = {name: _free_port() for name in ("client", "controller", "passwords", "certificates")}
    inside = [f"PLAINTEXT://127.0.0.1:{ports['client']}", f"CONTROLLER://127.0.0.1:{ports['controller']}"]
    doors = [f"{name.upper()}://127.0.0.1:{ports[name]}" for name in ("passwords", "certificates")]
    properties = dict(plain_settings(ports)) | {
        "listeners": ",".join([*inside, *doors]),
        "advertised.listeners": ",".join([inside[0], *doors]),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,PASSWORDS:SASL_SSL,CERTIFICATES:SSL",
        "ssl.keystore.type": "PEM", "ssl.keystore.location": made.made("broker"),
        "ssl.truststore.type": "PEM", "ssl.truststore.location": made.ca,
        "listener.name.certificates.ssl.client.auth": "required",
        "listener.name.passwords.sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
        "listener.name.passwords.scram-sha-512.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
        "listener.name.passwords.plain.sasl.jaas.config":
            f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";',
    }  # fmt: skip
    (folder / "server.properties").write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    (folder / "data").mkdir()
    scram = f"SCRAM-SHA-512=[name={USER},password={PASSWORD}]"
    words = ("format", "--cluster-id", "AAAAAAAAQACAAAAAAAAAAA", "--config", "server.properties", "--add-scram", scram)
    cache = places.cache_dir()
    subprocess.run(kafka_tool(cache, "kafka.tools.StorageTool", *words), cwd=folder, check=True, capture_output=True)
    log = folder / "broker.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            kafka_tool(cache, "kafka.Kafka", "server.properties"), cwd=folder, stdout=out, stderr=out, env=os.environ
        )
    try:
        for port in ports.values():
            _await(port, process, log)
        over_tls = {"cafile": made.ca}
        yield SecuredKafka(
            Door(
                f"127.0.0.1:{ports['passwords']}",
                Security(protocol="SASL_SSL", username=USER, password=PASSWORD, **over_tls),
            ),
            Door(
                f"127.0.0.1:{ports['certificates']}",
                Security(protocol="SSL", certfile=made.made("client"), **over_tls),
            ),
            log,
        )
    finally:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _await(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"the secured broker does not listen on {port}:\n{log.read_text()[-3000:]}")
