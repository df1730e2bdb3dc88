"""Pages about a judge: tables with bars, and the same numbers as JSON."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType

from agents.judge.agreement import JudgeStats, TimedVote, agreement, buckets, by_judge, judge_stats
from schemas.judging import JudgeVote
from streams.cluster.judge_client import Budget
from streams.jobs.judge.again import Judged
from streams.jobs.judge.asker import Spent
from streams.jobs.judge.calibration import Calibration, Drift
from streams.log.terminal_text import line, moment, several
from streams.views.tables import table

WIDTH = 10
"""Characters of a bar."""

SHARES = ("same in both orders", "first preferred", "ties")
"""Columns with bars."""

REASONS = 3
"""Different reasons for missing answers that are shown; the others are only counted."""


def stats_json(votes: Sequence[TimedVote], spans: int) -> dict[str, Any]:
    """The values of `braid judge stats`."""
    judges = by_judge(votes)
    return {
        "judges": {
            name: judge_stats([each.vote for each in found])._asdict()
            | {
                "judge": found[0].vote.judge,
                "rubric_hash": found[0].vote.rubric_hash,
                "over_time": [
                    {"from_ms": at, **judge_stats([each.vote for each in inside])._asdict()}
                    for at, inside in buckets(found, spans)
                ],
            }
            for name, found in judges.items()
        },
        "krippendorff_alpha": agreement(judges),
    }


def stats_page(votes: Sequence[TimedVote], spans: int) -> list[RenderableType]:
    """The same for people."""
    judges = by_judge(votes)
    if not judges:
        return ["No votes of a judge yet."]
    shown: list[RenderableType] = [
        _rows("Judges", [(line(name), [each.vote for each in found]) for name, found in judges.items()])
    ]
    for name, found in judges.items():
        parts = [(moment(at), [each.vote for each in inside]) for at, inside in buckets(found, spans)]
        if len(parts) > 1:
            shown += ["", _rows(f"{line(name)} over time", parts)]
    alpha = agreement(judges)
    if len(judges) > 1:
        said = "not defined: no pair was decided by two of them" if alpha is None else f"{alpha:.3f}"
        shown += ["", f"Agreement between judges (Krippendorff's alpha, nominal): {said}"]
    return shown


def _rows(title: str, groups: Sequence[tuple[str, Sequence[JudgeVote]]]) -> RenderableType:
    numbers = ("votes", "latency", "tokens in", "out", "USD")
    made = table(
        title, "", "votes", *SHARES, "no answer", *numbers[1:],
        right=numbers, whole=SHARES, spare=("out", "tokens in", "latency", "ties", "USD", "first preferred"),
    )  # fmt: skip
    for name, votes in groups:
        stats = judge_stats(votes)
        made.add_row(
            name,
            f"{stats.votes:,}",
            share(stats.position_consistency),
            share(stats.first_position_rate),
            share(stats.tie_rate),
            ", ".join(f"{cause} {count}" for cause, count in stats.missing.items()) or "-",
            "-" if stats.mean_latency_ms is None else f"{stats.mean_latency_ms:,.0f} ms",
            f"{stats.input_tokens:,}",
            f"{stats.output_tokens:,}",
            cost(stats),
        )
    return made


def share(value: float | None) -> str:
    """A share as a bar and a number."""
    if value is None:
        return "-"
    full = round(value * WIDTH)
    return f"{'█' * full}{'░' * (WIDTH - full)} {value:.0%}"


def cost(stats: JudgeStats) -> str:
    """The cost of calls, if votes record it."""
    return "-" if stats.usd is None else f"{stats.usd:.4f}"


def probe_page(votes: Sequence[JudgeVote], whys: Mapping[str, str]) -> list[RenderableType]:
    """The answers about one pair; `whys` has, by vote, why there is no answer."""
    made = table("", "shown first", "preferred", "why", "latency", right=("latency",))
    for vote in votes:
        said = vote.preferred or f"no answer: {vote.cause}"
        why = vote.reasoning or whys.get(vote.vote_id) or "-"
        made.add_row(vote.order[0], said, line(why, 300), f"{vote.latency_ms or 0:,} ms")
    stats = judge_stats(votes)
    used = f"{several(stats.input_tokens, 'token')} in, {stats.output_tokens:,} out, USD {cost(stats)}"
    return [made, f"judge {line(votes[0].judge)}: {used}"]


def calibration_page(found: Calibration, changed: Drift | None) -> list[RenderableType]:
    """How often the judge was right, and what changed."""
    plain = found.plain()
    missing = ", ".join(f"{cause} {count}" for cause, count in found.stats.missing.items())
    counts = (
        f"{several(plain['pairs'], 'pair')}; {plain['right']} right, {plain['wrong']} wrong, "
        f"{plain['undecided']} undecided, {plain['missing']} without an answer{f' ({missing})' if missing else ''}"
    )
    lines: list[RenderableType] = [
        f"judge {line(found.judge)}: {counts}",
        f"accuracy            {share(plain['accuracy'])}"
        + ("" if plain["accuracy"] is None else f" (95%: {plain['accuracy_low']:.0%} to {plain['accuracy_high']:.0%})"),
        f"same in both orders {share(found.stats.position_consistency)}",
        f"first preferred     {share(found.stats.first_position_rate)}",
    ]
    if changed is not None:
        other = "" if changed.same_question else " (another judge or rubric)"
        lines.append(
            f"against earlier{other}: accuracy {share(changed.accuracy_before)} -> {share(changed.accuracy_now)} over "
            f"{several(changed.pairs, 'pair')}, {len(changed.changed)} changed, McNemar p {changed.mcnemar_p:.3g}"
        )
        lines += [f"  {line(name)}: {how}" for name, how in list(changed.changed.items())[:20]]
    return lines


def again_page(counts: Judged, spent: Spent, budget: Budget) -> list[RenderableType]:
    """The outcome and the usage of judging again."""
    made = table("", "what", "count", right=("count",))
    labels = {
        "judged": "rollouts judged", "there": "rollouts judged before", "unfinished": "unfinished rollouts",
        "cancelled": "cancelled rollouts, left alone", "open": "rollouts not closed yet", "sft": "SFT rows", "dpo": "DPO rows",
        "ppo": "PPO rows",
    }  # fmt: skip
    for name, label in labels.items():
        made.add_row(label, f"{getattr(counts, name):,}")
    return [made, spent_line(spent, budget)]


def reason_lines(spent: Spent) -> list[str]:
    """Why answers are missing, the most frequent reasons first. Commands with a budget report that it is spent."""
    counted = Counter({reason: count for reason, count in spent.reasons.items() if reason[0] != "budget"})
    told = counted.most_common(REASONS)
    rest = counted.total() - sum(count for _, count in told)
    lines = [f"no answer to {several(count, 'call')}: {cause}{why and f': {why}'}" for (cause, why), count in told]
    return [*lines, f"no answer to {several(rest, 'call')} for other reasons"] if rest else lines


def spent_line(spent: Spent, budget: Budget) -> str:
    """The questions to a judge and its usage, in a sentence."""
    missing = ", ".join(f"{cause} {count:,}" for cause, count in sorted(spent.missing.items()))
    return (
        f"judge {line(spent.judge)}: {several(budget.calls, 'call')}, {several(spent.asked, 'vote')} asked for"
        f"{f' (no answer: {missing})' if missing else ''}, {spent.known:,} known before; {spent.input_tokens:,} tokens in, "
        f"{spent.output_tokens:,} out, USD {'-' if spent.usd is None else f'{spent.usd:.4f}'}"
        f"{f'; it judged work of its own model in {spent.own_work:,} rollouts' if spent.own_work else ''}"
    )
