"""Pairs of rounds: what is in them was produced, verified, and different."""

from hashlib import sha256
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agents.summarize.pieces import Round
from agents.training.compliance_rows import ComplianceRun, folded, refusal, repair_pairs, repeats, verified_rounds

TEXTS = ("yes", "Yes ", " yes", "no", "no yes", "", " \n", "caf\u00e9", "cafe\u0301", "maybe")


def told(number: int, output: str, made_by: str = "model") -> Round:
    return Round(
        number, "full_pcl", "direct" if not number else "patch", (), output, sha256(output.encode()).hexdigest(), made_by, base=None,
        committed=True, rolled_back=False, reason=None, truncated=False, input_tokens=None, output_tokens=None, cached_tokens=None,
        latency_ms=None,
    )  # fmt: skip


def verdict(number: int, output: str, status: str) -> dict[str, Any]:
    return {"round": number, "output_digest": sha256(output.encode()).hexdigest(), "status": status, "violations": []}


def run_of(rounds: list[Round], entries: list[dict[str, Any]], answer: str) -> ComplianceRun:
    details = {"rounds": entries, "constraints_passed": 1, "constraints_total": 1}
    return ComplianceRun(tuple(rounds), answer, details, verified_rounds(rounds, details))


@given(
    st.lists(st.tuples(st.sampled_from(TEXTS), st.sampled_from(("pass", "fail", "unknown"))), min_size=1, max_size=6)
)
def test_a_pair_has_two_known_sides_that_differ(rounds: list[tuple[str, str]]) -> None:
    made = [told(number, text) for number, (text, _) in enumerate(rounds)]
    run = run_of(made, [verdict(number, text, status) for number, (text, status) in enumerate(rounds)], rounds[-1][0])
    seen: set[tuple[str, str]] = set()
    taken = [pair for pair in repair_pairs(0, run) if refusal(pair, seen) is None]
    for pair in taken:
        chosen, rejected = folded(pair.chosen.text), folded(pair.rejected.text)
        assert chosen
        assert rejected
        assert chosen not in rejected
        assert (pair.rejected.text, "fail") in rounds, "a text that was produced, and fails"
    assert len({(folded(pair.chosen.text), folded(pair.rejected.text)) for pair in taken}) == len(taken)


def test_a_round_that_is_told_twice_or_with_another_text_is_unknown() -> None:
    twice = [told(0, "a"), told(0, "b"), told(1, "c")]
    run = run_of(twice, [verdict(0, "a", "fail"), verdict(1, "other", "pass")], "c")
    assert [run.status_of(number) for number in (0, 1, 2)] == ["unknown"] * 3
    assert list(repair_pairs(0, run)) == []


def test_code_alone_is_an_edit_and_the_model_is_not() -> None:
    draft = told(0, "a, b")
    assert run_of([draft, told(1, "a b", "edit")], [], "a b").made_by == "edit"
    assert run_of([draft, told(1, "c, d"), told(2, "c d", "edit")], [], "c d").made_by == "model"
    assert run_of([draft], [], "a, b").made_by == "model"


def test_an_answer_that_an_earlier_branch_gave_is_a_repetition() -> None:
    runs = {index: run_of([told(0, text)], [], text) for index, text in enumerate(("a", "b", "a"))}
    assert repeats(runs) == {2}
