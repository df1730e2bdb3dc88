"""The visual verifier on a real Kafka with a real browser; and without one, unknown with the reason."""

from pathlib import Path

import pytest

from agents.fork.browser_adapter import find_browser
from agents.fork.task_adapter import find_task, load_task
from agents.verdicts.meaning import visual_outcome
from streams.cluster.config import Settings
from streams.log.topics import VISUAL_VERDICTS
from streams.services.verifiers.visual import run_visual_verifier
from tests.streams.services.verifiers.running import (
    put_fork,
    solved,
    until_committed,
    until_verdicts,
    verifying,
    with_state,
)

pytestmark = pytest.mark.kafka


async def test_pages_become_visual_verdicts(settings: Settings, tmp_path: Path) -> None:
    """The reference passes, a broken one fails; a task without a page is none of its business."""
    if isinstance(find_browser(), str):
        pytest.skip(f"{find_browser()}; the browser's tests were NOT run")
    settings = with_state(settings, tmp_path)
    task = load_task(find_task("price-page"))
    await put_fork(settings, task, "r1", {0: solved(task), 1: solved(task, "broken/renders-nothing")})
    other = load_task(find_task("csv-table"))
    await put_fork(settings, other, "r2", {0: solved(other)})
    async with verifying(run_visual_verifier, settings):
        found = {each.branch_index: each for each in await until_verdicts(settings, VISUAL_VERDICTS, 2)}
        await until_committed(settings, "visual", 3)
    assert (visual_outcome(found[0]), visual_outcome(found[1])) == ("pass", "fail")
    assert {each.rollout_id for each in found.values()} == {"r1"}
    assert found[0].screenshot_digest != found[1].screenshot_digest


async def test_without_a_browser_it_is_unknown_and_says_what_to_install(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine without Chromium gives no opinion."""
    monkeypatch.setattr("agents.fork.browser_adapter.PROGRAMS", ())
    monkeypatch.setattr("agents.fork.browser_adapter.COMMANDS", ())
    settings = with_state(settings, tmp_path)
    task = load_task(find_task("price-page"))
    await put_fork(settings, task, "r1", {0: solved(task)})
    async with verifying(run_visual_verifier, settings):
        (verdict,) = await until_verdicts(settings, VISUAL_VERDICTS, 1)
    assert visual_outcome(verdict) == "unknown"
    assert "install the package chromium" in verdict.reason
