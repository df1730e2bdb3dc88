"""The data of the pages of one rollout: its account, its strands, and why it waits. Made once for each change of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

from agents.ranking.ranking import RankingResult
from agents.rollouts.branch_outcomes import required_verdicts
from agents.rollouts.closed_rollout import closed_rollout
from agents.rollouts.emission import branches_of, ranked_by_votes
from schemas.compliance import ComplianceEvalRecord
from schemas.errors import BraidError
from schemas.training import DpoRecord, PpoRecord, RejectedRecord, SftRecord
from streams.cluster.config import Settings
from streams.log.index_queries import IndexRow
from streams.views.account import Account
from streams.views.branch_status import config_of
from streams.views.vote_table import Tally, tally
from streams.views.wait_reasons import waiting_for
from streams.views.web.reason_words import reason_words, unpaired_words
from streams.views.web.strands import Strand, strands_of

Row = SftRecord | DpoRecord | PpoRecord


@dataclass(frozen=True)
class Sight:
    """One rollout, ready to be shown."""

    account: Account
    strands: tuple[Strand, ...]
    waits: tuple[str, ...]
    required: tuple[str, ...]
    counted: Tally
    verify_with: str
    """The command that checks its evidence without us."""
    status: str

    @property
    def rollout_id(self) -> str:
        """The rollout."""
        return self.account.rollout_id

    def strand(self, branch: int) -> Strand | None:
        """One branch."""
        return next((strand for strand in self.strands if strand.branch == branch), None)

    def pair_row(self, one: int, other: int) -> DpoRecord | None:
        """The preference row of two branches."""
        wanted = {one, other}
        rows = self.account.all(DpoRecord)
        return next((row for row in rows if {row.chosen_branch, row.rejected_branch} == wanted), None)

    def repairs(self, branch: int) -> list[DpoRecord]:
        """The preference rows of two rounds of one branch."""
        return [row for row in self.account.all(DpoRecord) if row.chosen_branch == row.rejected_branch == branch]

    def rounds_of(self, branch: int) -> list[ComplianceEvalRecord]:
        """The compliance runs of a branch, with their rounds."""
        return [each for each in self.account.all(ComplianceEvalRecord) if each.branch_index == branch]

    def rows_of(self, branch: int) -> list[Row]:
        """The rows made of a branch."""
        return [row for row in self.account.rows if branch in branches_in(row)]

    def left_out(self, *branches: int) -> list[RejectedRecord]:
        """The rejected rows of exactly these branches."""
        return [row for row in self.account.rejected if set(row.branches) == set(branches)]

    @cached_property
    def _result(self) -> RankingResult | None:
        """The ranking by outcomes and votes, with its probabilities; None if its facts are incomplete."""
        if self.account.rollout.closed is None or not self.account.rollout.has_closed_facts():
            return None
        try:
            source = closed_rollout(self.account.rollout, None)
            return ranked_by_votes(source, self.account.branches or branches_of(source, None)).result
        except (BraidError, KeyError):
            return None

    def probability(self, one: int, other: int) -> float | None:
        """The probability, by the votes, that one branch is better; None if no vote compares them."""
        return None if self._result is None else self._result.probability(one, other)

    def pairs_behind(self, record: RejectedRecord) -> list[tuple[int, int]]:
        """The pairs that one record represents, which it counts and does not name; empty if they are not certain."""
        told = dict(reason.partition(":")[::2] for reason in record.reasons)
        found = self._unsure.get(record.reasons[0], []) if record.kind == "dpo" and "pairs" in told else []
        return found if told.get("pairs") == str(len(found)) else []

    @cached_property
    def _unsure(self) -> dict[str, list[tuple[int, int]]]:
        """By reason, pairs of the same outcome for which votes show no clear preference, by the rules for rows."""
        ranking, found = self.account.ranking, dict[str, list[tuple[int, int]]]()
        if ranking is None or self._result is None:
            return found
        needed = config_of(self.account.rollout, _EMPTY.emission).pairs.min_probability
        ranked = [each for each in ranking.branches if each.rank is not None]
        for better, worse in combinations(ranked, 2):
            if better.objective_status == worse.objective_status:
                probability = self.probability(better.branch_index, worse.branch_index)
                if probability is None or probability < needed:
                    reason = "not_compared" if probability is None else "below_min_probability"
                    found.setdefault(reason, []).append((better.branch_index, worse.branch_index))
        return found

    def why_no_pair(self, one: int, other: int) -> list[str]:
        """Why two branches make no preference row, in sentences."""
        a, b = self.strand(one), self.strand(other)
        if a is None or b is None:
            return ["One of the branches is not part of this rollout."]
        if self.account.ranking is None:
            return ["The rollout has not closed: rows are made when it does.", *self.waits]
        told = [
            reason for row in self.left_out(one, other) if row.kind == "dpo" for reason in reason_words(row.reasons)
        ]
        return told or unpaired_words(
            a, b, self.probability(*_in_order(a, b)), config_of(self.account.rollout, _EMPTY.emission)
        )


_EMPTY = Settings.model_construct()


def _in_order(a: Strand, b: Strand) -> tuple[int, int]:
    ranks = [each.ranked.rank if each.ranked is not None and each.ranked.rank is not None else 10**9 for each in (a, b)]
    return (a.branch, b.branch) if ranks[0] <= ranks[1] else (b.branch, a.branch)


def branches_in(row: Row) -> tuple[int, ...]:
    """The branches that a row was made of."""
    if not isinstance(row, DpoRecord):
        return (row.branch_index,)
    return (
        (row.chosen_branch, row.rejected_branch) if row.chosen_branch != row.rejected_branch else (row.chosen_branch,)
    )


def pair_name(row: DpoRecord) -> str:
    """The two sides of a preference row: branches, or rounds of one branch."""
    if row.chosen_branch != row.rejected_branch or row.chosen_round is None:
        return f"{row.chosen_branch} over {row.rejected_branch}"
    return f"branch {row.chosen_branch}: round {row.chosen_round} over round {row.rejected_round}"


def sight_of(account: Account, settings: Settings, row: IndexRow | None, verify_with: str) -> Sight:
    """Make everything that pages show of a rollout."""
    rollout = account.rollout
    waits = tuple(waiting_for(rollout, settings.emission, settings.closing))
    if account.status == "closing":
        waits = ("decided; its ranking and its rows are not in this log yet",)
    broken = row is not None and row.status == "broken"
    if broken and row is not None:
        waits = (f"the worker gave it up: {row.why}", *waits)
    return Sight(
        account, strands_of(account, settings.emission), waits,
        required_verdicts(rollout, config_of(rollout, settings.emission)), tally(account.votes), verify_with,
        "broken" if broken else account.status,
    )  # fmt: skip


def beads_of(outcomes: Mapping[str, int]) -> Sequence[str]:
    """The outcomes of branches, one each, in the order of tiers."""
    return [status for status in ("pass", "not_required", "fail", "unknown") for _ in range(outcomes.get(status, 0))]
