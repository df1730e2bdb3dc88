"""`braid broker`: a real Kafka and schema registry on this machine, without Docker.

Results go to standard output (a table, or JSON with `--json`), progress to standard error, so that output can be
piped. An expected failure is raised as a `BrokerError` with the remedy in its message.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
from cyclopts import App

from streams.commands.options import Flag, Json

if TYPE_CHECKING:
    from streams.cluster.broker import ServiceStatus

app = App(name="broker", help="Run a Kafka and a schema registry on this machine, without Docker.")


@app.command
def start(
    *,
    state_dir: Path | None = None,
    no_registry: Annotated[bool, Flag] = False,
    json: Json = False,
) -> None:
    """Start Kafka and the registry, or find them running; returns when both answer.

    The first time, Maven fetches the jars (about 150 MB). The services go on when this command has ended.

    Example: `braid broker start --state-dir ./broker`

    Parameters
    ----------
    state_dir
        Where data, logs and process ids are kept; by default BRAID_STATE_DIR, or the user's state directory.
    no_registry
        Start Kafka alone.
    """
    from streams.cluster import broker
    from streams.cluster.config import cache_dir
    from streams.cluster.config import state_dir as configured
    from streams.views.progress import steps

    state = state_dir or configured()
    with steps() as say:
        endpoint = broker.start(state, cache_dir(), registry=not no_registry, say=say)
    services = broker.status(state)
    if json:
        _print_json({**endpoint._asdict(), "services": [_plain(service) for service in services]})
        return
    _print_table(services)
    sys.stdout.write(f"\nexport BRAID_KAFKA={endpoint.bootstrap}\n")
    if endpoint.registry:
        sys.stdout.write(f"export BRAID_REGISTRY={endpoint.registry}\n")


@app.command
def stop(
    *,
    state_dir: Path | None = None,
    wipe: Annotated[bool, Flag] = False,
    json: Json = False,
) -> None:
    """Stop what `start` started, and nothing else; data stays.

    Example: `braid broker stop`

    Parameters
    ----------
    state_dir
        The directory that was given to `start`.
    wipe
        Remove the data, logs and ports too: all topics and schemas of this broker are lost.
    """
    from streams.cluster import broker
    from streams.cluster.config import state_dir as configured
    from streams.views.progress import steps

    state = state_dir or configured()
    with steps() as say:
        say("stopping ...")
        stopped = broker.stop(state, wipe=wipe)
    if json:
        _print_json({"stopped": stopped, "wiped": wipe})
        return
    sys.stdout.write(f"stopped {' and '.join(stopped)}\n" if stopped else f"nothing runs from {state}\n")
    if wipe:
        sys.stdout.write(f"removed the broker's data in {state}\n")


@app.command
def status(*, state_dir: Path | None = None, json: Json = False) -> None:
    """Show which services run, their addresses and the folder of the log.

    Example: `braid broker status`

    Parameters
    ----------
    state_dir
        The directory that was given to `start`.
    """
    from streams.cluster import broker
    from streams.cluster.config import state_dir as configured

    services = broker.status(state_dir or configured())
    if json:
        _print_json({"services": [_plain(service) for service in services]})
        return
    _print_table(services)
    if not any(service.running for service in services):
        sys.stdout.write("\nnothing runs: `braid broker start`\n")


def _print_table(services: "list[ServiceStatus]") -> None:
    from streams.views.tables import show, table

    made = table("", "service", "running", "pid", "address", "log")
    for service in services:
        made.add_row(
            service.name,
            "yes" if service.running else "no",
            str(service.pid or "-"),
            service.address or "-",
            str(service.log),
        )
    show(made)


def _plain(service: "ServiceStatus") -> dict[str, object]:
    return {**service._asdict(), "log": str(service.log)}


def _print_json(value: object) -> None:
    sys.stdout.write(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() + "\n")
