"""Training rows of a ranked rollout, and what was left out with why.

SFT: passing branches with an answer. DPO: (pass, fail) pairs, and pairs of one tier that votes tell apart. PPO: every branch
with a known reward that said or called something. An unknown branch is in no pair and has no reward; nothing disappears
silently.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Final, NamedTuple, TypedDict, final

from agents.rewards.rewards import Group, Reward, group_of, with_coverage
from agents.rules.emission_rules import Rules
from agents.summarize.opening import CleanedOpening
from agents.training.admission import Judged, admit, both
from agents.training.messages import Conversation, Pair, conversation, given_messages, is_blank
from schemas.branches import BranchRecord
from schemas.closures import RolloutClosed, RolloutSettled
from schemas.codec.body import Bodies, with_content_id
from schemas.codec.maker import unchecked
from schemas.emission import EmissionConfig
from schemas.numbers import nine
from schemas.rankings import RankedBranch
from schemas.training import (
    Admission,
    Basis,
    DpoRecord,
    Message,
    PpoRecord,
    Provenance,
    RejectedRecord,
    RowKind,
    SftRecord,
)  # fmt: skip

Row = SftRecord | DpoRecord | PpoRecord

_sft_record: Final = unchecked(SftRecord)
_dpo_record: Final = unchecked(DpoRecord)
_ppo_record: Final = unchecked(PpoRecord)
_rejected_record: Final = unchecked(RejectedRecord)
_provenance: Final = unchecked(Provenance)

Beats = Callable[[int, int], float | None]
"""P(a is really better than b) for two branches; None when votes do not connect them."""


class _Common(TypedDict):
    """What all rows have."""

    record_id: str
    rollout_id: str
    task: str
    tools: str
    model: str | None
    admission: Admission
    provenance: Provenance
    redactions: dict[str, int]


@final
class Candidate:
    """A ranked branch with all that rows are made of."""

    __slots__ = ("branch", "index", "judged", "rank", "ranked", "reward", "status", "total")

    def __init__(self, ranked: RankedBranch, branch: BranchRecord, judged: Judged, reward: Reward | None) -> None:
        self.ranked = ranked
        self.branch = branch
        self.judged = judged
        self.reward = reward
        # Fields that are read many times: an attribute of a model takes ten times as long as one of this class.
        self.index = ranked.branch_index
        self.status = ranked.objective_status
        self.rank = ranked.rank
        self.total = ranked.total


class Rows(NamedTuple):
    """What a rollout gives to training."""

    rows: tuple[Row, ...]
    rejected: tuple[RejectedRecord, ...]


NO_GROUP = Group(0, None, None)
"""Of a branch that is not trained on, among others that are not."""

SURPLUS = "over_max_per_rollout"

BAD_ENDS = frozenset({"failed", "aborted", "infra_error"})
"""Ends of a branch that is never imitated and never preferred, whatever its build says."""

MOST_SURPLUS = 1000
"""Pairs beyond the limit that are named one by one; further ones are counted together. Pairs grow with the square of branches."""


class RowMaker:
    """Makes the rows of one closed rollout."""

    def __init__(
        self,
        settled: RolloutSettled,
        closed: RolloutClosed,
        opening: CleanedOpening,
        config: EmissionConfig,
        config_digest: str,
        rules: Rules,
        beats: Beats,
        bodies: Bodies,
    ) -> None:
        """`bodies` gets the Avro body of every row."""
        self.settled = settled
        self.config = config
        self._rules = rules
        self.beats = beats
        self._opening = opening
        self._tools = opening.opened.tools if opening.opened else "[]"
        self._made_by = {
            "settled_id": settled.settled_id,
            "closed_id": closed.closed_id,
            "config_digest": config_digest,
        }
        self._bodies = bodies
        self._rows: list[Row] = []
        self._rejected: list[RejectedRecord] = []
        self._given: dict[str, tuple[Message, ...]] = {}

    def make(self, candidates: Sequence[Candidate]) -> Rows:
        """All rows, in the order of kinds, then of the ranking."""
        if self.settled.cause == "cancelled":
            everyone = [candidate.branch for candidate in candidates]
            for kind in ("sft", "dpo", "ppo"):
                self._reject(kind, everyone, ("cancelled",))
            return Rows((), tuple(self._rejected))
        talks = {each.index: self._talk(each.branch) for each in candidates}
        admitting = self.config.admission
        admissions = {each.index: admit(each.judged, admitting, self._rules) for each in candidates}
        alone = {each.index: self._common([each.branch], admissions[each.index]) for each in candidates}
        for candidate in candidates:
            self._sft(candidate, talks, alone)
        self._dpo(candidates, talks, admissions)
        self._ppo(candidates, talks, alone)
        return Rows(tuple(self._rows), tuple(self._rejected))

    def _talk(self, branch: BranchRecord) -> Conversation:
        given = self._given.get(branch.task)
        if given is None:  # the branches of a rollout have the same ones, and nearly always one task
            given = self._given[branch.task] = given_messages(branch.task, self._opening.opened)
        return conversation(branch, given, turn_text=self.config.turn_text)

    # -- SFT ----------------------------------------------------------------------------------------------------------

    def _sft(self, candidate: Candidate, talks: Mapping[int, Conversation], alone: Mapping[int, _Common]) -> None:
        index, branch = candidate.index, candidate.branch
        if candidate.status != "pass":
            self._reject("sft", [branch], ("not_passing", f"objective_{candidate.status}"))
        elif (unfit := self._unfit(branch)) is not None:
            self._reject("sft", [branch], (unfit,))
        elif is_blank(branch.final_answer):
            self._reject("sft", [branch], ("empty_answer",))
        else:
            record = _sft_record(
                **alone[index],
                branch_index=index,
                attempt=branch.attempt,
                messages=talks[index].messages,
                rank=candidate.rank,
                components=candidate.ranked.components,
            )
            self._admit("sft", [branch], record)

    def _unfit(self, branch: BranchRecord) -> str | None:
        """Why nothing good can be said of a branch to a trainer; None where nothing speaks against it."""
        if not self._rules.unfit_is_rejected:
            return None
        if is_blank(branch.task):
            return "empty_prompt"
        return "ended_badly" if branch.status in BAD_ENDS else None

    # -- DPO ----------------------------------------------------------------------------------------------------------

    def _dpo(
        self, candidates: Sequence[Candidate], talks: Mapping[int, Conversation], admissions: Mapping[int, Admission]
    ) -> None:
        kept = surplus = 0
        limits = self.config.pairs
        unsure: Counter[str] = Counter()
        for better, worse, basis, probability in self._pairs(candidates):
            if basis == "judge" and (probability is None or probability < limits.min_probability):
                unsure["not_compared" if probability is None else "below_min_probability"] += 1
                continue
            if surplus >= MOST_SURPLUS:
                unsure[SURPLUS] += 1
                continue
            pair = Pair(talks[better.index], talks[worse.index])
            margin = nine((better.total or 0.0) - (worse.total or 0.0))
            unfit = self._unfit(better.branch) or pair.unfit()
            if unfit is None and basis == "objective" and margin <= 0.0 and self._rules.unfit_is_rejected:
                unfit = "margin_against_outcome"
            admission = both(admissions[better.index], admissions[worse.index])
            branches, trained = [better.branch, worse.branch], admission.category == "train"
            if unfit is not None:
                self._reject("dpo", branches, (unfit,))
            elif trained and kept >= limits.max_per_rollout:
                surplus += 1
                self._reject("dpo", branches, (SURPLUS,))
            else:
                kept += trained
                record = _dpo_record(
                    **self._common(branches, admission),
                    chosen_branch=better.index,
                    rejected_branch=worse.index,
                    prompt=pair.prompt,
                    chosen=pair.chosen,
                    rejected=pair.rejected,
                    chosen_answer=better.branch.final_answer,
                    rejected_answer=worse.branch.final_answer,
                    basis=basis,
                    margin=margin,
                    p_chosen=probability,
                    chosen_components=better.ranked.components,
                    rejected_components=worse.ranked.components,
                )
                self._admit("dpo", branches, record)
        for reason, count in sorted(unsure.items()):
            self._reject("dpo", [candidate.branch for candidate in candidates], (reason, f"pairs:{count}"))

    def _pairs(self, candidates: Sequence[Candidate]) -> list[tuple[Candidate, Candidate, Basis, float | None]]:
        """Pairs worth a look, best against worst first: the widest apart in rank, then by rank."""
        ranked = [candidate for candidate in candidates if candidate.rank is not None]
        found: list[tuple[Candidate, Candidate, Basis, float | None]] = []
        for better, worse in combinations(ranked, 2):
            if better.status == "pass" and worse.status == "fail":
                found.append((better, worse, "objective", None))
            elif better.status == worse.status:
                found.append((better, worse, "judge", self.beats(better.index, worse.index)))
        return sorted(
            found,
            key=lambda pair: (
                pair[2] != "objective",
                (pair[0].rank or 0) - (pair[1].rank or 0),
                pair[0].rank,
            ),
        )

    # -- PPO ----------------------------------------------------------------------------------------------------------

    def _ppo(
        self, candidates: Sequence[Candidate], talks: Mapping[int, Conversation], alone: Mapping[int, _Common]
    ) -> None:
        groups, rewards = self._groups(candidates, talks, alone)
        for candidate in candidates:
            index, branch = candidate.index, candidate.branch
            talk = talks[index]
            reward = rewards[index]
            if reward is None:
                self._reject("ppo", [branch], ("no_reward", f"objective_{candidate.status}"))
            elif (unfit := self._unfit_for_reward(branch, talk)) is not None:
                self._reject("ppo", [branch], (unfit,))
            else:
                group = groups.get(branch.task, NO_GROUP)
                record = _ppo_record(
                    **alone[index],
                    branch_index=index,
                    attempt=branch.attempt,
                    prompt=talk.prompt,
                    completion=talk.completion,
                    final_answer=branch.final_answer,
                    reward=reward.value,
                    components=reward.components,
                    total=candidate.total,
                    group_mean=group.mean,
                    group_std=group.std,
                    advantage=group.advantage(reward.value),
                    group_size=group.size,
                )
                self._admit("ppo", [branch], record)

    def _unfit_for_reward(self, branch: BranchRecord, talk: Conversation) -> str | None:
        if self._rules.unfit_is_rejected and is_blank(branch.task):
            return "empty_prompt"
        return None if talk.says_something else "empty_completion"

    def _groups(
        self, candidates: Sequence[Candidate], talks: Mapping[int, Conversation], alone: Mapping[int, _Common]
    ) -> tuple[dict[str, Group], dict[int, Reward | None]]:
        """By task the statistics of its group, and by branch the reward.

        Only what was asked the same is compared: branches without an opening may have tasks of their own. Only members that are
        trained on count; under version 1 every branch with a reward did.
        """
        rewards = {each.index: each.reward for each in candidates}
        members: dict[str, list[int]] = {}
        for each in candidates:
            index, branch = each.index, each.branch
            trained = not self._rules.groups_are_trained_on or (
                alone[index]["admission"].category == "train" and self._unfit_for_reward(branch, talks[index]) is None
            )
            if each.reward is not None and trained:
                members.setdefault(branch.task, []).append(index)
        if self._rules.passes_earn_most:
            passing = {each.index for each in candidates if each.status == "pass"}
            for indexes in members.values():
                self._add_coverage([index for index in indexes if index in passing], rewards)
        groups = {
            task: group_of([reward.value for index in indexes if (reward := rewards[index]) is not None])
            for task, indexes in members.items()
        }
        return groups, rewards

    def _add_coverage(self, passing: Sequence[int], rewards: dict[int, Reward | None]) -> None:
        """Give the passing members of a group their coverage bonus, if the coverage of all of them is known."""
        found = {index: reward for index in passing if (reward := rewards[index]) is not None}
        if all(reward.coverage is not None for reward in found.values()):
            for index, reward in found.items():
                rewards[index] = with_coverage(reward, self.config.rewards)

    # -- what all rows share ------------------------------------------------------------------------------------------

    def _common(self, involved: Sequence[BranchRecord], admission: Admission) -> _Common:
        """Fields of a row about these branches: its task and model are those of the first."""
        redactions = dict(self._opening.counts)
        for each in involved:
            for kind, count in each.redactions.items():
                redactions[kind] = redactions.get(kind, 0) + count
        branch = vars(
            involved[0]
        )  # all at once: an attribute of a model takes five times as long as an entry of a dict
        agent = branch["agent"]
        return {
            "record_id": "-",
            "rollout_id": branch["rollout_id"],
            "task": branch["task"],
            "tools": self._tools,
            "model": agent.model if agent else None,
            "admission": admission,
            "provenance": _provenance(**self._made_by, raw_digests=tuple([each.raw_digest for each in involved])),
            "redactions": dict(sorted(redactions.items())) if redactions else redactions,
        }

    def _admit(self, kind: RowKind, branches: Sequence[BranchRecord], record: Row) -> None:
        admission = record.admission
        category = admission.category
        if category == "train":
            self._rows.append(with_content_id(record, bodies=self._bodies))
        else:
            self._reject(kind, branches, (category, *admission.reasons), admission)

    def _reject(
        self,
        kind: RowKind,
        branches: Sequence[BranchRecord],
        reasons: tuple[str, ...],
        admission: Admission | None = None,
    ) -> None:
        record = _rejected_record(
            record_id="-",
            rollout_id=self.settled.rollout_id,
            kind=kind,
            branches=tuple([branch.branch_index for branch in branches]),
            reasons=reasons,
            admission=admission,
            digests=tuple([branch.raw_digest for branch in branches]),
            settled_id=self._made_by["settled_id"],
            closed_id=self._made_by["closed_id"],
        )
        self._rejected.append(with_content_id(record, bodies=self._bodies))
