"""The result of a replay for people: a table of counts, and a remark for everything that is not as it was."""

from collections.abc import Iterator
from pathlib import Path

from streams.jobs.replay.replay import Replayed
from streams.jobs.replay.replay_manifest import Repeat
from streams.log.terminal_text import visible
from streams.views.tables import Grid, table


def remarks(replayed: Replayed, manifest: Path | None) -> Iterator[str]:
    """A line for each finding; `manifest` is the one that the replay was compared with."""
    if replayed.finished:
        yield f"{replayed.counts.out} is a finished replay with these options; nothing was done"
    for hole in replayed.holes:
        yield f"cannot be made again: {visible(hole.rollout_id)}: {visible('; '.join(hole.why))}"
    if replayed.compared is not None and not replayed.compared.ok:
        yield from map(visible, replayed.compared.named)
    if replayed.repeat is not None:
        yield f"{_repeated(replayed.repeat)} {manifest}"


def _repeated(repeat: Repeat) -> str:
    if repeat.same:
        return "the same digests as in"
    if not repeat.rules:
        return f"the rules are the same, the records of {', '.join(repeat.sinks)} are not those of"
    return f"other rules ({'; '.join(repeat.rules)}) gave other records of {', '.join(repeat.sinks)} than in"


def replay_table(replayed: Replayed) -> Grid:
    """The counts."""
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
