"""The board that people see while branches run: a live table on a terminal, a line for each branch that ends
elsewhere."""

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.live import Live
from rich.text import Text

from agents.fork.history import Job
from agents.fork.runner import BranchResult
from agents.verdicts.meaning import CURRENT, Verdict, kind_of, meaning
from schemas.verdicts import BuildVerdict, CheckVerdict
from streams.views.tables import Grid, table

COLOURS = {"answered": "green", "failed": "red", "aborted": "yellow", "infra_error": "magenta"}


class Board:
    """The branches of one rollout, on standard error."""

    def __init__(self, rollout_id: str, *, quiet: bool = False) -> None:
        self._rollout_id = rollout_id
        self._quiet = quiet
        self._console = Console(stderr=True)
        self._doing: dict[int, str] = {}
        self._attempts: dict[int, int] = {}
        self._results: dict[int, BranchResult] = {}
        self._verdicts: dict[int, str] = {}
        self._live: Live | None = None

    def begin(self, jobs: Sequence[Job], place: str) -> None:
        """Print what is going to run."""
        self._attempts = dict(jobs)
        if not self._quiet:
            sys.stderr.write(f"rollout {self._rollout_id}: {len(jobs)} branches, written to {place}\n")
        if self._console.is_terminal and not self._quiet:
            self._live = Live(console=self._console, refresh_per_second=8, get_renderable=self.table)
            self._live.start()

    def say(self, branch: int, what: str) -> None:
        """Show a branch's new step."""
        self._doing[branch] = what

    def ended(self, result: BranchResult) -> None:
        """A branch has ended."""
        self._results[result.branch_index] = result
        if self._live is None and not self._quiet:
            why = f": {result.error}" if result.error else ""
            sys.stderr.write(f"branch {result.branch_index}: {result.status} after {result.steps} steps{why}\n")

    def verified(self, branch: int, verdicts: Sequence[Verdict]) -> None:
        """Verdicts about a branch are on the log."""
        said = "; ".join(map(in_words, verdicts))
        self._verdicts[branch] = said
        if verdicts and self._live is None and not self._quiet:
            sys.stderr.write(f"branch {branch}: {said}\n")

    def close(self) -> None:
        """Leave the last state on the screen."""
        if self._live is not None:
            self._live.stop()

    def table(self) -> Grid:
        """The branches in their current state."""
        numbers = ("branch", "attempt", "steps", "tokens")
        made = table("", "branch", "attempt", "status", "steps", "tokens", "now", right=numbers)
        for branch, attempt in sorted(self._attempts.items()):
            result = self._results.get(branch)
            if result is None:
                made.add_row(str(branch), str(attempt), "running", "", "", self._doing.get(branch, ""))
                continue
            status = Text(result.status, style=COLOURS[result.status])
            made.add_row(
                str(branch), str(attempt), status, str(result.steps), f"{result.tokens.total:,}",
                result.error or self._verdicts.get(branch, ""),
            )  # fmt: skip
        return made


def in_words(verdict: Verdict) -> str:
    """A verdict on one line."""
    said = f"{kind_of(verdict)}: {meaning(verdict, CURRENT).outcome}"
    if isinstance(verdict, BuildVerdict):
        return f"{said}, {verdict.tests.passed} of {verdict.tests.total} tests" if verdict.tests else said
    why = verdict.hint if isinstance(verdict, CheckVerdict) else verdict.reason
    return f"{said} ({why})" if why else said
