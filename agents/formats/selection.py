"""Which rows of a rollout go into a dataset, and into which part of it: filters, the split, evaluation items.

All three are functions of the rollout's content: a second export, or one in another order, decides the same.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import NamedTuple, get_args

from agents.formats.shape import Group, Kind
from agents.training.contamination import EvalIndex
from schemas.branches import BranchRecord
from schemas.errors import BraidError
from schemas.training import DpoRecord, Fidelity, PpoRecord, SftRecord

Selectable = SftRecord | DpoRecord | PpoRecord | BranchRecord

LABEL = "label."
TEXT_FILTERS = ("basis", "model", "fidelity", "agent", "sequence")
VERSION = "policy_version"
MAX_LAG = "max_lag"
ANY = "*"
"""In place of a text that a kind of row does not have."""
NUMBER_FILTERS = ("min_margin", "min_score")


class SelectionError(BraidError):
    """A filter or split that cannot be read."""


@dataclass(frozen=True)
class Split:
    """Parts of a dataset with their shares; a rollout is in one of them, with all its rows."""

    shares: tuple[tuple[str, float], ...] = (("train", 1.0),)

    @classmethod
    def parse(cls, text: str) -> "Split":
        """Read `train=0.9,test=0.1`."""
        shares: list[tuple[str, float]] = []
        for piece in text.split(","):
            name, _, share = piece.partition("=")
            try:
                shares.append((name.strip(), float(share)))
            except ValueError:
                raise SelectionError(f"--split {text}: {share!r} is no number; write train=0.9,test=0.1") from None
        names = [name for name, _ in shares]
        if not all(name.replace("_", "").isalnum() for name in names) or len(set(names)) < len(names):
            raise SelectionError(f"--split {text}: the names must be different words of letters and digits")
        if any(not 0 < share <= 1 for _, share in shares) or abs(sum(share for _, share in shares) - 1) > 1e-6:
            raise SelectionError(f"--split {text}: the shares must be over 0 and add up to 1")
        return cls(tuple(shares))

    def of(self, rollout_id: str) -> str:
        """The part of a rollout: a function of its id."""
        at = int.from_bytes(sha256(b"split\0" + rollout_id.encode()).digest()[:8], "big") / 2**64
        reached = 0.0
        for name, share in self.shares:
            reached += share
            if at < reached:
                return name
        return self.shares[-1][0]

    def __str__(self) -> str:
        return ",".join(f"{name}={share:g}" for name, share in self.shares)


@dataclass(frozen=True)
class Filters:
    """The conditions that rows must meet; all of them."""

    wanted: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, texts: Iterable[str]) -> "Filters":
        """Read `basis=objective`, `model=NAME`, `fidelity=exact`, `agent=NAME`, `sequence=main`, `min_margin=0.5`, `label.x=y`, ..."""
        wanted = []
        for text in texts:
            name, equals, value = text.partition("=")
            known = name in (*TEXT_FILTERS, *NUMBER_FILTERS, VERSION, MAX_LAG) or (
                name.startswith(LABEL) and len(name) > len(LABEL)
            )
            if not equals or not known:
                names = ", ".join((*TEXT_FILTERS, *NUMBER_FILTERS, VERSION, MAX_LAG, "label.NAME"))
                raise SelectionError(f"--filter {text}: write NAME=VALUE, with a name of {names}")
            if name in NUMBER_FILTERS:
                try:
                    float(value)
                except ValueError:
                    raise SelectionError(f"--filter {text}: {value!r} is no number") from None
            if name == MAX_LAG and not (value.isascii() and value.isdigit()):
                raise SelectionError(f"--filter {text}: a lag is a number of versions, as 0 or 2")
            if name == "fidelity" and value not in get_args(Fidelity):
                raise SelectionError(f"--filter {text}: a fidelity is one of {', '.join(get_args(Fidelity))}")
            if name == "sequence" and value not in ("main", "other"):
                raise SelectionError(f"--filter {text}: a sequence is main, or other")
            wanted.append((name, value))
        return cls(tuple(sorted(wanted)))

    @property
    def by_label(self) -> bool:
        """Whether a filter needs labels, which are in the rollout's opening."""
        return any(name.startswith(LABEL) for name, _ in self.wanted)

    def refuses_rollout(self, labels: Mapping[str, str]) -> str | None:
        """The filter that a rollout does not pass."""
        for name, value in self.wanted:
            if name.startswith(LABEL) and labels.get(name.removeprefix(LABEL)) != value:
                return name
        return None

    @property
    def by_lag(self) -> bool:
        """Whether a filter needs the newest version of the policy."""
        return any(name == MAX_LAG for name, _ in self.wanted)

    def refuses(self, record: Selectable, versions: Sequence[int] = ()) -> str | None:
        """The filter that a row does not pass; a filter for another kind lets it pass.

        Of several texts for one name, one must be the row's; of several versions of a row, each. `versions` has the numbers of all
        versions of the policy, ascending.
        """
        for name, value in self.wanted:
            if name in (VERSION, MAX_LAG) and self._misses_version(record, name, value, versions):
                return name
            if name in TEXT_FILTERS:
                found = _text(record, name)
                if found is not ANY and found not in {text for other, text in self.wanted if other == name}:
                    return name
            if name == "min_margin" and isinstance(record, DpoRecord) and record.margin < float(value):
                return name
            if name == "min_score" and not isinstance(record, BranchRecord) and record.admission.score < float(value):
                return name
        return None

    def _misses_version(self, record: Selectable, name: str, value: str, versions: Sequence[int]) -> bool:
        """Whether a token of a row is of an unknown version, of a version that was not asked for, or of one too far
        behind.
        """
        if not isinstance(record, SftRecord | PpoRecord):
            return False
        sampled = {span.version for stream in record.streams for span in stream.policy_versions}
        if not sampled or None in sampled:
            return True
        if name == VERSION:
            return not sampled <= {text for other, text in self.wanted if other == VERSION}
        return any(_lag(each, versions) > int(value) for each in sampled if each is not None)


def version_number(version: str) -> int | None:
    """The number that a version of the policy ends with: its place among the others."""
    digits = version[len(version.rstrip("0123456789")) :]
    return int(digits[-MOST_DIGITS:]) if digits else None


MOST_DIGITS = 18
"""Digits of a version's number that are used."""


def _lag(version: str, versions: Sequence[int]) -> int:
    """How many versions are newer; all of them if a version has no number."""
    number = version_number(version)
    return len(versions) + 1 if number is None else len(versions) - bisect_right(versions, number)


class Refused(NamedTuple):
    """A row that was left out, and the evaluation item that it repeats, if that is why."""

    reason: str
    item: str | None = None


@dataclass(frozen=True)
class Selection:
    """Filters and evaluation items together."""

    filters: Filters = Filters()
    items: EvalIndex | None = None
    versions: tuple[int, ...] = ()
    """The numbers of all versions of the policy, ascending; filled only if a filter needs them."""

    def select(self, group: Group, kinds: Iterable[Kind]) -> tuple[Group, list[Refused]]:
        """The group without the rows that are refused, and why they are; only kinds that the format is made from."""
        refused: list[Refused] = []
        task_item = self._item(group.ranking.task)
        kept: dict[str, tuple[Selectable, ...]] = {}
        for kind in kinds:
            if kind in ("rejected", "events"):
                continue
            records: tuple[Selectable, ...] = getattr(group, kind)
            stays = []
            for record in records:
                why = self._refusal(record, group.ranking.task, task_item)
                if why is None:
                    stays.append(record)
                else:
                    refused.append(why)
            kept[kind] = tuple(stays)
        return (_without(replace(group, **kept), group) if refused else group), refused  # type: ignore[arg-type]

    def _refusal(self, record: Selectable, group_task: str, task_item: str | None) -> Refused | None:
        """Why a row is refused. A branch may have a task of its own, different from that of its rollout."""
        name = self.filters.refuses(record, self.versions)
        if name is not None:
            return Refused(f"filtered:{name}")
        if self.items is None:
            return None
        texts = [*_answers(record), *([record.task] if record.task != group_task else [])]
        item = task_item or next((found for text in texts if (found := self._item(text)) is not None), None)
        return None if item is None else Refused("contaminated", item)

    def _item(self, text: str) -> str | None:
        found = self.items.check(text) if self.items is not None and text else None
        return None if found is None else found.item_id


def _without(kept: Group, group: Group) -> Group:
    """The group without the facts of branches of which a row was refused, because they contain the same data."""
    rows: list[SftRecord | PpoRecord] = [*group.ppo, *group.sft]
    stayed = {row.record_id for row in (*kept.ppo, *kept.sft)}
    refused = {row.branch_index for row in rows if row.record_id not in stayed}
    told = {index: each for index, each in group.facts.branches.items() if index not in refused}
    return replace(kept, facts=kept.facts._replace(branches=told))


def _text(record: Selectable, name: str) -> str | None:
    """The text of a row that a filter compares with; ANY if the kind of row has no such text."""
    if name == "basis":
        return record.basis if isinstance(record, DpoRecord) else ANY
    if name == "sequence":
        return "main" if not isinstance(record, SftRecord | PpoRecord) or record.main is not False else "other"
    if not isinstance(record, BranchRecord):
        found: str | None = getattr(record, name)
        return found
    if name == "model":
        return record.agent.model if record.agent else None
    return record.fidelity if name == "fidelity" else ANY


def _answers(record: Selectable) -> list[str]:
    match record:
        case SftRecord():
            found: tuple[str | None, ...] = (record.messages[-1].content if record.messages else None,)
        case DpoRecord():
            found = (record.chosen_answer, record.rejected_answer)
        case PpoRecord() | BranchRecord():
            found = (record.final_answer,)
    return [text for text in found if text]
