"""What verdicts mean: both truth tables, which verdict counts, and the objective status."""

import json
from itertools import permutations

import pytest

from agents.importers.records import read_build, read_visual
from agents.verdicts.meaning import Verdict, build_meaning, counting, doubt, hack_signals, objective, visual_outcome
from schemas.verdicts import BuildVerdict, CheckVerdict, DomProbe, TestCounts, VisualVerdict
from tests.conformance import conformance


def build(status: str, exit_code: int | None = None, name: str = "v", **more: object) -> BuildVerdict:
    return BuildVerdict.model_validate(
        {"rollout_id": "r", "branch_index": 0, "verdict_id": name, "status": status, "exit_code": exit_code, **more}
    )


def visual(verdict: str | None = None, **more: object) -> VisualVerdict:
    return VisualVerdict.model_validate(
        {"rollout_id": "r", "branch_index": 0, "verdict_id": "v", "verdict": verdict, **more}
    )


@pytest.mark.parametrize(
    ("status", "exit_code", "outcome", "flags"),
    [
        ("success", 0, "pass", ()),
        ("success", 1, "fail", ("inconsistent_build",)),
        ("success", None, "unknown", ()),
        ("failure", 0, "fail", ("inconsistent_build",)),
        ("failure", 2, "fail", ()),
        ("failure", None, "fail", ()),
        ("running", None, "unknown", ()),
        ("running", 0, "unknown", ()),
        ("unknown", 0, "unknown", ()),
        ("infra_error", 1, "unknown", ()),
    ],
)
def test_the_build_table(status: str, exit_code: int | None, outcome: str, flags: tuple[str, ...]) -> None:
    """A running or unknown build is neither a pass nor a failure; contradictions fail and are flagged."""
    assert build_meaning(build(status, exit_code)) == (outcome, flags)


@pytest.mark.parametrize(
    ("verdict", "outcome"),
    [
        (visual("pass", uncaught_errors=("boom",)), "fail"),
        (visual("pass", dom_probes=(DomProbe(name="button", ok=False),)), "fail"),
        (visual("pass", renders_non_empty=False), "fail"),
        (visual("pass", console_errors=("warn",)), "pass"),
        (visual("fail"), "fail"),
        (visual("pending", renders_non_empty=True), "unknown"),
        (visual("unknown", console_errors=("e",)), "unknown"),
        (visual(console_errors=("e",), renders_non_empty=True), "fail"),
        (visual(renders_non_empty=True), "pass"),
        (visual(), "unknown"),
    ],
)
def test_the_visual_table(verdict: VisualVerdict, outcome: str) -> None:
    """The first row that holds decides."""
    assert visual_outcome(verdict) == outcome


def test_the_last_final_verdict_wins() -> None:
    """A non-final verdict never replaces a final one; a later final one does."""
    passing, failing, running = build("success", 0, "p"), build("failure", 1, "f"), build("running", None, "r")
    for order in permutations([passing, failing, running]):
        finals = [verdict for verdict in order if verdict is not running]
        assert counting(order)["build"] is finals[-1]
    assert counting([running])["build"] is running


def test_the_objective_status() -> None:
    """Fail if any required fails, pass if all pass, else unknown; nothing required is no pass; a broken run is unknown."""
    passing = {"build": build("success", 0)}
    lint = CheckVerdict(rollout_id="r", branch_index=0, verdict_id="l", name="lint", status="fail")
    assert objective("answered", ["build"], passing) == "pass"
    assert objective("answered", ["build", "visual"], passing) == "unknown"
    assert objective("answered", ["build", "lint"], passing | {"lint": lint}) == "fail"
    assert objective("failed", ["build"], passing) == "pass"
    assert objective("answered", [], passing) == "not_required"
    assert {objective(status, ["build"], passing) for status in ("infra_error", "aborted", "running")} == {"unknown"}


def test_hacks_are_confirmed_by_facts_only() -> None:
    """A changed protected file, or fewer tests than the untouched task collects."""
    counts = TestCounts(passed=3, failed=0, total=3)
    assert hack_signals({"build": build("success", 0, protected_paths_intact=False)})
    assert hack_signals({"build": build("success", 0, tests=counts, baseline_tests=9)})
    assert not hack_signals({"build": build("success", 0, tests=counts, baseline_tests=3, protected_paths_intact=True)})


def test_the_recorded_snapshots_of_another_system() -> None:
    """Twelve real build snapshots: never a pass without exit code 0, and never a failure of what was still running."""
    cases = json.loads((conformance() / "aep" / "bscode-verdict-truth-table.json").read_text())
    common = {"rollout_id": "r", "branch_index": 0}
    builds, pages = {}, {}
    for case in cases:
        snapshot = case["snapshot"]
        said = {name: snapshot[name] for name in ("status", "exitCode") if name in snapshot}
        builds[case["case"]] = build_meaning(read_build(common | said)).outcome
        if "visual" in snapshot:
            pages[case["case"]] = visual_outcome(read_visual(common | snapshot["visual"]))
    assert [name for name, outcome in builds.items() if outcome == "unknown"] == [
        "dev success no exitCode",
        "running",
        "unknown ran",
    ]
    assert [name for name, outcome in builds.items() if outcome == "fail"] == [
        "build failed no exitCode",
        "failed exit0",
        "success exit1",
    ]
    assert pages == {
        "visual verdict true+errors": "fail",
        "visual errors": "fail",
        "visual empty arrays nonempty": "fail",
        "visual blank": "fail",
        "visual no signal": "unknown",
    }


@pytest.mark.parametrize(
    ("verdict", "field"),
    [
        (read_build({"rollout_id": "r", "branch_index": 0, "status": "ok"}), "exit_code"),
        (read_build({"rollout_id": "r", "branch_index": 0, "status": "skipped"}), "status"),
        (visual(), "verdict"),
        (visual("unknown"), "verdict"),
        (visual(dom_probes=[{"name": "title", "ok": True}]), "verdict"),
        (CheckVerdict(rollout_id="r", branch_index=0, verdict_id="v", name="lint", status="unknown"), "status"),
    ],
)
def test_a_verdict_that_will_mean_nothing_is_doubted(verdict: Verdict, field: str) -> None:
    """The sentence says what it means as it is and what to send."""
    found = doubt(verdict)
    assert found is not None
    assert found.field == field
    assert found.reason.startswith("unknown: ")
    assert "; send " in found.reason


@pytest.mark.parametrize(
    "verdict",
    [
        build("success", 0), build("success", 1), build("failure"), build("running"), build("infra_error"), visual("pass"),
        visual("pending"), visual(uncaught_errors=["x"]), visual(console_errors=["x"]), visual(renders_non_empty=True),
        CheckVerdict(rollout_id="r", branch_index=0, verdict_id="v", name="lint", status="fail"),
    ],
)  # fmt: skip
def test_a_verdict_that_decides_or_is_not_final_yet_is_not_doubted(verdict: Verdict) -> None:
    """A warning that comes for nothing is not read."""
    assert doubt(verdict) is None
