"""Compare two evaluation logs: is B better than A, are there enough items to show it, and were both asked the same
way?

Items are paired by id. No number counts an item that only one log has, that failed in one of them, or whose
question differs between the logs. Swapping A and B mirrors every number.
"""

from collections.abc import Callable, Sequence
from math import fsum
from typing import Any, NamedTuple

from agents.audit.eval_row import EvalLog, EvalRow, named
from agents.audit.graded import Graded, clustered_se, graded
from agents.audit.paired import Bootstrap, Pairs, exact_bootstrap, mid_p, min_detectable, newcombe
from agents.audit.triage import FLAGS, Triage, triage
from agents.ranking.statistics import mcnemar, wilson
from schemas.numbers import nine

CLAIM = 0.05
"""The difference that the comparison should be able to show."""
LEVEL = 0.05
CAPS = frozenset({"max_tokens", "max_new_tokens", "max_gen_toks"})
"""Names of the token limit."""
MOST_SHOWN = 60
"""Maximum characters of a protocol value in the output."""


class Side(NamedTuple):
    """One log in a comparison."""

    log: EvalLog
    triage: Triage

    @classmethod
    def of(cls, log: EvalLog) -> "Side":
        """Triage a log; once for all comparisons."""
        return cls(log, triage(log.rows))


class Comparison(NamedTuple):
    """Two logs compared item by item."""

    a: Side
    b: Side
    ids: tuple[str, ...]
    """The ids of the items that both answered, sorted."""
    mismatched: tuple[str, ...]
    """Items whose questions differ under one id."""
    pairs: Pairs | None
    """None if any item is graded or has several samples."""
    grades: tuple[tuple[float, float], ...]
    """The item scores of both sides."""
    graded: Graded | None
    flags: dict[str, tuple[int, int, float]]

    @property
    def p(self) -> float | None:
        """The p value that decides, before any correction; None if there are no items."""
        if self.pairs is not None:
            return nine(mcnemar(self.pairs.b, self.pairs.c)) if self.pairs.n else None
        return nine(self.graded.sign_flip_p) if self.graded is not None else None

    @property
    def delta(self) -> float | None:
        """The difference rate B - rate A."""
        if self.pairs is not None:
            return nine((self.pairs.c - self.pairs.b) / self.pairs.n) if self.pairs.n else None
        return nine(self.graded.mean) if self.graded is not None else None


def compare(a: Side, b: Side) -> Comparison:
    """Compare two logs."""
    first, second = a.log.items, b.log.items
    common = sorted(first.keys() & second.keys())
    mismatched = tuple(each for each in common if _differ(first[each], second[each]))
    ids = tuple(each for each in common if each not in set(mismatched))
    grades = tuple((_mean(first[each]), _mean(second[each])) for each in ids)
    single = all(len(side[each]) == 1 for each in ids for side in (first, second))
    binary = single and all(score in (0.0, 1.0) for pair in grades for score in pair)
    differences = [after - before for before, after in grades]
    found = graded(differences) if differences and not binary else None
    return Comparison(
        a, b, ids, mismatched, _pairs(grades) if binary else None, grades, found, _flags(a, b, ids) if single else {}
    )


def _differ(rows: Sequence[EvalRow], others: Sequence[EvalRow]) -> bool:
    """Whether two logs ask different questions under the same id."""
    asked = {row.question for row in rows if row.question is not None}
    told = {row.question for row in others if row.question is not None}
    return bool(asked and told and asked != told)


def _mean(rows: Sequence[EvalRow]) -> float:
    return fsum(row.score for row in rows if row.score is not None) / len(rows)


def _pairs(grades: Sequence[tuple[float, float]]) -> Pairs:
    both = sum(before == after == 1 for before, after in grades)
    b, c = sum(before > after for before, after in grades), sum(after > before for before, after in grades)
    return Pairs(both, b, c, len(grades) - both - b - c)


def _flags(a: Side, b: Side, ids: Sequence[str]) -> dict[str, tuple[int, int, float]]:
    """Return for each flag the number of rows on either side that have it, and the p of the difference. Each side has
    one row per item.
    """
    found, first, second = {}, _flags_by_item(a), _flags_by_item(b)
    for name in FLAGS:
        marks = [(first[each][name], second[each][name]) for each in ids]
        only_a = sum(first and not second for first, second in marks)
        only_b = sum(second and not first for first, second in marks)
        sides = sum(first for first, _ in marks), sum(second for _, second in marks)
        found[name] = (*sides, mcnemar(only_a, only_b))
    return found


def _flags_by_item(side: Side) -> dict[str, dict[str, bool]]:
    """Return the flags of one row per item. Sample names have numbers as soon as any item of the log has several
    samples.
    """
    return {row.id: side.triage.flags[name] for name, row in named(side.log.rows)}


# -- protocol differences ----------------------------------------------------------------------------------------------


def protocol_differences(found: Comparison) -> list[str]:
    """Return the differences in how the two were asked. They, and not the systems, may cause a difference in scores."""
    a, b = found.a.log, found.b.log
    named = [("log format", a.shape, b.shape), ("filter", a.filter, b.filter), ("metric", a.metric, b.metric)]
    if a.shape == b.shape:
        named += [
            (name, a.protocol.get(name), b.protocol.get(name)) for name in sorted(a.protocol.keys() | b.protocol.keys())
        ]
    differences = [*a.remarks, *b.remarks]
    differences += [_between(name, first, second) for name, first, second in named if first != second]
    differences += _row_differences(found)
    if found.mismatched:
        differences.append(f"{len(found.mismatched)} items are other questions under the same id, and are left out")
    for log, letter in ((a, "A"), (b, "B")):
        if log.bad:
            differences.append(
                f"{len(log.bad)} rows of {letter} cannot be read, the first at {log.bad[0].place}: {log.bad[0].reason}"
            )
    return differences


def _row_differences(found: Comparison) -> list[str]:
    """Return the differences row by row, each listed once with the number of items that it concerns."""
    first, second, n = found.a.log.items, found.b.log.items, len(found.ids)
    seen: dict[str, list[tuple[str | None, str | None]]] = {}
    for each in found.ids:
        one, other = _asked(first[each][0], found.a.log), _asked(second[each][0], found.b.log)
        for name in one.keys() | other.keys():
            if one.get(name) != other.get(name):
                seen.setdefault(name, []).append((one.get(name), other.get(name)))
    told = []
    for name, values in sorted(seen.items()):
        where = "" if len(values) == n else f" ({len(values)} of {n} items)"
        if len(set(values)) == 1 and not name.endswith("_hash"):
            told.append(_between(name, *values[0]) + where)
        else:
            told.append(f"{name}: differs for {len(values)} of {n} items")
    return told


def _asked(row: EvalRow, log: EvalLog) -> dict[str, str]:
    """How a row was asked, in addition to what its log declares for all rows."""
    known = not CAPS.isdisjoint(row.protocol.keys() | log.protocol.keys())
    cap = {} if row.max_tokens is None or known else {"max_tokens": str(row.max_tokens)}
    expected = {} if row.expected is None else {"expected answer": row.expected.strip()}
    return {**row.protocol, **cap, **expected}


def _between(name: str, first: str | None, second: str | None) -> str:
    return f"{name}: {_shown(first)} in A, {_shown(second)} in B"


def _shown(value: str | None) -> str:
    if value is None:
        return "not said"
    return value if len(value) <= MOST_SHOWN else f"{value[:MOST_SHOWN]}..."


def warnings(found: Comparison) -> list[str]:
    """The warnings above the numbers: protocol differences, then flags that are more frequent on one side."""
    n = len(found.ids)
    flagged = [
        f"{name}: {a} of {n} rows of A, {b} of {n} rows of B (p {p:.3g})"
        for name, (a, b, p) in found.flags.items()
        if nine(p) < LEVEL
    ]
    return [*protocol_differences(found), *flagged]


# -- as JSON ---------------------------------------------------------------------------------------------------------------


def comparison_json(found: Comparison, p: float | None, claim: float = CLAIM) -> dict[str, Any]:
    """Return the object that `--json` prints; `p` is the deciding one, corrected for several candidates."""
    a, b, pairs = found.a.log, found.b.log, found.pairs
    counted = pairs is not None and pairs.n > 0
    psi = (pairs.b + pairs.c) / pairs.n if pairs is not None and pairs.n else None
    least = None if pairs is None or psi is None else _nine(min_detectable(pairs.n, psi))
    return {
        "n": len(found.ids), **dict(zip(("both", "b", "c", "neither"), _counts(pairs), strict=True)),
        "a": _side(found, 0), "b_side": _side(found, 1), "delta": found.delta, "delta_ci": _interval(found),
        "mcnemar": {"exact": nine(mcnemar(pairs.b, pairs.c)), "mid_p": nine(mid_p(pairs.b, pairs.c))} if counted and pairs else None,
        "bootstrap": _bootstrap(found),
        **({} if found.graded is None else {"sign_flip_p": nine(found.graded.sign_flip_p), "se": _nine(found.graded.se)}),
        "discordant": _nine(psi), "min_detectable": least,
        "powered": None if psi is None else least is not None and least <= claim,
        "verdict": verdict(found, p), "errors": {"a": a.errors, "b": b.errors}, "only_in": _only_in(a, b),
        "mismatched": len(found.mismatched), "protocol": protocol_differences(found),
        "flags": {name: {"a": of_a, "b": of_b, "p": nine(p)} for name, (of_a, of_b, p) in found.flags.items()},
        "triage": {"a": found.a.triage.plain(), "b": found.b.triage.plain()},
    }  # fmt: skip


def verdict(found: Comparison, p: float | None) -> str:
    """Return which system is better, or that no difference is shown."""
    if p is None or p >= LEVEL or not found.delta:
        return "not_shown"
    return "b_better" if found.delta > 0 else "a_better"


def _counts(pairs: Pairs | None) -> tuple[int | None, ...]:
    return (None, None, None, None) if pairs is None else tuple(pairs)


def _side(found: Comparison, at: int) -> dict[str, Any]:
    log = (found.a, found.b)[at].log
    said: dict[str, Any] = {"name": log.name}
    scores, n = [pair[at] for pair in found.grades], len(found.grades)
    if found.pairs is not None:
        right = sum(score == 1 for score in scores)
        said |= {
            "correct": right,
            "rate": nine(right / n) if n else None,
            "wilson": [*map(nine, wilson(right, n))] if n else None,
        }
    else:
        samples = sum(len(log.items[each]) for each in found.ids)
        said |= {"correct": None, "rate": nine(fsum(scores) / n) if n else None, "wilson": None, "items": n, "samples": samples,
                 "se": _nine(clustered_se(scores))}  # fmt: skip
    if log.filter is not None:
        said |= {"filter": log.filter, "other_filters": list(log.other_filters)}
    return said


def _interval(found: Comparison) -> list[float] | None:
    if found.pairs is not None:
        return [*map(nine, newcombe(found.pairs))] if found.pairs.n else None
    return None if found.graded is None or found.graded.interval is None else [*map(nine, found.graded.interval)]


def _bootstrap(found: Comparison) -> dict[str, Any] | None:
    if found.pairs is not None and found.pairs.n:
        return _boot(exact_bootstrap(found.pairs.n, found.pairs.b, found.pairs.c), "exact")
    return None if found.graded is None else _boot(found.graded.bootstrap, "seeded")


def _boot(found: Bootstrap, method: str) -> dict[str, Any]:
    return {"low": nine(found.low), "high": nine(found.high), "p": nine(found.p), "method": method}


def _only_in(a: EvalLog, b: EvalLog) -> dict[str, int]:
    """Count the items that the other log does not contain."""
    first, second = ({row.id for row in log.rows} for log in (a, b))
    return {"a": len(first - second), "b": len(second - first)}


def _nine(value: float | None) -> float | None:
    return None if value is None else nine(value)


Corrected = Callable[[Sequence[float]], list[float]]


def corrected(found: Sequence[Comparison], correction: Corrected) -> list[float | None]:
    """Return the p values of several comparisons after a correction; None for a comparison without an item."""
    known = [each.p for each in found if each.p is not None]
    values = iter(correction(known))
    return [None if each.p is None else nine(next(values)) for each in found]
