"""Audit of verifiers over the facts of a log: is a verdict of a verifier worth a reward?

Rollouts are added one by one and only counts are kept, so memory does not grow with the log. A verifier with too
little data gets no finding that needs numbers, and no strength.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Final, Literal, NamedTuple

from agents.audit.rollout_facts import AuditedBranch, RolloutFacts, Ruling, ToolCall
from agents.ranking.statistics import turned_pairs, wilson
from agents.ranking.vote_count import counted
from schemas.jsontext import parse
from schemas.judging import CONTENT_JUDGE
from schemas.numbers import nine

Severity = Literal["critical", "high", "medium", "low", "info"]

ENOUGH: Final = 20
"""With fewer branches, verdicts or pairs, a share is not meaningful."""
TOO_HIGH: Final = 0.95
DISAGREES_BELOW: Final = 0.2
SILENT_FROM: Final = 0.2
CONSISTENT_FROM: Final = 0.7
TESTED_FROM, FEW_TESTS = 5, 3
MOST_NAMED: Final = 1000
"""Maximum branches that a finding names. All are counted."""

PENALTIES: Final[Mapping[str, float]] = {"critical": 0.4, "high": 0.2, "medium": 0.1}
SEVERITIES: Final[Mapping[str, Severity]] = {
    "never_fails": "high", "never_passes": "high", "high_pass_rate": "medium", "unstable": "critical", "disagrees": "medium",
    "redundant": "info", "weak_tests": "high", "shrinking_tests": "high", "leaks": "critical", "silent": "medium",
    "position_bias": "high",
}  # fmt: skip

LEAKING: Final = frozenset({
    "solution", "solutions", "answer", "answers", "gold", "oracle", "ground_truth", "expected_output", "hidden_tests"
})  # fmt: skip
PROSE: Final = frozenset(
    {"content", "contents", "text", "body", "new_str", "old_str", "file_text", "message", "answer", "patch", "diff"}
)
"""Arguments that hold text, not paths."""
PATHS: Final = frozenset(
    {"path", "paths", "file", "files", "filename", "file_path", "filepath", "dir", "directory", "folder", "cwd"}
)
"""Arguments whose whole value is a path, even without a slash or an extension."""
COMMANDS: Final = frozenset({"command", "commands", "cmd", "script"})
"""Arguments that hold shell commands."""
_TOKEN: Final = re.compile(r"[^\s\"'`;|&<>()=,:\[\]{}]+")
_ADDRESS: Final = re.compile(r"\b(?:https?|ftp|wss?)://[^\s\"']+", re.IGNORECASE)
_READ_BY: Final = re.compile(r"\b(?:cat|cd|cp|head|less|ls|mv|tail|tree)(?:\s+-[\w-]+)*\s+([\w.-]+)")
"""Matches a file that a shell command reads, even if its name has neither a slash nor an extension."""
_FILE_NAME: Final = re.compile(
    r"[\w-]+(?:\.[\w-]+)*\.(?:py|js|ts|json|jsonl|txt|md|csv|tsv|sh|ya?ml|toml|xml|html?|out|log|tar|gz|zip|sql|c|cpp|h|go|rs|java|"
    r"ipynb|pkl|npy|npz|parquet|patch|diff)",
    re.IGNORECASE,
)


@dataclass
class Found:
    """A finding: the number of its occurrences, and the branches that have it."""

    count: int = 0
    branches: list[str] = field(default_factory=list)

    def add(self, *names: str) -> None:
        """Add branches to the finding."""
        self.count += len(names)
        self.branches += names[: max(0, MOST_NAMED - len(self.branches))]


@dataclass
class _Tally:
    """The counts of one verifier."""

    passes: int = 0
    fails: int = 0
    asked: int = 0
    """The number of branches that have a verdict of this verifier, or required one."""
    spoke: bool = False
    """Whether the verifier has any verdict. A verifier that never ran is unknown, not silent."""
    unknown: Found = field(default_factory=Found)
    totals: Counter[int] = field(default_factory=Counter)
    """The number of verdicts by their number of tests."""
    found: defaultdict[str, Found] = field(default_factory=lambda: defaultdict(Found))
    turned: int = 0
    """For a judge: the number of pairs asked in both orders."""
    agreed: int = 0


@dataclass
class _Shared:
    """The verdicts of two verifiers on the same branches."""

    table: Counter[tuple[bool, bool]] = field(default_factory=Counter)
    differ: Found = field(default_factory=Found)


class Pair(NamedTuple):
    """The agreement of two verifiers."""

    a: str
    b: str
    n: int
    agree: int
    kappa: float | None
    both_vary: bool
    """Whether each of the two had both outcomes."""
    differ: Found


class VerifierAudit:
    """Collects rollouts and rates their verifiers."""

    def __init__(self) -> None:
        self._tallies: defaultdict[str, _Tally] = defaultdict(_Tally)
        self._shared: defaultdict[tuple[str, str], _Shared] = defaultdict(_Shared)

    def add(self, facts: RolloutFacts) -> None:
        """Add the facts of a rollout."""
        branches = {branch.number: branch for branch in facts.branches}
        current = _current(facts, branches)
        for index in sorted({*branches, *(branch for branch, _ in current)}):
            self._count(
                facts, index, branches.get(index), {name: each for (own, name), each in current.items() if own == index}
            )
        self._look_for_flips(facts, branches, current)
        self._look_at_tests(facts, current)
        self._look_for_leaks(facts)
        self._look_at_judges(facts)

    def _count(
        self, facts: RolloutFacts, index: int, branch: AuditedBranch | None, rulings: Mapping[str, Ruling]
    ) -> None:
        testable = branch is not None and branch.was_testable
        for name in sorted(rulings.keys() | (facts.required if testable else ())):
            tally = self._tallies[name]
            tally.asked += 1
            tally.spoke = tally.spoke or name in rulings
            outcome = rulings[name].outcome if name in rulings else "unknown"
            tally.passes += outcome == "pass"
            tally.fails += outcome == "fail"
            if outcome == "unknown":
                tally.unknown.add(facts.name(index))
        known = {name: each.outcome == "pass" for name, each in rulings.items() if each.outcome != "unknown"}
        for a, b in combinations(sorted(known), 2):
            shared = self._shared[a, b]
            shared.table[known[a], known[b]] += 1
            if known[a] != known[b]:
                shared.differ.add(facts.name(index))

    def _look_for_flips(
        self, facts: RolloutFacts, branches: Mapping[int, AuditedBranch], current: Mapping[tuple[int, str], Ruling]
    ) -> None:
        """Find a final pass and a final fail of the same attempt, or of the same files."""
        finals: defaultdict[tuple[str, int, int], set[str]] = defaultdict(set)
        for each in facts.rulings:
            if each.outcome != "unknown":
                finals[each.verifier, each.branch, each.attempt].add(each.outcome)
        flipped: defaultdict[str, set[int]] = defaultdict(set)
        for (name, index, _), outcomes in finals.items():
            if len(outcomes) > 1:
                flipped[name].add(index)
        alike: defaultdict[tuple[str, str], list[Ruling]] = defaultdict(list)
        for (index, name), ruling in current.items():
            digest = branches[index].workspace if index in branches else None
            if digest and ruling.outcome != "unknown":
                alike[name, digest].append(ruling)
        for (name, _), rulings in alike.items():
            if len({each.outcome for each in rulings}) > 1:
                flipped[name] |= {each.branch for each in rulings}
        for name, indexes in flipped.items():
            self._tallies[name].found["unstable"].add(*(facts.name(index) for index in sorted(indexes)))

    def _look_at_tests(self, facts: RolloutFacts, current: Mapping[tuple[int, str], Ruling]) -> None:
        for each in facts.rulings:
            if each.tests is not None:
                self._tallies[each.verifier].totals[each.tests] += 1
        most: dict[str, int] = {}
        for (_, name), ruling in current.items():
            if ruling.tests is not None:
                most[name] = max(most.get(name, 0), ruling.tests)
        for (index, name), ruling in sorted(current.items()):
            if ruling.tests is not None and ruling.tests < most[name]:
                self._tallies[name].found["shrinking_tests"].add(facts.name(index))

    def _look_for_leaks(self, facts: RolloutFacts) -> None:
        leaking = [facts.name(branch.number) for branch in facts.branches if any(map(names_answer, branch.calls))]
        if leaking:
            for name in facts.required:
                self._tallies[name].found["leaks"].add(*leaking)

    def _look_at_judges(self, facts: RolloutFacts) -> None:
        for judge in sorted({vote.judge for vote in facts.votes if vote.b is not None} - {CONTENT_JUDGE}):
            votes = [counted(vote, vote.b) for vote in facts.votes if vote.judge == judge and vote.b is not None]
            turned, agreed = turned_pairs(votes)
            tally = self._tallies[f"judge:{judge}"]
            tally.turned += turned
            tally.agreed += agreed

    # -- results -------------------------------------------------------------------------------------------------------

    def pairs(self) -> list[Pair]:
        """Return the agreement of every two verifiers that judged the same branches."""
        return [_pair(a, b, shared) for (a, b), shared in sorted(self._shared.items())]

    def plain(self) -> dict[str, Any]:
        """Return the audit as `--json` prints it."""
        pairs = self.pairs()
        return {
            "verifiers": [self._verifier(name, tally, pairs) for name, tally in sorted(self._tallies.items())],
            "pairs": [
                {"a": each.a, "b": each.b, "n": each.n, "agree": each.agree, "kappa": each.kappa} for each in pairs
            ],
        }

    def strengths(self) -> dict[str, float]:
        """Return the strength of each verifier for which it is known."""
        return {each["id"]: each["strength"] for each in self.plain()["verifiers"] if each["strength"] is not None}

    def _verifier(self, name: str, tally: _Tally, pairs: list[Pair]) -> dict[str, Any]:
        judge = name.startswith("judge:")
        n = tally.turned if judge else tally.passes + tally.fails
        findings = (
            dict(tally.found)
            | dict(_position_bias(tally) if judge else _rates(tally, n))
            | dict(_agreement(name, pairs))
        )
        made: list[dict[str, Any]] = [
            {"id": each, "severity": SEVERITIES[each], "count": found.count, "branches": found.branches}
            for each, found in sorted(findings.items())
        ]
        return {
            "id": name, "n": n, "pass": None if judge else tally.passes, "fail": None if judge else tally.fails,
            "unknown": None if judge else tally.unknown.count,
            "pass_rate": None if judge or not n else nine(tally.passes / n),
            "wilson": None if judge or not n else [*map(nine, wilson(tally.passes, n))],
            "findings": made, "strength": None if n < ENOUGH else strength(each["severity"] for each in made),
        }  # fmt: skip


def rate_strength(passes: int, fails: int) -> float | None:
    """Return a verifier's strength from its pass and fail counts alone; None below 20 verdicts."""
    if passes + fails < ENOUGH:
        return None
    return strength(SEVERITIES[name] for name, _ in _rates(_Tally(passes, fails), passes + fails))


def strength(severities: Iterable[str]) -> float:
    """Return 1 minus the penalty of each finding, never below 0."""
    return nine(max(0.0, 1.0 - sum(PENALTIES.get(severity, 0.0) for severity in severities)))


def _current(facts: RolloutFacts, branches: Mapping[int, AuditedBranch]) -> dict[tuple[int, str], Ruling]:
    """Return the deciding verdict for each branch and verifier: the last final one of the current attempt, else the
    last one.
    """
    newest: dict[int, int] = {}
    for each in facts.rulings:
        newest[each.branch] = max(newest.get(each.branch, 0), each.attempt)
    found: dict[tuple[int, str], Ruling] = {}
    for each in facts.rulings:
        attempt = branches[each.branch].attempt if each.branch in branches else newest[each.branch]
        before = found.get((each.branch, each.verifier))
        if each.attempt == attempt and (before is None or each.outcome != "unknown" or before.outcome == "unknown"):
            found[each.branch, each.verifier] = each
    return found


def _rates(tally: _Tally, n: int) -> Iterator[tuple[str, Found]]:
    if n >= ENOUGH and not tally.fails:
        yield "never_fails", Found(n)
    elif n >= ENOUGH and not tally.passes:
        yield "never_passes", Found(n)
    elif n >= ENOUGH and tally.passes / n >= TOO_HIGH:
        yield "high_pass_rate", Found(tally.passes)
    if tally.spoke and tally.asked >= ENOUGH and tally.unknown.count / tally.asked >= SILENT_FROM:
        yield "silent", tally.unknown
    tested = tally.totals.total()
    if tested >= TESTED_FROM and _median(tally.totals) < FEW_TESTS:
        yield "weak_tests", Found(tested)


def _position_bias(tally: _Tally) -> Iterator[tuple[str, Found]]:
    if tally.turned >= ENOUGH and tally.agreed / tally.turned < CONSISTENT_FROM:
        yield "position_bias", Found(tally.turned - tally.agreed)


def _agreement(name: str, pairs: Iterable[Pair]) -> Iterator[tuple[str, Found]]:
    """Yield a verifier's disagreement with other verifiers, and its redundancy. Several of one kind
    make one finding.
    """
    disagrees, redundant = Found(), Found()
    for each in pairs:
        if name in (each.a, each.b) and each.n >= ENOUGH and each.both_vary and each.kappa is not None:
            if each.kappa < DISAGREES_BELOW:
                disagrees.count += each.differ.count
                disagrees.branches = sorted({*disagrees.branches, *each.differ.branches})[:MOST_NAMED]
            elif each.kappa == 1:
                redundant.count += each.n
    if disagrees.count:
        yield "disagrees", disagrees
    if redundant.count:
        yield "redundant", redundant


def _pair(a: str, b: str, shared: _Shared) -> Pair:
    table, n = shared.table, shared.table.total()
    agree = table[True, True] + table[False, False]
    passes_a, passes_b = table[True, True] + table[True, False], table[True, True] + table[False, True]
    chance = passes_a * passes_b + (n - passes_a) * (n - passes_b)  # scaled by n squared, to stay exact
    kappa = None if chance == n * n else nine((agree * n - chance) / (n * n - chance))
    both_vary = 0 < passes_a < n and 0 < passes_b < n
    return Pair(a, b, n, agree, kappa, both_vary, shared.differ)


def _median(totals: Counter[int]) -> float:
    ordered, half = sorted(totals.elements()), totals.total() // 2
    return ordered[half] if totals.total() % 2 else (ordered[half - 1] + ordered[half]) / 2


def names_answer(call: ToolCall) -> bool:
    """Whether an argument of a call names a file that contains the answer."""
    try:
        value = parse(call.arguments)
    except ValueError:
        value = call.arguments
    return any(_leads_to_answer(name, text) for name, text in _texts("", value))


def _texts(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield the texts in a value, each with the name of its innermost member."""
    waiting = [(name, value)]
    while waiting:
        own, each = waiting.pop()
        if isinstance(each, str):
            yield own, each
        elif isinstance(each, dict):
            waiting += [(str(key), inner) for key, inner in each.items()]
        elif isinstance(each, list):
            waiting += [(own, inner) for inner in each]


def _leads_to_answer(name: str, text: str) -> bool:
    own = name.lower()
    if own in PROSE:
        return False
    if own in PATHS:
        return _has_leaking_segment(text)
    bare = _ADDRESS.sub(" ", text)
    named = [
        token for token in _TOKEN.findall(bare) if "/" in token or "\\" in token or _FILE_NAME.fullmatch(token)
    ]  # fmt: skip
    read = _READ_BY.findall(bare) if own in COMMANDS else []
    return any(map(_has_leaking_segment, [*named, *read]))


def _has_leaking_segment(path: str) -> bool:
    segments = re.split(r"[/\\]", path.strip())
    return any(segment.split(".", 1)[0].lower() in LEAKING for segment in segments if segment)
