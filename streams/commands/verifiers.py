"""`braid build-verifier` and `braid visual-verifier`: verdicts on finished branches, until SIGTERM or Ctrl-C."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from streams.commands.numbers import Slot, number

if TYPE_CHECKING:
    from streams.cluster.config import Settings

LogLevel = Literal["debug", "info", "warning", "error"]
Concurrency = Annotated[int, number("--concurrency", 1, 256)]


def build_verifier(
    *,
    slot: Slot | None = None,
    concurrency: Concurrency | None = None,
    tasks: list[Path] | None = None,
    sandbox: Literal["local", "e2b"] | None = None,
    log_level: LogLevel = "info",
) -> None:
    """Test what finished branches left: install, build and tests of the pristine task, and its criteria.

    Takes branches of rollouts that `braid fork` opened, each in a fresh sandbox with the task's protected files and tests
    restored. What hangs is unknown, a broken sandbox is infra_error, both with the reason. Run more of them, each with a slot
    of its own, and they share the partitions. One that dies is simply started again: no verdict is lost or written twice.
    Criteria that ask the judge count their calls for this verifier alone (judge.calls_per_hour).

    Example: `braid build-verifier --tasks ./tasks --concurrency 4`

    Parameters
    ----------
    slot
        The verifier's place in its group, counted from 0.
    concurrency
        Branches that are tested at once.
    tasks
        A folder of task directories, beside the samples; may be given several times.
    sandbox
        `local`: on this machine, without network. `e2b`: a machine of E2B's for each.
    log_level
        How much to say on standard error.
    """
    from streams.services.verifiers.build import run_build_verifier

    given = {"slot": slot, "concurrency": concurrency, "tasks": tasks, "sandbox": sandbox}
    _run(run_build_verifier, given, log_level)


def visual_verifier(
    *,
    slot: Slot | None = None,
    concurrency: Concurrency | None = None,
    tasks: list[Path] | None = None,
    browser: Path | None = None,
    log_level: LogLevel = "info",
) -> None:
    """Look at the pages that finished branches left, in headless Chromium without a network.

    Errors, probes from the task, whether anything is drawn, and the screenshot's digest become a visual verdict. Without a
    Chromium on this machine every verdict is unknown and says so (`make browser` installs one).

    Example: `braid visual-verifier --concurrency 1`

    Parameters
    ----------
    slot
        The verifier's place in its group, counted from 0.
    concurrency
        Pages that are looked at at once.
    tasks
        A folder of task directories, beside the samples; may be given several times.
    browser
        Chromium itself; the system's otherwise.
    log_level
        How much to say on standard error.
    """
    from streams.services.verifiers.visual import run_visual_verifier

    given = {"slot": slot, "concurrency": concurrency, "tasks": tasks, "browser": browser}
    _run(run_visual_verifier, given, log_level)


def _run(verifier: "Callable[[Settings], Awaitable[None]]", given: dict[str, Any], log_level: LogLevel) -> None:
    import asyncio

    from streams.cluster import structured_logs as logs
    from streams.cluster.config import load

    logs.configure(log_level)

    async def run() -> None:
        await verifier(load(verifier={name: value for name, value in given.items() if value is not None} or None))

    asyncio.run(run())
