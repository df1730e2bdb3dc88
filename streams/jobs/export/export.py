"""One export: whole rollouts, selected, formatted and written; then manifest, card and checkpoint, in this order.

Nothing is visible before everything is complete, and the export is a function of the log and the recipe: an export that
is killed and started again gives the same files.
"""

import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from agents.formats.limits import lost_reasoning, messages_of
from agents.formats.selection import Selection, version_number
from agents.formats.shape import Attestor, Group, Left, Row
from agents.redaction.redaction import has_unremoved, redact_json
from agents.rewards.rewards import reward_range
from agents.training.contamination import EvalIndex, read_items
from schemas.compliance import ComplianceEvalRecord
from schemas.errors import DecodeError
from schemas.training import DpoRecord, PpoRecord, RejectedRecord, SftRecord
from streams.jobs.export.branch_facts import facts_of
from streams.jobs.export.checkpoint import (
    PUBLISHING,
    ExportError,
    State,
    clear_leftovers,
    load_state,
    note_publishing,
    write_card,
    write_dataset_manifest,
)
from streams.jobs.export.cursors import partition_cursors
from streams.jobs.export.duplicates import Duplicates
from streams.jobs.export.export_counts import NAMED, TOTALS, Counts
from streams.jobs.export.ledger import ROWS as LEDGER_ROWS
from streams.jobs.export.ledger import Ledger, clear_ledgers
from streams.jobs.export.recipe import Recipe, read_bytes
from streams.jobs.export.shards import Shard, Shards, remove_file, reveal
from streams.jobs.export.whole_rollouts import ROWS, TOPICS_OF, Contradicted, Incomplete, PartitionReader, Whole
from streams.log.cursor import Cursor
from streams.log.directory_lock import EXPORT_LOCK as LOCK
from streams.log.directory_lock import held
from streams.log.progress import Say, quiet
from streams.log.reader import LogReader
from streams.log.topics import CLOSURES, COMPLIANCE_EVALS, DPO, EVIDENCE, LIFECYCLE, PPO, RANKINGS, REJECTED, SFT, Topic


async def export(
    source: LogReader,
    out: Path,
    recipe: Recipe,
    *,
    attestor: Attestor | None = None,
    from_beginning: bool = False,
    say: Say = quiet,
) -> Counts:
    """Export the new rollouts of `source` to `out`, with a manifest that `attestor` signs.

    Raises ExportError if the directory has another export, or one is running there.
    """
    began = time.monotonic()
    counts = Counts(out=str(out))
    async with source:
        source.require(EVIDENCE)
        with held(out, LOCK, "export", ExportError):
            state = load_state(out, recipe.plain(source.identity), from_beginning=from_beginning)
            clear_leftovers(out, state, recipe.names(), recipe.layout)
            duplicates = None if recipe.dedupe is None else Duplicates(recipe.dedupe)
            if duplicates is not None:
                duplicates.load(out, state.kept, state.kept_sha256)
            shards = Shards(out, recipe.form, recipe.kind, recipe.shard_rows, state.numbers, recipe.layout)
            ledger = Ledger(out, state.numbers.get(LEDGER_ROWS, 0))
            try:
                read = await _Run(source, recipe, state, shards, ledger, counts, say, attestor, duplicates).read()
                files, ledgers = shards.finish(), ledger.finish()
            except BaseException:
                shards.discard()
                ledger.discard()
                raise
            say("finishing", 1.0)
            note_publishing(out, [*files, *ledgers])
            reveal(out, [*files, *ledgers])
            state.ledgers += ledgers
            if duplicates is not None:
                state.kept, state.kept_sha256 = duplicates.save(out)
            _conclude(out, recipe, state, counts, files, source.provenance(read) if counts.rollouts else None, attestor)
    counts.seconds = time.monotonic() - began
    return counts


def _conclude(
    out: Path, recipe: Recipe, state: State, counts: Counts, published: list[Shard], described: dict[str, Any] | None,
    attestor: Attestor | None,
) -> None:  # fmt: skip
    """Write the accompanying files; the checkpoint last."""
    counts.files = len(published)
    counts.bytes = sum(shard.bytes for shard in published)
    state.shards += published
    numbered = state.shards if recipe.layout == "files" else []
    for shard in (*numbered, *state.ledgers):
        stem, _, number = shard.name.rpartition(".")[0].rpartition("-")
        state.numbers[stem] = max(state.numbers.get(stem, 0), int(number) + 1)
    state.totals.update({name: getattr(counts, name) for name in TOTALS})
    state.totals["kept_out"] += counts.kept_out.total()
    state.rejected.update(counts.absent())
    state.contaminated.update(counts.contaminated)
    state.not_carried.update(counts.not_carried)
    if described is not None:
        state.inputs.append(described)
    write_card(out, state, recipe.form, recipe.kind, recipe.layout)
    write_dataset_manifest(out, state, recipe.form, None if attestor is None else attestor.key)
    state.save(out)
    (out / PUBLISHING).unlink(missing_ok=True)
    for name in set(state.replaces) - {shard.name for shard in state.shards}:
        remove_file(out, name)
    clear_ledgers(out)


class _Run:
    """Reads all partitions, and writes the complete rollouts."""

    def __init__(
        self, source: LogReader, recipe: Recipe, state: State, shards: Shards, ledger: Ledger, counts: Counts, say: Say,
        attestor: Attestor | None, duplicates: Duplicates | None,
    ) -> None:  # fmt: skip
        self._duplicates = duplicates
        self._source = source
        self._recipe = recipe
        self._state = state
        self._shards = shards
        self._ledger = ledger
        self._attestor = attestor
        self._counts = counts
        self._say = say
        items = None if recipe.eval_items is None else _items(recipe.eval_items)
        counts.short_items = 0 if items is None else items.skipped
        self._selection = Selection(recipe.filters, items)

    async def read(self) -> dict[str, dict[str, list[int]]]:
        """Export; returns which offsets were read, from and to, by topic and partition."""
        if self._recipe.filters.by_lag:
            self._selection = replace(self._selection, versions=await self._versions())
        read: dict[str, dict[str, list[int]]] = {}
        partitions = self._source.partitions(EVIDENCE)
        for done, partition in enumerate(partitions):
            starts = {name: each[partition] for name, each in self._state.offsets.items() if partition in each}
            async with partition_cursors(self._source, partition, self._topics(), starts) as cursors:
                await self._partition(partition, cursors, done, len(partitions))
            for topic, each in cursors.items():
                read.setdefault(topic.name, {})[str(partition)] = [each.start, each.position]
        return dict(sorted(read.items()))

    async def _partition(self, partition: int, cursors: dict[Topic, Cursor], done: int, partitions: int) -> None:
        reader = PartitionReader(cursors, self._source.codec, self._recipe.form.needs, self._state.seen)
        async for found in reader.rollouts():
            if isinstance(found, Contradicted):
                raise ExportError(
                    f"{self._source.place}: rollout {found.rollout_id!r} was exported before, and has other closing evidence "
                    "now, of another run; give another directory, or --from-beginning to replace what is exported"
                )
            if isinstance(found, Incomplete):
                self._miss(found)
            else:
                self._take(found)
            self._say("exporting", (done + cursors[EVIDENCE].share) / partitions)
        for name, offset in reader.offsets().items():
            self._state.offsets.setdefault(name, {})[partition] = offset
        self._counts.open += reader.open
        self._counts.bad_lines += reader.undecodable

    async def _versions(self) -> tuple[int, ...]:
        """The numbers of all versions of the policy that rows of the log were sampled by, ascending."""
        found: set[int] = set()
        async for placed in self._source.records((PPO,)):
            try:
                await self._source.codec.prepare([placed.record.value])
                record = self._source.codec.decode(PPO, placed.record.value)
            except DecodeError:
                continue  # the reader of rollouts counts it
            assert isinstance(record, PpoRecord)
            numbers = {version_number(span.version or "") for each in record.streams for span in each.policy_versions}
            found |= {number for number in numbers if number is not None}
        return tuple(sorted(found))

    def _topics(self) -> list[Topic]:
        needed = [topic for kind in self._recipe.form.needs for topic in TOPICS_OF[kind]]
        labels = [LIFECYCLE] if self._recipe.filters.by_label else []
        return list(dict.fromkeys((EVIDENCE, CLOSURES, RANKINGS, *ROWS, *sorted(needed), *labels)))

    def _miss(self, found: Incomplete) -> None:
        self._counts.incomplete += 1
        if len(self._counts.missing) < NAMED:
            self._counts.missing.append(f"{found.rollout_id}: {found.missing}")

    def _take(self, whole: Whole) -> None:
        self._counts.add(whole)
        self._state.configs[whole.ranking.config_digest] += 1
        if whole.unlisted:
            self._counts.leave("not_listed", whole.unlisted)
        labels = {} if whole.opened is None else whole.opened.labels
        refusal = self._recipe.filters.refuses_rollout(labels)
        if refusal is not None:
            self._counts.leave(f"filtered:{refusal}")
            return
        self._counts.uncovered += whole.uncovered
        self._state.judge(whole.chain)
        split = self._recipe.split.of(whole.rollout_id)
        group, refused = self._selection.select(
            _group(whole, split, self._attestor, self._recipe), self._recipe.form.needs
        )
        group = self._without_duplicates(group)
        again = _is_looked_at_again(whole, self._recipe)
        if again:
            group = replace(group, barred_tokens=_barred(group))
        for each in refused:
            self._counts.leave(each.reason)
            if each.item is not None:
                self._counts.contaminated[each.item] = self._counts.contaminated.get(each.item, 0) + 1
        for rewarded in group.ppo if self._recipe.form.name != "rollout-wire" else ():  # its rewards are totals
            self._state.widen(*reward_range(rewarded.components))
        rows = []
        for made in self._recipe.form.make(group):
            row = self._redacted(made) if again and isinstance(made, Row) else made
            if isinstance(row, Left):
                self._counts.leave(row.reason)
            else:
                rows.append(row)
                self._state.use(row.uses)
        self._counts.rows += len(rows)
        lost = Counter(name for row in rows for name in row.lost)
        lost["reasoning_content"] += lost_reasoning(self._recipe.form, rows)
        for name, count in (+lost).items():
            self._counts.not_carried[name] = self._counts.not_carried.get(name, 0) + count
        places = self._shards.write(rows, split, whole.weight)
        self._ledger.add(whole, rows, places)
        if self._state.rollouts is not None:
            self._state.rollouts.append(whole.rollout_id)

    def _without_duplicates(self, group: Group) -> Group:
        if self._duplicates is None:
            return group
        kept, reasons = self._duplicates.select(group, sorted(self._recipe.form.needs))
        for reason in reasons:
            self._counts.leave(reason)
        return kept

    def _redacted(self, row: Row) -> Row | Left:
        """Redact a row again before it is exported, if it was made without redaction, or with other rules than ours."""
        found = redact_json(row.value)
        if has_unremoved(kind for kind, _ in found.counts):
            return Left("secret_not_removed")
        if found.value is not row.value:
            self._counts.redacted += 1
        return row._replace(value=found.value)


def _barred(group: Group) -> frozenset[str]:
    """Rows with tokens of whose messages something is removed on the way out."""
    rows: list[SftRecord | PpoRecord] = [*group.sft, *group.ppo]
    told = [row for row in rows if row.streams]
    return frozenset(
        row.record_id for row in told
        if redact_json([said.model_dump() for said in messages_of(row)]).counts or redact_json(row.tools).counts
    )  # fmt: skip


def _is_looked_at_again(whole: Whole, recipe: Recipe) -> bool:
    """Whether rows must be redacted again, because they were not redacted, or by other rules. Facts are redacted when
    they are read; a second redaction is cheap compared with a leaked secret.
    """
    return (recipe.redact and not whole.redacted and not recipe.form.verbatim) or (
        bool(whole.told) and facts_of(whole.settled, {}, None, redact=recipe.redact).redacting
    )


def _group(whole: Whole, split: str, attestor: Attestor | None, recipe: Recipe) -> Group:
    return Group(
        whole.ranking,
        split,
        cast("tuple[SftRecord, ...]", whole.rows.get(SFT, ())),
        cast("tuple[DpoRecord, ...]", whole.rows.get(DPO, ())),
        cast("tuple[PpoRecord, ...]", whole.rows.get(PPO, ())),
        cast("tuple[RejectedRecord, ...]", whole.rows.get(REJECTED, ())),
        whole.branches,
        whole.evidence,
        whole.chain,
        attestor,
        recipe.style,
        facts_of(whole.settled, whole.told, whole.opened, redact=recipe.redact),
        cast("tuple[ComplianceEvalRecord, ...]", whole.rows.get(COMPLIANCE_EVALS, ())),
    )


def _items(path: Path) -> EvalIndex:
    found = read_items(read_bytes(path).splitlines())
    if found.errors:
        first = found.errors[0]
        raise ExportError(f"{path}:{first.line}: {first.reason}; every line must be an evaluation item")
    return EvalIndex(found.items)
