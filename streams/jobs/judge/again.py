"""Judge stored rollouts again: read from a log, with another judge or rubric, written to separate files or topics.

The facts do not change. Existing votes (in the log, or in the results) are not paid for again, and a run that was
killed, or whose budget was spent, is simply started again: it continues where it stopped.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from agents.evidence.signing import SigningKey
from agents.judge.judge import Judge
from agents.judge.requests import Asking
from agents.judge.votes import calls_of
from agents.rollouts.broken_log import BrokenLogError
from agents.rollouts.emission import Emission, emit
from agents.rollouts.judge_requests import judge_requests
from agents.rollouts.rejudgment import closed_again, settled_again
from agents.rollouts.rollout import Rollout
from schemas.emission import JudgeConfig
from schemas.errors import DecodeError
from schemas.judging import JudgeVote
from schemas.training import DpoRecord, PpoRecord, SftRecord
from streams.cluster.config import Settings
from streams.jobs.judge.asker import AT_ONCE, Asker, Spent, VoteFile
from streams.jobs.judge.closed_rollouts import ClosedRollouts
from streams.jobs.made_record import Made
from streams.jobs.targets import ResumedTopics, SinkDirectory, Target, TargetError, topic_writer
from streams.log.files import find_log
from streams.log.kafka_reader import KafkaReader
from streams.log.kafka_writer import FactWriter
from streams.log.progress import Say, quiet
from streams.log.topics import JUDGE_VOTES


class Votes(Protocol):
    """Votes that are stored as they arrive."""

    @property
    def votes(self) -> Mapping[str, JudgeVote]:
        """The votes stored earlier, by id."""

    async def keep(self, vote: JudgeVote) -> None:
        """Write a vote, at once."""


class TopicVotes:
    """The topic of votes."""

    def __init__(self, writer: FactWriter) -> None:
        self.votes: dict[str, JudgeVote] = {}
        self._writer = writer

    async def read(self) -> None:
        """Read the stored votes."""
        async with KafkaReader(self._writer.settings) as log:
            async for placed in log.records([JUDGE_VOTES]):
                with suppress(DecodeError):
                    vote = await log.decode(placed)
                    if isinstance(vote, JudgeVote):
                        self.votes.setdefault(vote.vote_id, vote)

    async def keep(self, vote: JudgeVote) -> None:
        """Write a vote and wait until the broker has it."""
        await self._writer.append(vote)


class Results(NamedTuple):
    """Where results go."""

    target: Target
    votes: Votes
    key: SigningKey | None
    """Signs the evidence."""


@asynccontextmanager
async def into_directory(folder: Path, key: SigningKey | None) -> AsyncIterator[Results]:
    """Write votes as they arrive, the rest when it is complete. A second run writes the rest again. Raises TargetError."""
    if find_log(folder) is not None:
        raise TargetError(
            f"--out {folder} holds the log of a run, and its results would be replaced; choose another directory"
        )
    with closing(VoteFile(folder)) as votes:
        async with SinkDirectory(folder, "again", key, [votes.path]) as target:
            yield Results(target, votes, key)


@asynccontextmanager
async def into_topics(settings: Settings, prefix: str, key: SigningKey | None) -> AsyncIterator[Results]:
    """Topics with a prefix of their own. Events and verdicts are not copied. Raises TargetError."""
    writer = topic_writer(settings, prefix, "judge-again")
    votes = TopicVotes(writer)
    async with ResumedTopics(writer) as target:
        await target.prepare()
        await votes.read()
        yield Results(target, votes, key)


@dataclass
class Judged:
    """The counts of judging again: printed by `--json`."""

    judged: int = 0
    """Rollouts that were judged and written."""
    there: int = 0
    """Rollouts whose results were complete already."""
    unfinished: int = 0
    """Rollouts whose votes are incomplete because the budget is spent: the next run continues with them."""
    cancelled: int = 0
    open: int = 0
    broken: list[str] = field(default_factory=list)
    sft: int = 0
    dpo: int = 0
    ppo: int = 0

    def add(self, emission: Emission) -> None:
        """Count a rollout that was written."""
        self.judged += 1
        self.sft += sum(isinstance(row, SftRecord) for row in emission.rows)
        self.dpo += sum(isinstance(row, DpoRecord) for row in emission.rows)
        self.ppo += sum(isinstance(row, PpoRecord) for row in emission.rows)

    def plain(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return dict(vars(self))


class _Work(NamedTuple):
    rollout: Rollout
    at: int
    """When it closed first."""
    asking: Asking
    paid: dict[str, JudgeVote]
    """Answers on the log, whether or not they counted."""


async def judge_again(
    closed: ClosedRollouts,
    results: Results,
    judge: Judge,
    config: JudgeConfig,
    concurrency: int,
    say: Say = quiet,
) -> tuple[Judged, Spent]:
    """Judge every closed rollout of a log. Raises JudgeSetupError when the judge cannot be asked, TargetError for a target in use."""
    counts, asker = Judged(), Asker(judge, concurrency, results.votes.votes, results.votes.keep)
    spent = asker.spent

    async for works in _batches(closed, results.target, config, counts, spent, AT_ONCE * concurrency):
        requests = [request for work in works for request in work.asking.requests]
        goal = spent.votes + sum(len(calls_of(request)) for request in requests)
        begun = spent.votes

        def tell(begun: int = begun, goal: int = goal) -> None:
            share = (spent.votes - begun) / max(1, goal - begun)
            say(f"{counts.judged:,} rollouts judged, {spent.asked:,} votes asked for", share)

        paid = {name: vote for work in works for name, vote in work.paid.items()}
        answers = iter(await asker.votes(requests, paid, tell))
        for work in works:
            await _finish(work, [vote for _ in work.asking.requests for vote in next(answers)], results, counts)
    counts.open = closed.open
    counts.broken += closed.broken
    return counts, spent


async def _finish(work: _Work, answers: list[JudgeVote], results: Results, counts: Judged) -> None:
    """Close a rollout with its votes, and write the output."""
    if any(vote.cause == "budget" for vote in answers):
        counts.unfinished += 1
        return
    for tie in work.asking.ties:
        if tie.vote_id not in results.votes.votes:
            await results.votes.keep(tie)
    closed_again(work.rollout, [*work.asking.ties, *answers], work.at)
    try:
        emission = emit(work.rollout)
    except BrokenLogError:
        counts.broken.append(work.rollout.rollout_id)
        return
    rows = (*emission.branches, emission.ranking, *emission.compliance, *emission.rows, *emission.rejected)
    await results.target.write(work.rollout, [Made(record) for record in (*rows, *emission.signed(results.key))])
    counts.add(emission)


async def _batches(
    closed: ClosedRollouts, target: Target, config: JudgeConfig, counts: Judged, spent: Spent, calls: int
) -> AsyncGenerator[list[_Work], None]:
    """Rollouts with their requests, in batches of about so many calls."""
    works: list[_Work] = []
    waiting = 0
    async for rollout in closed.rollouts():
        assert rollout.settled is not None
        assert rollout.closed is not None
        if rollout.settled.cause == "cancelled":
            counts.cancelled += 1
            continue
        other = settled_again(rollout, config)
        if target.has(other):
            counts.there += 1
            continue
        try:
            asking = judge_requests(other)
        except BrokenLogError:
            counts.broken.append(rollout.rollout_id)
            continue
        spent.own_work += asking.own_model
        votes = {name: each.fact for name, each in rollout.votes.items() if isinstance(each.fact, JudgeVote)}
        paid = {name: vote for name, vote in votes.items() if vote.preferred is not None or vote.score is not None}
        works.append(_Work(other, rollout.closed.decided_at_ms, asking, paid))
        waiting += sum(len(calls_of(request)) for request in asking.requests)
        if waiting >= calls:
            yield works
            works, waiting = [], 0
    if works:
        yield works
