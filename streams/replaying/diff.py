"""`braid diff`: what changed between two datasets made of the same rollouts, and which rule caused it.

Rows are matched by what they are about (the rollout and its branches), because an id is a function of the content. A row that
is only on one side is looked up among what the other side kept out, with the reasons given there.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from schemas.base import Record
from schemas.errors import DecodeError
from schemas.training import DpoRecord, PpoRecord, RejectedRecord, SftRecord
from streams.embedded import partitions_of, read_blocks
from streams.replaying.logs import ArchiveLog, ReplayError, read_manifest
from streams.topics import DPO, PPO, RANKINGS, REJECTED, SFT, Topic

ROWS: dict[Topic, str] = {SFT: "sft", DPO: "dpo", PPO: "ppo"}
IDS = frozenset({"record_id", "provenance", "schema_version"})
"""Fields that follow from the others."""

About = tuple[str, str, tuple[int, ...]]
"""Kind of row, rollout, branches."""

NAMED = 10


class _Row(NamedTuple):
    record_id: str
    fields: dict[str, int]
    """By field, a hash of its content: what differs can be named without holding two datasets."""


@dataclass
class Changes:
    """Rows of one kind."""

    same: int = 0
    added: int = 0
    gone: int = 0
    changed: int = 0
    causes: Counter[str] = field(default_factory=Counter)
    """Why: `gone: below_min_probability`, `changed: margin, chosen`."""


@dataclass
class Difference:
    """What differs between two datasets."""

    rows: dict[str, Changes]
    rollouts: tuple[int, int, int]
    """In both, only in the first, only in the second."""
    rules: list[str]
    """Settings under which they were made that differ."""
    examples: list[str] = field(default_factory=list)

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        only = self.rollouts[1] or self.rollouts[2]
        return not only and all(not (each.added or each.gone or each.changed) for each in self.rows.values())

    def plain(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "same": self.same,
            "rollouts": dict(zip(("both", "only_first", "only_second"), self.rollouts, strict=True)),
            "rows": {
                kind: vars(changes) | {"causes": dict(changes.causes.most_common())}
                for kind, changes in self.rows.items()
            },
            "rules": self.rules,
            "examples": self.examples,
        }


def diff(first: Path, second: Path) -> Difference:
    """Compare two directories of `braid replay`, `braid run` or `braid archive --all`. Raises ReplayError for others."""
    one, other = _Side(first), _Side(second)
    found = Difference({kind: Changes() for kind in ROWS.values()}, _overlap(one, other), _rules(first, second))
    for about in sorted(one.rows.keys() | other.rows.keys()):
        changes = found.rows[about[0]]
        before, after = one.rows.get(about), other.rows.get(about)
        if before is None:
            changes.added += 1
            _note(found, changes, "added", about, one.why(about))
        elif after is None:
            changes.gone += 1
            _note(found, changes, "gone", about, other.why(about))
        elif before.fields == after.fields:
            changes.same += 1
        else:
            changes.changed += 1
            differing = [name for name in before.fields if before.fields[name] != after.fields.get(name)]
            _note(found, changes, "changed", about, ", ".join(sorted(differing)))
    return found


def _note(found: Difference, changes: Changes, what: str, about: About, why: str) -> None:
    changes.causes[f"{what}: {why}"] += 1
    if len(found.examples) < NAMED:
        kind, rollout_id, branches = about
        found.examples.append(f"{what}: {kind} of {rollout_id}, branch {'-'.join(map(str, branches))}: {why}")


def _overlap(one: "_Side", other: "_Side") -> tuple[int, int, int]:
    return (
        len(one.rollouts & other.rollouts),
        len(one.rollouts - other.rollouts),
        len(other.rollouts - one.rollouts),
    )


def _rules(first: Path, second: Path) -> list[str]:
    """How the rules under which two datasets were made differ, as far as their manifests say."""
    said = [read_manifest(path).get("rules", {}) for path in (first, second)]
    rules = []
    for name in sorted(said[0].keys() | said[1].keys()):
        before, after = (each.get(name) for each in said)
        if before != after:
            rules.append(f"{name}: {_short(before)} -> {_short(after)}")
    return rules


def _short(value: Any) -> str:
    return "nothing" if value in (None, []) else ", ".join(value) if isinstance(value, list) else str(value)


class _Side:
    """The rows of one dataset."""

    def __init__(self, directory: Path) -> None:
        if not directory.is_dir():
            raise ReplayError(f"{directory} is not a directory")
        self._log = ArchiveLog(directory)
        self.rows: dict[About, _Row] = {}
        self.rollouts: set[str] = set()
        self._reasons: dict[tuple[str, str], list[tuple[tuple[int, ...], str]]] = {}
        """By kind and rollout: which branches were left out, and why."""
        for topic in (RANKINGS, *ROWS, REJECTED):
            for record in self._records(topic):
                self._take(topic, record)
        if not self.rollouts:
            raise ReplayError(
                f"{directory} holds no rankings; give what `braid replay --out` or `braid run --out` made"
            )

    def _records(self, topic: Topic) -> Iterator[Record]:
        for partition in partitions_of(self._log.folder, topic.name):
            for block in read_blocks(self._log.folder, topic.name, partition):
                for stored in block:
                    try:
                        yield self._log.codec.decode(topic, stored.value)
                    except DecodeError as error:
                        raise ReplayError(
                            f"{self._log.place}: {topic.name}/{partition}@{stored.offset}: {error}"
                        ) from None

    def _take(self, topic: Topic, record: Record) -> None:
        if topic is RANKINGS:
            self.rollouts.add(str(getattr(record, "rollout_id", "")))
        elif isinstance(record, RejectedRecord):
            why = record.reasons[0] if record.reasons else "no reason given"
            left = self._reasons.setdefault((record.kind, record.rollout_id), [])
            left.append((tuple(sorted(record.branches)), why))
        elif isinstance(record, SftRecord | DpoRecord | PpoRecord):
            fields = {name: hash(str(value)) for name, value in record.plain().items() if name not in IDS}
            self.rows[ROWS[topic], record.rollout_id, _branches(record)] = _Row(record.record_id, fields)

    def why(self, about: About) -> str:
        """Why this side has no such row."""
        kind, rollout_id, branches = about
        if rollout_id not in self.rollouts:
            return "the rollout is not there"
        left = self._reasons.get((kind, rollout_id), [])
        # Pairs that were left out together are named by all branches of the rollout.
        exact = (why for inside, why in left if inside == branches)
        return next(exact, next((why for inside, why in left if set(branches) <= set(inside)), "not made"))


def _branches(record: SftRecord | DpoRecord | PpoRecord) -> tuple[int, ...]:
    if isinstance(record, DpoRecord):
        return tuple(sorted((record.chosen_branch, record.rejected_branch)))
    return (record.branch_index,)
