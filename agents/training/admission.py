"""Whether a branch may be trained on: a score for how well it is evidenced, and the category that follows."""

from collections.abc import Mapping, Sequence
from typing import Final, final

from agents.evidence.side_effects import side_effect
from agents.hacks.verdict import HACKS
from agents.rules.emission_rules import Rules
from agents.verdicts.meaning import CONFIRMED, JUDGED, MISTRUSTED, SUSPECTED, Verdict, is_final
from schemas.branches import BranchRecord
from schemas.codec.maker import unchecked
from schemas.emission import AdmissionConfig
from schemas.lifecycle import RolloutOpened
from schemas.numbers import nine
from schemas.rankings import ObjectiveStatus
from schemas.training import Admission, Category
from schemas.verdicts import BuildVerdict, CheckVerdict

_admission: Final = unchecked(Admission)

_SEVERITY: dict[Category, int] = {"train": 0, "audit_only": 1, "quarantine": 2, "reject": 3}


@final
class Judged:
    """The inputs of admission."""

    __slots__ = ("branch", "decided", "flags", "judge_answered", "opened", "status", "unremoved", "verdicts")

    def __init__(
        self,
        branch: BranchRecord,
        status: ObjectiveStatus,
        verdicts: Mapping[str, Verdict],
        flags: Sequence[str],
        opened: RolloutOpened | None,
        judge_answered: bool = False,
        decided: bool = False,
        unremoved: bool = False,
    ) -> None:
        self.branch = branch
        self.status = status
        self.verdicts = verdicts
        self.flags = flags
        self.opened = opened
        self.judge_answered = judge_answered
        """Whether a judge answered about it: then the judge counts as a verifier, too. A tie between equal texts is not
        an answer of a judge.
        """
        self.decided = decided
        """Whether there is a policy decision: from a verifier, or under version 1 from an event."""
        self.unremoved = unremoved
        """Whether a secret was found in the name of a field, where it cannot be removed."""


POLICY = "policy"
"""The check whose verdict is a policy decision: pass, the actions were allowed; fail, they were not."""

INCOMPLETE = ("conflicts", "gaps")
"""Flags of branches with uncertain events: kept for audit, not for training."""


WEAK_VERDICT = "weak_verdict"
"""The reason of a branch whose tests ran where its own code could reach them. This reason alone does not reject a row.
"""


def admit(judged: Judged, config: AdmissionConfig, rules: Rules) -> Admission:
    """The admission of a branch under the rules of an emission version."""
    weak = rules.weak_verdicts_count_half and any(_is_weak(verdict) for verdict in judged.verdicts.values())
    weak = weak and not _is_looked_at(judged.verdicts)
    score = nine(_score(judged, weak=weak))
    reasons = []
    category: Category = "train"
    incomplete = [flag for flag in INCOMPLETE if flag in judged.flags] if rules.incomplete_is_audited else []
    if any(flag.startswith(CONFIRMED) for flag in judged.flags):
        category, reasons = "reject", [CONFIRMED]
    elif judged.unremoved:
        category, reasons = "reject", ["secret_not_removed"]
    elif score < config.reject_below:
        category, reasons = "reject", ["weak_evidence"]
    elif any(flag.startswith(MISTRUSTED) for flag in judged.flags):
        category = "quarantine"
        reasons = sorted({flag.partition(":")[0] for flag in judged.flags if flag.startswith(MISTRUSTED)})
    elif incomplete or score < config.train_from:
        category = "audit_only"
        reasons = [*incomplete, *(["thin_evidence"] if score < config.train_from else [])]
    if weak:
        reasons.append(WEAK_VERDICT)
    return _admission(category=category, score=score, reasons=tuple(reasons))


def without_hack(judged: Judged) -> Judged:
    """The same branch without its signs of a hack: for rows that are made because of the hack."""
    flags = [flag for flag in judged.flags if not flag.startswith((CONFIRMED, SUSPECTED, JUDGED))]
    return Judged(
        judged.branch,
        judged.status,
        judged.verdicts,
        flags,
        judged.opened,
        judged.judge_answered,
        judged.decided,
        judged.unremoved,
    )


def is_hacked(flags: Sequence[str]) -> bool:
    """Whether a hack is confirmed."""
    return any(flag.startswith(CONFIRMED) for flag in flags)


def is_suspect(flags: Sequence[str]) -> bool:
    """Whether there is any sign of a hack."""
    return any(flag.startswith((CONFIRMED, SUSPECTED, JUDGED)) for flag in flags)


def is_decided(verdicts: Mapping[str, Verdict]) -> bool:
    """Whether a verifier has decided about the policy, either way."""
    policy = verdicts.get(POLICY)
    return policy is not None and is_final(policy)


def category_of(flags: Sequence[str]) -> Category:
    """The category of a branch with these flags, as far as they decide it."""
    if any(flag.startswith(CONFIRMED) for flag in flags):
        return "reject"
    if any(flag.startswith(MISTRUSTED) for flag in flags):
        return "quarantine"
    return "audit_only" if any(flag in flags for flag in INCOMPLETE) else "train"


def both(one: Admission, other: Admission) -> Admission:
    """The admission of a row made of two branches: the weaker of the two."""
    category, least, reasons = one.category, one.score, (*one.reasons, *other.reasons)
    if _SEVERITY[other.category] > _SEVERITY[category]:
        category = other.category
    return _admission(
        category=category, score=min(least, other.score), reasons=tuple(sorted({*reasons})) if reasons else ()
    )


def _is_looked_at(verdicts: Mapping[str, Verdict]) -> bool:
    """Whether all experiments that the task allows were made, and agree: then shared views hid nothing."""
    hacks = verdicts.get(HACKS)
    return type(hacks) is CheckVerdict and hacks.status == "pass" and hacks.details is not None


def _is_weak(verdict: Verdict) -> bool:
    return type(verdict) is BuildVerdict and verdict.isolation == "weak" and is_final(verdict)


def _score(judged: Judged, *, weak: bool) -> float:
    branch, opened = judged.branch, judged.opened
    agent = branch.agent
    changing = [call for call in branch.tool_calls if side_effect(call.name, call.arguments) != "read"]
    complete = len([call for call in changing if call.output_digest is not None]) / len(changing) if changing else 1.0
    known = len([verdict for verdict in judged.verdicts.values() if is_final(verdict)]) + judged.judge_answered
    named = [agent and agent.model, opened and opened.repo_commit, opened and opened.tool_manifest_digest]
    return (
        0.25 * complete
        + 0.20 * (judged.status in ("pass", "fail"))
        + 0.20 * min(1.0, (known - 0.5 * weak) / 2)
        + 0.15 * len([part for part in named if part]) / 3
        + 0.10 * (not branch.gaps)
        + 0.10 * (judged.decided or not changing)
    )
