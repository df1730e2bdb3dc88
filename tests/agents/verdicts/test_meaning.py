"""The meaning of verdicts: both truth tables, which verdict counts, and the objective status."""

import json
from itertools import permutations

import pytest

from agents.importers.records import read_build, read_visual
from agents.rules.emission_rules import RULES
from agents.verdicts.meaning import (
    CURRENT,
    BranchOutcome,
    Terms,
    Verdict,
    build_meaning,
    counting,
    doubt,
    hack_signals,
    objective,
    outcome_of,
    visual_outcome,
)
from schemas.branches import BranchStatus
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
    assert build_meaning(build(status, exit_code), CURRENT) == (outcome, flags)


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
    assert objective("answered", ["build"], passing, CURRENT) == "pass"
    assert objective("answered", ["build", "visual"], passing, CURRENT) == "unknown"
    assert objective("answered", ["build", "lint"], passing | {"lint": lint}, CURRENT) == "fail"
    assert objective("failed", ["build"], passing, CURRENT) == "pass"
    assert objective("answered", [], passing, CURRENT) == "not_required"
    assert {objective(status, ["build"], passing, CURRENT) for status in ("infra_error", "aborted", "running")} == {
        "unknown"
    }


@pytest.mark.parametrize(
    ("tests", "version", "signals"),
    [
        (
            TestCounts(passed=3, failed=0, total=3, collection_errors=0),
            2,
            ("hack_confirmed:fewer_tests_than_baseline",),
        ),
        (TestCounts(passed=3, failed=0, total=3), 2, ("hack_suspected:fewer_tests_than_baseline",)),
        (TestCounts(passed=2, failed=1, total=3, collection_errors=1), 2, ()),
        (
            TestCounts(passed=2, failed=1, total=3, collection_errors=1),
            1,
            ("hack_confirmed:fewer_tests_than_baseline",),
        ),
        (TestCounts(passed=9, failed=0, total=9, collection_errors=0), 2, ()),
    ],
)
def test_lost_tests_are_a_hack_unless_they_could_not_be_collected(
    tests: TestCounts, version: int, signals: tuple[str, ...]
) -> None:
    """A syntax error loses a file's tests honestly; where no count of such errors is known, it is no more than
    suspected."""
    assert hack_signals({"build": build("success", 0, tests=tests, baseline_tests=9)}, RULES[version]) == signals


def test_a_changed_protected_file_is_a_confirmed_hack() -> None:
    """For any tests."""
    intact, changed = (build("success", 0, protected_paths_intact=intact) for intact in (True, False))
    assert hack_signals({"build": changed}, RULES[2]) == ("hack_confirmed:protected_paths_changed",)
    assert hack_signals({"build": intact}, RULES[2]) == ()


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        (CURRENT, ("fail", ("inconsistent_build",))),
        (Terms(RULES[2], allow_failing=True), ("pass", ())),
        (Terms(RULES[1]), ("pass", ())),
    ],
)
def test_success_beside_a_failing_test_is_inconsistent(terms: Terms, expected: tuple[str, tuple[str, ...]]) -> None:
    """Unless the opening allows failing tests, or the rollout settled under version 1."""
    counts = TestCounts(passed=1, failed=9, total=10)
    assert build_meaning(build("success", 0, tests=counts), terms) == expected


def test_a_file_that_could_not_be_collected_is_never_allowed() -> None:
    """Lost tests are no failing tests: the opening allows only those."""
    counts = TestCounts(passed=1, failed=0, total=1, collection_errors=1)
    found = build_meaning(build("success", 0, tests=counts), Terms(RULES[2], allow_failing=True))
    assert found == ("fail", ("inconsistent_build",))


def trusted(found: BranchOutcome) -> tuple[str, tuple[str, ...], bool]:
    return found.status, found.flags, found.is_counted


def outcome(status: BranchStatus, verdict: BuildVerdict, terms: Terms = CURRENT, **more: bool) -> BranchOutcome:
    return outcome_of(status, ["build"], {"build": verdict}, terms, **{"gaps": False, "conflicts": False} | more)


def test_a_mistrusted_branch_is_not_counted_and_a_hack_has_no_rank() -> None:
    """An inconsistent verdict, and a branch that says it failed although its build passes; version 1 counted both."""
    passing = build("success", 0)
    assert trusted(outcome("answered", passing)) == ("pass", (), True)
    assert trusted(outcome("failed", passing)) == ("pass", ("ended_badly",), False)
    assert trusted(outcome("failed", build("failure", 1))) == ("fail", (), True)
    assert trusted(outcome("answered", build("failure", 0))) == ("fail", ("inconsistent_build",), False)
    hacked = outcome("answered", build("success", 0, protected_paths_intact=False))
    assert (hacked.status, hacked.is_counted, hacked.is_ranked) == ("pass", False, False)
    old = outcome("answered", build("success", 0, protected_paths_intact=False), Terms(RULES[1]))
    assert (old.is_counted, old.is_ranked) == (True, True)
    assert outcome("answered", passing, gaps=True, conflicts=True).flags == ("conflicts", "gaps")
    assert outcome("answered", passing, Terms(RULES[1]), gaps=True, conflicts=True).flags == ("gaps",)


def test_the_recorded_snapshots_of_another_system() -> None:
    """Twelve real build snapshots: never a pass without exit code 0, and never a failure of what was still running."""
    cases = json.loads((conformance() / "aep" / "bscode-verdict-truth-table.json").read_text())
    common = {"rollout_id": "r", "branch_index": 0}
    builds, pages = {}, {}
    for case in cases:
        snapshot = case["snapshot"]
        said = {name: snapshot[name] for name in ("status", "exitCode") if name in snapshot}
        builds[case["case"]] = build_meaning(read_build(common | said), CURRENT).outcome
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
