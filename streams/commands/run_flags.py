"""Options of `braid run`, and which of them go together."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from streams.commands.numbers import number
from streams.commands.options import Flag, Flags, JsonCounts, KeepGoing, SignVerdicts

if TYPE_CHECKING:
    from streams.cluster.config import Settings


@dataclass(frozen=True, kw_only=True)
class RunFlags(Flags):
    """The options of `braid run`."""

    out: Path
    """Directory for the results; the results of an earlier run are replaced."""
    judge: Literal["none", "scripted", "anthropic", "openai"] = "none"
    """The judge of branches of one tier: none (votes in the files still count), a rule file, or the model of
    emission.judge.model. Its answers stay in OUT/votes.jsonl: a second run does not pay for it again.
    judge.calls_per_hour is counted for this run alone.
    """
    rules: Path | None = None
    """The rule file of a scripted judge."""
    formats: Annotated[list[str] | None, Parameter(name="--format")] = None
    """Export the result as well, to OUT/FORMAT, as `braid export --format FORMAT --from-dir OUT` does; may be given several
    times.
    """
    no_evidence: Annotated[bool, Flag] = False
    """Leave evidence out: rankings and rows only."""
    overrides: Annotated[list[str] | None, Parameter(name="--set")] = None
    """Another value for part of the configuration, as in `braid replay`: redact=false, rewards.judge_weight=0.5. May be
    given several times.
    """
    processes: Annotated[int | None, number("--processes", 1)] = None
    """How many partitions to fold at once (an input has one for every 32 MB); by default one per processor. With
    --judge it is one.
    """
    sign_verdicts: SignVerdicts = False
    keep_going: KeepGoing = False
    json: JsonCounts = False

    def check(self) -> None:
        """Raise an error when options do not go together; before anything is read."""
        if not self.formats:
            return
        from streams.jobs.errors import ReplayError
        from streams.jobs.export.beside import require_recipes

        require_recipes(self.formats)
        if self.no_evidence:
            raise ReplayError("--format exports rollouts whose closing evidence is there; leave --no-evidence out")

    def members(self, files: Sequence[Path]) -> int:
        """How many processes are useful."""
        from streams.jobs.partition_count import partitions_for, total_bytes

        wanted = 1 if self.judge != "none" else self.processes or os.cpu_count() or 1
        return min(wanted, partitions_for(total_bytes(files)))

    def settings(self) -> "Settings":
        """The configuration with the values that were set."""
        from streams.cluster.config import load
        from streams.jobs.replay.overrides import Overrides

        overrides = Overrides(self.overrides or ())
        settings = load(judge=None if self.rules is None else {"rules": self.rules})
        emission = overrides.config(settings.emission)
        if self.judge != "none":
            emission = emission.model_copy(update={"judge": emission.judge.model_copy(update={"kind": self.judge})})
        return settings.model_copy(update={"emission": emission, "closing": overrides.policy(settings.closing)})
