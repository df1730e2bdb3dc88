"""Calibration: a judge is asked about pairs for which the better side is known.

A golden file has one JSON object per line: {"task": "...", "better": "...", "worse": "..."}, with an optional `id` and
`shared_prefix`. The texts decide which of the two is the request's a, so a judge with a favourite letter gains nothing.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from agents.judge.agreement import JudgeStats, judge_stats
from agents.judge.judged_text import fitting, judged_branch
from agents.judge.requests import rubric_hash
from agents.ranking.statistics import mcnemar, wilson
from schemas.codec.body import first_problem
from schemas.emission import JudgeConfig
from schemas.errors import BraidError
from schemas.jsontext import parse_object
from schemas.judging import JudgeRequest, JudgeVote
from schemas.numbers import nine
from streams.jobs.judge.asker import Asker


class GoldenError(BraidError):
    """A golden file or an earlier result that cannot be used."""


class GoldenPair(BaseModel):
    """Two texts, and which of them is better."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = ""
    task: str
    better: str = Field(min_length=1)
    worse: str = Field(min_length=1)
    shared_prefix: str = ""

    @model_validator(mode="after")
    def _differ(self) -> Self:
        if self.better == self.worse:
            raise ValueError("better and worse are the same text: no answer about them can be right")
        return self


Outcome = Literal["right", "wrong", "undecided", "missing"]
"""The outcome of a judge's votes about a pair; missing if there was no usable answer at all."""


class Calibration(NamedTuple):
    """The outcome."""

    judge: str
    rubric_hash: str
    outcomes: dict[str, Outcome]
    """By pair."""
    stats: JudgeStats

    def accuracy(self) -> float | None:
        """Share of the pairs with an answer that were right; an undecided one is not right."""
        known = [outcome for outcome in self.outcomes.values() if outcome != "missing"]
        return nine(known.count("right") / len(known)) if known else None

    def plain(self) -> dict[str, Any]:
        """As `--json` prints and `--save` keeps it."""
        counts = Counter(self.outcomes.values())
        known = sum(counts.values()) - counts["missing"]
        low, high = wilson(counts["right"], known) if known else (None, None)
        return {
            "judge": self.judge,
            "rubric_hash": self.rubric_hash,
            "pairs": len(self.outcomes),
            **{name: counts[name] for name in ("right", "wrong", "undecided", "missing")},
            "accuracy": self.accuracy(),
            "accuracy_low": None if low is None else nine(low),
            "accuracy_high": None if high is None else nine(high),
            "stats": self.stats._asdict(),
            "outcomes": self.outcomes,
        }


def read_golden(path: Path) -> list[GoldenPair]:
    """The pairs of a file. Raises GoldenError with the line and the reason."""
    pairs: dict[str, GoldenPair] = {}
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise GoldenError(f"{path}: {error.strerror}") from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            pair = GoldenPair.model_validate(parse_object(line))
        except ValidationError as error:
            raise GoldenError(f"{path}:{number}: {first_problem(error)}") from None
        except ValueError as error:
            raise GoldenError(f"{path}:{number}: {error}") from None
        name = pair.id or f"line-{number}"
        if name in pairs:
            raise GoldenError(f"{path}:{number}: id: {name} is there twice")
        pairs[name] = pair.model_copy(update={"id": name})
    if not pairs:
        raise GoldenError(f"{path} holds no pair; a line is {{task, better, worse}}")
    return list(pairs.values())


def golden_request(pair: GoldenPair, config: JudgeConfig, samples: int) -> tuple[JudgeRequest, str]:
    """The request about a pair, and which of its sides is the better one. Raises GoldenError for texts that a judge sees as one."""
    better, worse = (judged_branch(0, text, config.max_text_bytes) for text in (pair.better, pair.worse))
    if better.digest == worse.digest:
        raise GoldenError(
            f"pair {pair.id!r}: redacted and cut to {config.max_text_bytes} bytes, the two texts are the same; a judge could not tell "
            "them apart (emission.judge.max_text_bytes is the limit)"
        )
    swapped = better.digest > worse.digest
    a, b = (worse, better) if swapped else (better, worse)
    request = JudgeRequest(
        request_id=f"golden/{pair.id}"[:256],
        rollout_id=f"golden/{pair.id}"[:256],
        settled_id="golden",
        task=fitting(pair.task, config.max_text_bytes),
        shared_prefix=fitting(pair.shared_prefix, config.max_text_bytes),
        a=a,
        b=b.model_copy(update={"branch_index": 1}),
        samples=samples,
        rubric=config.rubric,
        rubric_hash=rubric_hash(config.rubric),
    )
    return request, "b" if swapped else "a"


async def calibrate(asker: Asker, pairs: Sequence[GoldenPair], config: JudgeConfig, *, samples: int) -> Calibration:
    """Ask about every pair in both orders."""
    asked = [golden_request(pair, config, samples) for pair in pairs]
    votes = await asker.votes([request for request, _ in asked])
    outcomes = {
        pair.id: outcome(found, better) for pair, (_, better), found in zip(pairs, asked, votes, strict=True)
    }  # fmt: skip
    return Calibration(
        asker.spent.judge,
        rubric_hash(config.rubric),
        outcomes,
        judge_stats([vote for found in votes for vote in found]),
    )


def outcome(votes: Sequence[JudgeVote], better: str) -> Outcome:
    """The joint outcome of a judge's votes about a pair."""
    said = [vote.preferred for vote in votes if vote.preferred is not None]
    if not said:
        return "missing"
    right = said.count(better)  # type: ignore[arg-type]  # a or b
    wrong = len(said) - said.count("tie") - right
    return "right" if right > max(wrong, said.count("tie")) else "wrong" if wrong > right else "undecided"


class Earlier(BaseModel):
    """The part of a saved result (`--save`) that a comparison needs."""

    model_config = ConfigDict(frozen=True)

    judge: str
    rubric_hash: str
    outcomes: dict[str, Outcome] = Field(min_length=1)


def read_earlier(path: Path) -> Earlier:
    """An earlier result. Raises GoldenError if the file has other content."""
    try:
        return Earlier.model_validate(parse_object(path.read_bytes()))
    except OSError as error:
        raise GoldenError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        what = first_problem(error) if isinstance(error, ValidationError) else str(error)
        raise GoldenError(f"{path}: not a result of `braid judge calibrate --save`: {what}") from None


class Drift(NamedTuple):
    """The changes since an earlier calibration, over the pairs that both have an answer for."""

    pairs: int
    accuracy_before: float | None
    accuracy_now: float | None
    changed: dict[str, str]
    """By pair: the outcome then and now."""
    mcnemar_p: float
    """Exact p of as many pairs turning right or wrong by chance."""
    same_question: bool
    """Whether judge and rubric are the same."""


def drift(before: Earlier, now: Calibration) -> Drift:
    """Compare with the results stored by `--save`."""
    earlier = before.outcomes
    # A judge that could not be reached has not become worse: pairs without an answer are left out.
    both = [name for name in now.outcomes if "missing" not in (now.outcomes[name], earlier.get(name, "missing"))]
    was, is_now = ([found[name] == "right" for name in both] for found in (earlier, now.outcomes))
    turned = list(zip(was, is_now, strict=True))
    return Drift(
        pairs=len(both),
        accuracy_before=nine(sum(was) / len(both)) if both else None,
        accuracy_now=nine(sum(is_now) / len(both)) if both else None,
        changed={name: f"{earlier[name]} -> {now.outcomes[name]}" for name in both if earlier[name] != now.outcomes[name]},
        mcnemar_p=nine(mcnemar(turned.count((True, False)), turned.count((False, True)))),
        same_question=(before.judge, before.rubric_hash) == (now.judge, now.rubric_hash),
    )  # fmt: skip
