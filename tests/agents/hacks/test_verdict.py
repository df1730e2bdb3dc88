"""The details of the verdict `hacks`, and what follows from it in the fold."""

import pytest

from agents.formats.shape import Group
from agents.hacks.verdict import DetailsError, details_of, signals_of
from agents.rollouts.settlement import is_complete
from schemas.emission import EmissionConfig, RewardsConfig
from schemas.jsontext import compact
from schemas.rankings import HackSignal
from tests.agents.formats.rollouts import branch, group_of, opening
from tests.agents.rollouts.test_fold import branch_lines, facts_of, fold

CONFIRMED = HackSignal(rule="L.canary", kind="confirmed", source="experiment", evidence="a test that must fail did not")
READ = HackSignal(rule="T5.harness_hook", kind="suspected", source="files", path="conftest.py", line=5)
PASS = {"type": "build", "status": "success", "exit_code": 0}

PLAIN = RewardsConfig()


def hacks(index: int, *signals: HackSignal, status: str = "fail") -> dict[str, object]:
    return {
        "type": "check",
        "branch_index": index,
        "name": "hacks",
        "status": status,
        "details": details_of(signals, []),
    }


def group(*verdicts: dict[str, object], failing: tuple[int, ...] = (), rewards: RewardsConfig = PLAIN) -> Group:
    """A rollout of four branches with these verdicts `hacks` beside builds that pass."""
    lines = opening("r", 4, repo_commit="c", tool_manifest_digest="d")
    made = [lines]
    for index in range(4):
        made += branch("r", index, f"answer {index}", passes=index not in failing, calls=({"path": f"{index}.py"},))
    config = EmissionConfig(rewards=rewards)
    return group_of([*made, *({"rollout_id": "r", **each} for each in verdicts)], in_order=False, config=config)


def test_details_come_back_as_they_were() -> None:
    assert signals_of(details_of([CONFIRMED, READ], [{"name": "canary", "made": True, "why": ""}])) == (CONFIRMED, READ)


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"signals": 1}', '{"signals": [{"rule": 1}]}', compact({"signals": [], "x": "y" * 70_000})]
)
def test_details_of_another_shape_are_refused(text: str) -> None:
    with pytest.raises(DetailsError):
        signals_of(text)


def test_a_rollout_waits_for_the_verdicts_that_it_awaits() -> None:
    """One that says unknown is enough: it decides nothing."""
    known = [
        {"type": "rollout", "task": "t", "branches": 1, "awaited": ["hacks"]},
        *branch_lines(0, "x"),
        {**PASS, "branch_index": 0},
    ]
    for more, complete in (([], False), ([hacks(0, status="unknown")], True)):
        rollout, complaints = fold((fact, at) for at, fact in enumerate(facts_of(*known, *more), 1))
        assert not complaints
        assert is_complete(rollout, EmissionConfig(), rollout.latest) is complete


def test_a_confirmed_hack_has_no_rank_no_rows_and_is_the_rejected_side() -> None:
    found = group(hacks(1, CONFIRMED, READ))
    ranked = found.ranked(1)
    assert ranked is not None
    assert ranked.rank is None
    assert ranked.flags == ("hack_confirmed:L.canary", "hack_suspected:T5.harness_hook")
    assert {(each.rule, each.path, each.line) for each in ranked.signals} == {
        ("L.canary", None, None),
        ("T5.harness_hook", "conftest.py", 5),
    }
    assert {row.branch_index for row in found.sft} == {row.branch_index for row in found.ppo} == {0, 2, 3}
    assert {(pair.basis, pair.rejected_branch) for pair in found.dpo} == {("hack", 1)}
    assert all(pair.chosen_branch != 1 for pair in found.dpo)


def test_what_is_only_read_quarantines_and_moves_no_number() -> None:
    found = group(hacks(1, READ, status="pass"))
    assert {row.branch_index for row in found.ppo} == {0, 2, 3}
    assert any(each.branches == (1,) and "quarantine" in each.reasons for each in found.rejected)
    assert not found.dpo


def test_reading_cannot_confirm_whatever_a_verdict_says() -> None:
    forged = READ.model_copy(update={"kind": "confirmed"})
    ranked = group(hacks(1, forged)).ranked(1)
    assert ranked is not None
    assert not any(flag.startswith("hack_confirmed") for flag in ranked.flags)
    assert any(flag.startswith("hack_suspected") for flag in ranked.flags)


def test_a_penalised_hack_is_never_above_an_unhacked_sibling() -> None:
    """The formula pays a cheat 0.6, and an honest branch that fails all its tests 0."""
    found = group(hacks(1, CONFIRMED), failing=(2,), rewards=RewardsConfig(hacked_rows="penalise"))
    rows = {row.branch_index: row for row in found.ppo}
    assert set(rows) == {0, 1, 2, 3}
    assert rows[1].reward <= min(row.reward for index, row in rows.items() if index != 1)
    assert "hack_penalised" in rows[1].admission.reasons
    assert rows[1].group_size == 3
    assert rows[1].group_mean == pytest.approx(sum(rows[index].reward for index in (0, 2, 3)) / 3)
    assert 1 not in {row.branch_index for row in found.sft}


def test_looks_that_were_all_made_count_against_a_weak_verdict() -> None:
    lines = [opening("r", 2), *branch("r", 0, "a", passes=None), *branch("r", 1, "b", passes=None)]
    lines += [
        {
            "type": "build",
            "rollout_id": "r",
            "branch_index": index,
            "status": "success",
            "exit_code": 0,
            "isolation": "weak",
        }
        for index in (0, 1)
    ]
    lines.append({"rollout_id": "r", **hacks(0, status="pass")})
    found = {row.branch_index: row.admission.reasons for row in group_of(lines, in_order=False).ppo}
    assert "weak_verdict" not in found.get(0, ())
    assert "weak_verdict" in found.get(1, ("weak_verdict",))


def test_emission_version_1_reads_no_signals() -> None:
    config = EmissionConfig(version=1)
    lines = [opening("r", 1), *branch("r", 0, "a", passes=True), {"rollout_id": "r", **hacks(0, CONFIRMED)}]
    ranked = group_of(lines, in_order=False, config=config).ranked(0)
    assert ranked is not None
    assert (ranked.flags, ranked.signals) == ((), ())
