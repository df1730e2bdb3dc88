"""The reasons why an open rollout waits, and the facts that are shown of it."""

from typing import Literal

import pytest

from agents.importers.lines import LineReader
from agents.rollouts.policy import ClosingPolicy
from agents.rollouts.rollout import Rollout
from agents.rollouts.settlement import settle_now
from schemas.closures import Closure
from schemas.emission import EmissionConfig, JudgeConfig
from schemas.verdicts import BuildVerdict, OutputTail, TestCounts, VisualVerdict
from streams.views.branch_status import branch_standings, detail_of, verdict_standings
from streams.views.wait_reasons import waiting_for
from tests.streams.views.conftest import OPEN, SECRET, Event, open_lines

CONFIG, POLICY = EmissionConfig(), ClosingPolicy()


def folded(lines: list[Event]) -> Rollout:
    rollout, reader = Rollout(OPEN), LineReader()
    for at, line in enumerate(lines):
        for fact in reader.read_object(line):
            rollout.add(fact, 1000 + at, ("t", 0, at))
    return rollout


def test_an_open_rollout_says_what_it_waits_for() -> None:
    """Each thing that keeps it open is named, and when it settles anyway."""
    assert waiting_for(folded(open_lines()), CONFIG, POLICY) == [
        "not heard of: branch 3",
        "still running: branch 1",
        "events are missing: branch 2 (seq 1, 2)",
        "no final verdict: lint of branch 0",
        "settles at 1970-01-02 00:00:01 at the latest (deadline)",
    ]


def test_a_settled_rollout_says_how_many_votes_are_missing() -> None:
    """Two branches that pass are compared twice in each order."""
    config = EmissionConfig(judge=JudgeConfig(kind="external"), required=())
    opened: Event = {"type": "rollout", "rollout_id": OPEN, "task": "t", "branches": 2, "required": []}
    ends: list[Event] = [{"type": "end", "rollout_id": OPEN, "branch_index": at, "status": "answered"} for at in (0, 1)]
    rollout = folded([opened, *ends])
    rollout.add(Closure(settled=settle_now(rollout, config, POLICY)), 2000, ("c", 0, 0))
    assert waiting_for(rollout, config, POLICY)[0] == "4 votes of 4 to come"


def test_branches_are_shown_as_far_as_they_are_known() -> None:
    """How each ended, what it said (redacted), and what its verdicts say so far."""
    first, running, gap = branch_standings(folded(open_lines()), CONFIG)
    assert (first.ended, first.objective, first.events) == ("answered", "fail", 2)
    assert first.text == "done, the key is [REDACTED:anthropic_key]"
    assert (running.ended, running.objective) == (None, "unknown")
    assert (gap.ended, gap.gaps, gap.text) == ("failed", 2, "boom")


def test_only_the_last_final_verdict_counts() -> None:
    """A build that runs is replaced by its result, and both are shown."""
    build: Event = {"type": "build", "rollout_id": OPEN, "branch_index": 1}
    lines = [*open_lines(), {**build, "status": "running"}, {**build, "status": "success", "exit_code": 0}]
    shown = [each for each in verdict_standings(folded(lines), EmissionConfig()) if each.branch_index == 1]
    assert [(each.meaning.outcome, each.counts) for each in shown] == [("unknown", False), ("pass", True)]


def test_what_comes_after_settling_changes_nothing_that_is_shown() -> None:
    """A verdict that came too late is shown as one that does not count."""
    build: Event = {"type": "build", "rollout_id": OPEN, "branch_index": 0, "status": "success", "exit_code": 0}
    opened: Event = {"type": "rollout", "rollout_id": OPEN, "task": "t", "branches": 1, "required": ["build"]}
    end: Event = {"type": "end", "rollout_id": OPEN, "branch_index": 0, "status": "answered"}
    rollout = folded([opened, end, build])
    settled = settle_now(rollout, CONFIG, POLICY)
    late = BuildVerdict(rollout_id=OPEN, branch_index=0, verdict_id="late", status="failure", exit_code=1)
    rollout.add(late, 9000, ("b", 0, 9))
    rollout.add(Closure(settled=settled), 9001, ("c", 0, 0))
    assert [each.objective for each in branch_standings(rollout, CONFIG)] == ["pass"]
    assert [(each.meaning.outcome, each.counts) for each in verdict_standings(rollout, EmissionConfig())] == [
        ("pass", True),
        ("fail", False),
    ]


def test_a_failed_build_shows_the_last_line_of_its_output_redacted() -> None:
    """Output tails are raw facts: nothing of them is shown as it is."""
    tail = OutputTail(text=f"first\nAssertionError: {SECRET}\n\n", digest="d")
    verdict = BuildVerdict(
        rollout_id="r", branch_index=0, verdict_id="v", status="failure", exit_code=2, stage="test", stderr=tail,
        tests=TestCounts(passed=3, failed=1, total=4),
    )  # fmt: skip
    assert detail_of(verdict) == "failure in test, exit 2, 3/4 tests, AssertionError: [REDACTED:anthropic_key]"


@pytest.mark.parametrize("isolation", ["strong", "weak"])
def test_a_build_shows_how_its_tests_were_isolated(isolation: Literal["strong", "weak"]) -> None:
    """A reader sees whether the work could have reached its tests."""
    verdict = BuildVerdict(
        rollout_id="r", branch_index=0, verdict_id="v", status="success", exit_code=0, isolation=isolation
    )
    assert detail_of(verdict) == f"success, exit 0, {isolation} isolation"


def test_a_page_that_fails_says_what_was_seen() -> None:
    """Probes and errors, not only the word."""
    verdict = VisualVerdict(
        rollout_id="r", branch_index=0, verdict_id="v", uncaught_errors=("TypeError: x",), renders_non_empty=False
    )
    assert detail_of(verdict) == "no verdict of its own; uncaught: TypeError: x; nothing drawn"
