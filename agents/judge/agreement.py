"""The behaviour of a judge over many votes: by judge, by time, and whether judges agree with each other.

An undefined number is None, never 0. Ties between equal texts are not answers of a judge and are left out.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

from agents.ranking.statistics import vote_stats
from agents.ranking.vote_count import Vote
from schemas.judging import CONTENT_JUDGE, JudgeVote
from schemas.numbers import nine

RUBRIC = 12
"""Characters of a rubric's hash that identify it."""


class TimedVote(NamedTuple):
    """A vote, and when the log took it in, or when its rollout closed (milliseconds)."""

    vote: JudgeVote
    at: int


class JudgeStats(NamedTuple):
    """One judge, or one judge in one span of time."""

    votes: int
    """All votes, including those without an answer."""
    valid: int
    position_consistency: float | None
    """Share of pairs and samples asked in both orders whose two answers agree."""
    first_position_rate: float | None
    """Share of decided votes for the side shown first: 0.5 for a fair judge."""
    tie_rate: float | None
    missing: dict[str, int]
    """Calls without an answer, by cause."""
    mean_latency_ms: float | None
    input_tokens: int
    output_tokens: int
    usd: float | None
    """None if no vote has a cost."""


def judge_stats(votes: Sequence[JudgeVote]) -> JudgeStats:
    """The numbers of some votes of one judge. Branches are counted per rollout: branch 0 of two rollouts is two
    branches.
    """
    unanswered = [vote for vote in votes if vote.preferred is None and vote.score is None]
    indexes: dict[tuple[str, int], int] = {}
    pairs = []
    for vote in votes:
        if vote.b is not None:
            a, b = (indexes.setdefault((vote.rollout_id, side), len(indexes)) for side in (vote.a, vote.b))
            pairs.append(Vote(a, b, vote.order, vote.sample, vote.preferred, vote.judge))
    behaviour = vote_stats(pairs)
    latencies = [vote.latency_ms for vote in votes if vote.latency_ms is not None]
    costs = [vote.usage.usd for vote in votes if vote.usage is not None and vote.usage.usd is not None]
    return JudgeStats(
        votes=len(votes),
        valid=len(votes) - len(unanswered),
        position_consistency=behaviour.position_consistency,
        first_position_rate=behaviour.first_position_rate,
        tie_rate=behaviour.tie_rate,
        missing=dict(sorted(Counter(vote.cause or "unknown" for vote in unanswered).items())),
        mean_latency_ms=nine(sum(latencies) / len(latencies)) if latencies else None,
        input_tokens=sum(vote.usage.input_tokens or 0 for vote in votes if vote.usage is not None),
        output_tokens=sum(vote.usage.output_tokens or 0 for vote in votes if vote.usage is not None),
        usd=nine(sum(costs)) if costs else None,
    )


def naming(votes: Iterable[TimedVote]) -> Callable[[JudgeVote], str]:
    """The key by which votes are grouped: their judge, and also their rubric if a judge has votes for several."""
    rubrics: dict[str, set[str | None]] = defaultdict(set)
    for timed in votes:
        rubrics[timed.vote.judge].add(timed.vote.rubric_hash)

    def name(vote: JudgeVote) -> str:
        if len(rubrics[vote.judge]) < 2:
            return vote.judge
        return f"{vote.judge}, rubric {(vote.rubric_hash or 'unknown')[:RUBRIC]}"

    return name


def by_judge(votes: Sequence[TimedVote], name: Callable[[JudgeVote], str] | None = None) -> dict[str, list[TimedVote]]:
    """Votes by judge (named by `name`), without repeated ids and without ties between equal texts."""
    named = name or naming(votes)
    found: dict[str, dict[str, TimedVote]] = defaultdict(dict)
    for timed in votes:
        if timed.vote.judge != CONTENT_JUDGE:
            found[named(timed.vote)].setdefault(timed.vote.vote_id, timed)
    return {judge: list(found[judge].values()) for judge in sorted(found)}


def buckets(votes: Sequence[TimedVote], count: int) -> list[tuple[int, list[TimedVote]]]:
    """Votes in at most `count` spans of equal length: the start of each, and its votes."""
    if not votes:
        return []
    first, last = min(vote.at for vote in votes), max(vote.at for vote in votes)
    width = max(1, (last - first) // count + 1)
    spans: list[tuple[int, list[TimedVote]]] = [
        (first + number * width, []) for number in range((last - first) // width + 1)
    ]
    for vote in votes:
        spans[(vote.at - first) // width][1].append(vote)
    return spans


def agreement(votes: Mapping[str, Sequence[TimedVote]]) -> float | None:
    """Krippendorff's alpha of the judges over the pairs that more than one of them decided.

    A judge's decision on a pair is what most of its valid votes prefer, a tie if there is no majority: a position bias
    is not an opinion.
    """
    units: dict[Hashable, list[Hashable]] = defaultdict(list)
    for timed in votes.values():
        said: dict[Hashable, Counter[str]] = defaultdict(Counter)
        for vote, _ in timed:
            if vote.b is not None and vote.preferred is not None:
                a, b = sorted((vote.a, vote.b))
                # The texts are part of the question: a pair with another judged text is another pair.
                digests = tuple(sorted((vote.a_digest or "", vote.b_digest or "")))
                winner = {"a": vote.a, "b": vote.b}.get(vote.preferred)
                said[vote.rollout_id, a, b, digests]["tie" if winner is None else "low" if winner == a else "high"] += 1
        for unit, counts in said.items():
            low, high = counts["low"], counts["high"]
            units[unit].append(
                "tie" if low == high or counts["tie"] > max(low, high) else "low" if low > high else "high"
            )
    return krippendorff_alpha(units.values())


def krippendorff_alpha(units: Iterable[Sequence[Hashable]]) -> float | None:
    """Alpha for nominal values; None if nothing was valued twice, or if all values are equal."""
    totals: Counter[Hashable] = Counter()
    observed = 0.0
    for values in units:
        if len(values) < 2:
            continue
        counts = Counter(values)
        totals.update(counts)
        observed += sum(n * (len(values) - n) for n in counts.values()) / (len(values) - 1)
    n = sum(totals.values())
    expected = sum(count * (n - count) for count in totals.values())
    if not expected:
        return None
    return nine(1.0 - (n - 1) * observed / expected)
