"""Triage: each planted cause has its one label, and the logs of the case study have the stated ones."""

import json
import time
from typing import Any

import pytest

from agents.audit.equations import equations, repaired
from agents.audit.eval_row import EvalRow
from agents.audit.eval_shapes import read_results
from agents.audit.number_text import plain, stated, value_of
from agents.audit.triage import Samples, lottery_of, triage
from tests.conformance import conformance


def label(text: str | None, **more: Any) -> str | None:
    row = EvalRow("x", 0.0, **({"expected": "12", "predicted": "7", "text": text} | more))
    return triage((row,)).labels.get("x")


@pytest.mark.parametrize(
    ("text", "more", "expected"),
    [
        ("12 it is", {"predicted": "12.0"}, "format"),
        ("so #### $12", {}, "extraction"),
        (r"therefore \boxed{x = 12}", {}, "extraction"),
        ("The answer is: **12** and more", {}, "extraction"),
        ("we get 12", {"predicted": "[invalid]"}, "extraction"),
        ("we get 12", {}, "reasoning"),
        (" \n", {}, "no_output"),
        ("I\u2019m sorry, I cannot do that.", {}, "refused"),
        ("I cannot help with that. The answer is 3", {}, "reasoning"),
        ("First we add 3 and", {}, "truncated"),
        ("First we add 3.", {"finish_reason": "length"}, "truncated"),
        ("First we add 3 and", {"finish_reason": "stop"}, "reasoning"),
        ("First we add 3.", {"n_tokens": 63, "max_tokens": 64}, "truncated"),
        ("First we add 3 and", {"n_tokens": 9, "max_tokens": 64}, "reasoning"),
        ("the answer is 7, and", {"finish_reason": "length"}, "reasoning"),
        ("it is **7**", {}, "reasoning"),
        ("```\nx = 7\n", {}, "truncated"),
        ("```\nx = 7\n```", {}, "reasoning"),
        ("it is `7`", {}, "reasoning"),
        ("3 + 4 = 8. 8 + 5 = 13. The answer is 13.", {}, "arithmetic"),
        ("3 + 4 = 8. 8 * 5 = 40. The answer is 40.", {}, "reasoning"),
        ("So it is 12. Wait, let me redo: 3. The answer is 3.", {}, "self_correction"),
        ("So it is 5. Wait, 12 is too much. The answer is 3.", {}, "reasoning"),
        (None, {}, None),
    ],
)
def test_each_cause_has_its_label(text: str | None, more: dict[str, Any], expected: str | None) -> None:
    """The first that holds."""
    assert label(text, **more) == expected


def test_the_case_study_has_the_stated_labels() -> None:
    """All of both logs."""
    expected = {
        "winner": ({"gsm8k-011": "arithmetic", "gsm8k-015": "truncated", "gsm8k-181": "extraction"}, 61, (80, 16, 150)),
        "instruct": ({"gsm8k-063": "arithmetic", "gsm8k-164": "self_correction"}, 60, (0, 0, 155)),
    }
    for name, (others, reasoning, flags) in expected.items():
        value = json.loads(conformance("eval-trust", f"{name}_max_new768.json").read_bytes())
        found = triage(read_results(name, value).rows)
        assert {each: own for each, own in found.labels.items() if own != "reasoning"} == others
        assert found.counts["reasoning"] == reasoning
        assert tuple(map(found.flagged, ("goes_on", "loops", "mentioned"))) == flags
        assert found.route == "reasoning"


def test_the_stated_answer_is_the_recorded_one() -> None:
    """In 398 of 399 rows."""
    agree = total = 0
    for name in ("winner", "instruct"):
        value = json.loads(conformance("eval-trust", f"{name}_max_new768.json").read_bytes())
        for row in read_results(name, value).rows:
            if row.counts:
                total += 1
                agree += stated(plain(row.text or "")).value == value_of(row.predicted)
    assert (agree, total) == (398, 399)


def test_a_piece_of_a_longer_expression_is_no_equation() -> None:
    """Nor is a division by zero."""
    assert [each.claimed for each in equations("48 / 2 = 24, and 5 - 3 - 2 = 10 + 1")] == [24]
    assert not repaired("4 / 0 = 3", value_of("3") or 0)  # type: ignore[arg-type]
    assert [each.claimed for each in equations("1/3 = 0.33 and 20% * 50 = $10")] != []


def test_a_lottery_needs_a_unique_mode() -> None:
    """Answers that are no numbers abstain; five different answers have no majority."""
    drawn = [
        Samples("won", "3", ["3", "3", "4", "no"]),
        Samples("tied", "3", ["3", "4"]),
        Samples("split", "3", ["1", "2", "4", "5", "3"]),
        Samples("lost", "3", ["4", "4", "3"]),
        Samples("out", "none", ["3"]),
    ]
    found = lottery_of(drawn)
    assert found.plain() == {"n": 4, "lottery": 1, "tied": 2, "any": 4, "rate": 0.25, "ids": ["won"]}


@pytest.mark.parametrize(
    "text", ["answer is" + " " * 300_000, "1  +  " * 10_000, "####" * 80_000, "\\boxed{" * 50_000, "9," * 100_000]
)
def test_hostile_texts_cost_linear_time(text: str) -> None:
    """A model can write anything."""
    began = time.process_time()
    label(text)
    assert time.process_time() - began < 5
