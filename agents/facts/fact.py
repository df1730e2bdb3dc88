"""The facts of the log as one type, and the rollout that a record belongs to."""

from schemas.base import Record
from schemas.closures import Closure
from schemas.events import AgentEvents
from schemas.judging import JudgeVote
from schemas.lifecycle import Lifecycle
from schemas.verdicts import BuildVerdict, CheckVerdict, VisualVerdict

Fact = Lifecycle | AgentEvents | BuildVerdict | VisualVerdict | CheckVerdict | JudgeVote | Closure


def rollout_of(record: Record) -> str:
    """The rollout that a record is about: its key in the log."""
    if type(record) in (Lifecycle, Closure):  # isinstance asks pydantic, which takes longer than all the rest here
        inner = next((part for part in dict(record).values() if part is not None), None)
        return inner.rollout_id if inner else ""
    found = getattr(record, "rollout_id", None)
    return found if isinstance(found, str) else ""
