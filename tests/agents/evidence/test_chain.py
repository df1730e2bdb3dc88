"""Links between records: what is removed, moved or added shows."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.evidence.chain import MAX_REASONS, ChainState, ChainTracker, ChainVerdict
from agents.evidence.signing import chain, record_hash
from tests.agents.evidence.records import Rollout

Json = dict[str, Any]


def track(records: list[Json]) -> tuple[list[list[str]], list[ChainVerdict]]:
    tracker = ChainTracker()
    faults = [tracker.add(record, record_hash(record), str(index)) for index, record in enumerate(records)]
    return faults, tracker.finish()


def state(records: list[Json]) -> ChainState:
    (verdict,) = track(records)[1]
    return verdict.state


def run(run_id: str, count: int) -> list[Json]:
    return list(chain({"run_id": run_id, "created_at_ms": number} for number in range(count)))


def unlinked(record: Json) -> Json:
    return {name: value for name, value in record.items() if name != "prev_record_hash"}


def test_a_closed_rollout_is_intact(rollout: Rollout) -> None:
    """Branches in order and the closing record: nothing to say."""
    faults, verdicts = track(rollout())
    assert faults == [[], [], [], []]
    assert verdicts == [ChainVerdict("r/1", ChainState.INTACT, records=4, repeated=0, reasons=())]


def test_a_rollout_without_branches_is_intact(rollout: Rollout) -> None:
    """The closing record alone says that there were none."""
    assert state(rollout(branches=0)) is ChainState.INTACT


@pytest.mark.parametrize(
    ("removed", "expected"),
    [(0, ChainState.BROKEN), (1, ChainState.BROKEN), (2, ChainState.BROKEN), (3, ChainState.PARTIAL)],
)
def test_a_removed_record_is_seen_wherever_it_was(rollout: Rollout, removed: int, expected: ChainState) -> None:
    """First, middle, last branch, or the closing record."""
    records = rollout()
    del records[removed]
    (verdict,) = track(records)[1]
    assert verdict.state is expected
    assert not verdict.ok
    assert verdict.reasons


def test_the_closing_record_alone_is_orphaned(rollout: Rollout) -> None:
    """It names a record that is not there."""
    assert state(rollout()[-1:]) is ChainState.ORPHANED


@given(data=st.data())
def test_no_subset_of_a_rollout_passes(rollout: Rollout, data: st.DataObject) -> None:
    """For any combination of removed records, the rest is not ok."""
    records = rollout()
    kept = data.draw(st.lists(st.sampled_from(range(4)), unique=True, min_size=1, max_size=3).map(sorted))
    _, verdicts = track([records[index] for index in kept])
    assert not all(verdict.ok for verdict in verdicts)


@given(order=st.permutations(range(4)).filter(lambda order: order != [0, 1, 2, 3]))
def test_no_other_order_passes(rollout: Rollout, order: list[int]) -> None:
    """Every permutation but the right one is broken, and a record at fault says so."""
    faults, (verdict,) = track([rollout()[index] for index in order])
    assert verdict.state is ChainState.BROKEN
    assert any(faults)


@given(seed=st.integers(0, 2**32))
def test_interleaved_rollouts_are_told_apart(rollout: Rollout, seed: int) -> None:
    """Chains may be mixed in one file as long as each keeps its own order."""
    queues = [rollout("r/1"), rollout("r/2", 2), run("other", 3), rollout("x", 0)]
    mixed = []
    choose = random.Random(seed)
    while queues := [queue for queue in queues if queue]:
        mixed.append(choose.choice(queues).pop(0))
    faults, verdicts = track(mixed)
    assert not any(faults)
    assert {verdict.chain: (verdict.state, verdict.records) for verdict in verdicts} == {
        "r/1": (ChainState.INTACT, 4),
        "r/2": (ChainState.INTACT, 3),
        "other": (ChainState.INTACT, 3),
        "x": (ChainState.INTACT, 1),
    }


def test_a_fault_in_one_chain_leaves_the_others_intact(rollout: Rollout) -> None:
    """Only the rollout that lost a record is broken."""
    _, verdicts = track([*rollout("r/1")[1:], *rollout("r/2")])
    assert [(verdict.chain, verdict.ok) for verdict in verdicts] == [("r/1", False), ("r/2", True)]


def test_an_exact_repetition_changes_nothing(rollout: Rollout) -> None:
    """A log that delivers twice is not a log that lies."""
    records = rollout()
    faults, (verdict,) = track([records[0], records[0], *records[1:], *records])
    assert not any(faults)
    assert (verdict.state, verdict.records, verdict.repeated) == (ChainState.INTACT, 4, 5)


def test_the_repetition_of_a_faulty_record_is_faulty(rollout: Rollout) -> None:
    """A link does not become right by being said twice."""
    faults, _ = track([rollout()[1], rollout()[1]])
    assert all(faults)


def test_a_record_after_the_closing_one_is_a_fault(rollout: Rollout) -> None:
    """A closed rollout takes no more branches."""
    records = rollout()
    late = {"run_id": "r/1/b9/a0", "prev_record_hash": record_hash(records[-1])}
    faults, (verdict,) = track([*records, late])
    assert faults[-1] == ["comes after the closing record of its rollout"]
    assert verdict.state is ChainState.BROKEN


def test_an_added_branch_outside_the_chain_is_a_fault(rollout: Rollout) -> None:
    """The closing record counts, so a record that slipped in before it shows."""
    *branches, closing = rollout()
    faults, (verdict,) = track([*branches, {"run_id": "r/1/b9/a0", "prev_record_hash": None}, closing])
    assert faults[-1] == ["the closing record states 3 records, 4 came before it"]
    assert verdict.state is ChainState.BROKEN


def test_a_branch_cannot_be_swapped_for_one_outside_the_chain(rollout: Rollout) -> None:
    """The count being right is not enough: the records must lead to the closing one."""
    first, second, third, _ = rollout()
    stray = {"run_id": "r/1/b9/a0", "prev_record_hash": None}
    closing = {
        "run_id": "r/1/ranking",
        "prev_record_hash": record_hash(second),
        "closing": {"records": 3, "head": record_hash(second)},
    }
    faults, (verdict,) = track([first, second, stray, closing])
    assert faults[-1] == ["the closing record states 3 records, the chain behind it has 2"]
    assert verdict.state is ChainState.BROKEN
    assert third not in (first, second)


def test_a_second_closing_record_is_a_fault(rollout: Rollout) -> None:
    """A rollout has one end."""
    *branches, closing = rollout()
    faults, _ = track([*branches, closing, {**closing, "created_at_ms": 5}])
    assert "a second closing record of the rollout" in faults[-1]


def test_a_fork_is_a_fault() -> None:
    """Two records cannot both follow the same one."""
    first, second, third = run("x", 3)
    faults, (verdict,) = track([first, second, {**second, "created_at_ms": 9}, third])
    assert faults[2] == ["a second record follows the same one: the chain forks"]
    assert verdict.state is ChainState.BROKEN


def test_records_of_one_run_follow_each_other() -> None:
    """Outside rollouts the links alone are judged."""
    assert state(run("x", 3)) is ChainState.INTACT


def test_links_may_lead_from_run_to_run() -> None:
    """A producer that chains all its runs has one chain, under its first name."""
    records = list(chain({"run_id": f"run-{number}"} for number in range(3)))
    (verdict,) = track(records)[1]
    assert (verdict.chain, verdict.state, verdict.records) == ("run-0", ChainState.INTACT, 3)


def test_chains_that_turn_out_to_be_one_are_judged_as_one() -> None:
    """A run that began by itself joins the chain that one of its records names."""
    first = {"run_id": "a"}
    lone = {"run_id": "b"}
    joining = {"run_id": "b", "created_at_ms": 1, "prev_record_hash": record_hash(first)}
    (verdict,) = track([first, lone, joining])[1]
    assert (verdict.state, verdict.records) == (ChainState.PARTIAL, 3)


def test_records_without_links_are_no_chain() -> None:
    """Nothing is claimed, so nothing is broken; and nothing is called intact."""
    (verdict,) = track([unlinked(record) for record in run("x", 3)])[1]
    assert verdict.state is ChainState.NOT_PRESENT
    assert verdict.ok
    assert state(run("x", 1)) is ChainState.NOT_PRESENT


@pytest.mark.parametrize("missing", [1, 2])
def test_a_missing_link_makes_a_chain_partial(missing: int) -> None:
    """Records that were left out between two others cannot be known."""
    records = run("x", 4)
    records[missing] = unlinked(records[missing])
    for index in range(missing + 1, 4):
        records[index] = {**records[index], "prev_record_hash": record_hash(records[index - 1])}
    (verdict,) = track(records)[1]
    assert verdict.state is ChainState.PARTIAL
    assert verdict.reasons == ("1 records do not name the one before them",)
    assert not verdict.ok


def test_a_gap_in_a_run_is_broken() -> None:
    """The third record names a second one that is not there."""
    first, _, third = run("x", 3)
    assert state([first, third]) is ChainState.BROKEN


def test_one_record_with_an_absent_predecessor_is_orphaned() -> None:
    """It may be true, and there is no way to tell."""
    (verdict,) = track([{"run_id": "x", "prev_record_hash": "f" * 64}])[1]
    assert verdict.state is ChainState.ORPHANED
    assert not verdict.ok


@pytest.mark.parametrize("link", ["", "F" * 64, "f" * 63, 5, ["f" * 64]])
def test_a_link_that_is_no_hash_leads_nowhere(link: object) -> None:
    """Only 64 lower-case hex digits name a record."""
    assert state([{"run_id": "x", "prev_record_hash": link}]) is ChainState.ORPHANED


def test_a_record_without_canonical_bytes_cannot_be_followed() -> None:
    """It has no hash, so a link to it cannot hold."""
    tracker = ChainTracker()
    assert tracker.add({"run_id": "x"}, None, "1") == []
    assert tracker.add({"run_id": "x", "prev_record_hash": "f" * 64}, "a" * 64, "2") != []
    assert tracker.finish()[0].state is ChainState.BROKEN


def test_reasons_are_few_even_when_faults_are_many() -> None:
    """A large broken file does not make a large verdict."""
    records = [{"run_id": "x", "prev_record_hash": f"{number:064x}"} for number in range(100)]
    (verdict,) = track(records)[1]
    assert len(verdict.reasons) == MAX_REASONS + 1
    assert verdict.reasons[-1] == "and 80 more faults"


def test_the_verdict_as_json_has_the_words_of_the_contract() -> None:
    """Names and values are plain text and numbers."""
    (verdict,) = track(run("x", 2))[1]
    assert verdict.as_json() == {
        "chain": "x",
        "verdict": "intact",
        "ok": True,
        "records": 2,
        "repeated": 0,
        "reasons": [],
    }
