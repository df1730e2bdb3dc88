"""What `braid verify` found: one finding for each record, row or file, and what they add up to."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agents.evidence.chain import ChainVerdict
from agents.evidence.keys import DEVELOPMENT_PREFIX
from agents.evidence.structure import printable, quoted
from agents.evidence.verify import worst_chain


class Finding(NamedTuple):
    """What was found out about one record or row, at its place."""

    position: str
    run_id: str | None
    """None for a training row."""
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
"""Told what was found, as it comes."""


@dataclass
class Outcome:
    """Everything that was verified: what the last object of `--json` says."""

    records: int = 0
    copies: int = 0
    """Evidence records of a log that lies beside the same records in a file."""
    rows: Counter[str] = field(default_factory=Counter)
    """By topic."""
    not_ok: int = 0
    """Findings that are not ok: records, rows, and what is missing."""
    chains: list[ChainVerdict] = field(default_factory=list)
    signers: Counter[str] = field(default_factory=Counter)
    """Records by the id of a known key."""
    strangers: Counter[str] = field(default_factory=Counter)
    """Records by the id of a key that is not known."""

    @property
    def ok(self) -> bool:
        """Whether everything holds; nothing at all does not."""
        return bool(self.records) and not self.not_ok and all(chain.ok for chain in self.chains)

    @property
    def warnings(self) -> list[str]:
        """What holds, and yet should be known."""
        development = [
            f"{count:,} records are signed by the development key {key_id}: it proves nothing to others"
            for key_id, count in self.signers.items() if key_id.startswith(DEVELOPMENT_PREFIX)
        ]  # fmt: skip
        unknown = [
            f"{count:,} records are signed by the unknown key {quoted(key_id)}: give --public-key KEYID=HEX, if you trust it"
            for key_id, count in self.strangers.items()
        ]
        return development + unknown

    def as_json(self) -> dict[str, Any]:
        """As `--json` prints it, after the records."""
        return {
            "chain": str(worst_chain(self.chains)),
            "chains": [chain.as_json() for chain in self.chains],
            "records": self.records,
            "rows": dict(sorted(self.rows.items())),
            "not_ok": self.not_ok,
            "warnings": self.warnings,
            "ok": self.ok,
        }
