"""Stored rollouts judged again: out of a log, with another judge or rubric, into files or topics of their own.

The facts stay as they are. Votes that exist (in the log, or where the results go) are not paid for again, and a run that
was killed, or whose budget was spent, is simply started again: it goes on where it was.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from agents.evidence.signing import SigningKey
from agents.judge.judge import Judge
from agents.judge.requests import Asking
from agents.judge.votes import calls_of
from agents.rollouts.broken_log import BrokenLogError
from agents.rollouts.emission import Emission, emit
from agents.rollouts.judge_requests import judge_requests
from agents.rollouts.rejudgment import closed_again, settled_again
from agents.rollouts.rollout import Rollout
from schemas.base import Record
from schemas.closures import Closure
from schemas.emission import JudgeConfig
from schemas.errors import BraidError, DecodeError
from schemas.evidence import AepRecord
from schemas.judging import JudgeVote
from schemas.lifecycle import Lifecycle
from schemas.training import DpoRecord, PpoRecord, SftRecord
from streams.cluster.config import Settings
from streams.jobs.judge.asking import AT_ONCE, Asker, Spent, VoteFile
from streams.jobs.judge.refold import Refold
from streams.log.files import find_log
from streams.log.json_lines import SINK_FILES, Outputs
from streams.log.kafka import KafkaLog
from streams.log.kafka_writer import FactWriter
from streams.log.manifest import LOG_MANIFEST, described, seal
from streams.log.topics import CLOSURES, EVIDENCE, JUDGE_VOTES

Say = Callable[[str, float], None]


class AgainError(BraidError):
    """Results that cannot go where they were to go."""


class Target(ABC):
    """Where results go."""

    votes: Mapping[str, JudgeVote]
    """Votes that are there already, by id."""

    @abstractmethod
    def has(self, rollout: Rollout) -> bool:
        """Whether everything about a rollout under this settling is there. Raises AgainError when another one is."""

    @abstractmethod
    async def keep(self, vote: JudgeVote) -> None:
        """Take a vote in, at once."""

    @abstractmethod
    async def write(self, rollout: Rollout, emission: Emission) -> None:
        """Take in all that follows from a rollout that was judged again."""

    @abstractmethod
    async def __aenter__(self) -> Self: ...

    @abstractmethod
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class FileTarget(Target):
    """A directory: votes as they come, the rest when it is complete. A second run writes the rest again."""

    def __init__(self, folder: Path, key: SigningKey | None) -> None:
        if find_log(folder) is not None:
            raise AgainError(
                f"--out {folder} holds the log of a run, and its results would be replaced; choose another directory"
            )
        self._file = VoteFile(folder)
        self.votes = self._file.votes
        self._outputs = Outputs(folder, SINK_FILES)
        self._folder = folder
        self._key = key
        self._rollouts: list[str] = []

    def has(self, rollout: Rollout) -> bool:
        """Never: files are made as a whole."""
        del rollout
        return False

    async def keep(self, vote: JudgeVote) -> None:
        """Into votes.jsonl."""
        await self._file.keep(vote)

    async def write(self, rollout: Rollout, emission: Emission) -> None:
        """Into the file of each kind."""
        self._rollouts.append(rollout.rollout_id)
        for record in signed(emission, self._key):
            self._outputs.write(record)

    async def __aenter__(self) -> Self:
        (self._folder / LOG_MANIFEST).unlink(missing_ok=True)
        self._outputs.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._outputs.__exit__(kind, error, trace)
        if kind is None:
            files = [self._file.path, *(self._folder / name for name in SINK_FILES.values())]
            seal(self._folder, "again", described(self._folder, files), self._key, {"rollouts": sorted(self._rollouts)})


class TopicTarget(Target):
    """Topics with a prefix of their own: openings, votes, decisions, and what follows. Events and verdicts stay where they are."""

    def __init__(self, settings: Settings, prefix: str, key: SigningKey | None) -> None:
        if prefix == settings.prefix:
            raise AgainError(f"--to-prefix {prefix!r} is where the facts are; choose another one")
        self._settings = settings.model_copy(update={"prefix": prefix})
        self._writer = FactWriter(self._settings, "judge-again")
        self._key = key
        self._settled: dict[str, str] = {}
        self._whole: set[str] = set()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._writer)
            await self._look()
            self._stack = stack.pop_all()
        return self

    async def _look(self) -> None:
        votes: dict[str, JudgeVote] = {}
        async with KafkaLog(self._settings) as log:
            async for stored in log.records([JUDGE_VOTES, CLOSURES, EVIDENCE]):
                try:
                    record = await log.decode(stored)
                except DecodeError:
                    continue
                if isinstance(record, JudgeVote):
                    votes.setdefault(record.vote_id, record)
                elif isinstance(record, Closure) and record.settled is not None:
                    self._settled.setdefault(record.settled.rollout_id, record.settled.settled_id)
                elif isinstance(record, AepRecord) and record.closing is not None:
                    self._whole.add(record.closing.settled_id)
        self.votes = votes

    def has(self, rollout: Rollout) -> bool:
        """Whether its closing evidence, which is written last, is there."""
        settled = rollout.settled
        assert settled is not None
        there = self._settled.get(rollout.rollout_id, settled.settled_id)
        if there != settled.settled_id:
            raise AgainError(
                f"{self._settings.prefix}{CLOSURES.name} holds {rollout.rollout_id} as another judge, rubric or configuration "
                "settled it; give every judge a --to-prefix of its own"
            )
        return settled.settled_id in self._whole

    async def keep(self, vote: JudgeVote) -> None:
        """Into the topic of votes, acknowledged."""
        await self._writer.write(vote)
        await self._writer.flush()

    async def write(self, rollout: Rollout, emission: Emission) -> None:
        """In the order in which the live worker writes: what lists the others comes last, when they are acknowledged."""
        facts: list[Record] = [Lifecycle(opened=rollout.opened)] if rollout.opened is not None else []
        facts += [Closure(settled=rollout.settled), Closure(closed=rollout.closed)]
        *others, last = signed(emission, self._key)
        for records in ([*facts, *others], [last]):
            for record in records:
                await self._writer.write(record)
            await self._writer.flush()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)


def signed(emission: Emission, key: SigningKey | None) -> list[Record]:
    """All records of an emission in the order in which they are written, evidence signed."""
    return [*emission.branches, emission.ranking, *emission.rows, *emission.rejected, *emission.signed(key)]


@dataclass
class Judged:
    """What judging again did: what `--json` prints."""

    judged: int = 0
    """Rollouts that were judged and written."""
    there: int = 0
    """Rollouts that were there already, as a whole."""
    unfinished: int = 0
    """Rollouts whose votes are not complete because the budget is spent: the next run goes on with them."""
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
    """Answers that the log holds, whether or not they counted."""


async def judge_again(
    refold: Refold,
    target: Target,
    judge: Judge,
    config: JudgeConfig,
    concurrency: int,
    say: Say = lambda _what, _share: None,
) -> tuple[Judged, Spent]:
    """Judge every closed rollout of a log. Raises JudgeSetupError when the judge cannot be asked, AgainError for a target in use."""
    counts, asker = Judged(), Asker(judge, concurrency, target.votes, target.keep)
    spent = asker.spent

    async for works in _batches(refold, target, config, counts, spent, AT_ONCE * concurrency):
        requests = [request for work in works for request in work.asking.requests]
        goal = spent.votes + sum(len(calls_of(request)) for request in requests)
        begun = spent.votes

        def tell(begun: int = begun, goal: int = goal) -> None:
            share = (spent.votes - begun) / max(1, goal - begun)
            say(f"{counts.judged:,} rollouts judged, {spent.asked:,} votes asked for", share)

        paid = {name: vote for work in works for name, vote in work.paid.items()}
        answers = iter(await asker.votes(requests, paid, tell))
        for work in works:
            await _finish(work, [vote for _ in work.asking.requests for vote in next(answers)], target, counts)
    counts.open = refold.open
    counts.broken += refold.broken
    return counts, spent


async def _finish(work: _Work, answers: list[JudgeVote], target: Target, counts: Judged) -> None:
    """Close a rollout with its votes, and hand on what follows."""
    if any(vote.cause == "budget" for vote in answers):
        counts.unfinished += 1
        return
    for tie in work.asking.ties:
        if tie.vote_id not in target.votes:
            await target.keep(tie)
    closed_again(work.rollout, [*work.asking.ties, *answers], work.at)
    try:
        emission = emit(work.rollout)
    except BrokenLogError:
        counts.broken.append(work.rollout.rollout_id)
        return
    await target.write(work.rollout, emission)
    counts.add(emission)


async def _batches(
    refold: Refold, target: Target, config: JudgeConfig, counts: Judged, spent: Spent, calls: int
) -> AsyncGenerator[list[_Work], None]:
    """Rollouts with what is asked about them, as many together as make so many calls."""
    works: list[_Work] = []
    waiting = 0
    async for rollout in refold.rollouts():
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
