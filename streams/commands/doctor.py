"""`braid doctor`: the effective configuration, and its faults and those of its environment."""

import asyncio
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from streams.commands.console_output import print_json
from streams.commands.options import Json

if TYPE_CHECKING:
    from streams.cluster.config import Settings
    from streams.views.cluster_checks import Findings
    from streams.views.configuration import Setting
    from streams.views.machine_checks import Check


def doctor(*, json: Json = False) -> None:
    """Show the effective configuration and the source of each value, then check what it needs; changes nothing.

    Exits with 1 when something is wrong. Warnings are not wrong.

    Example: `braid doctor`
    """
    from streams.views.machine_checks import machine_checks
    from streams.views.neighbour_check import check_neighbours

    settings, configuration, first = _configuration()
    checks = [first, check_neighbours(), *machine_checks(settings, os.environ)]
    findings: Findings | None = None
    if settings is not None:
        from streams.log.kafka_reader import hush
        from streams.views.cluster_checks import cluster_checks
        from streams.views.progress import progress
        from streams.views.sandbox_checks import check_sandboxes
        from streams.views.upstream_checks import upstream_checks

        hush()
        with progress() as say:
            say("trying a sandbox", 0.3)
            checks.append(asyncio.run(check_sandboxes(settings)))
            say("asking the cluster", 0.5)
            findings = asyncio.run(cluster_checks(settings))
            checks += asyncio.run(upstream_checks(settings))
        checks += findings.checks
    if json:
        lag = {} if findings is None else {str(each.partition): each.records for each in findings.lag}
        found = {
            "configuration": [each._asdict() for each in configuration],
            "checks": [each._asdict() for each in checks],
            "lag": lag,
        }
        print_json(found)
    else:
        _print(configuration, checks, findings)
    if any(check.result == "problem" for check in checks):
        sys.exit(1)


def _configuration() -> "tuple[Settings | None, list[Setting], Check]":
    """The settings, each value with its source, and whether they make sense."""
    from streams.cluster.config import ConfigError, config_file, load
    from streams.log.terminal_text import line
    from streams.views.configuration import effective
    from streams.views.machine_checks import Check

    try:
        settings = load()
        values = effective(settings, local=_local(settings))
    except ConfigError as error:
        advice = "correct the value; sources are flags over BRAID_ variables over the file"
        return None, [], Check("configuration", "problem", line(str(error), 300), advice)
    file = config_file()
    detail = f"read from {file.absolute()}" if file.is_file() else f"no {file} here: variables and defaults only"
    return settings, values, Check("configuration", "ok", detail)


def _local(settings: "Settings") -> "Settings | None":
    """The settings with the local broker's addresses, when it is used and runs."""
    from streams.cluster.connections import ClusterError, resolve

    try:
        return None if settings.kafka else resolve(settings)
    except ClusterError:
        return None


def _print(configuration: "Sequence[Setting]", checks: "Sequence[Check]", findings: "Findings | None") -> None:
    from streams.log.terminal_text import several
    from streams.views.layout import sheet
    from streams.views.tables import show

    values = [(each.name, each.value, each.source) for each in configuration]
    if values:
        show(sheet("Configuration", ("setting", "value", "from"), values, limit=len(values), narrow=("setting",)))
    rows = [(each.name, each.result, each.detail, each.advice) for each in checks]
    columns = ("check", "result", "what was found", "what to do")
    show(sheet("Checks", columns, rows, limit=len(rows), narrow=columns[:2]))
    if findings is not None and any(each.records for each in findings.lag):
        lag = ", ".join(f"{each.partition}: {each.records:,}" for each in findings.lag)
        sys.stdout.write(f"\nrecords behind the worker's commits, by partition: {lag}\n")
    problems = sum(check.result == "problem" for check in checks)
    warnings = sum(check.result == "warning" for check in checks)
    sys.stdout.write(f"\n{several(problems, 'problem')}, {several(warnings, 'warning')}\n")
