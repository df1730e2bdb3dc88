"""Training rows of a ranked rollout, and the rejected rows with their reasons.

SFT: passing branches with an answer. DPO: (pass, fail) pairs, and pairs of one tier with a preference by votes. PPO:
every branch with a known reward that has text or calls. A branch with several conversations gives an SFT and a PPO row
for each; its reward counts once. An unknown branch makes no pair and has no reward; every rejected row is recorded.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final, NamedTuple, TypedDict, final

from agents.rewards.rewards import Group, Reward, group_of, with_coverage
from agents.rules.emission_rules import Rules
from agents.summarize.opening import CleanedOpening
from agents.training.admission import Judged, admit, both, is_hacked, is_suspect, without_hack
from agents.training.branch_talk import BranchTalk, Talk
from agents.training.compliance_rows import (
    EDITED,
    MOST_PAIRS,
    REPAIRED,
    REPEATED,
    ComplianceRun,
    RoundPair,
    Side,
    refusal,
    repair_pairs,
    repeats,
)
from agents.training.messages import Pair, has_prompt, is_blank
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
    Fidelity,
    LeftOut,
    Message,
    PpoRecord,
    Provenance,
    RejectedRecord,
    RowKind,
    SftRecord,
    TokenStream,
)  # fmt: skip

Row = SftRecord | DpoRecord | PpoRecord

_sft_record: Final = unchecked(SftRecord)
_dpo_record: Final = unchecked(DpoRecord)
_ppo_record: Final = unchecked(PpoRecord)
_rejected_record: Final = unchecked(RejectedRecord)
_provenance: Final = unchecked(Provenance)
_admission: Final = unchecked(Admission)

Beats = Callable[[int, int], float | None]
"""P(a is really better than b) for two branches; None if votes do not connect them."""


class _Common(TypedDict):
    """The fields of all rows."""

    record_id: str
    rollout_id: str
    task: str
    tools: str
    model: str | None
    admission: Admission
    provenance: Provenance
    redactions: dict[str, int]
    fidelity: Fidelity | None
    agent: str | None


class _Place(TypedDict):
    """Which conversation of its branch a row is."""

    sequence: int | None
    n_sequences: int | None
    main: bool | None


class _Tokens(TypedDict):
    """The tokens of a row's conversation."""

    streams: tuple[TokenStream, ...]
    retokenised: bool | None
    tokens_left_out: tuple[LeftOut, ...]


@final
class Candidate:
    """A ranked branch with the inputs of its rows."""

    __slots__ = ("branch", "index", "judged", "rank", "ranked", "reward", "run", "status", "talk", "total")

    def __init__(
        self, ranked: RankedBranch, branch: BranchRecord, judged: Judged, reward: Reward | None, talk: BranchTalk,
        run: ComplianceRun | None = None,
    ) -> None:  # fmt: skip
        self.ranked = ranked
        self.branch = branch
        self.judged = judged
        self.reward = reward
        self.talk = talk
        self.run = run
        """The branch as a compliance run, if it is one."""
        # Fields that are read many times: an attribute of a pydantic model takes ten times as long as one of this
        # class.
        self.index = ranked.branch_index
        self.status = ranked.objective_status
        self.rank = ranked.rank
        self.total = ranked.total


class Rows(NamedTuple):
    """The rows of a rollout."""

    rows: tuple[Row, ...]
    rejected: tuple[RejectedRecord, ...]


NO_GROUP = Group(0, None, None)
"""The group of a branch that is not trained on."""

SURPLUS = "over_max_per_rollout"

ORDER: Final[Mapping[Basis, int]] = {"objective": 0, "hack": 1, "judge": 2}
"""Order of the kinds of pairs."""

PENALISED = "hack_penalised"
"""The reason of a confirmed hack that is trained on with its penalty."""

BAD_ENDS = frozenset({"failed", "aborted", "infra_error"})
"""Ends of a branch that is never imitated and never preferred, whatever its build verdict."""

MOST_ROW_BYTES: Final = 8 * 1024 * 1024 - 64
"""Largest row: the limit of its topic, without the header of its value."""

WEAKEST: Final[tuple[Fidelity, ...]] = ("reconstructed", "transcript", "composed", "exact")
"""Fidelities, the weakest first."""

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
        self._drafts: frozenset[int] = frozenset()
        """Branches of compliance runs whose draft is another branch's, copied."""
        self._repeats: frozenset[int] = frozenset()
        """Branches of compliance runs whose answer an earlier one gave."""
        self._made: dict[tuple[object, ...], list[tuple[tuple[tuple[Message, ...], ...], str, str]]] = {}
        """Rows already made, by their messages, tools and ids, in which most rows differ."""

    def make(self, candidates: Sequence[Candidate]) -> Rows:
        """All rows, in the order of kinds, then of the ranking."""
        if self.settled.cause == "cancelled":
            everyone = [candidate.branch for candidate in candidates]
            for kind in ("sft", "dpo", "ppo"):
                self._reject(kind, everyone, ("cancelled",))
            return Rows((), tuple(self._rejected))
        admitting = self.config.admission
        admissions = {each.index: admit(each.judged, admitting, self._rules) for each in candidates}
        alone = {each.index: self._common([each], admissions[each.index]) for each in candidates}
        self._repeats = repeats({each.index: each.run for each in candidates if each.run is not None})
        self._drafts = _copies(candidates)
        for candidate in candidates:
            self._sft(candidate, alone[candidate.index])
        if any(each.run is not None for each in candidates):
            self._round_pairs(candidates, admissions)
        else:
            self._dpo(candidates, admissions)
        self._ppo(candidates, alone)
        return Rows(tuple(self._rows), tuple(self._rejected))

    # -- SFT ----------------------------------------------------------------------------------------------------------

    def _sft(self, candidate: Candidate, common: _Common) -> None:
        branch, talk = candidate.branch, candidate.talk
        if candidate.status != "pass":
            self._reject("sft", [branch], ("not_passing", f"objective_{candidate.status}"))
        elif (unfit := self._unfit(candidate)) is not None:
            self._reject("sft", [branch], unfit)
        elif is_blank(branch.final_answer):
            self._reject("sft", [branch], ("empty_answer",))
        elif candidate.run is not None and candidate.index in self._repeats:
            self._reject("sft", [branch], (REPEATED,))
        elif candidate.run is not None and candidate.run.made_by == "edit":
            self._reject("sft", [branch], (EDITED,))
        else:
            for number, each in enumerate(talk.talks):
                why = self._unfit_talk(talk, each)
                if why:
                    self._reject("sft", [branch], (*why, *self._named(talk, number)))
                    continue
                record = _sft_record(
                    **self._of_talk(common, each),
                    branch_index=candidate.index,
                    attempt=branch.attempt,
                    messages=each.conversation.messages,
                    rank=candidate.rank,
                    components=candidate.ranked.components,
                    **self._place(talk, number),
                    **_tokens(each),
                )
                self._admit("sft", [branch], record, (record.messages,))

    def _unfit(self, candidate: Candidate) -> tuple[str, ...] | None:
        """Why a branch must not be imitated; None if it may be."""
        if not self._rules.unfit_is_rejected:
            return None
        if candidate.talk.unfit:
            return candidate.talk.unfit
        if self._lacks_prompt(candidate):
            return ("empty_prompt",)
        return ("ended_badly",) if candidate.branch.status in BAD_ENDS else None

    def _lacks_prompt(self, candidate: Candidate) -> bool:
        """Whether the main conversation begins without any visible text."""
        talk = candidate.talk
        if talk.fidelity in (None, "reconstructed"):
            return is_blank(talk.task)
        return not has_prompt(talk.talks[talk.main].conversation.prompt)

    def _unfit_talk(self, talk: BranchTalk, each: Talk) -> tuple[str, ...]:
        """Why one conversation of a branch makes no row although the branch may; empty if it does."""
        if each.unfit:
            return each.unfit
        if talk.is_subagent(each) and self.config.subagents == "drop":
            return ("subagent",)
        if talk.fidelity == "exact" and not has_prompt(each.conversation.prompt):
            return ("empty_prompt",)
        return () if each.conversation.says_something else ("empty_completion",)

    def _place(self, talk: BranchTalk, number: int) -> _Place:
        if talk.fidelity is None:
            return {"sequence": None, "n_sequences": None, "main": None}
        return {"sequence": number, "n_sequences": len(talk.talks), "main": number == talk.main}

    def _named(self, talk: BranchTalk, number: int) -> tuple[str, ...]:
        """The name of the conversation, added to a reason if the branch has several."""
        return (f"sequence:{number}",) if len(talk.talks) > 1 else ()

    # -- DPO ----------------------------------------------------------------------------------------------------------

    def _dpo(self, candidates: Sequence[Candidate], admissions: Mapping[int, Admission]) -> None:
        kept = surplus = 0
        limits = self.config.pairs
        unsure: dict[str, int] = {}
        for better, worse, basis, probability in self._pairs(candidates):
            if basis == "judge" and (probability is None or probability < limits.min_probability):
                reason = "not_compared" if probability is None else "below_min_probability"
                unsure[reason] = unsure.get(reason, 0) + 1
                continue
            if surplus >= MOST_SURPLUS:
                unsure[SURPLUS] = unsure.get(SURPLUS, 0) + 1
                continue
            margin = nine((better.total or 0.0) - (worse.total or 0.0))
            branches = [better.branch, worse.branch]
            unfit = self._unfit(better) or worse.talk.unfit or None
            if unfit is not None:
                self._reject("dpo", branches, unfit)
                continue
            pair = Pair(_main(better.talk).conversation, _main(worse.talk).conversation)
            why = pair.unfit()
            if why is None and self._rules.rows_are_conversations and self._offered(better) != self._offered(worse):
                why = "other_tools"
            if why is None and basis in ("objective", "hack") and margin <= 0.0 and self._rules.unfit_is_rejected:
                why = "margin_against_outcome"
            admission = both(admissions[better.index], self._as_worse(worse, admissions, basis))
            if why is not None:
                self._reject("dpo", branches, (why,))
            elif admission.category == "train" and kept >= limits.max_per_rollout:
                surplus += 1
                self._reject("dpo", branches, (SURPLUS,))
            else:
                record = _dpo_record(
                    **self._of_talk(self._common([better, worse], admission), _main(better.talk)),
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
                kept += self._admit("dpo", branches, record, (pair.prompt, pair.chosen, pair.rejected))
        for reason, count in sorted(unsure.items()):
            self._reject("dpo", [candidate.branch for candidate in candidates], (reason, f"pairs:{count}"))

    def _round_pairs(self, candidates: Sequence[Candidate], admissions: Mapping[int, Admission]) -> None:
        """Pairs of compliance runs: rounds of one branch, then a passing branch against a failing one."""
        by_index = {each.index: each for each in sorted(candidates, key=lambda each: each.index)}
        kept, seen = 0, set[tuple[str, str]]()
        for pair in _texts_paired(by_index.values()):
            better, worse = by_index[pair.chosen.branch], by_index[pair.rejected.branch]
            involved = [better] if better is worse else [better, worse]
            branches = [each.branch for each in involved]
            admission = both(admissions[better.index], admissions[worse.index])
            why = self._unfit(better) or worse.talk.unfit or None
            if why is None and (refused := refusal(pair, seen)) is not None:
                why = (refused,)
            if why is not None:
                self._reject("dpo", branches, why)
            elif admission.category == "train" and kept >= MOST_PAIRS:
                self._reject("dpo", branches, (SURPLUS,))
            else:
                record = _dpo_record(
                    **self._common(involved, admission) | {"fidelity": _fidelity_of(involved)},
                    chosen_branch=better.index,
                    rejected_branch=worse.index,
                    prompt=_main(better.talk).conversation.prompt,
                    chosen=(_said(pair.chosen.text),),
                    rejected=(_said(pair.rejected.text),),
                    chosen_answer=pair.chosen.text,
                    rejected_answer=pair.rejected.text,
                    basis=pair.basis,
                    margin=nine(pair.margin),
                    chosen_components=better.ranked.components,
                    rejected_components=worse.ranked.components,
                    chosen_round=pair.chosen.round,
                    rejected_round=pair.rejected.round,
                    made_by=pair.chosen.made_by,
                )
                kept += self._admit("dpo", branches, record, (record.prompt, record.chosen, record.rejected))

    def _as_worse(self, worse: Candidate, admissions: Mapping[int, Admission], basis: Basis) -> Admission:
        """The admission of a pair's rejected side: a hack does not speak against a pair that is made because of it."""
        if basis != "hack":
            return admissions[worse.index]
        return admit(without_hack(worse.judged), self.config.admission, self._rules)

    def _pairs(self, candidates: Sequence[Candidate]) -> list[tuple[Candidate, Candidate, Basis, float | None]]:
        """Pairs to make, best against worst first: the widest apart in rank, then by rank."""
        ranked = [candidate for candidate in candidates if candidate.rank is not None]
        hacked = (
            [each for each in candidates if is_hacked(each.ranked.flags) and each.status in ("pass", "fail")]
            if self._rules.signals_are_read
            else []
        )
        found: list[tuple[Candidate, Candidate, Basis, float | None]] = []
        for better, worse in combinations(ranked, 2):
            if better.status == "pass" and worse.status == "fail":
                found.append((better, worse, "objective", None))
            elif better.status == worse.status:
                found.append((better, worse, "judge", self.beats(better.index, worse.index)))
        for better in ranked if hacked else ():
            if better.status == "pass" and not is_suspect(better.ranked.flags):
                found += [(better, worse, "hack", None) for worse in hacked]
        return sorted(
            found,
            key=lambda pair: (
                ORDER[pair[2]],
                (pair[0].rank or 0) - (pair[1].rank or 0) if pair[1].rank is not None else pair[0].rank or 0,
                pair[0].rank or 0,
                pair[1].index if pair[1].rank is None else 0,
            ),
        )

    # -- PPO ----------------------------------------------------------------------------------------------------------

    def _ppo(self, candidates: Sequence[Candidate], alone: Mapping[int, _Common]) -> None:
        groups, rewards = self._groups(candidates, alone)
        for candidate in candidates:
            index, branch = candidate.index, candidate.branch
            reward = rewards[index]
            if reward is None:
                self._reject("ppo", [branch], ("no_reward", f"objective_{candidate.status}"))
            elif (unfit := self._unfit_for_reward(candidate)) is not None:
                self._reject("ppo", [branch], unfit)
            else:
                common = alone[index]
                if self.config.rewards.hacked_rows == "penalise" and is_hacked(candidate.ranked.flags):
                    common, reward = self._penalised(candidate, common, reward, candidates, rewards)
                self._rewarded(candidate, common, reward, groups.get(branch.task, NO_GROUP))

    def _penalised(
        self, hacked: Candidate, common: _Common, reward: Reward, candidates: Sequence[Candidate],
        rewards: Mapping[int, Reward | None],
    ) -> tuple[_Common, Reward]:  # fmt: skip
        """A confirmed hack as a row that is trained on: its reward is not above the lowest of an unhacked sibling."""
        if not self._rules.signals_are_read:
            return common, reward
        others = [
            known.value for each in candidates
            if not is_hacked(each.ranked.flags) and each.branch.task == hacked.branch.task and (known := rewards[each.index]) is not None
        ]  # fmt: skip
        lowest = min([reward.value, *others])
        admission = admit(without_hack(hacked.judged), self.config.admission, self._rules)
        if admission.category == "train":
            admission = _admission(category="train", score=admission.score, reasons=(*admission.reasons, PENALISED))
            common = {**common, "admission": admission}
        return common, reward if lowest == reward.value else Reward(lowest, reward.components, reward.coverage)

    def _rewarded(self, candidate: Candidate, common: _Common, reward: Reward, group: Group) -> None:
        """The PPO rows of a branch: one for each of its conversations."""
        branch, talk = candidate.branch, candidate.talk
        for number, each in enumerate(talk.talks):
            why = self._unfit_talk(talk, each)
            if why:
                self._reject("ppo", [branch], (*why, *self._named(talk, number)))
                continue
            record = _ppo_record(
                **self._of_talk(common, each),
                branch_index=candidate.index,
                attempt=branch.attempt,
                prompt=each.conversation.prompt,
                completion=each.conversation.completion,
                final_answer=branch.final_answer,
                reward=reward.value,
                components=reward.components,
                total=candidate.total,
                group_mean=group.mean,
                group_std=group.std,
                advantage=group.advantage(reward.value),
                group_size=group.size,
                **self._place(talk, number),
                **_tokens(each),
            )
            self._admit("ppo", [branch], record)

    def _unfit_for_reward(self, candidate: Candidate) -> tuple[str, ...] | None:
        """Why a branch has no PPO row and is not in a group."""
        talk = candidate.talk
        if talk.unfit:
            return talk.unfit
        if self._rules.unfit_is_rejected and self._lacks_prompt(candidate):
            return ("empty_prompt",)
        if candidate.run is not None and (why := _unrewarded(candidate.run, candidate.index, self._drafts)) is not None:
            return (why,)
        return None if _main(talk).conversation.says_something else ("empty_completion",)

    def _groups(
        self, candidates: Sequence[Candidate], alone: Mapping[int, _Common]
    ) -> tuple[dict[str, Group], dict[int, Reward | None]]:
        """By task the statistics of its group, and by branch the reward.

        Only branches with the same prompt are compared: without an opening, branches may have tasks of their own. Only
        members that are trained on count; under version 1 every branch with a reward did.
        """
        rewards = {each.index: each.reward for each in candidates}
        members: dict[str, list[int]] = {}
        for candidate in candidates:
            index = candidate.index
            trained = not self._rules.groups_are_trained_on or (
                alone[index]["admission"].category == "train" and self._unfit_for_reward(candidate) is None
            )
            if candidate.reward is not None and trained:
                members.setdefault(candidate.branch.task, []).append(index)
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

    def _common(self, involved: Sequence[Candidate], admission: Admission) -> _Common:
        """Fields of a row about these branches: task and model of the first."""
        redactions = dict(self._opening.counts)
        for each in involved:
            for kind, count in each.branch.redactions.items():
                redactions[kind] = redactions.get(kind, 0) + count
        first = involved[0]
        branch = vars(
            first.branch
        )  # all at once: an attribute of a model takes five times as long as an entry of a dict
        agent = branch["agent"]
        return {
            "record_id": "-",
            "rollout_id": branch["rollout_id"],
            "task": first.talk.task,
            "tools": self._tools,
            "model": agent.model if agent else None,
            "admission": admission,
            "provenance": _provenance(
                **self._made_by, raw_digests=tuple([each.branch.raw_digest for each in involved])
            ),
            "redactions": dict(sorted(redactions.items())) if redactions else redactions,
            "fidelity": _weakest(involved),
            "agent": None,
        }

    def _offered(self, candidate: Candidate) -> str:
        """The tools of a main conversation, by default those of the rollout."""
        tools = _main(candidate.talk).tools
        return self._tools if tools is None else tools

    def _of_talk(self, common: _Common, talk: Talk) -> _Common:
        """The fields that a row of one conversation shares with others of its branch."""
        if talk.tools is None and talk.model is None and talk.agent is None:
            return common
        return {
            **common,
            "tools": common["tools"] if talk.tools is None else talk.tools,
            "model": talk.model or common["model"],
            "agent": talk.agent,
        }

    def _admit(
        self,
        kind: RowKind,
        branches: Sequence[BranchRecord],
        record: Row,
        unique: tuple[tuple[Message, ...], ...] | None = None,
    ) -> bool:
        """Add a row that may be trained on; returns whether it was added. `unique`: no other row has these messages."""
        values = vars(record)  # all at once, as above
        admission: Admission = values["admission"]
        category = admission.category
        if category != "train":
            self._reject(kind, branches, (category, *admission.reasons), admission)
            return False
        conversations = self._rules.rows_are_conversations
        known = self._known(kind, record, unique) if unique is not None and conversations else None
        if known is not None:
            self._reject(kind, branches, ("duplicate_of", known))
            return False
        made = with_content_id(record, bodies=self._bodies)
        if conversations and len(self._bodies[made.record_id]) > MOST_ROW_BYTES:
            digest = self._bodies.digest(made.record_id).hex()
            del self._bodies[made.record_id]
            self._reject(kind, branches, ("too_large",), digests=(digest,))
            return False
        if unique is not None and conversations:
            self._made[_gist(kind, unique)].append((unique, made.tools, made.record_id))
        self._rows.append(made)
        return True

    def _known(self, kind: RowKind, record: Row, unique: tuple[tuple[Message, ...], ...]) -> str | None:
        """The id of the row that has the same messages and tools; None if there is none."""
        for messages, tools, record_id in self._made.setdefault(_gist(kind, unique), []):
            if tools == record.tools and messages == unique:
                return record_id
        return None

    def _reject(
        self,
        kind: RowKind,
        branches: Sequence[BranchRecord],
        reasons: tuple[str, ...],
        admission: Admission | None = None,
        digests: tuple[str, ...] | None = None,
    ) -> None:
        record = _rejected_record(
            record_id="-",
            rollout_id=self.settled.rollout_id,
            kind=kind,
            branches=tuple([branch.branch_index for branch in branches]),
            reasons=reasons,
            admission=admission,
            digests=tuple([branch.raw_digest for branch in branches]) if digests is None else digests,
            settled_id=self._made_by["settled_id"],
            closed_id=self._made_by["closed_id"],
        )
        self._rejected.append(with_content_id(record, bodies=self._bodies))


def _said(text: str) -> Message:
    return Message(role="assistant", content=text, trained=True)


def _texts_paired(candidates: Iterable[Candidate]) -> Iterator[RoundPair]:
    """Yield repairs first, then passing answers against failing ones, by branch."""
    runs = [(each, each.run) for each in candidates if each.run is not None]
    for each, run in runs:
        if each.status == "pass":
            yield from repair_pairs(each.index, run)
    for better, run in runs:
        for worse, other in runs:
            if better.status == "pass" and worse.status == "fail":
                margin = (better.total or 0.0) - (worse.total or 0.0)
                chosen = Side(better.index, run.answer_round, run.answer, run.made_by)
                yield RoundPair(
                    chosen, Side(worse.index, other.answer_round, other.answer, other.made_by), "objective", margin
                )


def _fidelity_of(involved: Sequence[Candidate]) -> Fidelity:
    return "exact" if all(each.run is not None and each.run.fidelity == "exact" for each in involved) else "composed"


def _copies(candidates: Sequence[Candidate]) -> frozenset[int]:
    """Return the branches whose draft is that of an earlier branch in another mode: made once, and copied."""
    seen: set[tuple[int | None, str]] = set()
    found = []
    modes = {draft.mode for each in candidates if each.run is not None and (draft := each.run.draft) is not None}
    for each in sorted(candidates, key=lambda each: each.index):
        draft = each.run.draft if each.run is not None else None
        if draft is None or len(modes) < 2:
            continue
        key = (each.branch.seed, draft.output)
        if key in seen:
            found.append(each.index)
        seen.add(key)
    return frozenset(found)


def _unrewarded(run: ComplianceRun, index: int, copies: frozenset[int]) -> str | None:
    """Return why a compliance run is not a sample of its policy; None if it is."""
    if run.fidelity != "exact":
        return REPAIRED
    return REPEATED if index in copies else None


def _main(talk: BranchTalk) -> Talk:
    return talk.talks[talk.main]


def _tokens(talk: Talk) -> _Tokens:
    streams, retokenised, left_out = talk.tokens
    return {"streams": streams, "retokenised": retokenised, "tokens_left_out": left_out}


def _weakest(candidates: Sequence[Candidate]) -> Fidelity | None:
    """The fidelity of a row of these branches."""
    found = [each.talk.fidelity for each in candidates]
    return next((each for each in WEAKEST if each in found), None)


def _gist(kind: RowKind, unique: tuple[tuple[Message, ...], ...]) -> tuple[object, ...]:
    """A key by which most rows differ: the number of their messages, and how they end."""
    return (kind, *[(len(each), each[-1].content if each else None) for each in unique])
