"""The standards matrix: the evidence that covers each control, counted over records and never over existing fields.

A control is covered if all applicable records have its evidence. A field that the product fills by default does not
count as coverage. Evidence that the product cannot have yet is a gap, not an omission.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from agents.audit.rollout_facts import RolloutFacts
from agents.audit.tool_audit import offered
from agents.evidence.side_effects import side_effect
from agents.redaction.redaction import has_unremoved
from agents.rollouts.emission import Emission
from schemas.judging import CONTENT_JUDGE

CONTROLS: Final[tuple[tuple[str, str, str, str], ...]] = (
    ("MCP01:2025", "token mismanagement and secret exposure", "redaction rules ran, nothing unremoved", "rows"),
    ("MCP02:2025", "privilege escalation via scope creep", "a policy decision", "branches with a state-changing call"),
    ("MCP03:2025", "tool poisoning", "tool_manifest_digest, and audit tools finds nothing", "branches with calls"),
    (
        "MCP04:2025",
        "supply chain, dependency tampering",
        "repo_commit and tool_manifest_digest",
        "evidence records of branches",
    ),
    ("MCP05:2025", "command injection and execution", "side_effect_class other than unknown", "actions"),
    (
        "MCP06:2025",
        "prompt injection via contextual payloads",
        "outputs looked at by injection rules",
        "branches with results",
    ),
    (
        "MCP07:2025",
        "insufficient authentication and authorization",
        "produced_by names a verifier or an import",
        "verdicts",
    ),
    ("MCP08:2025", "lack of audit and telemetry", "signature valid, chain intact, no seq gaps", "rollouts"),
    ("MCP09:2025", "shadow servers", "every called tool is among those offered", "branches with calls and a tool list"),
    ("MCP10:2025", "context injection and over-sharing", "judge requests carry redacted text", "judged pairs"),
    ("OTel GenAI", "trace context", "traceparent", "rollouts"),
    ("OTel GenAI", "gen_ai.request.model", "the model's name", "branches"),
    ("OTel GenAI", "gen_ai.usage.input_tokens, output_tokens", "both counts", "branches"),
    ("OTel GenAI", "gen_ai.tool.name, gen_ai.tool.call.id", "the producer's own id", "calls"),
    ("OTel GenAI", "gen_ai.response.finish_reasons", "a finish reason", "rollouts"),
    ("AEP-Provenance", "result_digest", "a digest of the result", "state-changing actions"),
    ("AEP-Provenance", "signature", "a valid signature", "records"),
    ("AEP-Provenance", "prev_record_hash", "the hash of the record before", "records after the first"),
    ("SLSA, in-toto", "provenance", "a receipt that verifies", "datasets"),
)
"""Each control: its standard, its name, its evidence, and the records that it applies to."""


NO_VERIFIER: Final = frozenset({"", "unknown", "agent"})
"""Producers of verdicts that are not verifiers: unnamed ones, and the agent itself."""


class Share(NamedTuple):
    """The number of applicable records that have the evidence."""

    have: int
    applicable: int

    @property
    def state(self) -> str:
        """One of: covered, partial, gap, n/a."""
        if not self.applicable:
            return "n/a"
        return "covered" if self.have == self.applicable else "partial" if self.have else "gap"


class Matrix:
    """Counts evidence for the controls."""

    def __init__(self) -> None:
        self._have: Counter[tuple[str, str]] = Counter()
        self._applicable: Counter[tuple[str, str]] = Counter()
        self._called: Counter[frozenset[str]] = Counter()
        """The number of branches with calls and a manifest digest, by the tools that they were offered."""

    def count(self, control: str, name: str, have: int, applicable: int) -> None:
        """Add counts to a control."""
        self._have[control, name] += have
        self._applicable[control, name] += applicable

    def _mcp(self, number: int, have: int, applicable: int) -> None:
        control, name, _, _ = CONTROLS[number - 1]
        self.count(control, name, have, applicable)

    def add_facts(self, facts: RolloutFacts, *, traced: bool, finishes: bool) -> None:
        """Count the facts of a rollout."""
        tools = offered(facts.opened)
        names = frozenset(tool.name for tool in tools or ())
        digest = facts.opened is not None and facts.opened.tool_manifest_digest is not None
        for branch in facts.branches:
            if any(side_effect(call.name, call.arguments) != "read" for call in branch.calls):
                self._mcp(2, branch.decided, 1)
            if branch.calls:
                self._mcp(3, 0, 1)
                if digest and tools is not None:
                    self._called[names] += 1
                if tools is not None:
                    self._mcp(9, all(call.name in names for call in branch.calls), 1)
            self._mcp(6, 0, 1 if branch.results else 0)
        for ruling in facts.rulings:
            self._mcp(7, ruling.produced_by not in NO_VERIFIER, 1)
        if facts.branches:
            self.count("OTel GenAI", "trace context", traced, 1)
            self.count("OTel GenAI", "gen_ai.response.finish_reasons", finishes, 1)

    def add_emission(self, emission: Emission, facts: RolloutFacts) -> None:
        """Count the records that follow from a rollout."""
        for row in emission.rows:
            self._mcp(1, emission.redacted and not has_unremoved(row.redactions), 1)
        pairs = {(vote.a, vote.b) for vote in facts.votes if vote.b is not None and vote.judge != CONTENT_JUDGE}
        self._mcp(10, len(pairs) if emission.redacted else 0, len(pairs))
        for record in emission.branches:
            usage = record.usage
            both = usage is not None and usage.input_tokens is not None and usage.output_tokens is not None
            self.count(
                "OTel GenAI", "gen_ai.request.model", record.agent is not None and record.agent.model is not None, 1
            )
            self.count("OTel GenAI", "gen_ai.usage.input_tokens, output_tokens", both, 1)
            own = sum(not _is_filled(call.call_id) for call in record.tool_calls)
            self.count("OTel GenAI", "gen_ai.tool.name, gen_ai.tool.call.id", own, len(record.tool_calls))

    def add_evidence(self, record: Mapping[str, Any], *, signed: bool, first: bool) -> None:
        """Count a record of evidence."""
        actions = [each for each in record.get("actions") or () if isinstance(each, dict)]
        if not str(record.get("run_id")).endswith("/ranking"):
            self._mcp(4, bool(record.get("repo_commit") and record.get("tool_manifest_digest")), 1)
        self._mcp(5, sum(each.get("side_effect_class") not in (None, "unknown") for each in actions), len(actions))
        changing = [each for each in actions if each.get("state_changing")]
        self.count(
            "AEP-Provenance", "result_digest", sum(bool(each.get("result_digest")) for each in changing), len(changing)
        )
        self.count("AEP-Provenance", "signature", signed, 1)
        if not first:
            self.count("AEP-Provenance", "prev_record_hash", bool(record.get("prev_record_hash")), 1)

    def add_chain(self, *, whole: bool) -> None:
        """Count a rollout by its evidence."""
        self._mcp(8, whole, 1)

    def add_dataset(self) -> None:
        """Count a dataset as applicable, but not covered: no receipts are made for datasets yet."""
        self.count("SLSA, in-toto", "provenance", 0, 1)

    def plain(self, suspicious: set[str]) -> list[dict[str, Any]]:
        """Return the matrix as in the report; `suspicious` are the tools with findings."""
        made = []
        for control, name, evidence, applies in CONTROLS:
            have, applicable = self._have[control, name], self._applicable[control, name]
            if control == "MCP03:2025":
                have = sum(count for names, count in self._called.items() if not names & suspicious)
            share = Share(have, applicable)
            made.append(
                {
                    "control": control,
                    "name": name,
                    "evidence": evidence,
                    "applies_to": applies,
                    **share._asdict(),
                    "state": share.state,
                }
            )
        return made


def _is_filled(call_id: str) -> bool:
    """Whether this id was generated because the producer gave none."""
    return call_id.startswith("call-") and call_id[5:].isdigit()
