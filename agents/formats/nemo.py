"""NeMo RL: a context and its completions, best first. Branches with equal scores share a rank."""

from collections.abc import Iterator

from agents.formats.chat import messages
from agents.formats.shape import MESSAGES, Format, Group, Left, ListOf, Row, Speech, Struct, each_prompt
from agents.training.messages import has_content
from schemas.training import Message, PpoRecord

_SPEECH = Speech(objects=True, given=False)


def preference(group: Group) -> Iterator[Row | Left]:
    """{context, completions: [{rank, completion}]}: rank 0 is the best, equal totals have equal ranks.

    One for each rollout, a branch by its main sequence; one for each prompt if branches have tasks of their own.
    """
    yield from each_prompt(group, _preference)


def _preference(group: Group) -> Iterator[Row | Left]:
    if not group.ppo:
        return
    ranked = _ranked(group)
    if len(ranked) < 2:
        yield Left("fewer_than_two_completions")
    elif ranked[0][0] == ranked[-1][0]:
        yield Left("all_equal")
    else:
        yield Row(
            {
                "context": messages(group.ppo[0].prompt, _SPEECH, group.style),
                "completions": [
                    {"rank": rank, "completion": messages(row.completion, _SPEECH, group.style)} for rank, row in ranked
                ],
                "rollout_id": group.rollout_id,
            },
            tuple(row for _, row in ranked),
        )


def _ranked(group: Group) -> list[tuple[int, PpoRecord]]:
    """Rows in the order of the ranking; of equal completions only the best: it cannot be better than itself."""
    rows = {row.branch_index: row for row in group.ppo}
    found: list[tuple[int, PpoRecord]] = []
    known: set[tuple[Message, ...]] = set()
    rank, standing = -1, None
    for ranked in group.ranking.branches:
        row = rows.get(ranked.branch_index)
        if row is None or ranked.rank is None or row.completion in known or not has_content(row.completion):
            continue
        known.add(row.completion)
        stands = (ranked.objective_status, ranked.total)
        if stands != standing:
            rank, standing = rank + 1, stands
        found.append((rank, row))
    return found


FORMATS = (
    Format(
        "nemo-preference", "NeMo RL preference data: ranked completions of a context", frozenset({"ppo"}), preference,
        {
            "": {
                "context": MESSAGES,
                "completions": ListOf(Struct({"rank": "whole", "completion": MESSAGES})),
                "rollout_id": "text",
            }
        },
        speech=_SPEECH,
    ),
)  # fmt: skip
