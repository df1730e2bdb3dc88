"""`messages`: plain chat lines, the one format that loses nothing of a conversation.

A line is one conversation with all that is known of it: which of its messages the model said, how they are known, and what the
branch was worth. Media stand in `content` as parts with their digests.
"""

from collections.abc import Iterator
from typing import Any

from agents.formats.chat import is_trained, messages
from agents.formats.limits import messages_of
from agents.formats.shape import Column, Format, Group, Left, ListOf, Row, Speech
from schemas.jsontext import parse
from schemas.training import PpoRecord, SftRecord

_SPEECH = Speech(media=True, developer=True, objects=True)


def conversations(group: Group) -> Iterator[Row | Left]:
    """{id, messages, tools, trained, ...}: one for each sequence of a branch that has a reward or is worth imitating."""
    imitated = {_place(record): record for record in group.sft}
    for rewarded in group.ppo:
        also = imitated.pop(_place(rewarded), None)
        yield Row(
            _line(rewarded, group)
            | {
                "final_answer": rewarded.final_answer,
                "reward": rewarded.reward,
                "advantage": rewarded.advantage,
                "imitated": also is not None,
            },
            (rewarded,) if also is None else (rewarded, also),
        )
    for record in imitated.values():
        yield Row(_line(record, group) | {"imitated": True}, (record,))


def _place(record: SftRecord | PpoRecord) -> tuple[int, int, int]:
    return record.branch_index, record.attempt, record.sequence or 0


def _line(record: SftRecord | PpoRecord, group: Group) -> dict[str, Any]:
    said = messages_of(record)
    ranked = group.ranked(record.branch_index)
    return {
        "id": record.record_id,
        "messages": messages(said, _SPEECH, group.style),
        "tools": parse(record.tools),
        "trained": [place for place, each in enumerate(said) if is_trained(each)],
        "fidelity": record.fidelity,
        "agent": record.agent,
        "sequence": record.sequence,
        "n_sequences": record.n_sequences,
        "rollout_id": record.rollout_id,
        "branch_index": record.branch_index,
        "attempt": record.attempt,
        "task": record.task,
        "model": record.model,
        "status": group.status(record.branch_index),
        "rank": ranked.rank if ranked is not None else None,
    }


_ABOUT: dict[str, Column] = {
    "fidelity": "text", "agent": "text", "sequence": "whole", "n_sequences": "whole", "rollout_id": "text",
    "branch_index": "whole", "attempt": "whole", "task": "text", "model": "text", "status": "text", "rank": "whole",
    "final_answer": "text", "reward": "real", "advantage": "real", "imitated": "truth",
}  # fmt: skip

FORMATS = (
    Format(
        "messages", "Plain chat lines: every conversation with its reward, and which messages the model said",
        frozenset({"sft", "ppo"}), conversations,
        {"": {"id": "text", "messages": "json", "tools": "json", "trained": ListOf("whole"), **_ABOUT}},
        speech=_SPEECH,
    ),
)  # fmt: skip
