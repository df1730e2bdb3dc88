"""One order in all formats: wherever two branches with known outcomes meet, the one that passes is ahead.

And one group: no statistic of the branches that are trained on depends on a branch that is not.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from hypothesis import assume, given

from agents.formats import FORMATS
from agents.formats.shape import Group, Row
from agents.training.admission import category_of
from schemas.emission import EmissionConfig, RankingConfig, Weight
from schemas.training import PpoRecord
from tests.agents.formats.rollouts import Line, branch, group_of, opening
from tests.agents.training.test_random_rollouts import MANY, rollouts, some

Meeting = tuple[float, float]
"""The values of a passing and of a failing branch; the first must be larger."""


def outcomes(group: Group) -> tuple[set[int], set[int]]:
    """Branches that pass and branches that fail, without hacks and without those whose outcome is mistrusted."""
    trusted = [
        each
        for each in group.ranking.branches
        if not any(flag.startswith(("hack_", "inconsistent", "ended_badly")) for flag in each.flags)
    ]
    passing, failing = ({each.branch_index for each in trusted if each.objective_status == s} for s in ("pass", "fail"))
    return passing, failing


def of_values(group: Group, values: dict[int, float | None]) -> Iterator[Meeting]:
    """Every passing branch against every failing one, as far as both have a value."""
    passing, failing = outcomes(group)
    for better, worse in product(passing, failing):
        first, second = values.get(better), values.get(worse)
        if first is not None and second is not None:
            yield first, second


def of_rows(group: Group, name: str) -> list[dict[str, Any]]:
    return [made.value for made in FORMATS[name].make(group) if isinstance(made, Row)]


def meetings(group: Group) -> Iterator[tuple[str, Meeting]]:
    """Every place where branches are ordered, compared or rewarded, in the records and in every format."""
    by_record = {row.record_id: row.branch_index for row in group.ppo}
    numbers: dict[str, list[dict[int, float | None]]] = {
        "rank": [{each.branch_index: None if each.rank is None else -each.rank for each in group.ranking.branches}],
        "total": [{each.branch_index: each.total for each in group.ranking.branches}],
        "reward": [{row.branch_index: row.reward for row in group.ppo}],
        "advantage": [{row.branch_index: row.advantage for row in group.ppo}],
        "trl-kto": [{by_record[row["record_id"]]: float(row["label"]) for row in of_rows(group, "trl-kto")}],
        "trl-grpo": [
            dict(zip(row["branches"], row[of], strict=True))
            for row in of_rows(group, "trl-grpo")
            for of in ("rewards", "advantages")
        ],
        "verl-parquet": [
            dict(zip(row["extra_info"]["branches"], row["extra_info"]["rewards"], strict=True))
            for row in of_rows(group, "verl-parquet")
        ],
        "rl-transitions": [
            {row["branch_index"]: row["reward"] for row in of_rows(group, "rl-transitions") if row["done"]}
        ],
        "rollout-wire": [
            {
                row["provenance"]["branch_index"]: row["reward"]
                for row in of_rows(group, "rollout-wire")
                if "reward" in row
            },
            {row["branch_index"]: row.get("total_score") for row in of_rows(group, "rollout-wire") if "status" in row},
        ],
        "atif": [
            {row["extra"]["branch_index"]: row["extra"].get(of) for row in of_rows(group, "atif")}
            for of in ("reward", "total")
        ],
        "nemo-preference": [_nemo_ranks(group, row) for row in of_rows(group, "nemo-preference")],
    }
    for name, found in numbers.items():
        for values in found:
            for meeting in of_values(group, values):
                yield name, meeting
    passing, failing = outcomes(group)
    for pair in group.dpo:
        sides = (pair.chosen_branch, pair.rejected_branch)
        if (sides[0] in passing and sides[1] in failing) or (sides[0] in failing and sides[1] in passing):
            yield "dpo", (float(sides[0] in passing), float(sides[1] in passing))
            yield "margin", (pair.margin, 0.0)
    for row in group.sft:
        yield "sft", (float(row.branch_index in passing), 0.0)


def _nemo_ranks(group: Group, row: dict[str, Any]) -> dict[int, float | None]:
    """By branch, how good a completion is; several branches may have said the same."""
    said = {repr(_plain(each)): each.branch_index for each in reversed(group.ppo)}
    found: dict[int, float | None] = {}
    for completion in row["completions"]:
        index = said.get(repr([(m["role"], m["content"]) for m in completion["completion"]]))
        if index is not None:
            found[index] = -completion["rank"]
    return found


def _plain(row: PpoRecord) -> list[tuple[str, str | None]]:
    return [(message.role, message.content) for message in row.completion]


@MANY
@given(rollouts())
def test_a_pass_is_ahead_of_a_fail_everywhere(lines: list[Line]) -> None:
    """Ranks, totals, rewards, advantages, labels, pairs and margins, in the records and in every format."""
    for name, (better, worse) in meetings(group_of(lines, in_order=False)):
        assert better > worse, name


@pytest.mark.parametrize(
    "name", ["reward", "trl-kto", "trl-grpo", "verl-parquet", "dpo", "nemo-preference", "rollout-wire"]
)
def test_random_rollouts_have_passes_meet_fails_everywhere(name: str) -> None:
    """A property of nothing proves nothing."""
    assert some(lambda group: any(found == name for found, _ in meetings(group)))


def statistics(group: Group) -> dict[int, tuple[Any, ...]]:
    return {
        row.branch_index: (row.reward, row.group_mean, row.group_std, row.group_size, row.advantage)
        for row in group.ppo
    }


def about(line: Line, index: int) -> bool:
    return index in (line.get("branch_index"), line.get("a"), line.get("b"))


@MANY
@given(rollouts())
def test_a_branch_that_is_not_trained_on_touches_no_statistic(lines: list[Line]) -> None:
    """Its lines and the votes about it are taken away: rewards, means, deviations, advantages and sizes stay."""
    lines = [line for line in lines if line["type"] != "cancel"]
    last = lines[0]["branches"] - 1
    group = group_of(lines, in_order=False)
    assume(last > 0 and last not in {row.branch_index for row in group.ppo})
    ranked = group.ranked(last)
    if lines[0]["required"] == [] or ranked is None or category_of(ranked.flags) == "train":
        # No flag keeps it out: it is compared with others all the same, and what a judge said of them beside it is known of them.
        lines = [line for line in lines if line["type"] != "vote" or not about(line, last)]
        group = group_of(lines, in_order=False)
        assume(last not in {row.branch_index for row in group.ppo})
    without = [line for line in lines if not about(line, last)]
    without[0] = without[0] | {"branches": last}
    assert statistics(group_of(without, in_order=False)) == statistics(group)


PASSED = {"status": "success", "exit_code": 0}
MISTRUSTED: dict[str, dict[str, Any]] = {
    "an inconsistent verdict": {"status": "failure", "exit_code": 0},
    "a confirmed hack": PASSED | {"protected_paths_intact": False},
    "a suspected hack": PASSED | {"baseline_tests": 9, "tests": {"passed": 3, "failed": 0, "total": 3}},
    "success beside a failing test": PASSED | {"tests": {"passed": 1, "failed": 9, "total": 10}},
}


@pytest.mark.parametrize("kind", MISTRUSTED)
def test_a_mistrusted_branch_touches_neither_rewards_nor_the_pass_rate_nor_judged_scores(kind: str) -> None:
    """Votes about it, its outcome and its coverage change nothing for the others."""
    coverage = {"coverage": 0.5}
    known = {"repo_commit": "c", "tool_manifest_digest": "d"}
    plain = [line for index in range(4) for line in branch("r1", index, f"answer {index}", passes=index < 2)]
    plain = [line | coverage if line["type"] == "build" else line for line in plain]
    votes = [
        {"type": "vote", "rollout_id": "r1", "a": a, "b": b, "order": order, "preferred": "a", "judge": "j"}
        for a, b in ((0, 1), (2, 3), (4, 0), (4, 1), (4, 2), (4, 3))
        for order in ("ab", "ba")
    ]
    odd = [line | MISTRUSTED[kind] if line["type"] == "build" else line for line in branch("r1", 4, "x", passes=True)]
    alone = group_of([opening("r1", 4, **known), *plain, *(vote for vote in votes if vote["a"] != 4)])
    beside = group_of([opening("r1", 5, **known), *plain, *odd, *votes])
    assert statistics(beside) == statistics(alone)
    assert beside.ranking.stats == alone.ranking.stats
    scores = [{each.branch_index: each.judge_score for each in made.ranking.branches} for made in (alone, beside)]
    assert scores[1] == scores[0] | {4: None}
    assert 4 not in {index for row in beside.dpo for index in (row.chosen_branch, row.rejected_branch)}
    ranks = {each.branch_index: each.rank for each in beside.ranking.branches}
    assert (ranks[4] is None) == (kind == "a confirmed hack")
    assert statistics(alone)[0][0] == 1.05


def test_coverage_is_a_bonus_only_where_it_is_known_of_every_pass() -> None:
    """One pass without a measurement, and no branch gets a bonus; a fail has none in any case."""
    known = {"repo_commit": "c", "tool_manifest_digest": "d"}
    lines = [opening("r1", 3, **known)]
    lines += [line for index in range(3) for line in branch("r1", index, f"a{index}", passes=index < 2)]
    some_known = [
        line | {"coverage": 0.9} if line["type"] == "build" and line["branch_index"] != 1 else line for line in lines
    ]
    all_known = [line | {"coverage": 0.9} if line["type"] == "build" else line for line in lines]
    assert [row.reward for row in group_of(some_known).ppo] == [1.0, 1.0, 0.0]
    assert [row.reward for row in group_of(all_known).ppo] == [1.09, 1.09, 0.0]


def reasons(group: Group, kind: str) -> list[tuple[str, ...]]:
    return [record.reasons for record in group.rejected if record.kind == kind]


def test_an_empty_prompt_makes_no_row() -> None:
    """Of any kind: nothing can be learnt from an answer to nothing."""
    lines = [opening("r1", 2, task=" \n", system_prompt=None)]
    lines += [line for index in range(2) for line in branch("r1", index, f"a{index}", passes=index == 0)]
    for line in lines:
        if line["type"] == "event" and line["event"]["event"] == "run_start":
            line["event"]["data"]["task"] = ""
    group = group_of(lines)
    assert group.sft == group.dpo == group.ppo == ()
    assert [reasons(group, kind)[-1] for kind in ("dpo", "ppo")] == [("empty_prompt",), ("empty_prompt",)]
    assert ("empty_prompt",) in reasons(group, "sft")


def ended(index: int, status: str) -> Line:
    return {"type": "end", "rollout_id": "r1", "branch_index": index, "status": status}


def test_a_branch_that_failed_is_never_imitated_and_never_chosen() -> None:
    """With a passing build it is quarantined; without required verdicts it still cannot be the better one."""
    lines = [
        opening("r1", 2),
        *branch("r1", 0, "a", passes=True, calls=({},)),
        *branch("r1", 1, "b", passes=False),
        ended(0, "failed"),
    ]
    group = group_of(lines)
    assert not group.sft
    assert not group.dpo
    assert ("quarantine", "ended_badly") in reasons(group, "ppo")
    judged = [opening("r1", 2, required=[]), *branch("r1", 0, "a", passes=None), *branch("r1", 1, "b", passes=None)]
    votes = [
        {
            "type": "vote",
            "rollout_id": "r1",
            "a": 0,
            "b": 1,
            "order": order,
            "sample": n,
            "preferred": "a",
            "judge": "j",
        }
        for order in ("ab", "ba")
        for n in range(4)
    ]
    assert [row.chosen_branch for row in group_of([*judged, *votes]).dpo] == [0]
    failed = group_of([*judged, *votes, ended(0, "failed")])
    assert not failed.dpo
    assert ("ended_badly",) in reasons(failed, "dpo")


def test_conflicting_events_and_gaps_are_kept_for_audit() -> None:
    """The real acts of the branch are unknown."""
    lines = [opening("r1", 1), *branch("r1", 0, "a", passes=True, calls=({"path": "x"},))]
    other = next(line for line in lines if line.get("seq") == 1)
    conflicting = other | {"event": other["event"] | {"data": {"toolName": "other"}}}
    for odd, reason in (
        ([*lines, conflicting], "conflicts"),
        ([line for line in lines if line.get("seq") != 0], "gaps"),
    ):
        group = group_of(odd, in_order=False)
        assert group.sft == group.ppo == ()
        assert any(found[:2] == ("audit_only", reason) for found in reasons(group, "ppo")), reason


def test_a_pair_whose_margin_contradicts_its_outcome_is_left_out() -> None:
    """Where the objective weighs nothing, totals are the judge's alone; under default weights margins are positive."""
    lines = [
        opening("r1", 4),
        *(line for index in range(4) for line in branch("r1", index, f"a{index}", passes=index < 2)),
    ]
    votes = [
        {"type": "vote", "rollout_id": "r1", "a": a, "b": b, "order": order, "preferred": "a", "judge": "j"}
        for a, b in ((0, 1), (2, 3))
        for order in ("ab", "ba")
    ]
    judged = EmissionConfig(ranking=RankingConfig(weights=(Weight(key="judge", weight=1.0, component="judge"),)))
    group = group_of([*lines, *votes], config=judged)
    assert all(pair.margin > 0 for pair in group.dpo)
    assert ("margin_against_outcome",) in reasons(group, "dpo")
    usual = group_of([*lines, *votes])
    assert ("margin_against_outcome",) not in reasons(usual, "dpo")


@pytest.mark.parametrize("name", ["atif", "rollout-wire"])
@pytest.mark.parametrize("odd", [{"protected_paths_intact": False}, {"exit_code": 3}])
def test_a_mistrusted_branch_is_in_no_trajectory_either(name: str, odd: dict[str, Any]) -> None:
    """Also where nothing is required, so that it has no reward and no row that could have been refused."""
    lines = [
        opening("r1", 2, required=[]),
        *branch("r1", 0, "cheat", passes=True),
        *branch("r1", 1, "fair", passes=None),
    ]
    lines = [line | odd if line["type"] == "build" else line for line in lines]
    made = of_rows(group_of(lines), name)
    assert made
    assert "cheat" not in repr(made)
