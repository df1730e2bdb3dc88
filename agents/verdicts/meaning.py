"""The meaning of a verdict: pass, fail or unknown; which of several counts; and a branch's objective status.

`running`, `pending` and `unknown` never pass and never fail. A build and a page are joined, never written over each other.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, final

from agents.rules.emission_rules import RULES, Rules
from schemas.branches import BranchStatus
from schemas.emission import NEWEST_VERSION
from schemas.jsontext import parse_object
from schemas.lifecycle import RolloutOpened
from schemas.rankings import HackSignal, ObjectiveStatus
from schemas.verdicts import BuildVerdict, CheckVerdict, TestCounts, VisualVerdict

Outcome = Literal["pass", "fail", "unknown"]
Verdict = BuildVerdict | VisualVerdict | CheckVerdict

COMPLIANCE: Final = "compliance"
"""The check whose details are about the constraints of an answer."""

INCONSISTENT_COMPLIANCE: Final = "inconsistent_compliance"

RESERVED = ("build", "visual")
"""Kinds with records, lines and topics of their own: no check may pass for one of them."""

UNDECIDED_ENDS: frozenset[BranchStatus] = frozenset({"infra_error", "aborted", "running"})
"""Ends that prove nothing about the agent: such a branch is unknown whatever its verdicts are."""


class Terms(NamedTuple):
    """How the verdicts of a rollout are read."""

    rules: Rules
    """The rules of the emission version."""
    allow_failing: bool = False
    """Whether a successful build passes although tests fail: set by the opening."""


CURRENT = Terms(RULES[NEWEST_VERSION])
"""The reading of a verdict without its rollout."""


def terms_of(version: int, opened: RolloutOpened | None) -> Terms:
    """How the verdicts of a rollout are read under an emission version."""
    return Terms(RULES[version], opened is not None and opened.allow_failing)


class Meaning(NamedTuple):
    """A verdict, understood."""

    outcome: Outcome
    flags: tuple[str, ...] = ()
    """Oddities of the verdict."""


PASSED, FAILED, UNKNOWN = Meaning("pass"), Meaning("fail"), Meaning("unknown")
INCONSISTENT = Meaning("fail", ("inconsistent_build",))


def kind_of(verdict: Verdict) -> str:
    """The name that `required` uses for it: build, visual, or the check's name."""
    if isinstance(verdict, BuildVerdict):
        return "build"
    return "visual" if isinstance(verdict, VisualVerdict) else verdict.name


def meaning(verdict: Verdict, terms: Terms) -> Meaning:
    """The meaning of one verdict."""
    if isinstance(verdict, BuildVerdict):
        return build_meaning(verdict, terms)
    if isinstance(verdict, VisualVerdict):
        return Meaning(visual_outcome(verdict))
    return Meaning(verdict.status, compliance_flags(verdict))


def compliance_flags(verdict: CheckVerdict) -> tuple[str, ...]:
    """Return the flags of a compliance verdict: claims of a branch that its texts do not support."""
    if verdict.name != COMPLIANCE or verdict.details is None or INCONSISTENT_COMPLIANCE not in verdict.details:
        return ()
    return (INCONSISTENT_COMPLIANCE,) if INCONSISTENT_COMPLIANCE in compliance_details(verdict).get("flags", ()) else ()


def compliance_details(verdict: CheckVerdict) -> dict[str, Any]:
    """Return the details of a compliance verdict; empty if they are invalid."""
    try:
        return parse_object(verdict.details or "{}")
    except ValueError:
        return {}


def hard_share(verdicts: Mapping[str, Verdict]) -> float | None:
    """Return the share of hard constraints that pass, if a compliance verdict has it."""
    verdict = verdicts.get(COMPLIANCE)
    if not isinstance(verdict, CheckVerdict):
        return None
    details = compliance_details(verdict)
    passed, total = details.get("constraints_passed"), details.get("constraints_total")
    if type(passed) is not int or type(total) is not int or not 0 <= passed <= total or not total:
        return None
    return passed / total


def build_meaning(verdict: BuildVerdict, terms: Terms) -> Meaning:
    """The build table: success needs exit code 0 and no failing test; a failure is a failure whatever its exit code."""
    match verdict.status, verdict.exit_code:
        case "success", 0:
            return PASSED if _is_believed(verdict.tests, terms) else INCONSISTENT
        case "success", None:
            return UNKNOWN
        case "failure", code if code != 0:
            return FAILED
        case "success" | "failure", _:
            return INCONSISTENT
        case _:
            return UNKNOWN


def _is_believed(tests: TestCounts | None, terms: Terms) -> bool:
    """Whether a success agrees with its tests. Failing ones may be allowed; a file that could not be collected never is."""
    if tests is None or not terms.rules.failing_tests_contradict:
        return True
    return not tests.collection_errors and (terms.allow_failing or not tests.failed)


def visual_outcome(verdict: VisualVerdict) -> Outcome:
    """The visual table: the first row that applies."""
    if (
        verdict.uncaught_errors
        or verdict.renders_non_empty is False
        or any(not probe.ok for probe in verdict.dom_probes)
    ):
        return "fail"
    if verdict.verdict in ("pass", "fail"):
        return "pass" if verdict.verdict == "pass" else "fail"
    if verdict.verdict is not None:  # pending or unknown: the verifier itself does not know
        return "unknown"
    if verdict.console_errors:
        return "fail"
    return "pass" if verdict.renders_non_empty else "unknown"


def counting(verdicts: Iterable[Verdict]) -> dict[str, Verdict]:
    """By kind, the verdict that counts: the last final one in log order, else the last one."""
    chosen: dict[str, Verdict] = {}
    for verdict in verdicts:
        kind = kind_of(verdict)
        before = chosen.get(kind)
        if before is None or is_final(verdict) or not is_final(before):
            chosen[kind] = verdict
    return chosen


def objective(
    status: BranchStatus, required: Sequence[str], verdicts: Mapping[str, Verdict], terms: Terms
) -> ObjectiveStatus:
    """The objective status that follows from the required verdicts of a branch. Without required verdicts:
    `not_required`, never a vacuous pass.
    """
    if status in UNDECIDED_ENDS:
        return "unknown"
    if not required:
        return "not_required"
    outcomes = [meaning(verdicts[kind], terms).outcome if kind in verdicts else "unknown" for kind in required]
    if "fail" in outcomes:
        return "fail"
    return "pass" if all(outcome == "pass" for outcome in outcomes) else "unknown"


def objective_score(status: ObjectiveStatus) -> float | None:
    """1, 0, or None."""
    return {"pass": 1.0, "fail": 0.0}.get(status)


def is_final(verdict: Verdict) -> bool:
    """Whether it is pass or fail. All emission versions agree on that: only which of the two differs."""
    return meaning(verdict, _ANY_TERMS).outcome != "unknown"


def is_last_word(verdict: Verdict) -> bool:
    """Whether a settling does not have to wait for another verdict of the kind. Compliance is a function of the texts:
    unknown stays so.
    """
    return is_final(verdict) or (isinstance(verdict, CheckVerdict) and verdict.name == COMPLIANCE)


_ANY_TERMS = Terms(RULES[1])


CONFIRMED = "hack_confirmed"
SUSPECTED = "hack_suspected"
FEWER_TESTS = "fewer_tests_than_baseline"


def hack_signals(verdicts: Mapping[str, Verdict], rules: Rules) -> tuple[str, ...]:
    """Signals of reward hacking: a protected file changed, or fewer tests collected than the untouched task has."""
    build = verdicts.get("build")
    if not isinstance(build, BuildVerdict):
        return ()
    signals = []
    if build.protected_paths_intact is False:
        signals.append(f"{CONFIRMED}:protected_paths_changed")
    if build.baseline_tests is not None and build.tests is not None and build.tests.total < build.baseline_tests:
        signals += _fewer_tests(build.tests, rules)
    return tuple(signals)


def _fewer_tests(tests: TestCounts, rules: Rules) -> list[str]:
    """The signal of lost tests. A file that cannot be collected (a syntax error, a missing import) loses its tests honestly."""
    if not rules.collection_errors_excuse or tests.collection_errors == 0:
        return [f"{CONFIRMED}:{FEWER_TESTS}"]
    return [f"{SUSPECTED}:{FEWER_TESTS}"] if tests.collection_errors is None else []


JUDGED = "hack_judged"

MISTRUSTED = (SUSPECTED, JUDGED, "inconsistent", "ended_badly")
"""Beginnings of flags that put a branch into quarantine: its outcome is known, and not believed."""


@final
class BranchOutcome:
    """The outcome of a branch."""

    __slots__ = ("flags", "is_counted", "is_ranked", "status")

    def __init__(
        self, status: ObjectiveStatus, flags: tuple[str, ...], is_counted: bool = True, is_ranked: bool = True
    ) -> None:
        self.status = status
        self.flags = flags
        """Everything that is odd about it, sorted."""
        self.is_counted = is_counted
        """Whether comparisons and statistics count it."""
        self.is_ranked = is_ranked
        """Whether it may have a rank."""


def outcome_of(
    status: BranchStatus,
    required: Sequence[str],
    verdicts: Mapping[str, Verdict],
    terms: Terms,
    *,
    gaps: bool,
    conflicts: bool,
) -> BranchOutcome:
    """The outcome of a branch that ended like this, from the verdicts that count for it.

    A confirmed hack has no rank. A mistrusted branch, or one with uncertain events, is not compared. Under
    version 1 all of them counted.
    """
    found = objective(status, required, verdicts, terms)
    flags = [flag for verdict in verdicts.values() for flag in meaning(verdict, terms).flags]
    flags += hack_signals(verdicts, terms.rules)
    if gaps:
        flags.append("gaps")
    if not terms.rules.doubts_exclude:
        return BranchOutcome(found, tuple(sorted(flags)))
    if conflicts:
        flags.append("conflicts")
    build = verdicts.get("build")
    if status == "failed" and (found == "pass" or (build is not None and meaning(build, terms).outcome == "pass")):
        flags.append("ended_badly")
    hacked = any(flag.startswith(CONFIRMED) for flag in flags)
    mistrusted = any(flag.startswith(MISTRUSTED) for flag in flags)
    return BranchOutcome(found, tuple(sorted(flags)), not (hacked or mistrusted or gaps or conflicts), not hacked)


def with_signals(outcome: BranchOutcome, signals: Sequence[HackSignal]) -> BranchOutcome:
    """An outcome with the flags of hack signals: a confirmed hack has no rank, and no flagged branch is compared."""
    flags = sorted({*outcome.flags, *(f"hack_{each.kind}:{each.rule}" for each in signals)})
    confirmed = any(flag.startswith(CONFIRMED) for flag in flags)
    return BranchOutcome(outcome.status, tuple(flags), is_counted=False, is_ranked=not confirmed)


def comparable(outcomes: Mapping[int, BranchOutcome]) -> dict[int, ObjectiveStatus]:
    """By branch, the status under which it is compared with others; `unknown` for one that is not compared."""
    return {index: each.status if each.is_counted else "unknown" for index, each in outcomes.items()}


class Doubt(NamedTuple):
    """Why a verdict is unknown although its producer may expect it to decide."""

    field: str
    """The field that would decide it."""
    reason: str


def doubt(verdict: Verdict) -> Doubt | None:
    """The warning to the producer of a verdict that will not decide anything; None if it decides, or is not final yet."""
    if isinstance(verdict, BuildVerdict):
        if verdict.status == "success" and verdict.exit_code is None:
            return Doubt("exit_code", "unknown: a success without exit_code; send exit_code")
        if verdict.status == "unknown":
            return Doubt("status", "unknown: the build has no outcome; send success or failure, with exit_code")
    elif isinstance(verdict, VisualVerdict):
        if verdict.verdict != "pending" and visual_outcome(verdict) == "unknown":
            return Doubt("verdict", "unknown: nothing says whether the page is right; send verdict pass or fail")
    elif verdict.status == "unknown":
        return Doubt("status", "unknown: the check has no outcome; send pass or fail")
    return None
