"""A dataset format: a function from the records of one whole rollout to JSON rows, and the types of its columns.

A format never sees half a rollout. It leaves out rows that it cannot represent, each with a reason, so that counts
always add up. Free-form JSON (tool arguments, tool definitions) is text wherever rows become columns: Arrow gives every
row of a struct the fields of all the others, filled with nulls, which would change the calls that a model is trained
on.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from agents.evidence.signing import SigningKey
from agents.training.admission import category_of
from agents.training.messages import is_blank
from agents.verdicts.meaning import Verdict
from schemas.branches import BranchRecord
from schemas.compliance import ComplianceEvalRecord
from schemas.events import EventFields
from schemas.evidence import AepRecord
from schemas.lifecycle import RolloutOpened
from schemas.rankings import RankedBranch, Ranking
from schemas.training import DpoRecord, Message, PpoRecord, RejectedRecord, SftRecord, TokenStream, TrainingRecord

Kind = Literal["sft", "dpo", "ppo", "rejected", "branches", "events", "evals"]
"""The records a format is made from; `events`: the facts of each branch, as its producer sent them."""

FileKind = Literal["jsonl", "parquet"]
Layout = Literal["files", "directory"]


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
            "reasoning_content": "text",
        }
    )
)
"""Chat messages; a field that does not apply to a message is null in Parquet and absent in a JSON line."""


class Speech(NamedTuple):
    """How much of a conversation a format can represent."""

    reasoning: bool = True
    """Whether messages have `reasoning_content`. If they have none, the manifest counts the messages that lost it."""
    media: bool = False
    """Whether messages may refer to images, audio and files."""
    given: bool = True
    """Whether a completion may contain assistant messages that were given to the model: they must stay out of the loss.
    """
    answered: bool = False
    """Whether every call before the last message must be answered, and the last message must be an assistant's."""
    developer: bool = False
    """Whether the format has the role `developer`; otherwise it becomes `system`."""
    names: bool = True
    """Whether tool messages have the name of the tool."""
    objects: bool = False
    """Whether `--arguments object` may replace the JSON text of a call's arguments."""


CHAT = Speech()
"""Messages that a chat template of a Hugging Face tokenizer renders."""


class Style(NamedTuple):
    """The options of a dataset."""

    arguments: Literal["text", "object"] = "text"
    """Arguments of calls as JSON text, or as JSON objects."""
    loss: Literal["messages", "spans", "turns"] = "messages"
    """How `trl-sft` marks the messages in the loss: see agents/formats/trl.py."""


PLAIN = Style()


class Attestor(NamedTuple):
    """The key that signs envelopes, and the keys whose evidence it trusts."""

    key: SigningKey
    trusted: Mapping[str, bytes]
    """Public keys by their id."""


class ToldBranch(NamedTuple):
    """The facts of a settled branch, as in the log: not redacted."""

    events: tuple[tuple[int, EventFields], ...]
    """Each with its seq, in order."""
    verdicts: tuple[Verdict, ...] = ()


class Facts(NamedTuple):
    """The facts of a rollout."""

    branches: Mapping[int, ToldBranch] = {}
    """By index, the facts of the attempt that counts."""
    opened: RolloutOpened | None = None
    redacting: bool = True
    """Whether secrets are removed from all rows."""
    reasoning: bool = True
    """Whether the reasoning of models is exported."""


NO_FACTS = Facts()


@dataclass(frozen=True)
class Group:
    """The records of one rollout that training can use."""

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
    """The key that signs envelopes."""
    style: Style = PLAIN
    """How rows are written."""
    facts: Facts = NO_FACTS
    """The facts of its branches, for formats that export whole branches."""
    evals: tuple[ComplianceEvalRecord, ...] = ()
    """Records of branches that are compliance runs."""
    barred_tokens: frozenset[str] = frozenset()
    """Ids of rows whose tokens must not be exported: redaction removes something of their messages, and token ids would
    reveal it.
    """

    @property
    def rollout_id(self) -> str:
        """The rollout."""
        return self.ranking.rollout_id

    def ranked(self, branch_index: int) -> RankedBranch | None:
        """The ranking of a branch."""
        return next((each for each in self.ranking.branches if each.branch_index == branch_index), None)

    def status(self, branch_index: int) -> str:
        """The objective status of a branch."""
        ranked = self.ranked(branch_index)
        return "unknown" if ranked is None else ranked.objective_status

    def barred(self, branch_index: int) -> str | None:
        """The admission category that keeps a branch out of training; None if there is none.

        A branch may have no row to admit (its outcome is unknown, or it has no text): then its flags decide.
        """
        ranked = self.ranked(branch_index)
        by_flags = category_of(ranked.flags) if ranked is not None else "train"
        if by_flags != "train":
            return by_flags
        for record in self.rejected:
            if record.admission is not None and record.branches == (branch_index,):
                return record.admission.category
        return None

    def by_branch(self) -> "Group":
        """The group with one PPO row for each branch: that of its main sequence, which represents all of them."""
        sequences: dict[int, list[PpoRecord]] = {}
        for row in self.ppo:
            sequences.setdefault(row.branch_index, []).append(row)
        return replace(self, ppo=tuple(main_sequence(rows) for rows in sequences.values()))

    def by_prompt(self) -> "tuple[Group, ...]":
        """A group for each prompt: branches may have tasks of their own, and only branches with the same prompt are
        compared.
        """
        asked: dict[tuple[Message, ...], list[PpoRecord]] = {}
        for row in self.ppo:
            asked.setdefault(row.prompt, []).append(row)
        return tuple(replace(self, ppo=tuple(rows)) for rows in asked.values()) if len(asked) > 1 else (self,)

    def streams(self, row: SftRecord | PpoRecord) -> tuple[TokenStream, ...]:
        """The token streams of a row that may be exported."""
        return () if row.record_id in self.barred_tokens else row.streams

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


def main_sequence(rows: Sequence[PpoRecord]) -> PpoRecord:
    """The sequence with the branch's last response; the only row of a branch that has no sequences."""
    return next((row for row in rows if row.main), rows[0])


Made = TrainingRecord | BranchRecord | ComplianceEvalRecord | AepRecord
"""The inputs of rows."""


class ToolUse(NamedTuple):
    """The tools that a row uses, for formats with tool definitions in a separate file."""

    tools: Mapping[str, str] = {}
    """By name, the definition as JSON text."""
    languages: tuple[str, ...] = ()
    """Languages of code that it runs."""


class Row(NamedTuple):
    """One row of the dataset."""

    value: dict[str, Any]
    sources: tuple[Made, ...]
    """The records that the row was made of, which lead to the evidence."""
    part: str = ""
    """Formats of several kinds of records keep each kind in files of its own; empty for the others."""
    folder: str = ""
    """The name of its directory (`--layout directory`); rows with the same name are in one file."""
    lost: tuple[str, ...] = ()
    """Parts of its branch that it could not carry, by name; the command and the manifest count them."""
    uses: ToolUse = ToolUse()


class Left(NamedTuple):
    """The parts that the format could not carry."""

    reason: str


Make = Callable[[Group], Iterator[Row | Left]]


def each_prompt(group: Group, make: Make) -> Iterator[Row | Left]:
    """The rows of formats that compare branches: one member for each branch, one group for each prompt."""
    branches = group.by_branch()
    yield from [Left("other_sequence")] * (len(group.ppo) - len(branches.ppo))
    for part in branches.by_prompt():
        yield from make(part)


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
    """Whether its rows are signed, and so must be exported unchanged."""
    speech: Speech = CHAT
    """How much of a conversation it can represent."""
    layouts: tuple[Layout, ...] = ("files",)
    """How its rows are laid out: in files of many rows, or in a directory for each branch. The first is the default."""
    alone: str = "trajectory.json"
    """The name of the file in such a directory."""
    tools_beside: bool = False
    """Whether the definitions of tools are in a file next to the rows (`metadata.json`)."""
