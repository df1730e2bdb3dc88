"""`braid audit compare`, and the numbers of it alone: `power`, `adjust`, `conformal`."""

import sys
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from schemas.errors import BraidError
from streams.commands.audit.log_audit import with_log
from streams.commands.console_output import complain, print_json
from streams.commands.numbers import number
from streams.commands.options import Json, LogFlags

if TYPE_CHECKING:
    from agents.audit.comparison import Side


class AuditError(BraidError):
    """A question to an audit that makes no sense."""


@dataclass(frozen=True, kw_only=True)
class CompareFlags(LogFlags):
    """The options of `braid audit compare`."""

    by: str | None = None
    """label.NAME: compare the arms of an experiment in the log; each value of the label is one."""
    base: str | None = None
    """The arm that the others are compared with; by default the first in the order of their names."""
    filter: str | None = None
    """Of samples of lm-eval: the filter whose rows count, instead of the first."""
    metric: str | None = None
    """Of samples of lm-eval the metric, of Inspect the scorer, instead of the first."""
    claim: Annotated[float, number("--claim", 0, 1)] = 0.05
    """The difference to show: `powered` is whether so many items could show it."""
    json: Json = False


def compare(
    files: Annotated[list[Path] | None, Parameter(help="Evaluation logs; the first is the base.")] = None,
    /,
    *,
    flags: CompareFlags = CompareFlags(),
) -> None:
    """Compare evaluation logs item by item: how certain a difference is, and whether both were asked the same way.

    Reads samples of lm-eval, logs of Inspect (.eval, .json), {results: [..]} of a script, and lines of {id, correct or score}.
    Differences of protocol come before the numbers. With --by, the arms are branches of the log with another label.

    Example: `braid audit compare base.jsonl candidate.jsonl`
    """
    from agents.audit.adjustment import benjamini_hochberg, holm
    from agents.audit.comparison import compare as run
    from agents.audit.comparison import comparison_json, corrected

    if files and flags.by is not None:
        raise AuditError("--by compares arms of the log, and takes no files")
    sides, arms = _arms(flags) if flags.by is not None else (_logs(files or [], flags), None)
    found = [run(sides[0], each) for each in sides[1:]]
    by_holm, by_bh = corrected(found, holm), corrected(found, benjamini_hochberg)
    made = [comparison_json(each, p, flags.claim) for each, p in zip(found, by_holm, strict=True)]
    if len(made) > 1:
        for each, first, second in zip(made, by_holm, by_bh, strict=True):
            each |= {"holm": first, "bh": second}
    if arms is not None:
        base, *others = arms.values()
        for each, arm in zip(made, others, strict=True):
            each["arms"] = {"a": base, "b": arm}
    if flags.json:
        print_json({"comparisons": made} if len(made) > 1 else made[0])
    else:
        from streams.views.audit_page import comparison_page
        from streams.views.tables import show

        for comparison, numbers in zip(found, made, strict=True):
            show(*comparison_page(comparison, numbers, flags.claim))
    if any(side.log.bad for side in sides):
        sys.exit(1)


def _logs(files: list[Path], flags: CompareFlags) -> "list[Side]":
    from agents.audit.comparison import Side
    from agents.audit.eval_shapes import Choice
    from streams.jobs.audit.eval_files import bad_rows, read_eval_log

    if len(files) < 2:
        raise AuditError("give two logs or more to compare, or --by label.NAME for arms of the log")
    logs = [read_eval_log(path, Choice(flags.filter, flags.metric)) for path in files]
    for log in logs:
        complain(*bad_rows(log))
    return [Side.of(log) for log in logs]


def _arms(flags: CompareFlags) -> "tuple[list[Side], dict[str, dict[str, object]]]":
    """The arms of the log, the base first, and the numbers of each."""
    from agents.audit.arms import in_order
    from agents.audit.comparison import Side
    from streams.jobs.audit.log_arms import read_arms

    name = _label(flags.by or "")
    arms = with_log(flags, lambda log, _settings, say: read_arms(log, name, say))
    if flags.base is not None and flags.base not in arms:
        raise AuditError(f"--base {flags.base}: no closed rollout has the label {name} with this value")
    if len(arms) < 2:
        raise AuditError(f"--by label.{name}: the closed rollouts have {len(arms)} values of it; two are needed")
    ordered = in_order(arms, flags.base)
    return [Side.of(arm.log()) for arm in ordered], {arm.name: arm.plain() for arm in ordered}


def _label(by: str) -> str:
    name = by.removeprefix("label.")
    if name == by or not name:
        raise AuditError(f"--by {by}: give label.NAME, the label whose values are the arms")
    return name


def power(
    *,
    psi: Annotated[str, Parameter(help="Share of pairs that are discordant, as 0.28 or 56/199.")],
    n: Annotated[int | None, number("--n", 1)] = None,
    delta: Annotated[float | None, number("--delta", 0, 1)] = None,
    json: Json = False,
) -> None:
    """Print the smallest difference that so many pairs show with a power of 80 %, or how many pairs a difference needs.

    Example: `braid audit power --n 199 --psi 56/199`

    Parameters
    ----------
    n
        Pairs that there are.
    delta
        The difference to show.
    """
    from agents.audit.paired import min_detectable, pairs_for
    from schemas.numbers import nine

    share = float(_fraction("--psi", psi))
    if not 0 <= share <= 1:
        raise AuditError(f"--psi {psi}: give a share between 0 and 1")
    if (n is None) == (delta is None):
        raise AuditError("give --n for the smallest difference, or --delta for the number of pairs")
    if n is not None:
        found = min_detectable(n, share)
        least = None if found is None else nine(found)
        if json:
            print_json({"min_detectable": least})
        else:
            shown = "none: it would be more than all discordant pairs" if least is None else f"{least:.4g}"
            sys.stdout.write(f"smallest difference that {n:,} pairs show: {shown}\n")
        return
    assert delta is not None
    needed = pairs_for(delta, share)
    if json:
        print_json({"n": needed})
    else:
        shown = "no number of them: it is more than all discordant pairs" if needed is None else f"{needed:,}"
        sys.stdout.write(f"pairs that show a difference of {delta:g}: {shown}\n")


def adjust(values: Annotated[list[float], number("--values", 0, 1)], /, *, json: Json = False) -> None:
    """Correct several p values: Holm (one false finding) and Benjamini-Hochberg (their share).

    Example: `braid audit adjust 0.01 0.04 0.03 0.005`
    """
    from agents.audit.adjustment import benjamini_hochberg, holm
    from schemas.numbers import nine

    if not values:
        raise AuditError("give one p value or more")
    by_holm, by_bh = [nine(p) for p in holm(values)], [nine(p) for p in benjamini_hochberg(values)]
    if json:
        print_json({"holm": by_holm, "bh": by_bh})
        return
    from streams.views.tables import show, table

    made = table("", "p", "Holm", "Benjamini-Hochberg", right=("p", "Holm", "Benjamini-Hochberg"))
    for p, first, second in zip(values, by_holm, by_bh, strict=True):
        made.add_row(f"{p:.4g}", f"{first:.4g}", f"{second:.4g}")
    show(made)


def conformal(
    file: Path,
    /,
    *,
    alpha: Annotated[str, Parameter(help="Share of intervals that may miss.")] = "0.1",
    json: Json = False,
) -> None:
    """Print the half-width that split-conformal intervals around new predictions need, from lines of {prediction, actual}.

    Example: `braid audit conformal residuals.jsonl --alpha 0.1`
    """
    from agents.audit.adjustment import conformal as run
    from schemas.numbers import nine
    from streams.jobs.audit.eval_files import read_residuals

    share = _fraction("--alpha", alpha)
    if not 0 < share < 1:
        raise AuditError(f"--alpha {alpha}: give a share between 0 and 1")
    residuals, bad = read_residuals(file)
    complain(*(f"{each.place}: {each.problem}" for each in bad))
    found = run(residuals, share)
    q = None if found.q is None else nine(found.q)
    if json:
        print_json({"n": found.n, "k": found.k, "q": q})
    else:
        shown = f"none: {found.n:,} residuals are too few" if q is None else f"{q:.6g}"
        sys.stdout.write(f"half-width: {shown} (residual {found.k:,} of {found.n:,})\n")
    if bad:
        sys.exit(1)


def _fraction(option: str, text: str) -> Fraction:
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise AuditError(f"{option} {text}: give a share, as 0.28 or 56/199") from None
