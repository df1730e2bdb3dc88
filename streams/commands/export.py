"""`braid export`: whole rollouts as files that trainers load."""

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from streams.commands.console_output import complain, print_json
from streams.commands.numbers import number
from streams.commands.options import Flag, Flags, JsonCounts

if TYPE_CHECKING:
    from streams.jobs.export.export_counts import Counts
    from streams.views.tables import Grid


@dataclass(frozen=True, kw_only=True)
class ExportFlags(Flags):
    """The options of `braid export`."""

    format: str
    """trl-sft, trl-dpo, trl-kto, trl-grpo, trl-reward, openai-sft, openai-dpo, messages, verl-parquet, tokens-parquet,
    nemo-preference, sharegpt, rollout-wire, atif, sts, adp, rl-transitions, trl-stepwise, dsse or compliance-eval.
    """
    out: Path
    """Directory of the dataset."""
    from_dir: Path | None = None
    """Read the output directory of `braid run` instead of the configured cluster."""
    unfinished: Annotated[bool, Flag] = False
    """Read it although it has no manifest, or has lost files since: whole rollouts are exported, the others named."""
    file: Literal["jsonl", "parquet"] | None = None
    """JSON lines or Parquet; by default the usual one of the format."""
    arguments: Literal["text", "object"] = "text"
    """Arguments of tool calls as JSON text, or as JSON objects (JSON lines only)."""
    loss: Literal["messages", "spans", "turns"] = "messages"
    """For trl-sft: whole conversations, or prompts and completions, one for each run of messages that the model said, or one for
    each such message. Conversations with assistant messages that were given are always prompts and completions."""
    layout: Literal["files", "directory"] | None = None
    """For atif: files of many rows, or a directory for each row with its trajectory.json. The sessions of sts always have a directory
    each."""
    split: str = "train=1"
    """Parts with their shares, as train=0.9,test=0.1. A rollout is in one part with all its rows."""
    filter: Annotated[list[str] | None, Flag] = None
    """basis=objective, model=NAME, fidelity=exact, agent=NAME, policy_version=NAME, max_lag=N (versions behind the newest),
    min_margin=0.5, min_score=0.8 or label.NAME=VALUE; may be given several times."""
    dedupe: Literal["exact", "near"] | None = None
    """Leave out rows that repeat an earlier one: equal texts, or texts that share most of their words. Samples of one task stay
    together."""
    eval_items: Path | None = None
    """JSON lines of {id, question}: rows that repeat one are left out."""
    shard_rows: Annotated[int, number("--shard-rows", 1)] = 50_000
    """Approximate number of rows of a file; a rollout is never split between two files."""
    from_beginning: Annotated[bool, Flag] = False
    """Export everything again, replacing the content of the directory."""
    json: JsonCounts = False


def export(*, flags: ExportFlags) -> None:
    """Write whole rollouts as a dataset: rows in the shape of a trainer, a manifest and a dataset card.

    A rollout is exported when its closing evidence is there and every row that it lists (and every branch record, if
    the format uses those) was read with the digest it states. Exporting to the same directory again adds new rollouts,
    in new files.

    Example: `braid export --format trl-dpo --from-dir results --out dataset`
    """
    from agents.formats import FORMATS
    from agents.formats.selection import Filters, Split
    from agents.formats.shape import Attestor, Style
    from streams.cluster.config import load
    from streams.cluster.signing_keys import signing_key, trusted_keys
    from streams.jobs.export.beside import require_formats
    from streams.jobs.export.export import export as run
    from streams.jobs.export.recipe import Recipe
    from streams.log.kafka_reader import hush
    from streams.log.readers import reader_of
    from streams.views.progress import progress

    require_formats([flags.format])
    settings = load()
    recipe = Recipe.of(
        FORMATS[flags.format],
        flags.file,
        split=Split.parse(flags.split),
        filters=Filters.parse(flags.filter or ()),
        eval_items=flags.eval_items,
        shard_rows=flags.shard_rows,
        redact=settings.emission.redact,
        dedupe=flags.dedupe,
        style=Style(flags.arguments, flags.loss),
        **({} if flags.layout is None else {"layout": flags.layout}),
    )
    hush()
    with progress() as say:
        source = reader_of(settings, flags.from_dir, unfinished=flags.unfinished)
        attestor = Attestor(signing_key(settings), trusted_keys(settings))
        counts = asyncio.run(
            run(source, flags.out, recipe, attestor=attestor, from_beginning=flags.from_beginning, say=say)
        )
    _tell_missing(counts)
    if counts.uncovered:
        complain(
            f"the evidence of {counts.uncovered:,} rollouts was made before it listed branch records: no signature covers what "
            "was exported of those"
        )
    if counts.short_items:
        complain(
            f"{flags.eval_items}: {counts.short_items:,} items are too short to be told from chance; rows that repeat them are "
            "not left out"
        )
    if flags.json:
        print_json(counts.plain())
        return
    from streams.views.tables import show

    show(_table(counts))
    sys.stdout.write(f"\n{_next(counts, flags.out)}\n")


def _tell_missing(counts: "Counts") -> None:
    from streams.log.terminal_text import visible

    for line in counts.missing:
        complain(f"not exported, incomplete: {visible(line)}")
    if counts.incomplete > len(counts.missing):
        complain(f"and {counts.incomplete - len(counts.missing):,} more incomplete rollouts")
    if counts.incomplete:
        complain("`braid verify` says what is wrong with them; the next export looks at them again")


def _next(counts: "Counts", out: Path) -> str:
    if counts.rows:
        return f"{counts.files} new files in {out}; what they are made of stands in {out / 'manifest.json'}"
    return (
        f"nothing new for {out}"
        if not counts.rollouts
        else f"no rows of this format in {counts.rollouts:,} new rollouts"
    )


def _table(counts: "Counts") -> "Grid":
    from streams.views.tables import table

    made = table("", "what", "count", right=("count",))
    labels = {
        "rollouts": "new rollouts", "branches": "branches", "passes": "passing branches", "fails": "failing branches",
        "unknown": "unknown branches", "sft": "SFT records", "dpo": "DPO records", "ppo": "PPO records",
        "rows": "rows written", "incomplete": "incomplete rollouts", "open": "rollouts not closed yet", "files": "files",
    }  # fmt: skip
    for name, label in labels.items():
        made.add_row(label, f"{getattr(counts, name):,}")
    for reason, count in sorted(counts.absent().items()):
        made.add_row(f"left out: {reason}", f"{count:,}")
    for name, count in sorted(counts.not_carried.items()):
        made.add_row(f"not carried: {name}", f"{count:,}")
    for item, count in sorted(counts.contaminated.items()):
        made.add_row(f"  repeats {item}", f"{count:,}")
    made.add_row("seconds", f"{counts.seconds:.2f}")
    return made
