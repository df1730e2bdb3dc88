"""The audit report as a value: all facts that a reviewer needs about a log or a dataset. Unknown values are null.

The report carries the time of the last closure, not of a clock: the same log gives the same bytes.
"""

from collections import Counter
from typing import Any

from agents.audit.rollout_facts import RolloutFacts
from agents.audit.standards import Matrix
from agents.audit.tool_audit import ToolAudit
from agents.audit.verifier_audit import VerifierAudit
from agents.evidence.chain import ChainVerdict
from agents.evidence.verification import Authenticity, Evidence, Verifier
from agents.ranking.statistics import wilson
from agents.rollouts.emission import Emission
from schemas.numbers import nine

SCHEMA = "braidstream-audit-report/v1"
VALID = (Authenticity.DSSE_VALID, Authenticity.INLINE_VALID)
SHARES = ("0", "0-25 %", "25-50 %", "50-75 %", "75-100 %", "100 %")
"""Classes of rollouts by the share of their branches that pass."""


class AuditReport:
    """Counts rollouts and evidence, one by one."""

    def __init__(self, verifier: Verifier) -> None:
        self._verifier = verifier
        self.verifiers = VerifierAudit()
        self.tools = ToolAudit()
        self.matrix = Matrix()
        self._outcomes: Counter[str] = Counter()
        self._ends: Counter[str] = Counter()
        self._admission: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._shares: Counter[str] = Counter()
        self._authenticity: Counter[str] = Counter()
        self._claims: Counter[tuple[str, bool]] = Counter()
        self._rollouts = self._closed = self._broken = self._gaps = 0
        self._records = self._bad = 0
        self._last_ms: int | None = None
        self._seen: set[str] = set()
        self._with_gaps: set[str] = set()
        self._unsigned: set[str] = set()

    def add(self, facts: RolloutFacts, emission: Emission | None, *, gaps: bool, traced: bool, finishes: bool) -> None:
        """Count a rollout. Without an emission, it is still open or cannot be rebuilt."""
        self._rollouts += 1
        self.verifiers.add(facts)
        self.tools.add(facts)
        self.matrix.add_facts(facts, traced=traced, finishes=finishes)
        self._ends.update(branch.ended for branch in facts.branches)
        if gaps:
            self._with_gaps.add(facts.rollout_id)
        if emission is None:
            return
        self._closed += 1
        self.matrix.add_emission(emission, facts)
        self._outcomes.update(each.objective_status for each in emission.ranking.branches)
        known = [
            each.objective_status == "pass" for each in emission.ranking.branches if each.objective_score is not None
        ]
        if known:
            self._shares[_bin(sum(known), len(known))] += 1
        for row in (*emission.rows, *emission.rejected):
            if row.admission is not None:
                self._admission[row.admission.category] += 1
        for rejected in emission.rejected:
            self._reasons.update(rejected.reasons)
        self._date(emission.ranking.closed_at_ms)

    def _date(self, closed_at_ms: int) -> None:
        self._last_ms = closed_at_ms if self._last_ms is None else max(self._last_ms, closed_at_ms)

    def add_evidence(self, evidence: Evidence) -> None:
        """Verify a record and count its findings. It is parsed and canonicalized only once."""
        verdict = self._verifier.add(evidence)
        self._records += 1
        self._bad += not verdict.ok
        self._authenticity[str(verdict.authenticity)] += 1
        record = evidence.record
        if record is None:
            return
        rollout_id = (verdict.run_id or "").rpartition("/ranking")[0] or (verdict.run_id or "").rsplit("/", 2)[0]
        signed = verdict.authenticity in VALID
        if not signed:
            self._unsigned.add(rollout_id)
        self.matrix.add_evidence(record, signed=signed, first=rollout_id not in self._seen)
        self._seen.add(rollout_id)
        for result in record.get("verifier_results") or ():
            if (
                isinstance(result, dict)
                and isinstance(result.get("passed"), bool)
                and isinstance(result.get("verifier_id"), str)
            ):
                self._claims[result["verifier_id"], result["passed"]] += 1
        created = record.get("created_at_ms")
        if isinstance(created, int):
            self._date(created)

    def plain(self) -> dict[str, Any]:
        """Return the whole report. Call it once, after all rollouts are added."""
        chains = self._verifier.finish()
        for chain in chains:
            self.matrix.add_chain(whole=self._is_whole(chain))
        audited = self.verifiers.plain()
        tools = self.tools.plain()
        passes, fails = self._outcomes["pass"], self._outcomes["fail"]
        known = passes + fails
        return {
            "schema_version": SCHEMA,
            "as_of_ms": self._last_ms,
            "rollouts": {"n": self._rollouts, "closed": self._closed, "with_gaps": len(self._with_gaps)},
            "branches": {
                "ended": dict(sorted(self._ends.items())), "objective": dict(sorted(self._outcomes.items())),
                "pass_rate": nine(passes / known) if known else None,
                "wilson": [*map(nine, wilson(passes, known))] if known else None,
                "rollouts_by_pass_share": {name: self._shares[name] for name in SHARES} if self._shares else {},
            },
            "admission": dict(sorted(self._admission.items())),
            "left_out": dict(sorted(self._reasons.items())),
            "verifiers": audited["verifiers"], "pairs": audited["pairs"], "tools": tools["tools"],
            "evidence": self._evidence(chains),
            "matrix": self.matrix.plain(self.tools.suspicious()),
        }  # fmt: skip

    def _evidence(self, chains: list[ChainVerdict]) -> dict[str, Any]:
        names = sorted({name for name, _ in self._claims})
        return {
            "records": self._records, "not_ok": self._bad, "authenticity": dict(sorted(self._authenticity.items())),
            "chains": dict(sorted(Counter(str(chain.state) for chain in chains).items())),
            "verifier_results": [
                {"id": name, "pass": self._claims[name, True], "fail": self._claims[name, False]} for name in names
            ],
        }  # fmt: skip

    def _is_whole(self, chain: ChainVerdict) -> bool:
        """Whether a rollout has intact evidence with valid signatures, and none of its events is missing."""
        return str(chain.state) == "intact" and chain.chain not in self._unsigned and chain.chain not in self._with_gaps


def _bin(passes: int, n: int) -> str:
    if passes in (0, n):
        return SHARES[0] if not passes else SHARES[-1]
    return SHARES[1 + min(3, 4 * passes // n)]
