"""Contamination: copies are found however they are disguised, unrelated texts are not, and the index is the plain rule."""

import random
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.training.contamination import EvalIndex, EvalItem, Match, read_items
from agents.training.text_overlap import OverlapRule, folded
from tests.examples import shares

ROOT = Path(__file__).parents[3]
QUESTION = (
    "A train leaves the station at noon and travels west at sixty miles an hour. "
    "How long does it take to reach a town that is two hundred and ten miles away?"
)
OTHER = "Given a list of integers, return the two numbers whose product is the largest among all pairs in the list."
FILLER = " ".join(f"word{i} stands{i % 7} between{i % 11} others{i % 13}" for i in range(120))

CYRILLIC = str.maketrans("aeopcyxiTHKMB", "аеорсухіТНКМВ")  # noqa: RUF001 - that is what is tested
GREEK = str.maketrans("aoivkANTEO", "αοινκΑΝΤΕΟ")
FULL_WIDTH = {code: code + 0xFEE0 for code in range(ord("!"), ord("~") + 1)}

DISGUISES = {
    "as it is": QUESTION,
    "upper case": QUESTION.upper(),
    "zero-width characters": "\u200b".join(QUESTION),
    "word joiners and byte order marks": QUESTION.replace("a", "a\u2060").replace("t", "\ufefft"),
    "soft hyphens": QUESTION.replace("ti", "t\u00adi"),
    "Cyrillic letters": QUESTION.translate(CYRILLIC),
    "Greek letters": QUESTION.lower().translate(GREEK),
    "full-width letters": QUESTION.translate(FULL_WIDTH),
    "other spaces": QUESTION.replace(" ", "\u00a0\u2003\n"),
    "variation selectors": QUESTION.replace("e", "e\ufe0f"),
    "everything": "\u200d".join(QUESTION.upper().translate(CYRILLIC)).translate(FULL_WIDTH),
}


def plain_best(items: list[tuple[str, str]], text: str) -> tuple[str, float] | None:
    """The rule as the contract says it: every item, every measure, the highest score, then the lowest id."""

    def sets(value: str) -> tuple[set[tuple[str, ...]], set[str]]:
        form = folded(value)
        words = re.findall(r"\w+", form)
        return (
            {tuple(words[i : i + 8]) for i in range(len(words) - 7)},
            {form[i : i + 5] for i in range(len(form) - 4)},
        )

    found: list[tuple[Fraction, str]] = []
    words, characters = sets(text)
    for item_id, question in items:
        form = folded(question)
        if len(form) < 40 and len(re.findall(r"\w+", form)) < 8:
            continue
        item_words, item_characters = sets(question)
        measures = [
            (len(item_words & words), len(item_words | words), Fraction(1, 5)),
            (len(item_words & words), len(item_words), Fraction(4, 5)),
            (len(item_characters & characters), len(item_characters | characters), Fraction(7, 10)),
        ]
        found += [(-Fraction(a, b), item_id) for a, b, least in measures if b and Fraction(a, b) >= least]
    return (min(found)[1], float(-min(found)[0])) if found else None


@pytest.mark.parametrize("disguise", DISGUISES)
def test_a_disguised_copy_is_found(disguise: str) -> None:
    """Invisible characters, look-alike and full-width letters, case and spaces do not hide a copy."""
    index = EvalIndex([("q1", QUESTION), ("q2", OTHER)])
    assert index.check(DISGUISES[disguise]) == Match("q1", OverlapRule.TOKEN_JACCARD, 1.0)


@pytest.mark.parametrize("disguise", DISGUISES)
def test_a_disguised_item_finds_plain_copies(disguise: str) -> None:
    """Both sides are folded: it does not matter which of them is disguised."""
    match = EvalIndex([("q1", DISGUISES[disguise])]).check(QUESTION)
    assert match is not None
    assert match.score == 1.0


def test_a_question_inside_a_long_text_is_found() -> None:
    """Containment does not depend on how much else there is."""
    index = EvalIndex([("q1", QUESTION), ("q2", OTHER)])
    match = index.check(f"{FILLER} {QUESTION} {FILLER}")
    assert match == Match("q1", OverlapRule.CONTAINMENT, 1.0)


def test_containment_begins_at_four_fifths() -> None:
    """Of ten 8-grams eight are enough and seven are not."""
    words = [f"w{i}" for i in range(17)]
    index = EvalIndex([("q", " ".join(words))])
    enough = index.check(f"{FILLER} {' '.join(words[:15])} {FILLER}")
    assert enough == Match("q", OverlapRule.CONTAINMENT, 0.8)
    assert index.check(f"{FILLER} {' '.join(words[:14])} {FILLER}") is None


def test_token_similarity_begins_at_one_fifth() -> None:
    """Two shared 8-grams of ten different ones are enough, two of eleven are not."""
    item = [f"w{i}" for i in range(13)]
    text = [*item[:9], *(f"x{i}" for i in range(4))]
    match = EvalIndex([("q", " ".join(item))]).check(" ".join(text))
    assert match == Match("q", OverlapRule.TOKEN_JACCARD, 0.2)
    assert EvalIndex([("q", " ".join(item))]).check(" ".join([*text, "x4"])) is None


def test_a_long_question_of_few_words_is_told_by_its_characters() -> None:
    """Seven words or fewer have no 8-gram; forty characters are still compared."""
    question = "Differentiate sin(x)*exp(-x**2)/sqrt(1+x**4) symbolically!"
    index = EvalIndex([("q", question)])
    assert index.check(question.replace("sqrt", "sqr")) is not None
    assert index.check("Integrate cos(y)+log(y) numerically, please, from zero on") is None


def test_languages_without_spaces_are_told_by_their_characters() -> None:
    """A question in Chinese is one or two words, and is found with a letter changed."""
    question = (
        "一列火车中午从车站出发以每小时六十英里的速度向西行驶请问到达二百一十英里以外的小镇需要多长时间请写出计算过程"
    )
    index = EvalIndex([("q", question)])
    match = index.check(question.replace("六", "七"))
    assert match is not None
    assert match.rule is OverlapRule.CHAR_JACCARD


def test_a_copy_with_small_changes_is_found() -> None:
    """One word changed in a short question is still the question."""
    assert EvalIndex([("q1", QUESTION)]).check(QUESTION.replace("noon", "midday")) is not None


@pytest.mark.parametrize("text", ["", "How long does it take?", FILLER, OTHER, "a" * 5000])
def test_unrelated_texts_are_not_flagged(text: str) -> None:
    """Common phrases, other questions and fillers repeat nothing."""
    assert EvalIndex([("q1", QUESTION)]).check(text) is None


def test_short_items_are_skipped_and_counted() -> None:
    """An item that is shorter than eight words and forty characters is found by chance, so it is not used."""
    index = EvalIndex([("short", "What is 2 + 2?"), ("words", "a b c d e f g h"), ("letters", "x" * 40)])
    assert (len(index), index.skipped) == (2, 1)
    assert index.check("What is 2 + 2?") is None
    assert index.check("it says: a b c d e f g h") == Match("words", OverlapRule.CONTAINMENT, 1.0)


def test_the_best_match_wins_and_then_the_lowest_id() -> None:
    """The highest score decides, then the id; never the order of the items."""
    items = [("c", QUESTION), ("a", QUESTION + " Show every step of it."), ("b", QUESTION)]
    for order in (items, items[::-1]):
        assert EvalIndex(order).check(QUESTION) == Match("b", OverlapRule.TOKEN_JACCARD, 1.0)


def test_an_empty_index_flags_nothing() -> None:
    """Without items there is no contamination."""
    assert EvalIndex([]).check(QUESTION) is None


words = st.sampled_from([f"{a}{b}" for a in "klmn" for b in ("a", "en", "ito")])
texts = st.lists(words, max_size=40).map(" ".join)


@given(st.lists(texts, max_size=8), texts, st.integers(0, 7), st.integers(0, 60), st.integers(0, 60))
@settings(max_examples=shares(8), deadline=None)
def test_the_index_is_the_plain_rule(questions: list[str], filler: str, which: int, cut: int, at: int) -> None:
    """On texts of few words, which overlap all the time, the index answers what comparing every pair does."""
    items = [(f"q{i}", question) for i, question in enumerate(questions)]
    copied = questions[which % len(questions)][cut:] if questions else ""
    text = filler[:at] + copied + filler[at:]
    match = EvalIndex(items).check(text)
    assert (match and (match.item_id, match.score)) == plain_best(items, text)


@pytest.mark.parametrize("seed", range(6))
def test_the_index_is_the_plain_rule_on_larger_corpora(seed: int) -> None:
    """Many items of all lengths, and copies with letters dropped, changed and added: still the plain rule."""
    chance = random.Random(seed)
    vocabulary = ["".join(chance.choices("abcdefgh", k=chance.randint(2, 7))) for _ in range(60)]

    def sentence() -> str:
        return " ".join(chance.choices(vocabulary, k=chance.randint(4, 50)))

    items = [(f"q{i}", sentence()) for i in range(80)]
    index = EvalIndex(items)
    for _ in range(60):
        letters = list(chance.choice(items)[1])
        for _ in range(chance.randint(0, 12)):
            letters[chance.randrange(len(letters))] = chance.choice(["", "x", " ", "ab"])
        text = "".join(letters) if chance.random() < 0.7 else f"{sentence()} {''.join(letters)}"
        match = index.check(text)
        assert (match and (match.item_id, match.score)) == plain_best(items, text)


@given(st.text(max_size=80))
def test_folding_twice_is_folding_once(text: str) -> None:
    """A text that was folded already is in its final form."""
    assert folded(folded(text)) == folded(text)


def test_the_benchmark_finds_the_index_equal_to_the_plain_rule() -> None:
    """The benchmark runs, and ends well only if both give the same answers."""
    command = [sys.executable, str(ROOT / "benchmarks/contamination.py"), "--rows=200", "--items=60", "--sample=60"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "both find the same: True" in run.stdout


def test_the_example_in_the_manual_runs() -> None:
    """The examples on the page about contamination are true."""
    example = (ROOT / "docs/contamination.md").read_text().split("```python\n")[1].split("```")[0]
    scope: dict[str, Any] = {}
    exec(example.replace("index.check(", "match = index.check("), scope)
    assert f"# {scope['match']!r}" in example


def test_items_are_read_from_any_of_the_usual_fields() -> None:
    """An items file may call the question question, prompt, text or task; ids may be numbers or missing."""
    lines = [
        '{"id": "a", "question": "x"}',
        b'{"id": 7, "prompt": "y"}',
        "",
        '{"text": "z"}',
        '{"id": "d", "task": "t"}',
    ]
    read = read_items(lines)
    assert read.items == (EvalItem("a", "x"), EvalItem("7", "y"), EvalItem("line-4", "z"), EvalItem("d", "t"))
    assert read.errors == ()


def test_a_bad_line_is_reported_and_does_not_stop_the_others() -> None:
    """Each bad line is named with its number and its reason."""
    read = read_items(
        ['{"id": 1, "question": "x"}', "{broken", "[1]", '{"id": 2, "question": ["x"]}', b"\xff\n", '{"text": "y"}']
    )
    assert [item.text for item in read.items] == ["x", "y"]
    assert [error.line for error in read.errors] == [2, 3, 4, 5]
    assert read.errors[1].reason == "expected a JSON object, found an array"
    assert "question" in read.errors[2].reason
