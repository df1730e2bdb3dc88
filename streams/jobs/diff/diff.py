"""Compares two datasets: rows that are the same, changed, added and removed, and why."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streams.jobs.diff.datasets import DatasetSide
from streams.jobs.diff.logs import LogSide
from streams.jobs.diff.side import About, Side
from streams.jobs.errors import ReplayError
from streams.jobs.replay.replay_manifest import in_words
from streams.log.manifest import DATASET_MANIFEST, LOG_MANIFEST, is_dataset

NAMED = 10


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
    """The differences between two datasets."""

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


def diff(first: Path, second: Path, *, unfinished: bool = False) -> Difference:
    """Compare two directories of the same kind, or the directories of two manifests. Raises ReplayError for any other."""
    one, other = side(first, unfinished=unfinished), side(second, unfinished=unfinished)
    if type(one) is not type(other):
        exported, log = (first, second) if isinstance(one, DatasetSide) else (second, first)
        raise ReplayError(f"{exported} is an exported dataset and {log} is a log; give two of the same kind")
    overlap = len(one.rollouts & other.rollouts), len(one.rollouts - other.rollouts), len(other.rollouts - one.rollouts)
    kinds = dict.fromkeys([*one.kinds, *other.kinds])
    found = Difference({kind: Changes() for kind in kinds}, overlap, _rules(one, other))
    for about in sorted(one.rows.keys() | other.rows.keys()):
        changes = found.rows[about.kind]
        before, after = one.rows.get(about), other.rows.get(about)
        if before is None and after is not None:
            changes.added += 1
            _note(found, changes, "added", about, one.why(about, after))
        elif before is not None and after is None:
            changes.gone += 1
            _note(found, changes, "gone", about, other.why(about, before))
        elif before is not None and after is not None:
            names = before.fields.keys() | after.fields.keys()
            differing = sorted(name for name in names if before.fields.get(name) != after.fields.get(name))
            changes.same += not differing
            changes.changed += bool(differing)
            if differing:
                _note(found, changes, "changed", about, ", ".join(differing))
    return found


def side(path: Path, *, unfinished: bool = False) -> Side:
    """Read a dataset, by its directory or its manifest."""
    if path.is_file() and path.name in (DATASET_MANIFEST, LOG_MANIFEST):
        path = path.parent
    if not path.is_dir():
        raise ReplayError(f"{path} is neither a directory nor a {LOG_MANIFEST} or {DATASET_MANIFEST} in one")
    return DatasetSide(path) if is_dataset(path) else LogSide(path, unfinished=unfinished)


def _note(found: Difference, changes: Changes, what: str, about: About, why: str) -> None:
    changes.causes[f"{what}: {why}"] += 1
    if len(found.examples) < NAMED:
        found.examples.append(f"{what}: {about}: {why}")


def _rules(one: Side, other: Side) -> list[str]:
    """The differences between the rules of two datasets, as far as they are recorded."""
    said = [
        (name, in_words(one.rules.get(name)), in_words(other.rules.get(name)))
        for name in sorted(one.rules.keys() | other.rules.keys())
    ]
    return [f"{name}: {before} -> {after}" for name, before, after in said if before != after]
