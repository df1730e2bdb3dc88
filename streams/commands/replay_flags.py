"""Options of `braid replay`, and which of them go together."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from streams.commands.numbers import number
from streams.commands.options import Flag, Flags, JsonCounts

if TYPE_CHECKING:
    from streams.cluster.config import Settings


@dataclass(frozen=True, kw_only=True)
class ReplayFlags(Flags):
    """The options of `braid replay`."""

    out: Path | None = None
    """Directory for the records (an embedded log: `braid export --from-dir` and `braid verify` read it) and the manifest."""
    to_prefix: str | None = None
    """Write to topics with this prefix instead: compare, then let readers switch."""
    dry_run: Annotated[bool, Flag] = False
    """Write nothing."""
    verify: Annotated[bool, Flag] = False
    """Compare every record with the one in the sinks, byte by byte."""
    from_dir: Path | None = None
    """Read an archive, or the output of `braid run`, instead of the configured cluster."""
    unfinished: Annotated[bool, Flag] = False
    """Read it although it has no manifest, or has lost files since: rollouts with missing facts are named."""
    start: Annotated[str | None, Parameter(name="--from")] = None
    """Where to begin: a time (2026-11-16T08:00:00Z, or milliseconds), or TOPIC/PARTITION@OFFSET, several with commas."""
    end: Annotated[str | None, Parameter(name="--to")] = None
    """Where to stop, in the same forms; records from there on are not read."""
    manifest: Path | None = None
    """Read exactly the records that an earlier replay or archive read, by its manifest (a file of any name, or the
    directory). The digests are compared with those of the earlier replay; under the same rules a difference is an
    error.
    """
    overrides: Annotated[list[str] | None, Parameter(name="--set")] = None
    """Another value for part of the configuration: summarize.max_bytes=1200, rewards.judge_weight=0.5,
    pairs.min_probability=0.8; with --reclose also closing.deadline_ms=60000. May be given several times.
    """
    reclose: Annotated[bool, Flag] = False
    """Decide again when rollouts settle and close; for rollouts that never settled, under the configured rules. Reads
    the log twice.
    """
    formats: Annotated[list[str] | None, Parameter(name="--format")] = None
    """Also export the replayed rows, to OUT/FORMAT; may be given several times."""
    no_evidence: Annotated[bool, Flag] = False
    """Leave evidence out: rankings and rows only."""
    no_sign: Annotated[bool, Flag] = False
    """Leave evidence unsigned."""
    processes: Annotated[int | None, number("--processes", 1)] = None
    """How many partitions to replay at once; by default one per processor."""
    resume: Annotated[bool, Flag] = False
    """Go on with a replay to this directory that was cut off."""
    json: JsonCounts = False

    def check(self, settings: "Settings") -> None:
        """Raise an error when options do not go together, or name a place that cannot be used."""
        from streams.jobs.errors import ReplayError
        from streams.jobs.replay.bounds import require_bounds

        if [self.out is not None, self.to_prefix is not None, self.dry_run].count(True) != 1:
            raise ReplayError("say where the records go: --out DIR, --to-prefix PREFIX, or --dry-run")
        self._check_formats()
        self._check_rules()
        self._check_places(settings)
        require_bounds(self.start, self.end, self.manifest)

    def _check_formats(self) -> None:
        if not self.formats:
            return
        from streams.jobs.errors import ReplayError
        from streams.jobs.export.beside import require_recipes

        if self.out is None:
            raise ReplayError("--format needs --out")
        require_recipes(self.formats)
        if self.no_evidence:
            raise ReplayError("--format exports rollouts whose closing evidence is there; leave --no-evidence out")
        if "dsse" in self.formats and self.no_sign:
            raise ReplayError("--format dsse exports signed evidence; leave --no-sign out")

    def _check_rules(self) -> None:
        from streams.jobs.errors import ReplayError
        from streams.jobs.replay.overrides import Overrides

        overrides = Overrides(self.overrides or ())
        if overrides.touches_closing and not self.reclose:
            raise ReplayError("--set closing.*: when a rollout closed is a fact; --reclose decides it again")
        if self.verify and (self.reclose or overrides.touches_emission or self.no_evidence):
            raise ReplayError("--verify compares with what was emitted; leave --set, --reclose and --no-evidence out")

    def _check_places(self, settings: "Settings") -> None:
        from streams.jobs.errors import ReplayError
        from streams.jobs.replay.output import require_apart
        from streams.jobs.replay.replay_manifest import require_manifest
        from streams.jobs.targets import require_prefix

        if self.resume and self.out is None:
            raise ReplayError("--resume needs --out: what is done is noted there")
        if self.from_dir is not None:
            require_manifest(self.from_dir)
        if self.to_prefix is not None:
            require_prefix(settings, self.to_prefix)
        if self.out is not None:
            require_apart(self.out, self.from_dir)

    def asked(self, settings: "Settings") -> dict[str, str]:
        """The options that select what is read, for the manifest."""
        said = {
            "--from-dir": self.from_dir, "--from": self.start, "--to": self.end, "--manifest": self.manifest,
            "BRAID_PREFIX": settings.prefix if self.from_dir is None else None,
        }  # fmt: skip
        return {name: str(each) for name, each in said.items() if each}
