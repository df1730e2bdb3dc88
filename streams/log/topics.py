"""Every topic, declared once: its record, what kind of topic it is, and its limits.

All topics are keyed by `rollout_id` and have the same partition count, so all records of a rollout have the same
partition number. This module does not connect to a broker; `streams/log/topic_setup.py` creates and checks the topics
declared here.
"""

from typing import Literal, NamedTuple

from schemas.base import Record
from schemas.branches import BranchRecord
from schemas.captures import Capture
from schemas.closures import Closure
from schemas.compliance import ComplianceEvalRecord
from schemas.events import AgentEvents
from schemas.evidence import AepRecord
from schemas.judging import JudgeRequest, JudgeVote
from schemas.lifecycle import Lifecycle
from schemas.rankings import Ranking
from schemas.training import DpoRecord, PpoRecord, RejectedRecord, SftRecord
from schemas.verdicts import BuildVerdict, CheckVerdict, VisualVerdict

MIB = 1024 * 1024

SLICE_LIMIT = MIB
"""Bytes of one slice, wherever it comes in over HTTP or from a file."""

Kind = Literal["fact", "raw", "work", "derived", "sink", "letters"]
"""Replay reads facts; the rest can be made again from them, except raw material, which another fold reads."""

LIMITS: dict[Kind, int] = {
    "fact": 4 * MIB, "raw": 4 * MIB, "work": 8 * MIB, "derived": 8 * MIB, "sink": 8 * MIB, "letters": 10 * MIB,
}  # fmt: skip
"""Bytes of one record. Dead letters may be larger than other records: the original plus its context."""


class Topic(NamedTuple):
    """One topic."""

    name: str
    """The name without the configured prefix."""
    record: type[Record] | None
    """The record of its values; None for dead letters, whose values are the original bytes."""
    kind: Kind
    written_by: str
    """The services and producers that write to it; each topic has an ACL on a real cluster."""

    @property
    def max_bytes(self) -> int:
        """Bytes of one record."""
        return LIMITS[self.kind]


LIFECYCLE = Topic("rollouts.lifecycle.v1", Lifecycle, "fact", "runner, operator")
AGENT_EVENTS = Topic("rollouts.agent-events.v1", AgentEvents, "fact", "agent, capture fold")
BUILD_VERDICTS = Topic("rollouts.build-verdicts.v1", BuildVerdict, "fact", "build verifier")
VISUAL_VERDICTS = Topic("rollouts.visual-verdicts.v1", VisualVerdict, "fact", "visual verifier")
CHECK_VERDICTS = Topic("rollouts.check-verdicts.v1", CheckVerdict, "fact", "verifiers")
CAPTURES = Topic("rollouts.captures.v1", Capture, "raw", "proxy, OTLP receiver, tracer")
JUDGE_REQUESTS = Topic("rollouts.judge-requests.v1", JudgeRequest, "work", "worker")
JUDGE_VOTES = Topic("rollouts.judge-votes.v1", JudgeVote, "fact", "judge")
CLOSURES = Topic("rollouts.closures.v1", Closure, "fact", "worker")
BRANCHES = Topic("rollouts.branches.v1", BranchRecord, "derived", "worker")
RANKINGS = Topic("rollouts.rankings.v1", Ranking, "derived", "worker")
COMPLIANCE_EVALS = Topic("compliance.evals.v1", ComplianceEvalRecord, "derived", "worker")
EVIDENCE = Topic("evidence.aep.v1", AepRecord, "sink", "worker")
SFT = Topic("training.sft.v1", SftRecord, "sink", "worker")
DPO = Topic("training.dpo.v1", DpoRecord, "sink", "worker")
PPO = Topic("training.ppo.v1", PpoRecord, "sink", "worker")
REJECTED = Topic("training.rejected.v1", RejectedRecord, "sink", "worker")
DEAD_LETTERS = Topic("rollouts.dead-letters.v1", None, "letters", "worker, gateway")

TOPICS: tuple[Topic, ...] = (
    LIFECYCLE, AGENT_EVENTS, BUILD_VERDICTS, VISUAL_VERDICTS, CHECK_VERDICTS, CAPTURES, JUDGE_REQUESTS, JUDGE_VOTES, CLOSURES,
    BRANCHES, RANKINGS, COMPLIANCE_EVALS, EVIDENCE, SFT, DPO, PPO, REJECTED, DEAD_LETTERS,
)  # fmt: skip

FACTS: tuple[Topic, ...] = tuple(topic for topic in TOPICS if topic.kind == "fact")
"""The topics that the fold reads, in the order of the topic table, which has no effect."""

ARCHIVED: tuple[Topic, ...] = (*FACTS, CAPTURES)
"""Topics that cannot be made again. Older archives lack captures, which means that there are none."""

BY_NAME: dict[str, Topic] = {topic.name: topic for topic in TOPICS}
BY_RECORD: dict[type[Record], Topic] = {topic.record: topic for topic in TOPICS if topic.record is not None}


MARKS_TABLE = "closed"
VIEW_TABLE = "rollouts"


def changelog(group: str, table: str) -> str:
    """The topic behind a table of the worker: compacted, last row per key wins."""
    return f"{group}-{table}-changelog"


def topic_config(topic: Topic, *, own_times: bool = False) -> dict[str, str]:
    """The broker's settings for a topic. Facts are kept forever: they are the only state.

    With `own_times` records keep the times they are sent with, for restoring records that have times already.
    """
    return {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "message.timestamp.type": "CreateTime" if own_times else "LogAppendTime",
        "max.message.bytes": str(topic.max_bytes + 64 * 1024),  # room for key, headers and the batch's own header
    }
