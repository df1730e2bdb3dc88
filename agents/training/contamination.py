"""Contamination: whether a text repeats a question that models are evaluated on.

`EvalIndex` returns the same as a comparison with every item (`text_overlap.overlap`), but compares only items that
share an 8-gram or enough of their rarest 5-grams with the text: the cost grows with the text, not with the items.
Guaranteed: the same items and text give the same match everywhere, in any order of the items.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from agents.training.text_overlap import CHAR_JACCARD, Grams, OverlapRule, grams, is_long_enough, overlap
from schemas.jsontext import parse_object

LISTED_MORE = 8
"""The more 5-grams of an item are listed beyond the necessary (a share of one in so many), the longer the lists and the
fewer the comparisons."""

QUESTION_FIELDS = ("question", "prompt", "text", "task")
"""Fields of an items file that may contain the question; the first one present counts."""

Gram = TypeVar("Gram", bound=Hashable)


class EvalItem(NamedTuple):
    """A question that models are evaluated on."""

    id: str
    text: str


class Match(NamedTuple):
    """The item that a text repeats."""

    item_id: str
    rule: OverlapRule
    score: float
    """The value of the measure, 0..1."""


class EvalIndex:
    """The evaluation items, indexed so that a text finds the ones that it may repeat."""

    def __init__(self, items: Iterable[tuple[str, str]]) -> None:
        self.skipped = 0
        """Items too short to be distinguished from chance."""
        self._ids: list[str] = []
        self._grams: list[Grams] = []
        for item_id, text in sorted(items):
            if is_long_enough(text):
                self._ids.append(item_id)
                self._grams.append(grams(text))
            else:
                self.skipped += 1
        self._by_words = _inverted((index, each.words) for index, each in enumerate(self._grams))
        self._word_grams = frozenset(self._by_words)
        self._bands = tuple(_bands({index: each.characters for index, each in enumerate(self._grams)}))
        self._most = max((_longest_similar(band.largest) for band in self._bands), default=0)

    def __len__(self) -> int:
        """The number of items in use."""
        return len(self._ids)

    def check(self, text: str) -> Match | None:
        """The item that a text repeats most: the highest score, then the lowest id; None if it repeats none."""
        found = grams(text, self._most)
        best: Match | None = None
        for index in sorted(self._candidates(found)):
            result = overlap(self._grams[index], found)
            if result is not None and (best is None or result[1] > best.score):
                best = Match(self._ids[index], *result)
        return best

    def _candidates(self, text: Grams) -> set[int]:
        """Every item that could reach a threshold, and few others."""
        candidates = set(chain.from_iterable(self._by_words[gram] for gram in text.words & self._word_grams))
        for band in self._bands:
            candidates.update(band.similar(text.characters))
        return candidates


class _Band(NamedTuple):
    """Items of similar length, by their rarest 5-grams."""

    smallest: int
    largest: int
    """The number of 5-grams of the longest item."""
    by_gram: dict[str, tuple[int, ...]]
    """The items that list a 5-gram as one of their rarest."""
    grams: frozenset[str]
    bounds: dict[int, int]
    """For each item, what it adds to the bound in `similar`."""
    lowest: int
    """The smallest of those."""

    def similar(self, text: frozenset[str]) -> Iterator[int]:
        """Every item that could be similar to a text, and few others.

        Of n and m 5-grams s are shared, s / (n + m - s) >= t, if and only if s >= (n + m) t / (1 + t); of those, all but the
        unlisted must be among the listed ones. The bound is first tried on everything that the text shares with the
        whole band: most texts share too little with every item.
        """
        (least, of), size = CHAR_JACCARD, len(text)
        if not (self.smallest <= _longest_similar(size) and size <= _longest_similar(self.largest)):
            return
        shared = text & self.grams
        if (least + of) * len(shared) < least * size + self.lowest:
            return
        for index, count in Counter(chain.from_iterable(map(self.by_gram.__getitem__, shared))).items():
            if (least + of) * count >= least * size + self.bounds[index]:
                yield index


def _bands(items: dict[int, frozenset[str]]) -> Iterator[_Band]:
    """All items, in bands within which every two lengths could still be similar."""
    by_size = sorted(items, key=lambda index: len(items[index]))
    while by_size:
        smallest = len(items[by_size[0]])
        members = [index for index in by_size if len(items[index]) <= _longest_similar(smallest)]
        by_size = by_size[len(members) :]
        frequency = Counter(chain.from_iterable(items[index] for index in members))
        rarest = {index: _rarest(items[index], frequency) for index in members}
        by_gram = _inverted(rarest.items())
        bounds = {index: _bound(len(items[index]), len(rare)) for index, rare in rarest.items()}
        yield _Band(smallest, len(items[members[-1]]), by_gram, frozenset(by_gram), bounds, min(bounds.values()))


def _rarest(item: frozenset[str], frequency: Counter[str]) -> list[str]:
    """The rarest 5-grams of an item, enough of them that a similar text has at least one.

    A similar text has at least `needed` of the item's 5-grams. A similar text lacks at most the other 5-grams of the
    item, so it has at least one of these.
    """
    needed = _shared_by_similar(len(item))
    listed = len(item) - needed + max(1, needed // LISTED_MORE)
    return sorted(item, key=lambda gram: (frequency[gram], gram))[:listed]


def _bound(size: int, listed: int) -> int:
    """The amount that an item of so many 5-grams, so many of them listed, adds to the bound in `_Band.similar`."""
    least, of = CHAR_JACCARD
    return least * size - (least + of) * (size - listed)


def _shared_by_similar(size: int) -> int:
    """How many of so many 5-grams a similar text has at least."""
    least, of = CHAR_JACCARD
    return -(-least * size // of)


def _longest_similar(size: int) -> int:
    """The most 5-grams of a text that is similar to a text with `size` of them."""
    least, of = CHAR_JACCARD
    return of * size // least


def _inverted(collections: Iterable[tuple[int, Iterable[Gram]]]) -> dict[Gram, tuple[int, ...]]:
    """For each gram, the items that have it."""
    index: dict[Gram, list[int]] = defaultdict(list)
    for position, collection in collections:
        for gram in collection:
            index[gram].append(position)
    return {gram: tuple(positions) for gram, positions in index.items()}


class LineError(NamedTuple):
    """A line of an items file that could not be used."""

    line: int
    """Counted from 1."""
    reason: str


class ItemsRead(NamedTuple):
    """The content of an items file."""

    items: tuple[EvalItem, ...]
    errors: tuple[LineError, ...]


def read_items(lines: Iterable[str | bytes]) -> ItemsRead:
    """Read JSON lines of {id, question | prompt | text | task}. A bad line is reported and does not stop the others."""
    items: list[EvalItem] = []
    errors: list[LineError] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            items.append(_item(parse_object(line), number))
        except ValueError as error:
            errors.append(LineError(number, str(error)))
    return ItemsRead(tuple(items), tuple(errors))


def _item(fields: dict[str, Any], number: int) -> EvalItem:
    """An item without an id is called by its line."""
    text = next((fields[name] for name in QUESTION_FIELDS if fields.get(name)), None)
    if not isinstance(text, str):
        raise ValueError(f"no text in any of the fields {', '.join(QUESTION_FIELDS)}")  # noqa: TRY004 - one kind of bad line
    given = fields.get("id")
    return EvalItem(f"line-{number}" if given is None else str(given), text)
