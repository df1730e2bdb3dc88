"""The emission of a closed rollout: a pure function of its pinned facts, in named stages.

    closed rollout -> branches -> signals -> ranking -> rewards -> rows -> evidence

Each stage is a function of the closed rollout and of what earlier stages made. The rules of the emission version are chosen
once, with the closed rollout; a stage asks for a rule by name (agents/rules).
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from agents.evidence.build import Judges, Placed, branch_evidence, chain_of, judges_of, sign
from agents.evidence.canonical import canonical_bytes, digest
from agents.evidence.signing import SigningKey
from agents.ranking.ranking import RankingResult
from agents.redaction.redaction import has_unremoved
from agents.rewards.rewards import JudgedScores, reward_of
from agents.rollouts.branch_records import Ended, branch_record, check_sizes
from agents.rollouts.broken_log import BrokenLogError, breaks_alone
from agents.rollouts.closed_rollout import ClosedRollout, closed_rollout
from agents.rollouts.eval_record import eval_record
from agents.rollouts.hack_signals import signalled
from agents.rollouts.ranking_record import ranking_of
from agents.rollouts.rollout import Rollout
from agents.summarize.pieces import Decision, Piece
from agents.training.admission import Judged, is_decided
from agents.training.branch_talk import TalkMaker, answered_talk
from agents.training.compliance_rows import compliance_run
from agents.training.rows import Candidate, Row, RowMaker, Rows
from agents.verdicts.meaning import comparable, counting, kind_of
from schemas.branches import BranchRecord
from schemas.codec.body import Bodies, with_content_id
from schemas.codec.maker import unchecked
from schemas.compliance import ComplianceEvalRecord
from schemas.emission import EmissionConfig
from schemas.evidence import AepRecord, EmittedRecord
from schemas.jsontext import parse
from schemas.judging import JudgeVote
from schemas.rankings import ObjectiveStatus, Ranking
from schemas.training import DpoRecord, PpoRecord, RejectedRecord, SftRecord

_emitted_record: Final = unchecked(EmittedRecord)

SINKS: dict[type, str] = {
    BranchRecord: "rollouts.branches.v1", SftRecord: "training.sft.v1", DpoRecord: "training.dpo.v1",
    PpoRecord: "training.ppo.v1", RejectedRecord: "training.rejected.v1", ComplianceEvalRecord: "compliance.evals.v1",
}  # fmt: skip
"""The sink of each kind of record that is listed, without a prefix: evidence names it, and a prefix must not change evidence."""


WITHOUT_VERDICTS = {"verdict_ids": (), "verdict_kinds": (), "verdict_digests": ()}
"""The pin of a branch that has just ended, compared with that of the same branch when it settled."""


class Emission(NamedTuple):
    """The output of a closed rollout, in the order in which it is written; evidence is unsigned."""

    branches: tuple[BranchRecord, ...]
    ranking: Ranking
    rows: tuple[Row, ...]
    rejected: tuple[RejectedRecord, ...]
    compliance: tuple[ComplianceEvalRecord, ...]
    """Records of branches that are compliance runs."""
    evidence: tuple[AepRecord, ...]
    messages: tuple[bytes, ...]
    """The bytes of each evidence record that a key signs."""
    bodies: Bodies
    """The Avro bodies of all but the evidence, by id."""
    redacted: bool
    """Whether secrets were removed from all of it, by the rules that this code has."""

    def signed(self, key: SigningKey | None) -> tuple[AepRecord, ...]:
        """The evidence, signed if there is a key."""
        if key is None:
            return self.evidence
        pairs = zip(self.evidence, self.messages, strict=True)
        return tuple(sign(record, key, message) for record, message in pairs)


@breaks_alone
def emit(
    rollout: Rollout,
    config: EmissionConfig | None = None,
    ended: Mapping[int, Ended] | None = None,
    *,
    evidence: bool = True,
) -> Emission:
    """Make the output of the closed facts; `config` replaces the pinned configuration (what-if).

    `ended` has branch records made when the branches ended, under the configuration in force: records of branches that
    settled unchanged are reused. Without `evidence` none is made, for callers that only need numbers.
    """
    source = closed_rollout(rollout, config)
    branches = branches_of(source, ended)
    source = signalled(source, branches)
    ranked = ranked_by_votes(source, branches)
    rows = rows_of(source, ranked, rewarded(source, branches, ranked))
    evals = compliance_of(source, branches)
    chain = evidence_of(source, branches, ranked, rows, evals) if evidence else []
    # The JSON that is signed is longer than its Avro.
    check_sizes(rollout, (*source.bodies.values(), *(placed.message for placed in chain)))
    return Emission(
        branches=tuple(branches[index] for index in sorted(branches)),
        ranking=ranked.ranking,
        rows=rows.rows,
        rejected=rows.rejected,
        compliance=evals,
        bodies=source.bodies,
        redacted=rollout.redacting and source.config.redact,
        evidence=tuple(placed.record for placed in chain),
        messages=tuple(placed.message for placed in chain),
    )


def branches_of(source: ClosedRollout, ended: Mapping[int, Ended] | None) -> dict[int, BranchRecord]:
    """Closed rollout -> branches: the record of each settled branch, by index; a record in `ended` is reused if the
    branch settled with the same facts.
    """
    branches: dict[int, BranchRecord] = {}
    for pin in source.settled.branches:
        index = pin.branch_index
        known = (ended or {}).get(index)
        if known is not None and vars(known.pin) == vars(pin) | WITHOUT_VERDICTS:
            branches[index] = known.record
            source.bodies[known.record.record_id] = known.body
        else:
            branches[index] = branch_record(source.rollout, pin, source.config, source.bodies)
    return branches


class Ranked(NamedTuple):
    """The ranking of a closed rollout, and the votes that it was made of."""

    ranking: Ranking
    result: RankingResult
    """Computes the probability that one branch is better than another."""
    votes: list[JudgeVote]
    judges: dict[int, Judges]
    """For each branch, the judges whose answers count."""


def ranked_by_votes(source: ClosedRollout, branches: Mapping[int, BranchRecord]) -> Ranked:
    """Branches -> ranking: the record of the ranking by outcomes and pinned votes, and the judges of each branch."""
    votes = [_vote(source.rollout, vote_id) for vote_id in source.closed.vote_ids]
    ranking, result = ranking_of(source, branches, votes)
    one_tier = source.terms.rules.votes_need_one_tier
    judges = judges_of(branches, _comparing(votes, comparable(source.outcomes)) if one_tier else votes)
    return Ranked(ranking, result, votes, judges)


def rewarded(source: ClosedRollout, branches: Mapping[int, BranchRecord], ranked: Ranked) -> list[Candidate]:
    """Ranking -> rewards: each branch with its reward and the inputs of its admission, best first."""
    config, rules, opening = source.config, source.terms.rules, source.opening
    pieces = source.rollout.pinned_events() or {}
    maker = TalkMaker(opening, config, rules, _tools_by_digest(source))
    candidates = []
    for each in ranked.ranking.branches:
        index, status = each.branch_index, each.objective_status
        branch = branches[index]
        verdicts = {kind_of(verdict): verdict for verdict in source.verdicts[index]}
        judged = Judged(
            branch,
            status,
            verdicts,
            each.flags,
            opening.opened,
            ranked.judges[index].known,
            decided=is_decided(verdicts) if rules.decisions_are_verdicts else _holds_decision(pieces.get(index, [])),
            unremoved=has_unremoved((*branch.redactions, *dict(opening.counts))),
        )
        scores = JudgedScores(each.judge_score, each.judge_scalar)
        reward = reward_of(status, verdicts, scores, config, each.flags, rules)
        kept = pieces.get(index, [])
        run = compliance_run(kept, branch.final_answer, verdicts) if rules.rows_are_conversations else None
        talk = maker.make(branch, kept) if run is None else answered_talk(branch, run)
        candidates.append(Candidate(each, branch, judged, reward, talk, run))
    return candidates


def compliance_of(source: ClosedRollout, branches: Mapping[int, BranchRecord]) -> tuple[ComplianceEvalRecord, ...]:
    """Branches -> eval records: one for each branch that is a compliance run."""
    opened = source.opening.opened
    if opened is None or opened.spec is None or not source.terms.rules.rows_are_conversations:
        return ()
    pieces = source.rollout.pinned_events() or {}
    found = []
    for index in sorted(branches):
        verdicts = counting(source.verdicts[index])
        record = eval_record(branches[index], pieces.get(index, []), verdicts, opened)
        if record is not None:
            found.append(with_content_id(record, bodies=source.bodies))
    return tuple(found)


def rows_of(source: ClosedRollout, ranked: Ranked, candidates: list[Candidate]) -> Rows:
    """Rewards -> rows: the training rows, and the rejected ones with their reasons."""
    return RowMaker(
        source.settled,
        source.closed,
        source.opening,
        source.config,
        source.config_digest,
        source.terms.rules,
        ranked.result.probability,
        source.bodies,
    ).make(candidates)


def evidence_of(
    source: ClosedRollout, branches: Mapping[int, BranchRecord], ranked: Ranked, rows: Rows,
    evals: tuple[ComplianceEvalRecord, ...],
) -> list[Placed]:  # fmt: skip
    """Rows -> evidence: the chain of the rollout, one record a branch, then the closing one that lists every record made."""
    ranking, bodies = ranked.ranking, source.bodies
    by_index = {each.branch_index: each for each in ranking.branches}
    in_order = sorted(branches)
    acts = [
        branch_evidence(
            branches[index],
            source.verdicts[index],
            by_index[index],
            ranked.judges[index],
            source.opening.opened,
            source.closed,
            source.terms,
        )
        for index in in_order
    ]
    listed = (*[branches[index] for index in in_order], *evals, *rows.rows, *rows.rejected)
    return chain_of(
        acts,
        ranking,
        bodies.digest(ranking.ranking_id).hex(),
        source.settled,
        source.closed,
        ranked.votes,
        [_emitted(record, bodies) for record in listed],
    )


def _tools_by_digest(source: ClosedRollout) -> dict[str, str]:
    """The tools of the opening, by the digest of their raw form."""
    raw, cleaned = source.rollout.opened, source.opening.opened
    if raw is None or cleaned is None or raw.tools == "[]":
        return {}
    return {digest(canonical_bytes(parse(raw.tools), big_integers="exact")): cleaned.tools}


def _holds_decision(pieces: list[Piece]) -> bool:
    """Whether an event claims a policy decision: version 1 believes it."""
    for piece in pieces:
        for each in piece.noted:
            if type(each.body) is Decision:
                return True
    return False


def _comparing(votes: list[JudgeVote], statuses: Mapping[int, ObjectiveStatus]) -> list[JudgeVote]:
    """The votes with content: scores, and comparisons of two branches of one tier."""
    found = []
    for vote in votes:
        b = vote.b
        if b is None or "unknown" != statuses.get(vote.a, "unknown") == statuses.get(b, "unknown"):
            found.append(vote)
    return found


def _vote(rollout: Rollout, vote_id: str) -> JudgeVote:
    stamped = rollout.votes.get(vote_id)
    if stamped is None or not isinstance(stamped.fact, JudgeVote):
        raise BrokenLogError(
            f"rollout {rollout.rollout_id}: vote {vote_id} was counted and is not in the log; it cannot be rebuilt"
        )
    return stamped.fact


def _emitted(record: BranchRecord | ComplianceEvalRecord | Row | RejectedRecord, bodies: Bodies) -> EmittedRecord:
    record_id = record.record_id
    return _emitted_record(topic=SINKS[type(record)], record_id=record_id, digest=bodies.digest(record_id).hex())
