"""Start, stop and check a local broker: Kafka and, unless disabled, the schema registry.

All files of a broker are in its state directory; brokers in different directories are independent. A start that fails,
or is interrupted, ends the processes that it has started. Stopping ends exactly the processes that were started here.
"""

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from streams.cluster.broker import artifacts, ports, process
from streams.cluster.broker.errors import BrokerError
from streams.cluster.broker.java import find_java
from streams.cluster.broker.kafka import TOOL_HEAP, Kafka, java_command
from streams.cluster.broker.process import Process
from streams.cluster.broker.registry import Registry
from streams.cluster.broker.service import Home, Service
from streams.cluster.locks.file_lock import locked

Say = Callable[[str], None]

# Up in 3 to 5 s on two free cores, in 15 s on busy ones; a recovery after a crash reads the log again.
START_SECONDS = 120.0
# Kafka writes its state out when asked to end; a second or two is usual.
STOP_SECONDS = 30.0
LOG_LINES = 15
# Settings for another registry of the user's must not reach this one.
FOREIGN_SETTINGS = ("QUARKUS_", "APICURIO_", "REGISTRY_")

KAFKA = Kafka()
REGISTRY = Registry()


class Endpoint(NamedTuple):
    """The addresses of a broker: `registry` is the base URL of the Confluent API, None without a registry."""

    bootstrap: str
    registry: str | None


class ServiceStatus(NamedTuple):
    """One service of a broker: `pid` is None while it does not run, `address` until it was first started."""

    name: str
    running: bool
    pid: int | None
    address: str | None
    log: Path


def quiet(_: str) -> None:
    """Say nothing."""


def start(state_dir: Path, cache_dir: Path, *, registry: bool = True, say: Say = quiet) -> Endpoint:
    """Start the services that do not run yet, and return when all of them answer; at once if they already do."""
    # The registry first: it takes longer, and is on its way while Kafka's data is formatted.
    services: list[Service] = [REGISTRY, KAFKA] if registry else [KAFKA]
    with locked(_lock(state_dir), say):
        started: dict[str, Process] = {}
        try:
            missing = [service for service in services if process.running(_home(state_dir, service).pid_file) is None]
            if missing:
                _launch(missing, state_dir, cache_dir, started, say)
            _await_answers(services, state_dir)
        except BaseException:
            for launched in started.values():
                process.end(launched, STOP_SECONDS)
            raise
    return Endpoint(_address(state_dir, KAFKA), _address(state_dir, REGISTRY) if registry else None)


def stop(state_dir: Path, *, wipe: bool = False) -> list[str]:
    """Stop the services started there and return their names; data stays, unless wiped."""
    if not state_dir.is_dir():
        return []
    stopped = []
    with locked(_lock(state_dir), quiet):
        for service in (REGISTRY, KAFKA):
            home = _home(state_dir, service)
            found = process.running(home.pid_file)
            if found is not None:
                process.end(found, STOP_SECONDS)
                stopped.append(service.name)
            home.pid_file.unlink(missing_ok=True)
            if wipe and home.folder.exists():
                shutil.rmtree(home.folder)
    return stopped


def status(state_dir: Path) -> list[ServiceStatus]:
    """The services that run there now, without a killed process or one whose id now belongs to another."""
    return [_status(state_dir, service) for service in (KAFKA, REGISTRY)]


def kill_kafka(state_dir: Path) -> None:
    """End Kafka alone as a crash would (SIGKILL). `start` brings it back with the same port and data."""
    found = process.running(_home(state_dir, KAFKA).pid_file)
    if found is None:
        raise BrokerError(f"No Kafka runs from {state_dir}: start it first.")
    process.kill(found)


def kafka_tool(cache_dir: Path, main_class: str, *args: str) -> list[str]:
    """The argument list that runs a tool of Kafka's own, such as org.apache.kafka.tools.TopicCommand."""
    java = find_java()
    jars = artifacts.resolved(artifacts.KAFKA, cache_dir, java, quiet)
    return java_command(java, jars, TOOL_HEAP, "warn", main_class, *args)


def _launch(
    services: Sequence[Service], state_dir: Path, cache_dir: Path, started: dict[str, Process], say: Say
) -> None:
    java = find_java()
    # Everything slow or likely to fail comes before the first process; then both start side by side.
    jars = {service.name: artifacts.resolved(service.artifact, cache_dir, java, say) for service in services}
    say(f"starting {' and '.join(service.name for service in services)} on Java {java.version} ...")
    for service in services:
        home = _home(state_dir, service)
        home.data.mkdir(parents=True, exist_ok=True)
        home.tidy_log()
        claimed = ports.claim(home.ports_file, tuple(service.listeners), say)
        command = service.command(home, claimed, java, jars[service.name])
        with process.interrupts_held():
            started[service.name] = process.launch(
                command, folder=home.folder, log=home.log, env=_environment(), pid_file=home.pid_file
            )


def _await_answers(services: Sequence[Service], state_dir: Path) -> None:
    waiting = list(services)
    deadline = time.monotonic() + START_SECONDS
    while waiting:
        for service in tuple(waiting):
            home = _home(state_dir, service)
            answers = service.answers(_port(home, service))
            # Checked even if the port answers: another program may have taken it first.
            if process.running(home.pid_file) is None:
                raise BrokerError(f"{_failed(service, home)} ended while starting. {_advice(home)}")
            if answers:
                waiting.remove(service)
        if waiting and time.monotonic() >= deadline:
            home = _home(state_dir, waiting[0])
            raise BrokerError(f"{_failed(waiting[0], home)} did not answer in {START_SECONDS:.0f} s. {_advice(home)}")
        if waiting:
            time.sleep(process.POLL_SECONDS)


def _failed(service: Service, home: Home) -> str:
    return f"The local {service.name} in {home.folder}"


def _advice(home: Home) -> str:
    return f"`braid broker stop`, then start again; the whole log is {home.log}, its end:\n{home.last_lines(LOG_LINES)}"


def _status(state_dir: Path, service: Service) -> ServiceStatus:
    home = _home(state_dir, service)
    found = process.running(home.pid_file)
    known = ports.remembered(home.ports_file)
    address = service.address(known[service.listeners[0]]) if known else None
    return ServiceStatus(service.name, found is not None, found.pid if found else None, address, home.log)


def _address(state_dir: Path, service: Service) -> str:
    return service.address(_port(_home(state_dir, service), service))


def _port(home: Home, service: Service) -> int:
    known = ports.remembered(home.ports_file)
    if known is None:
        raise BrokerError(f"{home.ports_file} is gone, but {service.name} runs: `braid broker stop`, then start again.")
    return known[service.listeners[0]]


def _home(state_dir: Path, service: Service) -> Home:
    return Home(state_dir.absolute() / service.name)


def _lock(state_dir: Path) -> Path:
    return state_dir / "broker.lock"


def _environment() -> Mapping[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN_SETTINGS)}
