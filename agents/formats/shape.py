"""A dataset format: a function from the records of one whole rollout to JSON rows, and the types of its columns.

A format never sees half a rollout. What it cannot carry it leaves out with a reason, so that counts always add up. Free-form
JSON (tool arguments, tool definitions) is text wherever rows become columns: Arrow gives every row of a struct the fields
of all the others, filled with nulls, and would change what a model is trained to call.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from agents.evidence.signing import SigningKey
from agents.training.admission import category_of
from agents.training.messages import is_blank
from schemas.branches import BranchRecord
from schemas.evidence import AepRecord
from schemas.rankings import RankedBranch, Ranking
from schemas.training import DpoRecord, Message, PpoRecord, RejectedRecord, SftRecord, TrainingRecord

Kind = Literal["sft", "dpo", "ppo", "rejected", "branches"]
"""The records a format is made from."""

FileKind = Literal["jsonl", "parquet"]


class ListOf(NamedTuple):
    """A column of lists."""

    of: "Column"


class Struct(NamedTuple):
    """A column of objects that all have these fields."""

    fields: Mapping[str, "Column"]


Column = Literal["text", "whole", "real", "truth", "json"] | ListOf | Struct
"""The type of a column. `json` is free-form: an object in a JSON line, its text in a Parquet column."""

MESSAGES = ListOf(
    Struct(
        {
            "role": "text",
            "content": "text",
            "tool_calls": ListOf(
                Struct({"id": "text", "type": "text", "function": Struct({"name": "text", "arguments": "text"})})
            ),
            "tool_call_id": "text",
            "name": "text",
        }
    )
)
"""Chat messages; what does not apply to a message is null in Parquet and absent in a JSON line."""


class Attestor(NamedTuple):
    """The key that signs envelopes, and the keys whose evidence it trusts."""

    key: SigningKey
    trusted: Mapping[str, bytes]
    """Public keys by their id."""


@dataclass(frozen=True)
class Group:
    """The records of one rollout: all that it gave to training."""

    ranking: Ranking
    split: str = "train"
    """Which part of the dataset the rollout belongs to."""
    sft: tuple[SftRecord, ...] = ()
    dpo: tuple[DpoRecord, ...] = ()
    ppo: tuple[PpoRecord, ...] = ()
    rejected: tuple[RejectedRecord, ...] = ()
    branches: tuple[BranchRecord, ...] = ()
    evidence: Mapping[int, AepRecord] = field(default_factory=dict)
    """The evidence of each branch, by its index."""
    chain: tuple[AepRecord, ...] = ()
    """All evidence in order, the closing record last."""
    attestor: Attestor | None = None
    """Who signs envelopes."""

    @property
    def rollout_id(self) -> str:
        """The rollout."""
        return self.ranking.rollout_id

    def ranked(self, branch_index: int) -> RankedBranch | None:
        """How a branch was ranked."""
        return next((each for each in self.ranking.branches if each.branch_index == branch_index), None)

    def status(self, branch_index: int) -> str:
        """The objective status of a branch."""
        ranked = self.ranked(branch_index)
        return "unknown" if ranked is None else ranked.objective_status

    def barred(self, branch_index: int) -> str | None:
        """The admission category that keeps a branch out of training; None when nothing does.

        A branch may have no row to admit (its outcome is unknown, it said nothing): then its flags decide.
        """
        ranked = self.ranked(branch_index)
        by_flags = category_of(ranked.flags) if ranked is not None else "train"
        if by_flags != "train":
            return by_flags
        for record in self.rejected:
            if record.admission is not None and record.branches == (branch_index,):
                return record.admission.category
        return None

    def by_prompt(self) -> "tuple[Group, ...]":
        """A group for each prompt: branches may have tasks of their own, and only what was asked the same is compared."""
        asked: dict[tuple[Message, ...], list[PpoRecord]] = {}
        for row in self.ppo:
            asked.setdefault(row.prompt, []).append(row)
        return tuple(replace(self, ppo=tuple(rows)) for rows in asked.values()) if len(asked) > 1 else (self,)

    def verifiers(self) -> list[str]:
        """The verifiers whose outcomes the evidence of the rewarded branches names."""
        evidence = [self.evidence[row.branch_index] for row in self.ppo if row.branch_index in self.evidence]
        return sorted({result.verifier_id for record in evidence for result in record.verifier_results})

    def reference_answer(self) -> str | None:
        """The final answer of the best passing branch; None when no passing branch has one."""
        answers = {row.branch_index: row.final_answer for row in self.ppo}
        for ranked in self.ranking.branches:
            answer = answers.get(ranked.branch_index)
            if ranked.objective_status == "pass" and not is_blank(answer):
                return answer
        return None


Made = TrainingRecord | BranchRecord | AepRecord
"""What rows are made of."""


class Row(NamedTuple):
    """One row of the dataset."""

    value: dict[str, Any]
    sources: tuple[Made, ...]
    """The records that it was made of: what leads back to the evidence."""
    part: str = ""
    """Formats of several kinds of records keep each kind in files of its own; empty for the others."""


class Left(NamedTuple):
    """What the format could not carry."""

    reason: str


Make = Callable[[Group], Iterator[Row | Left]]


class Format(NamedTuple):
    """A shape that some trainer loads."""

    name: str
    about: str
    """One line for the dataset card."""
    needs: frozenset[Kind]
    """The records it is made from."""
    make: Make
    columns: Mapping[str, Mapping[str, Column]]
    """The columns of each part."""
    files: tuple[FileKind, ...] = ("jsonl", "parquet")
    """In which files it makes sense; the first is the default."""
    verbatim: bool = False
    """Whether its rows are signed, and so must leave as they are."""
