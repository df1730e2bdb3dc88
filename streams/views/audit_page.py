"""Comparisons and triage for people: differences of protocol first, numbers below."""

from typing import TYPE_CHECKING, Any

from agents.audit.comparison import warnings
from agents.audit.triage import FLAGS
from streams.log.terminal_text import visible
from streams.views.tables import table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from agents.audit.comparison import Comparison
    from agents.audit.eval_row import EvalLog
    from agents.audit.triage import Triage

SHOWN = 20
"""Labelled rows that people are shown of each label."""

VERDICTS = {
    "not_shown": "NOT SHOWN: these items do not show that B is better or worse than A.",
    "b_better": "B is better than A.",
    "a_better": "A is better than B.",
}


def comparison_page(found: "Comparison", numbers: dict[str, Any], claim: float) -> "list[RenderableType]":
    """The page of one comparison."""
    a, b = found.a.log, found.b.log
    lines: list[RenderableType] = [visible(f"A: {a.name}"), visible(f"B: {b.name}")]
    lines += [
        visible(f"  only the filter {log.filter} counts, not {', '.join(log.other_filters)}")
        for log in (a, b)
        if log.other_filters
    ]
    told = warnings(found)
    lines += ["", "Read this first:", *(visible(f"  {each}") for each in told)] if told else []
    lines += ["", VERDICTS[numbers["verdict"]], *_why(numbers, claim)]
    made = table("", "", "A", "B", right=("A", "B"))
    for name, key in (("right", "correct"), ("rate", "rate")):
        made.add_row(name, *(_text(numbers[side][key]) for side in ("a", "b_side")))
    made.add_row("95 %", *(_range(numbers[side]["wilson"]) for side in ("a", "b_side")))
    made.add_row("rows left out: errors", *(f"{numbers['errors'][side]:,}" for side in ("a", "b")))
    made.add_row("items only here", *(f"{numbers['only_in'][side]:,}" for side in ("a", "b")))
    for side in (made,):
        lines += ["", side]
    return [*lines, "", *_numbers(numbers), *_arms(numbers), ""]


def _why(numbers: dict[str, Any], claim: float) -> list[str]:
    """Why the verdict is no stronger."""
    lines = []
    if numbers["delta_ci"] is not None:
        low, high = numbers["delta_ci"]
        lines.append(f"  B - A is {numbers['delta']:+.2%}, 95 % from {low:+.2%} to {high:+.2%}.")
    if numbers["powered"] is False:
        least = numbers["min_detectable"]
        shown = "no difference" if least is None else f"no difference below {least:.2%}"
        lines.append(
            f"  {numbers['n']:,} items show {shown}; the claim would be {claim:.2%}. `braid audit power` says how many it takes."
        )
    return lines


def _numbers(numbers: dict[str, Any]) -> list[str]:
    lines = [f"{numbers['n']:,} items that both answered"]
    if numbers["mcnemar"] is not None:
        lines[0] += (
            f": {numbers['both']:,} both right, {numbers['b']:,} only A, {numbers['c']:,} only B, {numbers['neither']:,} neither"
        )
        lines.append(f"McNemar p {numbers['mcnemar']['exact']:.4g} exact, {numbers['mcnemar']['mid_p']:.4g} mid-p")
    if numbers["bootstrap"] is not None:
        found = numbers["bootstrap"]
        lines.append(f"bootstrap ({found['method']}): {found['low']:+.4f} to {found['high']:+.4f}, p {found['p']:.4g}")
    if "sign_flip_p" in numbers:
        lines.append(f"sign flips p {numbers['sign_flip_p']:.4g}; standard error by item {_text(numbers['se'])}")
    if "holm" in numbers:
        lines.append(
            f"corrected for several candidates: Holm {_text(numbers['holm'])}, Benjamini-Hochberg {_text(numbers['bh'])}"
        )
    return lines


def _arms(numbers: dict[str, Any]) -> list[str]:
    if "arms" not in numbers:
        return []
    return [
        f"{side}: "
        + ", ".join(
            f"{name} {_text(value)}" for name, value in numbers["arms"][side].items() if not isinstance(value, dict)
        )
        for side in ("a", "b")
    ]


def triage_page(log: "EvalLog", found: "Triage") -> "list[RenderableType]":
    """The page of one triage."""
    numbers = found.plain()
    made = table("", "why", "rows", "which", right=("rows",))
    for label, count in numbers["counts"].items():
        ids = [name for name, own in found.labels.items() if own == label]
        more = f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else ""
        made.add_row(label, f"{count:,}", visible(", ".join(ids[:SHOWN]) + more))
    wrong = f"{numbers['wrong']:,} of {found.n:,} rows are wrong, {found.errors:,} are errors and count nowhere"
    lines: list[RenderableType] = [visible(f"{log.name}: {wrong}"), "", made, ""]
    lines += [f"{name}: {found.flagged(name):,} of {found.n:,} rows" for name in FLAGS]
    if found.unlabelled:
        lines.append(f"without a label, because no text was logged: {found.unlabelled:,}")
    if found.lottery is not None:
        lines.append(f"a majority of new samples is right for {len(found.lottery.ids):,} of {found.lottery.n:,} items")
    return [*lines, f"next: {NEXT[found.route]}"]


NEXT = {
    "resample": "sample again and take the majority: the model knows more than it shows once",
    "repair": "repair formats, caps and extraction first: many wrong answers are no failures of reasoning",
    "reasoning": "train on reasoning: few wrong answers have another cause",
}


def _text(value: float | None) -> str:
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _range(found: list[float] | None) -> str:
    return "-" if found is None else f"{found[0]:.3f} to {found[1]:.3f}"
