"""The planner of `full_pcl`: it chooses the next repair and its strategy, and decides which proposals become the text.

It cannot pass falsely. A proposal is committed only if no hard constraint stops passing and fewer of them fail; the
final verdict is computed afresh from the text alone. A target keeps failing once its strategies are used up.
"""

from typing import Final, NamedTuple

from agents.compliance.edits import Part, is_placeholder_title, part_for, patched, placed
from agents.compliance.short_rules import Calls
from agents.compliance.verification import ConstraintVerdict, TextVerdict, Verifier
from schemas.compliance import ConstraintIR, Strategy, TaskSpec

STRATEGIES: Final[tuple[Strategy, ...]] = ("patch", "insert_section", "regenerate_region", "full")
MOST_ROUNDS: Final = 8
LEAST_SHARE: Final = 0.2
"""Minimum share of the draft's words that a repair must leave."""

_LENGTHS: Final = frozenset({
    "ifeval:length_constraints:number_words", "ifeval:length_constraints:number_sentences", "format:word_count",
    "format:sentence_count", "format:max_chars", "format:paragraph_count",
})  # fmt: skip


class Step(NamedTuple):
    """The next round."""

    target: ConstraintVerdict
    strategy: Strategy
    proposal: str | None = None
    """The new text, if code makes it."""
    part: Part | None = None
    """The part that a model must write."""
    region: tuple[int, int] | None = None
    """The range that a model must rewrite; None: the whole text."""


class Commit(NamedTuple):
    """Whether a proposal became the text."""

    committed: bool
    rolled_back: bool
    reason: str | None
    verdict: TextVerdict | None
    """The verdict of the proposal; None for a blank one."""


class RepairPlan:
    """The repair of one draft."""

    def __init__(
        self, spec: TaskSpec, prompt: str, draft: str, *, max_rounds: int, repair_soft: bool = False, calls: Calls = ()
    ) -> None:
        self.spec = spec
        self.text = draft
        """The committed text."""
        self._verifier = Verifier(spec)
        self._calls = calls
        self.verdict = self.verify(draft)
        self.max_rounds = min(max_rounds, MOST_ROUNDS, spec.repair.max_rounds if spec.repair else MOST_ROUNDS)
        self.rounds = 0
        self._prompt = prompt
        self._draft_words = len(draft.split())
        self._soft = repair_soft
        self._tried: dict[str, list[Strategy]] = {}
        self._shortens = any(_shortens(each) for each in spec.constraints)

    def next_step(self) -> Step | None:
        """Return the next round; None if nothing is left to repair, or nothing can be repaired."""
        if self.rounds >= self.max_rounds:
            return None
        for target in self._targets():
            step = self._step_for(target)
            if step is not None:
                self.rounds += 1
                self._tried.setdefault(target.constraint.id, []).append(step.strategy)
                return step
        return None

    def _targets(self) -> list[ConstraintVerdict]:
        failing = [each for each in self.verdict.constraints if each.status == "fail"]
        hard = [each for each in failing if each.constraint.level == "hard"]
        chosen = hard if hard or not self._soft else failing
        return sorted(chosen, key=lambda each: -each.constraint.priority)  # stable: keeps the spec's order

    def _step_for(self, target: ConstraintVerdict) -> Step | None:
        constraint = target.constraint
        tried = self._tried.get(constraint.id, [])
        declared = constraint.repair
        if declared is not None and declared.max_rounds is not None and len(tried) >= declared.max_rounds:
            return None
        default = self.spec.repair.default_strategy if self.spec.repair else None
        first = [each for each in (declared.strategy if declared else None, default) if each is not None]
        for strategy in dict.fromkeys([*first, *STRATEGIES]):
            if strategy not in tried and (step := self._applied(target, strategy)) is not None:
                return step
        return None

    def _applied(self, target: ConstraintVerdict, strategy: Strategy) -> Step | None:
        """Return the round of a strategy; None if the strategy does not apply. That costs no round."""
        constraint = target.constraint
        if strategy == "patch":
            proposal = patched(constraint, self.text)
            return None if proposal is None else Step(target, strategy, proposal)
        if strategy == "insert_section":
            proposal = placed(constraint, self.text)
            if proposal is not None:
                return Step(target, strategy, proposal)
            part = part_for(constraint, self.text)
            return None if part is None else Step(target, strategy, part=part)
        return Step(
            target, strategy, region=_lines_around(self.text, target.where) if strategy == "regenerate_region" else None
        )

    def consider(self, proposal: str | None) -> Commit:
        """Commit a proposal, or keep the text unchanged."""
        if proposal is None or not proposal.strip():
            return Commit(False, False, "blank_or_placeholder", None)
        if proposal == self.text:
            return Commit(False, False, "unchanged", self.verdict)
        found = self.verify(proposal)
        reason = self._degenerate(proposal) or self._worse(found)
        if reason is not None:
            return Commit(False, True, reason, found)
        self.text, self.verdict = proposal, found
        return Commit(True, False, None, found)

    def _degenerate(self, proposal: str) -> str | None:
        if proposal.strip().lower() == self._prompt.strip().lower() or self._only_repeats(proposal):
            return "repeats_the_prompt"
        if is_placeholder_title(proposal) and not is_placeholder_title(self.text):
            return "placeholder_title"
        if not self._shortens and len(proposal.split()) < LEAST_SHARE * self._draft_words:
            return "too_short"
        return None

    def _only_repeats(self, proposal: str) -> bool:
        wanted = [
            each.arg for each in self.spec.constraints if each.verify_method == "ifeval:combination:repeat_prompt"
        ]
        said = proposal.strip().lower()
        return any(
            isinstance(arg, dict) and str(arg.get("prompt_to_repeat", "")).strip().lower() == said for arg in wanted
        )

    def _worse(self, found: TextVerdict) -> str | None:
        pairs = list(zip(self.verdict.constraints, found.constraints, strict=True))
        lost = [old for old, new in pairs if old.constraint.level == "hard" and old.status == "pass" != new.status]
        if lost:
            return f"breaks: {', '.join(each.constraint.id for each in lost)}"
        before, after = _not_passing(self.verdict, "hard"), _not_passing(found, "hard")
        if after < before or (after == before and _not_passing(found, "soft") < _not_passing(self.verdict, "soft")):
            return None
        return "repairs_nothing"

    def final(self) -> TextVerdict:
        """Return the verdict of the committed text, computed afresh."""
        return self.verify(self.text)

    def verify(self, text: str) -> TextVerdict:
        """Return the verdict of a text and of the tools that the branch has called so far."""
        return self._verifier.verify(text, self._calls)


def _shortens(constraint: ConstraintIR) -> bool:
    """Whether a constraint is a hard rule that limits the length of the text."""
    if constraint.level != "hard" or constraint.verify_method not in _LENGTHS:
        return False
    arg = constraint.parameters
    return constraint.verify_method == "format:max_chars" or "max" in arg or arg.get("relation") == "less than"


def _not_passing(verdict: TextVerdict, level: str) -> int:
    return sum(1 for each in verdict.constraints if each.constraint.level == level and each.status != "pass")


def _lines_around(text: str, where: tuple[int, int] | None) -> tuple[int, int] | None:
    """Return the range of the lines that a range touches; None for the whole text."""
    if where is None or not where[1] <= len(text):
        return None
    start = text.rfind("\n", 0, where[0]) + 1
    end = text.find("\n", max(where[1] - 1, where[0]))
    found = (start, len(text) if end < 0 else end)
    return None if found == (0, len(text)) or found[0] >= found[1] else found
