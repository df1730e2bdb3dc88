"""`braid verify`: is the evidence complete and signed, and do branch records and training rows match it?"""

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
from cyclopts import Parameter

from streams.commands.console_output import complain
from streams.commands.options import Flag, Flags

if TYPE_CHECKING:
    from agents.evidence.chain import ChainVerdict
    from streams.jobs.verify.findings import Finding
    from streams.jobs.verify.verification import Verified
    from streams.views.tables import Grid

SHOWN = 50
"""Findings and chains that are shown without --verbose: enough to see the cause."""


@dataclass(frozen=True, kw_only=True)
class VerifyFlags(Flags):
    """The options of `braid verify`."""

    public_key: Annotated[list[str] | None, Flag] = None
    """A key to trust, as KEYID=HEX; may be given several times. The keys of this machine are trusted as well."""
    allow_unsigned: Annotated[bool, Flag] = False
    """Accept records and manifests without a signature."""
    unfinished: Annotated[bool, Flag] = False
    """Verify a run, replay or archive whose manifest is missing or not signed: made by an earlier version, or cut off.
    Files and rollouts that are missing as a whole are not detected then.
    """
    verbose: Annotated[bool, Flag] = False
    """Show every record, not only those with faults."""
    json: Annotated[bool, Flag] = False
    """Print one JSON object for each record, then one with the verdict."""


def verify(
    paths: Annotated[
        list[Path] | None,
        Parameter(
            help="AEP as JSON lines, JSON or Avro; - is standard input. Or directories: output of `braid run` or `braid export`, a log.",
            allow_leading_hyphen=True,
        ),
    ] = None,
    /,
    *,
    flags: VerifyFlags = VerifyFlags(),
) -> None:
    """Check evidence: signatures, chains, completeness; in a directory also every row, every file and every rollout.

    Without a path, the topics of the configured cluster are verified. Exits with 1 if anything is not ok.

    Example: `braid verify results`
    """
    from streams.cluster.config import load
    from streams.cluster.signing_keys import trusted_keys
    from streams.jobs.verify.verification import Verification
    from streams.views.progress import progress

    settings = load()
    keys = trusted_keys(settings, flags.public_key or ())
    printer = _Printer(verbose=flags.verbose, json=flags.json)
    with progress() as say:
        verification = Verification(
            keys, allow_unsigned=flags.allow_unsigned, tell=printer.tell, say=say, unfinished=flags.unfinished
        )
        if paths:
            verification.paths(paths)
        else:
            asyncio.run(verification.cluster(settings))
    outcome = verification.outcome
    printer.finish(outcome)
    complain(*outcome.warnings)
    if not outcome.ok:
        sys.exit(1)


class _Printer:
    """Writes findings while they come: JSON lines, or text for people."""

    def __init__(self, *, verbose: bool, json: bool) -> None:
        self._verbose = verbose
        self._json = json
        self._hidden = 0
        self._shown = 0
        # The progress bar replaces standard output; a file or pipe there must still get our output.
        self._out = None if sys.stdout.isatty() else sys.stdout

    def tell(self, finding: "Finding") -> None:
        """Print a finding, as far as it was asked for: rows only when they are not ok."""
        from streams.log.terminal_text import visible

        row_ok = finding.ok and finding.run_id is None
        if self._json:
            if not row_ok:
                self._write(orjson.dumps(finding.as_json()).decode())
        elif self._verbose or not finding.ok:
            if not self._verbose and self._shown >= SHOWN:
                self._hidden += 1
                return
            self._shown += 1
            name = finding.run_id or finding.more.get("record_id", "")
            said = (finding.position, name, "; ".join(finding.reasons) or "ok")
            self._write(visible("  ".join(part for part in said if part)))

    def finish(self, outcome: "Verified") -> None:
        """Print the verdict."""
        if self._json:
            self._write(orjson.dumps(outcome.as_json()).decode())
            return
        from streams.log.terminal_text import visible
        from streams.views.tables import show

        if self._hidden:
            self._write(f"and {self._hidden:,} more that are not ok; --verbose shows all")
        broken = [chain for chain in outcome.chains if not chain.ok]
        for chain in broken[: None if self._verbose else SHOWN]:
            self._write(visible(_chain_line(chain)))
        if self._shown or broken:
            self._write("")
        show(_summary(outcome))

    def _write(self, text: str) -> None:
        (self._out or sys.stdout).write(text + "\n")


def _chain_line(chain: "ChainVerdict") -> str:
    more = f" (and {len(chain.reasons) - 1} more)" if len(chain.reasons) > 1 else ""
    return f"chain {chain.chain}  {chain.state}: {chain.reasons[0] if chain.reasons else ''}{more}"


def _summary(outcome: "Verified") -> "Grid":
    from collections import Counter

    from streams.views.tables import table

    made = table("", "what", "count", right=("count",))
    made.add_row("evidence records", f"{outcome.records:,}")
    if outcome.copies:
        made.add_row("  in the log beside them", f"{outcome.copies:,}")
    for state, count in sorted(Counter(str(chain.state) for chain in outcome.chains).items()):
        made.add_row(f"chains {state}", f"{count:,}")
    for topic, count in sorted(outcome.rows.items()):
        made.add_row(f"rows of {topic}", f"{count:,}")
    made.add_row("not ok", f"{outcome.not_ok:,}")
    made.add_row("verdict", "ok" if outcome.ok else "NOT OK: nothing to verify" if outcome.nothing else "NOT OK")
    return made
