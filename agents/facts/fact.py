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
    values = vars(record)  # an attribute of a model takes five times as long as an entry of a dict
    found = values.get("rollout_id")
    if found is None and (type(record) is Lifecycle or type(record) is Closure):
        for part in values.values():
            if part is not None:
                found = vars(part)["rollout_id"]
                break
    return found if isinstance(found, str) else ""
