"""How fast rows are checked against evaluation items, beside comparing every row with every item.

    python benchmarks/contamination.py [--rows 100000] [--items 1000] [--sample 300]

Rows are about 1 KB; one in twenty repeats an item: word for word, disguised, in part, or inside something longer. The plain
rule runs on a sample of the same rows in the same run, and the answers of the two must be equal. Seconds are of processor
time, on one core.
"""

import argparse
import re
import sys
import time
import unicodedata
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from agents.training.contamination import EvalIndex, EvalItem
from agents.training.text_overlap import folded

SEED = 7
ROW_CHARACTERS = 1024
BAR_SECONDS = 120
OPENINGS = (
    "Write a function that",
    "How many",
    "What is the smallest number of",
    "Given an array of integers, find the",
)
DISGUISE = str.maketrans({"a": "а", "e": "е", "o": "ο", "i": "i\u200b", "t": "Ｔ"})  # noqa: RUF001 - that is what it is for


class Sets(NamedTuple):
    """The sets that the plain rule compares."""

    id: str
    words: set[tuple[str, ...]]
    characters: set[str]


def vocabulary(random: Random) -> list[str]:
    """Made-up words, the frequent ones first and shorter."""
    syllables = [a + b for a in "bcdfghklmnprstvw" for b in ("a", "e", "i", "o", "u", "er", "in", "an", "st")]
    return ["".join(random.choices(syllables, k=1 + min(3, i.bit_length() // 4))) for i in range(8000)]


class Corpus:
    """Rows and items of one made-up language."""

    def __init__(self, n_items: int) -> None:
        self.random = Random(SEED)
        self.words = vocabulary(self.random)
        self.weights = [1 / (rank + 5) for rank in range(len(self.words))]
        self.items = [
            EvalItem(f"q{i:04}", f"{self.random.choice(OPENINGS)} {self.sentence(self.random.randint(12, 60))}?")
            for i in range(n_items)
        ]

    def sentence(self, length: int) -> str:
        """Words as often as their rank says."""
        return " ".join(self.random.choices(self.words, self.weights, k=length))

    def rows(self, count: int) -> Iterator[str]:
        """Rows of about 1 KB, some of which repeat an item."""
        for i in range(count):
            text = self.sentence(220)[:ROW_CHARACTERS]
            yield text if i % 20 else self.repeating(text, i // 20)

    def repeating(self, text: str, which: int) -> str:
        """A row that repeats an item, in one of the ways in which rows do."""
        question = self.items[which % len(self.items)].text
        half = len(question) // 2
        return [
            question,
            question.upper(),
            question.translate(DISGUISE),
            f"{text[:400]} {question} {text[400:]}",
            question[:half] + question[half + 12 :],
            f"{text} {question[:half]}",
        ][which % 6]


def plain_sets(item_id: str, text: str) -> Sets:
    """The grams, written down as the rule says them."""
    form = folded(text)
    words = re.findall(r"\w+", form)
    return Sets(
        item_id,
        {tuple(words[i : i + 8]) for i in range(len(words) - 7)},
        {form[i : i + 5] for i in range(len(form) - 4)},
    )


def plain_check(items: list[Sets], text: str) -> tuple[str, Fraction] | None:
    """Every item, every measure."""
    row = plain_sets("", text)
    found: list[tuple[Fraction, str]] = []
    for item in items:
        words = len(item.words & row.words)
        characters = Fraction(len(item.characters & row.characters), len(item.characters | row.characters))
        for value, least in (
            (Fraction(words, len(item.words | row.words) or 1), Fraction(1, 5)),
            (Fraction(words, len(item.words) or 1), Fraction(4, 5)),
            (characters, Fraction(7, 10)),
        ):
            if value >= least:
                found.append((-value, item.id))
    return (min(found)[1], -min(found)[0]) if found else None


def main() -> None:
    """Measure, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--items", type=int, default=1_000)
    parser.add_argument("--sample", type=int, default=300)
    options = parser.parse_args()

    corpus = Corpus(options.items)
    started = time.process_time()
    index = EvalIndex(corpus.items)
    building = time.process_time() - started

    sample: list[str] = []
    ours, flagged = 0.0, 0
    for i, row in enumerate(corpus.rows(options.rows)):
        started = time.process_time()
        match = index.check(row)
        ours += time.process_time() - started
        flagged += match is not None
        if i < options.sample:
            sample.append(row)

    items = [plain_sets(*item) for item in corpus.items]
    started = time.process_time()
    expected = [plain_check(items, row) for row in sample]
    plain = time.process_time() - started
    answers = [(match.item_id, match.score) if (match := index.check(row)) else None for row in sample]
    equal = answers == [(answer[0], float(answer[1])) if answer else None for answer in expected]

    print(
        f"Python {sys.version.split()[0]}, Unicode {unicodedata.unidata_version}; {len(index)} items, index built in {building:.2f} s\n"
    )
    print("| check               |   rows | seconds | ms a row | 100,000 rows |")
    print("|---------------------|-------:|--------:|---------:|-------------:|")
    for name, rows, seconds in (("with the index", options.rows, ours), ("every pair, plainly", len(sample), plain)):
        each = seconds / rows
        print(f"| {name:<19} | {rows:>6} | {seconds:>7.2f} | {each * 1e3:>8.3f} | {each * 1e5:>10.0f} s |")
    print(
        f"\n{flagged} of {options.rows} rows repeat an item; on the sample of {len(sample)} both find the same: {equal}"
    )
    print(f"bar: 100,000 rows under {BAR_SECONDS} s: {'kept' if ours / options.rows * 1e5 < BAR_SECONDS else 'MISSED'}")
    sys.exit(0 if equal else 1)


if __name__ == "__main__":
    main()
