"""Everything in the log about one rollout: its facts folded again, its output, and its dead letters."""

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from agents.rollouts.rollout import Rollout
from agents.rollouts.status import Status
from agents.trust.trusted_keys import UNTRUSTED
from schemas.base import Record
from schemas.branches import BranchRecord
from schemas.errors import DecodeError
from schemas.evidence import AepRecord
from schemas.judging import JudgeRequest, JudgeVote
from schemas.rankings import Ranking
from schemas.training import DpoRecord, PpoRecord, RejectedRecord, SftRecord
from streams.log.fold import Fold
from streams.log.headers import identity
from streams.log.letter_list import DeadLetter, fold_letter
from streams.log.reader import LogReader
from streams.log.record import LogRecord, Placed
from streams.log.topics import CAPTURES, CLOSURES, DEAD_LETTERS, FACTS, TOPICS, Topic
from streams.log.view_rows import ViewRow

if TYPE_CHECKING:
    from streams.log.rollout_index import RolloutIndex

MARGIN_MS = 5 * 60_000
"""Reading starts this long before the rollout's first fact: brokers' clocks differ, and a leader may change."""

ORDER = (DEAD_LETTERS, *(topic for topic in TOPICS if topic not in (CAPTURES, CLOSURES, DEAD_LETTERS)), CLOSURES)
"""Decisions come last, so that facts they do not pin are still shown. Dead letters come first: they name the untrusted
verdicts.
"""

AnyRecord = TypeVar("AnyRecord", bound=Record)


class Unreadable(NamedTuple):
    """A record of the rollout that cannot be decoded and has no dead letter."""

    place: str
    """topic/partition/offset, without a prefix."""
    reason: str


@dataclass
class Account:
    """The known facts of a rollout."""

    rollout_id: str
    rollout: Rollout
    view: ViewRow | None = None
    facts: int = 0
    emitted: dict[str, Record] = field(default_factory=dict)
    """The records that follow from the facts, by id: a crash may have written it twice, with the same bytes."""
    letters: dict[tuple[str, str], DeadLetter] = field(default_factory=dict)
    unreadable: list[Unreadable] = field(default_factory=list)

    def refuse(self, partition: int, topic: Topic, record: LogRecord, error: DecodeError) -> None:
        """Note a record that cannot be read."""
        self.unreadable.append(Unreadable(f"{topic.name}/{partition}/{record.offset}", str(error)))

    def is_untrusted(self, placed: Placed) -> bool:
        """Whether a fact became a dead letter because no trusted key had signed it: then it never counted."""
        place = f"{placed.topic.name}/{placed.partition}/{placed.record.offset}"
        return any(reason == UNTRUSTED and origin.endswith(place) for origin, reason in self.letters)

    @property
    def is_empty(self) -> bool:
        """Whether the log has nothing of it."""
        return self.view is None and not (self.facts or self.emitted or self.letters or self.unreadable)

    @property
    def status(self) -> str:
        """Its state, in a word; only the worker's view shows that a rollout is broken."""
        if self.view is not None and self.view.status == "broken":
            return "broken"
        if self.rollout.status is Status.CLOSED and self.ranking is None:
            return "closing"  # decided; its output has not been written
        return self.rollout.status.value

    def all(self, kind: type[AnyRecord]) -> list[AnyRecord]:
        """The emitted records of one kind, in the order of the log."""
        return [record for record in self.emitted.values() if isinstance(record, kind)]

    @property
    def ranking(self) -> Ranking | None:
        """The ranking, if there is one yet."""
        return next(iter(self.all(Ranking)), None)

    @property
    def branches(self) -> dict[int, BranchRecord]:
        """The branch records, by index."""
        return {record.branch_index: record for record in self.all(BranchRecord)}

    @property
    def rows(self) -> list[SftRecord | DpoRecord | PpoRecord]:
        """The training rows."""
        return [*self.all(SftRecord), *self.all(DpoRecord), *self.all(PpoRecord)]

    @property
    def rejected(self) -> list[RejectedRecord]:
        """The rejected rows."""
        return self.all(RejectedRecord)

    @property
    def evidence(self) -> list[AepRecord]:
        """The evidence records."""
        return self.all(AepRecord)

    @property
    def requests(self) -> list[JudgeRequest]:
        """The questions to the judge."""
        return self.all(JudgeRequest)

    @property
    def votes(self) -> list[JudgeVote]:
        """The votes that count: those that the closing pins, else all so far."""
        closed = self.rollout.closed
        chosen: Iterable[str] = self.rollout.votes if closed is None else closed.vote_ids
        facts = [self.rollout.votes[vote_id].fact for vote_id in chosen if vote_id in self.rollout.votes]
        return [vote for vote in facts if isinstance(vote, JudgeVote)]


async def account_of(log: LogReader, rollout_id: str, index: "RolloutIndex | None" = None) -> Account:
    """Read everything about a rollout. Does not raise for an unknown rollout: its account is empty.

    With an index only the rollout's own records are read, at their offsets; else its partition is searched for them.
    """
    if index is not None:
        return await _folded(Account(rollout_id, Rollout(rollout_id)), log, _indexed(log, rollout_id, index))
    account = Account(rollout_id, Rollout(rollout_id), await log.view_row(rollout_id))
    started = account.view.started_at if account.view is not None else None
    since = None if started is None else started - MARGIN_MS
    return await _folded(account, log, log.records(ORDER, rollout_id=rollout_id, since=since))


async def _indexed(log: LogReader, rollout_id: str, index: "RolloutIndex") -> AsyncGenerator[Placed, None]:
    """The records of a rollout by the index. A record with another key would mean that the log is a different one: it
    is left out.
    """
    key = rollout_id.encode()
    for (topic, partition), offsets in index.places(rollout_id, ORDER).items():
        async with aclosing(log.each_at(topic, partition, offsets)) as records:
            async for record in records:
                if record.key == key:
                    yield Placed(topic, partition, record)


async def _folded(account: Account, log: LogReader, records: AsyncGenerator[Placed, None]) -> Account:
    fold: Fold | None = None
    async for placed in records:
        topic, partition, record = placed
        if topic in FACTS:
            fold = fold or Fold(log.codec, partition, lambda _rollout_id: True, partial(account.refuse, partition))
            await log.learn([record])
            if account.is_untrusted(placed):
                continue
            if (said := fold.read(topic, record)) is not None:
                account.rollout = fold.add(topic, record, said)
        else:
            await _take(account, log, placed)
    account.facts = fold.facts if fold is not None else 0
    buried = tuple(letter.letter_id for letter in account.letters.values())
    account.unreadable = [
        each for each in account.unreadable if not any(origin.endswith(each.place) for origin in buried)
    ]
    return account


async def _take(account: Account, log: LogReader, placed: Placed) -> None:
    """Add a record of the output."""
    topic, partition, record = placed
    if topic is DEAD_LETTERS:
        fold_letter(account.letters, placed)
        return
    try:
        emitted = await log.decode(placed)
    except DecodeError as error:
        account.refuse(partition, topic, record, error)
    else:
        account.emitted.setdefault(f"{type(emitted).__name__}/{identity(emitted)}", emitted)
