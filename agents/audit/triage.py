"""Why a wrong answer is wrong: one label for each wrong row, by predicates that can be checked by hand.

The first label that applies counts. A failure of the format, of the grader or of the token limit is not a failure
of reasoning. Another sample of the same model may be right. `Triage.route` names the failure that is worth
repairing first.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, Final, NamedTuple

from agents.audit.equations import repaired
from agents.audit.eval_row import EvalRow, named
from agents.audit.number_text import Placed, Stated, placed_numbers, plain, stated, value_of
from schemas.numbers import nine

LABELS: Final = (
    "format",
    "extraction",
    "no_output",
    "refused",
    "truncated",
    "arithmetic",
    "self_correction",
    "reasoning",
)
FLAGS: Final = ("goes_on", "loops", "mentioned")

LOTTERY_FROM, REPAIR_FROM = 0.30, 0.15
GOES_ON_FROM: Final = 200
LOOP_TAIL, LONGEST_PERIOD = 300, 100
REFUSAL_WITHIN: Final = 200
CAPPED: Final = frozenset({"length", "max_tokens"})
SPARE_TOKENS: Final = 2
"""An answer counts as cut if it is this close to its token limit."""

_REFUSAL: Final = re.compile(
    r"\b(?:i(?:['\u2019]m| am) (?:sorry|unable)|i (?:can(?:no|['\u2019])t|cannot|won['\u2019]t|will not) "
    r"(?:help|assist|answer|comply|provide|solve|do that)|as an ai(?: language)? model)\b",
    re.IGNORECASE,
)
_AGAIN: Final = re.compile(
    r"\b(?:wait,|let(?:['\u2019]s| me|us) (?:re-?check|redo|re-?calculate|correct|re-?evaluate)|"
    r"i made an? (?:mistake|error)|correction:|on second thought)",
    re.IGNORECASE,
)
_CUT_ENDS: Final = ",:;([{=+-*/×÷\\<$"


class Read(NamedTuple):
    """A row prepared for triage, once."""

    row: EvalRow
    text: str
    """The plain text; empty if nothing was logged."""
    stated: Stated
    expected: Fraction | None
    numbers: list[Placed]

    @property
    def has_marker(self) -> bool:
        """Whether a marker states the answer."""
        return self.stated.marker_end is not None


class Triage(NamedTuple):
    """The triage of a log."""

    n: int
    errors: int
    labels: dict[str, str]
    """The label of each wrong sample."""
    unlabelled: int
    """The number of wrong samples without a logged text. They cannot be labelled."""
    flags: dict[str, dict[str, bool]]
    """The flags of each sample."""
    lottery: "Lottery | None" = None

    @property
    def counts(self) -> dict[str, int]:
        """The number of samples with each label."""
        found = Counter(self.labels.values())
        return {label: found[label] for label in LABELS}

    @property
    def first_class(self) -> int:
        """The number of samples that are wrong for a reason other than reasoning."""
        return len(self.labels) - self.counts["reasoning"]

    @property
    def route(self) -> str:
        """The recommended next step."""
        if self.lottery is not None and self.lottery.n and len(self.lottery.ids) / self.lottery.n >= LOTTERY_FROM:
            return "resample"
        return "repair" if self.n and self.first_class / self.n >= REPAIR_FROM else "reasoning"

    def flagged(self, name: str) -> int:
        """Return the number of samples with a flag."""
        return sum(each[name] for each in self.flags.values())

    def plain(self) -> dict[str, Any]:
        """Return the triage as `--json` prints it."""
        flags = {name: count for name in FLAGS if (count := self.flagged(name))}
        return {
            "n": self.n, "errors": self.errors, "wrong": len(self.labels) + self.unlabelled, "counts": self.counts,
            "labels": self.labels, "flags": flags, "first_class": self.first_class,
            "first_class_rate": nine(self.first_class / self.n) if self.n else None,
            "lottery": None if self.lottery is None else self.lottery.plain(), "route": self.route,
            **({"unlabelled": self.unlabelled} if self.unlabelled else {}),
        }  # fmt: skip


class Lottery(NamedTuple):
    """Repeated samples for items that were answered wrongly: would a majority have been right?"""

    n: int
    ids: tuple[str, ...]
    """Items whose expected answer was given most often, without a tie."""
    tied: int
    """The number of items whose expected answer is tied for most frequent."""
    any: int
    """The number of items with at least one right sample."""

    def plain(self) -> dict[str, Any]:
        """Return the counts as `--json` prints them."""
        rate = nine(len(self.ids) / self.n) if self.n else None
        return {
            "n": self.n,
            "lottery": len(self.ids),
            "tied": self.tied,
            "any": self.any,
            "rate": rate,
            "ids": list(self.ids),
        }


def triage(rows: tuple[EvalRow, ...], lottery: Lottery | None = None) -> Triage:
    """Label the wrong rows of a log."""
    labels, flags, unlabelled = dict[str, str](), dict[str, dict[str, bool]](), 0
    counting = named(rows)
    for name, row in counting:
        read = read_row(row)
        flags[name] = flags_of(read)
        if row.is_wrong:
            label = label_of(read)
            if label is None:
                unlabelled += 1
            else:
                labels[name] = label
    return Triage(len(counting), len(rows) - len(counting), labels, unlabelled, flags, lottery)


def read_row(row: EvalRow) -> Read:
    """Prepare a row for triage."""
    text = plain(row.text or "")
    return Read(row, text, stated(text), _expected(row.expected), placed_numbers(text))


def _expected(text: str | None) -> Fraction | None:
    """Return the expected number. If the target is a whole solution, the number follows its marker."""
    value = value_of(text)
    if value is not None or text is None or "####" not in text:
        return value
    return stated(plain(text)).value


def label_of(read: Read) -> str | None:
    """Return the first label that applies to a wrong row; None if its text was not logged."""
    if _same_answer(read.row, read.expected):
        return "format"
    if read.row.text is None:
        return None
    return next((label for label, holds in _PREDICATES if holds(read)), "reasoning")


def flags_of(read: Read) -> dict[str, bool]:
    """Return the flags of a row, right or wrong."""
    end = read.stated.marker_end
    after = len(read.text.rstrip()) - (end or 0)
    said = read.expected is not None and any(number.value == read.expected for number in read.numbers)
    return {"goes_on": end is not None and after >= GOES_ON_FROM, "loops": _loops(read.text), "mentioned": said}


def _same_answer(row: EvalRow, expected: Fraction | None) -> bool:
    """Whether the grader marked the expected answer as wrong."""
    predicted = value_of(row.predicted)
    if expected is not None or predicted is not None:
        return predicted == expected
    return bool(row.predicted and row.expected and row.predicted.strip() == row.expected.strip() != "")


def _is_extraction(read: Read) -> bool:
    """Whether the text states the expected answer, but the grader extracted another one."""
    if read.expected is None or read.stated.value != read.expected:
        return False
    return read.has_marker or value_of(read.row.predicted) is None


def _is_blank(read: Read) -> bool:
    return not (read.row.text or "").strip()


def _is_refused(read: Read) -> bool:
    return not read.has_marker and _REFUSAL.search(read.row.text or "", 0, REFUSAL_WITHIN) is not None


def _is_truncated(read: Read) -> bool:
    """Whether a text without a marker was truncated. The service's finish reason decides; without it, the tokens;
    without those, the end of the text.
    """
    row = read.row
    if read.has_marker:
        return False
    if row.finish_reason in CAPPED:
        return True
    if row.n_tokens is not None and row.max_tokens is not None:
        return row.n_tokens >= row.max_tokens - SPARE_TOKENS
    return row.finish_reason is None and _has_cut_tail(read.text)


def _is_arithmetic(read: Read) -> bool:
    return read.expected is not None and repaired(read.text, read.expected)


def _has_cut_tail(text: str) -> bool:
    """Whether a text ends in the middle: with a letter, an operator, an open bracket or an open fence."""
    end = text.rstrip()
    if not end:
        return False
    if end.count("```") % 2 or end.count(r"\[") > end.count(r"\]") or end.count(r"\(") > end.count(r"\)"):
        return True
    return end[-1].isalpha() or (end[-1] in _CUT_ENDS and not end.endswith("**"))


def _corrected_itself(read: Read) -> bool:
    """Whether the expected number was the last one before the model revised its answer."""
    ends = [number.end for number in read.numbers]
    before = (bisect_right(ends, again.start()) for again in _AGAIN.finditer(read.text))
    return read.expected is not None and any(
        count and read.numbers[count - 1].value == read.expected for count in before
    )


def _loops(text: str) -> bool:
    end = text.rstrip()
    if len(end) < LOOP_TAIL:
        return False
    tail = end[-LOOP_TAIL:]
    return any(tail[period:] == tail[:-period] for period in range(1, LONGEST_PERIOD + 1))


class Samples(NamedTuple):
    """The answers drawn for one item."""

    id: str
    expected: str | None
    answers: Sequence[str | None]


def lottery_of(samples: Sequence[Samples]) -> Lottery:
    """Count the items whose repeated samples would have been right. Answers that are not numbers abstain."""
    ids, n, tied, some = list[str](), 0, 0, 0
    for each in samples:
        expected = _expected(each.expected)
        if expected is None:
            continue
        n += 1
        counts = Counter(value for answer in each.answers if (value := value_of(answer)) is not None)
        some += expected in counts
        if counts and counts[expected] == max(counts.values()):
            if list(counts.values()).count(counts[expected]) == 1:
                ids.append(each.id)
            else:
                tied += 1
    return Lottery(n, tuple(ids), tied, some)


_PREDICATES: Final[tuple[tuple[str, Callable[[Read], bool]], ...]] = (
    ("extraction", _is_extraction),
    ("no_output", _is_blank),
    ("refused", _is_refused),
    ("truncated", _is_truncated),
    ("arithmetic", _is_arithmetic),
    ("self_correction", _corrected_itself),
)
"""The labels of wrong rows with a text, in order of precedence."""
