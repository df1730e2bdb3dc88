"""The jars of Kafka and the registry, resolved once by Maven into the cache.

A folder in the cache is complete or missing: Maven fills a temporary folder beside it, which is renamed at the end,
under a lock. Its name has the digest of pom.xml, so that a changed pom is resolved again and an unchanged one costs
only a file check.
"""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from streams.cluster.broker.errors import BrokerError
from streams.cluster.broker.java import Java
from streams.cluster.locks.file_lock import locked

POM = Path(__file__).with_name("pom.xml")
# The oldest Maven that was tried with this pom.
OLDEST_MAVEN = (3, 6, 3)
# Enough of Maven's output to see the reason; the rest is advice about its own switches.
ERROR_LINES = 3
TEMPORARY = ".resolving-"


class Artifact(NamedTuple):
    """One execution of pom.xml: its name, what it fetches, and a file that it must create."""

    name: str
    title: str
    goal: str
    megabytes: int
    proof: str


KAFKA = Artifact("kafka", "Kafka", "copy-dependencies", 43, "kafka_2.13-*.jar")
REGISTRY = Artifact("registry", "the schema registry", "unpack", 109, "apicurio-registry-app-*-runner.jar")


def resolved(artifact: Artifact, cache_dir: Path, java: Java, say: Callable[[str], None]) -> Path:
    """The folder with the artifact's jars; the first time this takes a network and some seconds."""
    digest = hashlib.sha256(POM.read_bytes()).hexdigest()[:16]
    cache = cache_dir.absolute() / "jars"
    folder = cache / f"{artifact.name}-{digest}"
    if folder.is_dir():
        return folder
    with locked(cache / "lock", say):
        if not folder.is_dir():
            _resolve(artifact, folder, java, say)
    return folder


def _resolve(artifact: Artifact, folder: Path, java: Java, say: Callable[[str], None]) -> None:
    # Left by a killed process: the holder of the lock is the only one that resolves.
    for left in folder.parent.glob(TEMPORARY + "*"):
        shutil.rmtree(left)
    maven = _find_maven(java)
    say(f"resolving {artifact.title} with Maven (first time, about {artifact.megabytes} MB) ...")
    with tempfile.TemporaryDirectory(prefix=TEMPORARY, dir=folder.parent) as temporary:
        shutil.copy(POM, temporary)
        run = _run_maven(
            maven, java, "-q", "--strict-checksums", f"dependency:{artifact.goal}@{artifact.name}", cwd=Path(temporary)
        )
        filled = Path(temporary) / artifact.name
        if run.returncode != 0 or not any(filled.glob(artifact.proof)):
            log = folder.parent.with_name(f"maven-{artifact.name}.log")
            log.write_text(run.stdout)
            raise BrokerError(
                f"Maven could not resolve {artifact.title} ({POM}): {_reason(run.stdout)} "
                "Check the network, or the proxy and mirror in Maven's settings.xml, and try again; "
                "or set BRAID_KAFKA to the address of a Kafka that already runs. "
                f"All that Maven printed is in {log}."
            )
        filled.rename(folder)


def _find_maven(java: Java) -> Path:
    advice = "Install Maven (it is needed once, to fetch the jars), or use docker-compose.yml, or set BRAID_KAFKA."
    found = shutil.which("mvn")
    if found is None:
        raise BrokerError(f"Kafka is not in the cache yet, and there is no `mvn` on PATH to fetch it. {advice}")
    answer = _run_maven(Path(found), java, "-v", cwd=None).stdout
    version = re.search(r"Apache Maven (\d+)\.(\d+)\.(\d+)", answer)
    if version is None:
        raise BrokerError(f"{found} does not run: {_reason(answer)} {advice}")
    if tuple(map(int, version.groups())) < OLDEST_MAVEN:
        oldest = ".".join(map(str, OLDEST_MAVEN))
        raise BrokerError(f"{found} is {version[0]}; {oldest} or newer is needed. {advice}")
    return Path(found)


def _run_maven(maven: Path, java: Java, *arguments: str, cwd: Path | None) -> subprocess.CompletedProcess[str]:
    """Run Maven on the Java that was found: the wheel's is on no PATH. No time limit: lines can be slow."""
    return subprocess.run(
        [maven, "--batch-mode", *arguments],
        cwd=cwd,
        env=os.environ | {"JAVA_HOME": str(java.home)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )


def _reason(output: str) -> str:
    plain = re.sub(r"\x1b\[[0-9;]*m", "", output)
    lines = [line.removeprefix("[ERROR]").strip() for line in plain.splitlines()]
    errors = [line for line in lines if line and not line.startswith(("WARNING", "To see the full", "Re-run Maven"))]
    return " ".join(errors[:ERROR_LINES]) or "it said nothing."
