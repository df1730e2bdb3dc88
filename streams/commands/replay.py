"""`braid replay`: the log read again."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
from cyclopts import Parameter

from streams.commands.numbers import number

if TYPE_CHECKING:
    from streams.cluster.config import Settings
    from streams.jobs.replay.replay import Replayed
    from streams.jobs.replay.replay_manifest import Repeat
    from streams.views.tables import Grid

Flag = Parameter(negative="")


def replay(
    *,
    out: Path | None = None,
    to_prefix: str | None = None,
    dry_run: Annotated[bool, Flag] = False,
    verify: Annotated[bool, Flag] = False,
    from_dir: Path | None = None,
    unfinished: Annotated[bool, Flag] = False,
    start: Annotated[str | None, Parameter(name="--from")] = None,
    end: Annotated[str | None, Parameter(name="--to")] = None,
    manifest: Path | None = None,
    set_: Annotated[list[str] | None, Parameter(name="--set")] = None,
    reclose: Annotated[bool, Flag] = False,
    format: list[str] | None = None,  # noqa: A002 - the option's name
    no_evidence: Annotated[bool, Flag] = False,
    no_sign: Annotated[bool, Flag] = False,
    processes: Annotated[int | None, number("--processes", 1)] = None,
    resume: Annotated[bool, Flag] = False,
    json: Annotated[bool, Flag] = False,
) -> None:
    """Fold the log again: the same facts give the same bytes, or what other rules would have made of them.

    Reads the fact topics (or an archive of them) up to where they end now. No worker is needed, no model is called, no clock
    is read: deadlines, verdicts and votes stand in the log. Exits with 1 when a rollout that has closed cannot be made again,
    or --verify finds a difference; what is wrong is named, and the rest is replayed.

    Try `braid replay --dry-run --verify` first: it proves that the sinks are what the log gives.

    Example: `braid replay --from-dir results --out again --set rewards.judge_weight=0.5`

    Parameters
    ----------
    out
        Directory for the records (an embedded log: `braid export --from-dir` and `braid verify` read it) and the manifest.
    to_prefix
        Write to topics with this prefix instead: compare, then let readers switch.
    dry_run
        Write nothing.
    verify
        Compare every record with the one in the sinks, byte by byte.
    from_dir
        Read an archive, or the output of `braid run`, instead of the configured cluster.
    unfinished
        Read it although it has no manifest, or has lost files since: what is missing of rollouts is named.
    start
        Where to begin: a time (2026-11-16T08:00:00Z, or milliseconds), or TOPIC/PARTITION@OFFSET, several with commas.
    end
        Where to stop, in the same forms; what is there is not read any more.
    manifest
        Read exactly what an earlier replay or archive read, as its manifest (a file of any name, or the directory) says. The
        digests are compared with those of the earlier replay; under the same rules others are an error.
    set_
        Another value for part of the configuration: summarize.max_bytes=1200, rewards.judge_weight=0.5,
        pairs.min_probability=0.8; with --reclose also closing.deadline_ms=60000. May be given several times.
    reclose
        Decide anew when rollouts settle and close; what never settled, under the configured rules. Reads the log twice.
    format
        Export what was replayed as well, to OUT/FORMAT; may be given several times.
    no_evidence
        Leave evidence out: rankings and rows only.
    no_sign
        Leave evidence unsigned.
    processes
        How many partitions at once; one per processor when left out.
    resume
        Go on with a replay to this directory that was cut off.
    json
        Print one JSON object with the counts.
    """
    from streams.jobs.replay.crew import Crew

    with Crew(processes or os.cpu_count() or 1) as crew:  # before anything that takes long to load
        from streams.cluster.config import load
        from streams.cluster.connections import resolve
        from streams.commands.stopping import run_stoppable
        from streams.jobs.errors import ReplayError
        from streams.jobs.replay.bounds import bounded, offsets_asked, require_bounds
        from streams.jobs.replay.partition_job import Job
        from streams.jobs.replay.replay import replay as run
        from streams.jobs.replay.replay_manifest import ReplayManifest, manifest_at
        from streams.log.kafka_reader import hush
        from streams.log.readers import reader_of
        from streams.views.progress import progress

        settings = load()
        if [out is not None, to_prefix is not None, dry_run].count(True) != 1:
            raise ReplayError("say where the records go: --out DIR, --to-prefix PREFIX, or --dry-run")
        _require_formats(format or [], out, evidence=not no_evidence, sign=not no_sign)
        _require_rules(set_ or [], reclose=reclose, verify=verify, evidence=not no_evidence)
        _require_places(settings, from_dir, out, to_prefix, resume=resume)
        asked = {
            "--from-dir": from_dir, "--from": start, "--to": end, "--manifest": manifest,
            "BRAID_PREFIX": settings.prefix if from_dir is None else None,
        }  # fmt: skip
        require_bounds(start, end, manifest)
        earlier = None if manifest is None else manifest_at(manifest)
        hush()

        async def whole() -> "Replayed":
            async with reader_of(settings, from_dir, unfinished=unfinished, tolerant=True) as log:
                spans = await bounded(log, start, end, manifest)
                lost = log.lost(spans, offsets_asked(start), exact=manifest is not None)
            job = Job(
                directory=from_dir, unfinished=unfinished, spans=spans, overrides=tuple(set_ or ()), reclose=reclose,
                evidence=not no_evidence, sign=not no_sign, out=out, to_prefix=to_prefix, verify=verify, lost=lost,
                formats=tuple(dict.fromkeys(format or ())), asked={name: str(each) for name, each in asked.items() if each},
            )  # fmt: skip
            reached = settings if from_dir is not None else resolve(settings)
            with progress() as say:
                return await run(
                    job, reached, crew, resume=resume, say=say,
                    earlier=earlier if isinstance(earlier, ReplayManifest) else None,
                )  # fmt: skip

        replayed = run_stoppable(whole())
    _tell(replayed, manifest)
    if json:
        sys.stdout.write(orjson.dumps(replayed.plain()).decode() + "\n")
    else:
        from streams.views.tables import show

        show(_table(replayed))
    if not replayed.ok:
        sys.exit(1)


def _require_places(
    settings: "Settings", from_dir: Path | None, out: Path | None, to_prefix: str | None, *, resume: bool
) -> None:
    """Raises an error when it cannot be read there, or not be written here."""
    from streams.jobs.errors import ReplayError
    from streams.jobs.replay.output import require_apart
    from streams.jobs.replay.replay_manifest import require_manifest
    from streams.jobs.targets import require_prefix

    if resume and out is None:
        raise ReplayError("--resume needs --out: what is done is noted there")
    if from_dir is not None:
        require_manifest(from_dir)
    if to_prefix is not None:
        require_prefix(settings, to_prefix)
    if out is not None:
        require_apart(out, from_dir)


def _require_rules(given: list[str], *, reclose: bool, verify: bool, evidence: bool) -> None:
    """Raises an error when rules cannot be set, or not together."""
    from streams.jobs.errors import ReplayError
    from streams.jobs.replay.overrides import Overrides

    overrides = Overrides(given)
    if overrides.touches_closing and not reclose:
        raise ReplayError("--set closing.*: when a rollout closed is a fact; --reclose decides it again")
    if verify and (reclose or overrides.touches_emission or not evidence):
        raise ReplayError("--verify compares with what was emitted; leave --set, --reclose and --no-evidence out")


def _require_formats(names: list[str], out: Path | None, *, evidence: bool, sign: bool) -> None:
    """Raises an error when these cannot be exported from what is replayed."""
    from streams.jobs.errors import ReplayError

    if not names:
        return
    from streams.jobs.export.beside import require_formats

    if out is None:
        raise ReplayError("--format needs --out")
    require_formats(names)
    if not evidence:
        raise ReplayError("--format exports rollouts whose closing evidence is there; leave --no-evidence out")
    if "dsse" in names and not sign:
        raise ReplayError("--format dsse exports signed evidence; leave --no-sign out")


def _tell(replayed: "Replayed", manifest: Path | None) -> None:
    from streams.log.terminal_text import visible

    if replayed.finished:
        sys.stderr.write(f"braid: {replayed.counts.out} is a finished replay with these options; nothing was done\n")
    for hole in replayed.holes:
        sys.stderr.write(f"braid: cannot be made again: {visible(hole.rollout_id)}: {visible('; '.join(hole.why))}\n")
    if replayed.compared is not None and not replayed.compared.ok:
        for what in replayed.compared.named:
            sys.stderr.write(f"braid: {visible(what)}\n")
    if replayed.repeat is not None:
        sys.stderr.write(f"braid: {_repeated(replayed.repeat)} {manifest}\n")


def _repeated(repeat: "Repeat") -> str:
    if repeat.same:
        return "the same digests as in"
    if not repeat.rules:
        return f"the rules are the same, the records of {', '.join(repeat.sinks)} are not those of"
    return f"other rules ({'; '.join(repeat.rules)}) gave other records of {', '.join(repeat.sinks)} than in"


def _table(replayed: "Replayed") -> "Grid":
    from streams.views.tables import table

    made = table("", "what", "count", right=("count",))
    counts = replayed.counts
    rows = {
        "facts read": replayed.facts, "rollouts made again": counts.rollouts, "branches": counts.branches,
        "events": counts.events, "passing branches": counts.passes, "failing branches": counts.fails,
        "unknown branches": counts.unknown, "SFT records": counts.sft, "DPO records": counts.dpo,
        "PPO records": counts.ppo, "evidence records": counts.aep, "rollouts not closed": replayed.open,
        "records that are no facts": replayed.undecodable, "rollouts that cannot be made again": len(replayed.holes),
    }  # fmt: skip
    if replayed.compared is not None:
        found = replayed.compared
        rows |= {
            "sink records identical": found.identical, "  repeated, identical": found.repeated,
            "  older evidence, identical otherwise": found.earlier,
            "  of replaced attempts": found.superseded, "  different": found.different, "  missing": found.missing,
            "  not emitted now": found.extra, "    redacted by other rules": found.redacted_otherwise,
            "  not compared, outside or not closed": found.elsewhere,
            "  not compared, cannot be made again": found.holed, "  sinks that could not be read": found.unread,
        }  # fmt: skip
    for what, count in rows.items():
        made.add_row(what, f"{count:,}")
    made.add_row("seconds", f"{counts.seconds:.2f}")
    return made
