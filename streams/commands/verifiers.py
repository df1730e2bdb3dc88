"""Verifiers of builds, pages, cheats and compliance runs: verdicts on finished branches, until SIGTERM or Ctrl-C."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from streams.commands.numbers import Slot, number
from streams.commands.options import Flags, LogLevel, given

if TYPE_CHECKING:
    from streams.cluster.config import Settings

Concurrency = Annotated[int, number("--concurrency", 1, 256)]


@dataclass(frozen=True, kw_only=True)
class VerifierFlags(Flags):
    """Values of the configuration's section `verifier`."""

    slot: Slot | None = None
    """The verifier's place in its group, counted from 0."""
    concurrency: Concurrency | None = None
    """Branches that are tested at once."""
    tasks: list[Path] | None = None
    """A folder of task directories, in addition to the samples; may be given several times."""


@dataclass(frozen=True, kw_only=True)
class BuildFlags(VerifierFlags):
    """The options of `braid build-verifier` and `braid hack-verifier`."""

    sandbox: Literal["local", "e2b"] | None = None
    """`local`: on this machine, without network. `e2b`: a machine of E2B's for each."""


@dataclass(frozen=True, kw_only=True)
class VisualFlags(VerifierFlags):
    """The options of `braid visual-verifier`."""

    concurrency: Concurrency | None = None
    """Pages that are examined at once."""
    browser: Path | None = None
    """Chromium itself; the system's otherwise."""


def build_verifier(*, flags: BuildFlags = BuildFlags(), log_level: LogLevel = "info") -> None:
    """Test the files of finished branches: install, build and tests of the original task, and its criteria.

    Takes branches of rollouts that `braid fork` opened, each in a fresh sandbox with the task's protected files and
    tests restored. A test run that hangs is unknown, a broken sandbox is infra_error, both with the reason. Run more of
    them, each with a slot of its own, and they share the partitions. One that dies is simply started again: no verdict
    is lost or written twice. Criteria that ask the judge count their calls for this verifier alone
    (judge.calls_per_hour).

    Example: `braid build-verifier --tasks ./tasks --concurrency 4`
    """
    from streams.services.verifiers.build import run_build_verifier

    _run(run_build_verifier, flags, log_level)


def hack_verifier(*, flags: BuildFlags = BuildFlags(), log_level: LogLevel = "info") -> None:
    """Try by experiment whether finished branches gamed their tests, and read their changes.

    Repeats the tests in fresh sandboxes: with a test that must fail, with stricter comparisons and other names, without
    the branch's own files for the test runner, and with their sources hidden. Each has its control on the untouched
    task. Only an experiment confirms a hack; signs found by reading files are suspected. Rollouts of `braid fork` wait
    for this verdict (`hacks`) while verifier.anti_manipulation is set. One that dies is simply started again: no
    verdict is lost or written twice.

    Example: `braid hack-verifier --tasks ./tasks --concurrency 4`
    """
    from streams.services.verifiers.hacks import run_hack_verifier

    _run(run_hack_verifier, flags, log_level)


def visual_verifier(*, flags: VisualFlags = VisualFlags(), log_level: LogLevel = "info") -> None:
    """Open the pages of finished branches, in headless Chromium without a network.

    Errors, probes from the task, whether anything is drawn, and the screenshot's digest become a visual verdict.
    Without a Chromium on this machine every verdict is unknown, with that reason (`make browser` installs one).

    Example: `braid visual-verifier --concurrency 1`
    """
    from streams.services.verifiers.visual import run_visual_verifier

    _run(run_visual_verifier, flags, log_level)


def compliance_verifier(*, flags: VerifierFlags = VerifierFlags(), log_level: LogLevel = "info") -> None:
    """Verify finished compliance runs: every round and the answer, from the spec and the texts on the log.

    Does not trust a runner's claims: a branch with a wrong one is put into quarantine. Needs no model, sandbox or task
    file. One that dies is simply started again: no verdict is lost or written twice.

    Example: `braid compliance-verifier --slot 0`
    """
    from streams.services.comply.compliance_verifier import run_compliance_verifier

    _run(run_compliance_verifier, flags, log_level)


def _run(verifier: "Callable[[Settings], Awaitable[None]]", flags: VerifierFlags, log_level: LogLevel) -> None:
    import asyncio

    from streams.cluster import structured_logs as logs
    from streams.cluster.config import load

    logs.configure(log_level)

    async def run() -> None:
        await verifier(load(verifier=given(**vars(flags))))

    asyncio.run(run())
