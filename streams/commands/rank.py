"""`braid rank`: rankings from verdict and vote lines."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from streams.commands.console_output import complain, print_json
from streams.commands.options import Flag, KeepGoing, SignVerdicts

if TYPE_CHECKING:
    from rich.console import RenderableType

    from streams.cluster.config import Settings
    from streams.jobs.rank import Ranked, Standings


def rank(
    files: Annotated[
        list[Path],
        Parameter(
            help="NDJSON of rollouts, verdicts, votes and events, or rollout-wire/v1 JSONL; - is standard input.",
            allow_leading_hyphen=True,
        ),
    ],
    /,
    *,
    sign_verdicts: SignVerdicts = False,
    keep_going: KeepGoing = False,
    json: Annotated[bool, Flag] = False,
) -> None:
    """Rank the branches of every rollout by their verdicts and votes.

    Needs no events: a branch without them counts as ended. The verdicts that decide are those of the rollout line, else
    of the configuration (build); without a rollout line and without any verdict, there are none and votes alone rank. A
    bad line is reported with its file, line, field and reason, and the other lines are still read.

    Example: `braid rank votes.ndjson --json`

    Parameters
    ----------
    json
        Print one JSON object per rollout.
    """
    from streams.cluster.config import load

    standings, bad_lines = _read(files, load(), vouches=sign_verdicts)
    found = False
    for ranked in standings.rankings():
        found = True
        if json:
            print_json(ranked.as_json())
        else:
            from streams.views.tables import show

            show(*_shown(ranked))
        _mention_ignored(ranked)
    if not found:
        complain("nothing to rank: there is no line about a branch")
    if bad_lines:
        complain(f"{bad_lines:,} bad line{'s' * (bad_lines > 1)} left out")
        if not keep_going:
            sys.exit(1)


def _read(files: list[Path], settings: "Settings", *, vouches: bool) -> tuple["Standings", int]:
    """Fold all lines; returns how many were bad."""
    from agents.importers.line_error import LineError
    from agents.importers.lines import LineReader
    from streams.commands.ingest import report_untrusted
    from streams.jobs.partition_count import total_bytes
    from streams.jobs.rank import Standings
    from streams.jobs.verdict_trust import verdict_trust
    from streams.log.input_lines import check_length, read_lines
    from streams.views.progress import progress

    standings, reader = Standings(settings.emission), LineReader()
    trust = verdict_trust(settings, vouches=vouches)
    size = total_bytes(files)
    bad_lines = read = 0
    with progress() as say:
        for number, line in enumerate(read_lines(files)):
            read += len(line.text) + 1
            if size and number % 5000 == 0:
                say("reading", read / size)
            try:
                check_length(line)
                for fact in map(trust.vouched, reader.read(line.text)):
                    if trust.refusal(line, fact) is None:
                        standings.add(fact)
            except LineError as error:
                bad_lines += 1
                complain(f"{line.place}: {error}")
    report_untrusted(trust.count, trust.first)
    return standings, bad_lines


def _mention_ignored(ranked: "Ranked") -> None:
    """Ignored lines are named, not swallowed."""
    from streams.log.terminal_text import visible

    name = visible(ranked.rollout_id)
    if ranked.out_of_range:
        branches = ", ".join(map(str, ranked.out_of_range))
        complain(f"{name}: not one of its branches, ignored: {branches}")
    if ranked.result.ignored_votes:
        complain(
            f"{name}: {ranked.result.ignored_votes:,} votes ignored: they compare branches of two tiers, "
            "or one whose outcome is unknown"
        )


def _shown(ranked: "Ranked") -> "list[RenderableType]":
    from streams.log.terminal_text import visible
    from streams.views.tables import table

    numbers = ("rank", "95%", "branch", "total", "judge", "score", "se", "beats next", "votes", "missing")
    spare = ("missing", "se", "votes", "judge", "beats next", "score")
    made = table(visible(ranked.rollout_id), *numbers[:3], "objective", *numbers[3:], right=numbers, spare=spare)
    for row in ranked.branches:
        made.add_row(
            _text(row.rank, "d"),
            "-" if row.rank_low is None else f"{row.rank_low}-{row.rank_high}",
            str(row.branch_index),
            row.objective_status,
            _text(row.total, ".3f"),
            _text(row.judge_score, ".2f"),
            _text(row.bt_score, "+.3f"),
            _text(row.se, ".3f"),
            _text(row.p_beats_next, ".1%"),
            str(row.n_comparisons),
            str(row.n_missing),
        )
    return [made, *_stats(ranked), ""]


def _stats(ranked: "Ranked") -> list[str]:
    """The power of the group, and the judge's consistency."""
    stats = ranked.result.stats
    said = [f"{stats.passes} of {stats.n} pass"]
    if stats.pass_rate is not None:
        said[0] += (
            f" ({stats.pass_rate:.0%}, 95% from {_text(stats.wilson_low, '.1%')} to {_text(stats.wilson_high, '.1%')})"
        )
        said.append(
            f"{'powered' if stats.powered else 'not powered'}, differences from {stats.min_detectable_delta_pp} points on show"
        )
    if stats.mcnemar_p is not None:
        said.append(f"McNemar p {stats.mcnemar_p:.3g}")
    lines = ["; ".join(said)]
    scores = [
        f"branch {row.branch_index} {row.judge_scalar:.1f}" for row in ranked.branches if row.judge_scalar is not None
    ]
    if scores:
        lines.append(f"judge, mean scores: {', '.join(scores)}")
    if stats.tie_rate is not None:
        lines.append(
            f"judge: same answer in both orders {_text(stats.position_consistency, '.0%')}, "
            f"first one preferred {_text(stats.first_position_rate, '.0%')}, ties {stats.tie_rate:.0%}"
        )
    return lines


def _text(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
