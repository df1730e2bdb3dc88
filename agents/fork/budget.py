"""Limits on the spending of one branch, and of all branches together. Times come from the caller, so that no clock is
needed here.
"""

from dataclasses import dataclass

from agents.models.model import TokenUsage
from schemas.events import EndStatus


@dataclass(frozen=True, slots=True)
class Budgets:
    """The limits of a fork. None means no limit."""

    steps: int = 40
    """Turns of a branch."""
    branch_tokens: int | None = None
    total_tokens: int | None = None
    branch_s: float = 600.0
    total_s: float | None = None
    turn_s: float = 300.0
    """Seconds of one call of the model."""
    turn_tokens: int = 8192
    """Tokens that the model may write in one turn."""


@dataclass(slots=True)
class Spent:
    """Tokens of all branches so far."""

    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Exhausted:
    """A budget that is used up, and how a branch that meets it ends."""

    status: EndStatus
    """`failed` for budgets that the agent used up itself; `aborted` for time, which a slow service also uses, and for
    budgets shared with others: such a branch proves nothing about the agent.
    """
    why: str


def exhausted(budgets: Budgets, steps: int, tokens: TokenUsage, spent: Spent) -> Exhausted | None:
    """The budget that forbids another turn, or None."""
    if steps >= budgets.steps:
        return Exhausted("failed", f"budget: {budgets.steps} turns without an answer")
    if budgets.branch_tokens is not None and tokens.total >= budgets.branch_tokens:
        return Exhausted("failed", f"budget: {tokens.total} tokens used, the branch has {budgets.branch_tokens}")
    if budgets.total_tokens is not None and spent.tokens >= budgets.total_tokens:
        return Exhausted(
            "aborted", f"budget: all branches together used {spent.tokens} of {budgets.total_tokens} tokens"
        )
    return None
