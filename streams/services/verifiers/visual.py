"""The visual verifier: the page that a branch left, in a real browser without a network."""

import asyncio
from collections.abc import Sequence

import structlog

from agents.fork.browser_adapter import find_browser
from agents.fork.sandbox import SandboxError
from agents.fork.task import Task
from agents.fork.visual_verdict import unseen, visual_verdict
from agents.verdicts.meaning import Verdict
from streams.cluster.config import Settings
from streams.log.kafka_writer import FactWriter
from streams.log.topics import VISUAL_VERDICTS
from streams.services.fork.fork_setup import sandbox_pool, snapshot_store
from streams.services.group_worker import Held, run_in_group
from streams.services.verifiers.verifier_worker import Branch, Untestable, Verifier

log = structlog.get_logger()


class VisualVerifier(Verifier):
    """Gives a visual verdict for tasks with a page."""

    def kinds(self, task: Task) -> Sequence[str]:
        """The look at the page."""
        return ["visual"] if task.braid.page is not None else []

    def untestable(self, branch: Untestable) -> Verdict:
        """Unknown, with the reason."""
        return unseen(branch.subject, branch.why)

    async def verdicts(self, branch: Branch, held: Held) -> Sequence[Verdict]:  # noqa: ARG002 - a look is short
        """Open the page. The browser is looked for each time: it may be installed while this runs."""
        browser = find_browser(self.settings.verifier.browser)
        page = branch.task.braid.page
        assert page is not None
        if isinstance(browser, str):
            return [unseen(branch.subject, browser)]
        try:
            async with self.pool.lease() as sandbox:
                return [await visual_verdict(branch.task, page, branch.files, sandbox, browser, branch.subject)]
        except SandboxError as error:
            return [unseen(branch.subject, f"sandbox: {error}")]


async def run_visual_verifier(settings: Settings, *, stop: asyncio.Event | None = None) -> None:
    """Run a visual verifier until a signal (or `stop`) ends it."""
    browser = find_browser(settings.verifier.browser)
    if isinstance(browser, str):
        log.warning("every page will be unknown", reason=browser)
    async with (
        FactWriter(settings, "visual-verifier") as writer,
        sandbox_pool("local", writer.settings, settings.verifier.concurrency) as pool,
    ):
        store = snapshot_store(writer.settings)
        await run_in_group(VisualVerifier(writer, pool, store, "visual", (VISUAL_VERDICTS,)), stop)
