"""The findings of `braid verify`: one finding for each record, row or file, and their totals."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agents.evidence.chain import ChainVerdict
from agents.evidence.keys import DEVELOPMENT_PREFIX
from agents.evidence.structure import printable, quoted
from agents.evidence.verification import worst_chain


class Finding(NamedTuple):
    """A finding about one record or row, at its place."""

    position: str
    run_id: str | None
    """None for a row."""
    ok: bool
    reasons: tuple[str, ...]
    more: Mapping[str, Any]
    """The layers of an evidence record; topic, rollout and id of a row."""

    def as_json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "position": printable(self.position),
            "run_id": self.run_id,
            "ok": self.ok,
            "reasons": self.reasons,
            **self.more,
        }


Tell = Callable[[Finding], None]
"""Called with each finding as it is made."""


@dataclass
class Outcome:
    """The total result: the last object of `--json`."""

    records: int = 0
    copies: int = 0
    """Evidence records of a log whose records are also in a file."""
    rows: Counter[str] = field(default_factory=Counter)
    """By topic."""
    not_ok: int = 0
    """Findings with faults: records, rows, and missing items."""
    chains: list[ChainVerdict] = field(default_factory=list)
    signers: Counter[str] = field(default_factory=Counter)
    """Number of records for each known key id."""
    strangers: Counter[str] = field(default_factory=Counter)
    """Number of records for each unknown key id."""
    uncovered: set[str] = field(default_factory=set)
    """Rollouts whose closing evidence was made before it listed branch records."""
    unlisted: int = 0
    """Branch records that evidence does not list and the log explains: their branches ended, and settled otherwise or not yet."""
    doubtful: int = 0
    """Those of them that this version would not have written so."""

    @property
    def ok(self) -> bool:
        """Whether every check passed; False if there was nothing to check."""
        return bool(self.records) and not self.not_ok and all(chain.ok for chain in self.chains)

    @property
    def warnings(self) -> list[str]:
        """Notes that are not faults."""
        development = [
            f"{count:,} records are signed by the development key {key_id}: it proves nothing to others"
            for key_id, count in self.signers.items() if key_id.startswith(DEVELOPMENT_PREFIX)
        ]  # fmt: skip
        unknown = [
            f"{count:,} records are signed by the unknown key {quoted(key_id)}: give --public-key KEYID=HEX, if you trust it"
            for key_id, count in self.strangers.items()
        ]
        return development + unknown + list(self._about_branches())

    def _about_branches(self) -> Iterator[str]:
        if self.uncovered:
            yield (
                f"the evidence of {len(self.uncovered):,} rollouts was made before it listed branch records: no signature covers "
                "those"
            )
        if self.unlisted:
            yield (
                f"{self.unlisted:,} branch records are not listed by evidence: their branches ended, and settled otherwise or not "
                "yet; no signature covers them, and no export takes them"
            )
        if self.doubtful:
            yield f"{self.doubtful:,} of those are not what this version makes of their events; --verbose names them"

    def as_json(self) -> dict[str, Any]:
        """As `--json` prints it, after the records."""
        return {
            "chain": str(worst_chain(self.chains)),
            "chains": [chain.as_json() for chain in self.chains],
            "records": self.records,
            "rows": dict(sorted(self.rows.items())),
            "not_ok": self.not_ok,
            "uncovered": len(self.uncovered),
            "unlisted": self.unlisted,
            "warnings": self.warnings,
            "ok": self.ok,
        }
