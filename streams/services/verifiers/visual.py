"""The visual verifier: the page that a branch left, in a real browser without a network."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import structlog

from agents.fork.browser_adapter import find_browser
from agents.fork.pool import KernelPool
from agents.fork.sandbox import Sandbox, SandboxError
from agents.fork.task import Task
from agents.fork.visual_verdict import unseen, visual_verdict
from agents.verdicts.meaning import Verdict
from agents.workspace.snapshot_adapter import SnapshotStore
from streams.cluster.config import Settings
from streams.log.kafka_writer import FactWriter
from streams.log.topics import VISUAL_VERDICTS
from streams.services.fork.fork_setup import sandbox_pool, snapshot_store
from streams.services.group_worker import run_in_group
from streams.services.verifiers.examiner import Announce, Branch, Examiner, Untestable
from streams.services.verifiers.verifier_worker import Verifier

log = structlog.get_logger()


class VisualExaminer(Examiner):
    """Gives a visual verdict for tasks with a page."""

    kind = "visual"

    def __init__(self, pool: KernelPool[Sandbox], store: SnapshotStore, browser: Path | None) -> None:
        super().__init__(pool, store)
        self._browser = browser

    def kinds(self, task: Task) -> Sequence[str]:
        """The visual verdict of the page."""
        return ["visual"] if task.braid.page is not None else []

    def untestable(self, branch: Untestable) -> Verdict:
        """Unknown, with the reason."""
        return unseen(branch.subject, branch.why)

    async def look(self, branch: Branch, announce: Announce) -> Sequence[Verdict]:  # noqa: ARG002 - a look is short
        """Open the page. The browser is searched for each time, because it may be installed while this runs."""
        browser = find_browser(self._browser)
        page = branch.task.braid.page
        assert page is not None
        if isinstance(browser, str):
            return [unseen(branch.subject, browser)]
        try:
            async with self.pool.lease() as sandbox:
                return [
                    await visual_verdict(
                        branch.task, page, branch.files, sandbox, browser, branch.subject, self._keep_picture
                    )
                ]
        except SandboxError as error:
            return [unseen(branch.subject, f"sandbox: {error}")]

    def _keep_picture(self, picture: bytes) -> None:
        """Store the screenshot for the pages; a verdict is valid without it."""
        try:
            self._store.keep_picture(picture)
        except OSError as error:
            log.warning("screenshot_not_kept", reason=str(error))


@asynccontextmanager
async def visual_examiner(settings: Settings) -> AsyncIterator[VisualExaminer]:
    """The examiner of pages. A browser needs a local sandbox."""
    wanted = settings.verifier
    async with sandbox_pool("local", settings, wanted.concurrency) as pool:
        yield VisualExaminer(pool, snapshot_store(settings), wanted.browser)


async def run_visual_verifier(settings: Settings, *, stop: asyncio.Event | None = None) -> None:
    """Run a visual verifier until a signal (or `stop`) ends it."""
    browser = find_browser(settings.verifier.browser)
    if isinstance(browser, str):
        log.warning("every page will be unknown", reason=browser)
    async with (
        FactWriter(settings, "visual-verifier") as writer,
        visual_examiner(writer.settings) as examiner,
    ):
        await run_in_group(Verifier(writer, examiner, (VISUAL_VERDICTS,)), stop)
