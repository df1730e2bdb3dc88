"""One export: whole rollouts, selected, shaped and written; then manifest, card and checkpoint, in this order.

Nothing is visible before everything is complete, and what is exported is a function of the log and the recipe: an export
that is killed and started again gives the same files.
"""

import time
from collections import Counter
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from agents.training.contamination import EvalIndex, read_items
from agents.training.formats.shape import FileKind, Format, Group, Left, Row
from agents.training.redaction import redact_json
from agents.training.selection import Filters, Selection, Split
from schemas.training import DpoRecord, PpoRecord, RejectedRecord, SftRecord
from streams.exporting.inputs import Input
from streams.exporting.rollouts import ROWS, TOPICS_OF, Incomplete, PartitionReader, Whole
from streams.exporting.shards import Shard, Shards
from streams.exporting.state import ExportError, State, clear_leftovers, load_state, write_card, write_manifest
from streams.run import Say
from streams.topics import DPO, EVIDENCE, LIFECYCLE, PPO, RANKINGS, REJECTED, SFT, Topic

SHARD_ROWS = 50_000
NAMED = 20
"""Incomplete rollouts that are named; all are counted."""


@dataclass(frozen=True)
class Recipe:
    """What to export, and how."""

    form: Format
    kind: FileKind
    split: Split = field(default_factory=Split)
    filters: Filters = field(default_factory=Filters)
    eval_items: Path | None = None
    shard_rows: int = SHARD_ROWS
    redact: bool = True

    @classmethod
    def of(cls, form: Format, kind: FileKind | None, **more: Any) -> "Recipe":
        """A recipe whose file suits its format. Raises ExportError."""
        if kind is not None and kind not in form.files:
            raise ExportError(f"{form.name} has no {kind} form; leave --file out, or give --file {form.files[0]}")
        return cls(form, kind or form.files[0], **more)

    def names(self) -> list[str]:
        """How the names of its files begin."""
        return [f"{part}-{split}" if part else split for part in self.form.columns for split, _ in self.split.shares]

    def plain(self, source: str) -> dict[str, Any]:
        """What two exports to one directory must agree on."""
        items = None if self.eval_items is None else sha256(_read(self.eval_items)).hexdigest()
        return {
            "format": self.form.name,
            "file": self.kind,
            "source": source,
            "split": str(self.split),
            "filters": [f"{name}={value}" for name, value in self.filters.wanted],
            "eval_items": items,
            "redact": self.redact,
        }


@dataclass
class Counts:
    """What an export did: the object that `--json` prints."""

    rollouts: int = 0
    branches: int = 0
    closed: int = 0
    passes: int = 0
    fails: int = 0
    unknown: int = 0
    not_required: int = 0
    sft: int = 0
    dpo: int = 0
    ppo: int = 0
    kept_out: int = 0
    """Rows that the worker kept out of training; their reasons stand in training.rejected.v1."""
    aep: int = 0
    rows: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    contaminated: dict[str, int] = field(default_factory=dict)
    """Rows by the evaluation item that they repeat."""
    redacted: int = 0
    """Rows in which something was still to be redacted."""
    incomplete: int = 0
    """Closed rollouts of which something is missing."""
    open: int = 0
    """Rollouts that have records and are not closed."""
    undecodable: int = 0
    files: int = 0
    bytes: int = 0
    seconds: float = 0.0
    out: str = ""
    missing: list[str] = field(default_factory=list)
    """The first incomplete rollouts, and what they miss."""

    def add(self, whole: Whole) -> None:
        """Count a rollout that is whole."""
        self.rollouts += 1
        self.closed += 1
        self.aep += whole.closing.records + 1
        self.branches += len(whole.ranking.branches)
        statuses = Counter(branch.objective_status for branch in whole.ranking.branches)
        self.passes += statuses["pass"]
        self.fails += statuses["fail"]
        self.unknown += statuses["unknown"]
        self.not_required += statuses["not_required"]
        topics = Counter(emitted.topic for emitted in whole.closing.emitted)
        self.sft += topics[SFT.name]
        self.dpo += topics[DPO.name]
        self.ppo += topics[PPO.name]
        self.kept_out += topics[REJECTED.name]

    def leave(self, reason: str, count: int = 1) -> None:
        """Count what was left out."""
        self.rejected[reason] = self.rejected.get(reason, 0) + count

    def plain(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return vars(self) | {"rejected": dict(sorted(self.rejected.items())), "seconds": round(self.seconds, 3)}


_TOTALS = (
    "rollouts",
    "branches",
    "passes",
    "fails",
    "unknown",
    "not_required",
    "sft",
    "dpo",
    "ppo",
    "aep",
    "kept_out",
    "rows",
)


async def export(
    source: Input, out: Path, recipe: Recipe, *, from_beginning: bool = False, say: Say = lambda _what, _share: None
) -> Counts:
    """Export what is new in `source` to `out`. Raises ExportError when the directory holds another export."""
    began = time.monotonic()
    counts = Counts(out=str(out))
    async with source:
        state = load_state(out, recipe.plain(source.identity), from_beginning=from_beginning)
        clear_leftovers(out, state, recipe.names())
        shards = Shards(out, recipe.form, recipe.kind, recipe.shard_rows, state.numbers)
        try:
            read = await _Run(source, recipe, state, shards, counts, say).read()
            published = shards.publish()
        except BaseException:
            shards.discard()
            raise
        say("finishing", 1.0)
        _conclude(out, recipe, state, counts, published, source.describe(read) if counts.rollouts else None)
    counts.seconds = time.monotonic() - began
    return counts


def _conclude(
    out: Path, recipe: Recipe, state: State, counts: Counts, published: list[Shard], described: dict[str, Any] | None
) -> None:
    """Write what stands beside the files; the checkpoint last."""
    counts.files = len(published)
    counts.bytes = sum(shard.bytes for shard in published)
    state.shards += published
    for shard in published:
        stem, _, number = shard.name.rpartition(".")[0].rpartition("-")
        state.numbers[stem] = max(state.numbers.get(stem, 0), int(number) + 1)
    state.totals.update({name: getattr(counts, name) for name in _TOTALS})
    state.rejected.update(counts.rejected)
    state.contaminated.update(counts.contaminated)
    if described is not None:
        state.inputs.append(described)
    write_card(out, state, recipe.form, recipe.kind)
    write_manifest(out, state, recipe.form)
    state.save(out)
    for name in state.replaces:
        (out / name).unlink(missing_ok=True)


class _Run:
    """Reads all partitions, and writes what is whole."""

    def __init__(self, source: Input, recipe: Recipe, state: State, shards: Shards, counts: Counts, say: Say) -> None:
        self._source = source
        self._recipe = recipe
        self._state = state
        self._shards = shards
        self._counts = counts
        self._say = say
        items = None if recipe.eval_items is None else _items(recipe.eval_items)
        self._selection = Selection(recipe.filters, items)

    async def read(self) -> dict[str, dict[int, tuple[int, int]]]:
        """Export; returns which offsets were read, by topic and partition."""
        read: dict[str, dict[int, tuple[int, int]]] = {}
        partitions = self._source.partitions()
        for done, partition in enumerate(partitions):
            starts = {name: each[partition] for name, each in self._state.offsets.items() if partition in each}
            sources = await self._source.open(partition, self._topics(), starts)
            reader = PartitionReader(sources, self._source.codec, self._recipe.form.needs, self._state.seen)
            async for found in reader.rollouts():
                if isinstance(found, Incomplete):
                    self._miss(found)
                else:
                    self._take(found)
                self._say("exporting", (done + sources[EVIDENCE].share) / len(partitions))
            for name, offset in reader.offsets().items():
                self._state.offsets.setdefault(name, {})[partition] = offset
            for topic, each in sources.items():
                read.setdefault(topic.name, {})[partition] = (each.start, each.position)
            self._counts.open += reader.open
            self._counts.undecodable += reader.undecodable
        return read

    def _topics(self) -> list[Topic]:
        needed = [TOPICS_OF[kind] for kind in self._recipe.form.needs]
        labels = [LIFECYCLE] if self._recipe.filters.by_label else []
        return list(dict.fromkeys((EVIDENCE, RANKINGS, *ROWS, *sorted(needed), *labels)))

    def _miss(self, found: Incomplete) -> None:
        self._counts.incomplete += 1
        if len(self._counts.missing) < NAMED:
            self._counts.missing.append(f"{found.rollout_id}: {found.missing}")

    def _take(self, whole: Whole) -> None:
        self._counts.add(whole)
        self._state.configs[whole.ranking.config_digest] += 1
        if whole.unlisted:
            self._counts.leave("not_listed", whole.unlisted)
        refusal = self._recipe.filters.refuses_rollout(whole.labels)
        if refusal is not None:
            self._counts.leave(f"filtered:{refusal}")
            return
        split = self._recipe.split.of(whole.rollout_id)
        group, refused = self._selection.select(_group(whole, split), self._recipe.form.needs)
        for each in refused:
            self._counts.leave(each.reason)
            if each.item is not None:
                self._counts.contaminated[each.item] = self._counts.contaminated.get(each.item, 0) + 1
        rows = [self._redacted(made) for made in self._recipe.form.make(group) if not self._left(made)]
        self._counts.rows += len(rows)
        self._shards.write(rows, split, whole.weight)

    def _left(self, made: Row | Left) -> bool:
        if isinstance(made, Left):
            self._counts.leave(made.reason)
            return True
        return False

    def _redacted(self, made: Row | Left) -> Row:
        """The last look before something leaves: rows were redacted when they were made, unless that was switched off."""
        row = cast("Row", made)
        if not self._recipe.redact:
            return row
        found = redact_json(row.value)
        if found.value is not row.value:
            self._counts.redacted += 1
        return row._replace(value=found.value)


def _group(whole: Whole, split: str) -> Group:
    return Group(
        whole.ranking,
        split,
        cast("tuple[SftRecord, ...]", whole.rows.get(SFT, ())),
        cast("tuple[DpoRecord, ...]", whole.rows.get(DPO, ())),
        cast("tuple[PpoRecord, ...]", whole.rows.get(PPO, ())),
        cast("tuple[RejectedRecord, ...]", whole.rows.get(REJECTED, ())),
        whole.branches,
        whole.evidence,
    )


def _items(path: Path) -> EvalIndex:
    found = read_items(_read(path).splitlines())
    if found.errors:
        first = found.errors[0]
        raise ExportError(f"{path}:{first.line}: {first.reason}; every line must be an evaluation item")
    return EvalIndex(found.items)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ExportError(f"{path}: {error.strerror}") from None
