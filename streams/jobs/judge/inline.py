"""A judge in the same process: `braid run --judge` asks it about the rollouts of a file while it folds them."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from schemas.judging import JudgeRequest, JudgeVote
from streams.cluster.config import Settings
from streams.cluster.judge_client import Budget, make_judge
from streams.jobs.judge.asker import AT_ONCE, Asker, VoteFile


class InlineJudge:
    """The configured judge. Answers are kept in OUT/votes.jsonl."""

    def __init__(self, settings: Settings, out: Path) -> None:
        self.budget = Budget(settings.judge.calls_per_hour)
        self._judge = make_judge(settings, self.budget.allow)
        self._file = VoteFile(out)
        self._asker = Asker(self._judge, settings.judge.concurrency, self._file.votes, self._file.keep)
        self.calls_at_once = AT_ONCE * settings.judge.concurrency
        self.spent = self._asker.spent

    async def votes(
        self, requests: Sequence[JudgeRequest], paid: Mapping[str, JudgeVote], say: Callable[[], None]
    ) -> list[list[JudgeVote]]:
        """All votes about each request; see `Asker.votes`."""
        return await self._asker.votes(requests, paid, say)

    def plain(self) -> dict[str, Any]:
        """The usage, as `--json` prints it."""
        return self.spent.plain(self.budget)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self._judge.close()
        self._file.close()
