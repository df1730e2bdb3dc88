"""A judge asked about many requests at once, outside the judge worker: for files, for stored rollouts, for calibration.

A known vote is not requested again. Every vote is stored at once, so a killed process loses only the running calls.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from agents.importers.line_error import LineError
from agents.importers.lines import LineReader
from agents.judge.judge import Judge, JudgeTroubleError
from agents.judge.votes import Call, calls_of, vote_id
from schemas.errors import BraidError
from schemas.judging import JudgeRequest, JudgeVote
from schemas.numbers import nine
from streams.cluster.judge_client import Budget, ask
from streams.log.durable_files import write_whole
from streams.log.terminal_text import line

VOTES_FILE = "votes.jsonl"

AT_ONCE = 64
"""Queued calls for each that may run at once: rollouts are read until there are so many."""

REASON = 300
"""Characters of the reason of a missing answer."""

MOST_REASONS = 1000
"""Different reasons that are counted separately, limited because a service may put a unique number into each."""


class VoteFileError(BraidError):
    """A file of votes with other content."""


@dataclass
class Spent:
    """The usage of judging, as shown by `--json`."""

    judge: str
    asked: int = 0
    """Votes requested in this run, including those without an answer."""
    known: int = 0
    """Votes that existed already."""
    missing: Counter[str] = field(default_factory=Counter)
    """Votes without an answer, by cause."""
    reasons: Counter[tuple[str, str]] = field(default_factory=Counter)
    """The same by cause and message, as far as it is known."""
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float | None = None
    """None if the cost of calls is unknown."""
    own_work: int = 0
    """Rollouts with branches that the judge's own model made."""

    @property
    def votes(self) -> int:
        """All of them."""
        return self.asked + self.known

    def add(self, vote: JudgeVote, why: str = "") -> None:
        """Count a vote that was asked for, and why it has no answer."""
        self.asked += 1
        if vote.preferred is None and vote.score is None:
            cause = vote.cause or "unknown"
            self.missing[cause] += 1
            known = (cause, why) in self.reasons or len(self.reasons) < MOST_REASONS
            self.reasons[cause, why if known else ""] += 1
        if vote.usage is not None:
            self.input_tokens += vote.usage.input_tokens or 0
            self.output_tokens += vote.usage.output_tokens or 0
            if vote.usage.usd is not None:
                self.usd = (self.usd or 0.0) + vote.usage.usd

    def plain(self, budget: Budget) -> dict[str, Any]:
        """As `--json` prints it; `calls` counts the calls really made, retries included."""
        return {
            "judge": self.judge,
            "calls": budget.calls,
            "asked": self.asked,
            "known": self.known,
            "missing": dict(sorted(self.missing.items())),
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "usd": None if self.usd is None else nine(self.usd),
            "own_work": self.own_work,
        }


async def _forget(_vote: JudgeVote) -> None:
    """Discard a note."""


def _ignore(_vote: JudgeVote, _why: str) -> None:
    """A listener that ignores its calls."""


class Asker:
    """Asks one judge, with a limit of parallel calls. `hear` is called with the reason of a missing answer, in words
    fit for a terminal.
    """

    def __init__(
        self,
        judge: Judge,
        concurrency: int,
        known: Mapping[str, JudgeVote] | None = None,
        keep: Callable[[JudgeVote], Awaitable[None]] = _forget,
        hear: Callable[[JudgeVote, str], None] = _ignore,
    ) -> None:
        self.spent = Spent(judge.name)
        self._judge = judge
        self._slots = asyncio.Semaphore(concurrency)
        self._known = known or {}
        self._keep = keep
        self._hear = hear

    async def votes(
        self,
        requests: Sequence[JudgeRequest],
        paid: Mapping[str, JudgeVote] | None = None,
        say: Callable[[], None] = lambda: None,
    ) -> list[list[JudgeVote]]:
        """All votes about each request, in the order of its calls; `say` is called for each vote.

        `paid` has votes stored elsewhere: they are stored as if they were new. Raises JudgeSetupError when the
        judge cannot be asked at all.
        """

        async def one(request: JudgeRequest, call: Call) -> JudgeVote:
            name = vote_id(request, call, self._judge.name)
            vote = self._known.get(name) or (paid or {}).get(name)
            if vote is not None:
                self.spent.known += 1
            else:
                troubles: list[JudgeTroubleError] = []
                async with self._slots:
                    vote = await ask(self._judge, request, call, troubles.append)
                why = line(" ".join(map(str, troubles)), REASON)
                self.spent.add(vote, why)
                if troubles:
                    self._hear(vote, why)
            # With the budget spent no judge was asked: with a new budget it will be.
            if name not in self._known and vote.cause != "budget":
                await self._keep(vote)
            say()
            return vote

        async def about(request: JudgeRequest) -> list[JudgeVote]:
            return await asyncio.gather(*(one(request, call) for call in calls_of(request)))

        return await asyncio.gather(*map(about, requests))


class VoteFile:
    """The answers that were paid for, as vote lines: `braid rank` and `braid run` read them, too.

    A vote without an answer lasts for one run only: the next one asks again.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / VOTES_FILE
        try:
            folder.mkdir(parents=True, exist_ok=True)
            known = votes_in(self.path) if self.path.exists() else []
            self.votes: dict[str, JudgeVote] = {}
            for vote in known:
                if vote.preferred is not None or vote.score is not None:
                    self.votes.setdefault(vote.vote_id, vote)
            write_whole(self.path, b"".join(map(_line, self.votes.values())))
            self._out: BinaryIO = self.path.open("ab")
        except OSError as error:
            raise VoteFileError(f"{self.path} cannot be written: {error.strerror}; give another directory") from None

    async def keep(self, vote: JudgeVote) -> None:
        """Write a vote, at once."""
        self._out.write(_line(vote))
        self._out.flush()

    def close(self) -> None:
        """Close the file."""
        self._out.close()


def votes_in(path: Path) -> list[JudgeVote]:
    """All votes of such a file, including those without an answer. Raises VoteFileError with the line and the reason."""
    found: list[JudgeVote] = []
    reader = LineReader()
    try:
        whole = path.read_bytes()
    except OSError as error:
        raise VoteFileError(f"{path} cannot be read: {error.strerror}") from None
    *lines, _torn = whole.split(b"\n")  # after the end of the last line there is a truncated rest
    for number, text in enumerate(lines, start=1):
        try:
            (vote,) = reader.read(text)
        except LineError as error:
            raise VoteFileError(f"{path}:{number}: {error}; remove the line, or give another directory") from None
        if isinstance(vote, JudgeVote):
            found.append(vote)
    return found


def _line(vote: JudgeVote) -> bytes:
    return orjson.dumps({"type": "vote", **vote.plain()}) + b"\n"
