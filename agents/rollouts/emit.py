"""What a closed rollout becomes: a pure function of the pinned facts to branches, ranking, evidence and training rows."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from agents.evidence.build import Placed, branch_evidence, chain_of, judges_of, sign
from agents.evidence.signing import SigningKey
from agents.ranking.ranking import RankingResult
from agents.rewards.rewards import JudgedScores, reward_of
from agents.rollouts.broken import BrokenLogError, breaks_alone
from agents.rollouts.decide import branch_outcomes, pinned_config, settled_attempt
from agents.rollouts.ranking import ranking_of
from agents.rollouts.rollout import Rollout
from agents.summarize.branch import BranchFacts, build_branch, n_events, raw_digest
from agents.summarize.events import Decision, Piece
from agents.summarize.opening import cleaned_opening
from agents.training.admission import Judged
from agents.training.redaction import has_unremoved
from agents.training.rows import Candidate, Row, RowMaker
from agents.verdicts.meaning import comparable, kind_of, terms_of
from schemas.branches import BranchRecord
from schemas.closures import SettledBranch
from schemas.codec.body import Bodies
from schemas.codec.maker import unchecked
from schemas.emission import EmissionConfig
from schemas.evidence import AepRecord, EmittedRecord
from schemas.judging import JudgeVote
from schemas.rankings import ObjectiveStatus, Ranking
from schemas.training import DpoRecord, PpoRecord, RejectedRecord, SftRecord

_emitted_record: Final = unchecked(EmittedRecord)

SINKS: dict[type, str] = {
    BranchRecord: "rollouts.branches.v1", SftRecord: "training.sft.v1", DpoRecord: "training.dpo.v1",
    PpoRecord: "training.ppo.v1", RejectedRecord: "training.rejected.v1",
}  # fmt: skip
"""The sink of each kind of record that is listed, without a prefix: evidence names it, and a prefix must not change evidence."""


MOST_BYTES = 8 * 1024 * 1024 - 64
"""Of one record that follows: what the topics take, without the header of its value."""


class Emission(NamedTuple):
    """All that follows from a closed rollout, in the order in which it is written; evidence is unsigned."""

    branches: tuple[BranchRecord, ...]
    ranking: Ranking
    rows: tuple[Row, ...]
    rejected: tuple[RejectedRecord, ...]
    evidence: tuple[AepRecord, ...]
    messages: tuple[bytes, ...]
    """What a key signs of each evidence record."""
    bodies: Bodies
    """The Avro bodies of all but the evidence, by id."""
    redacted: bool
    """Whether secrets were removed from all of it, by the rules that this code has."""

    def signed(self, key: SigningKey | None) -> tuple[AepRecord, ...]:
        """The evidence, signed where there is a key."""
        if key is None:
            return self.evidence
        pairs = zip(self.evidence, self.messages, strict=True)
        return tuple(sign(record, key, message) for record, message in pairs)


class Ended(NamedTuple):
    """A branch as it ended: what a settling would pin of it, its record, and the record's Avro body."""

    pin: SettledBranch
    record: BranchRecord
    body: bytes


@breaks_alone
def ended_branch(rollout: Rollout, index: int, number: int, config: EmissionConfig) -> Ended:
    """The record of a branch that has just ended: the same as in the emission, unless something else settles."""
    attempt = rollout.branches[index][number]
    view = attempt.view()
    pin = settled_attempt(index, number, attempt, view)
    bodies = Bodies(config.version)
    record = _record(rollout, pin, view.pieces, config, bodies)
    _check_sizes(rollout, bodies.values())
    return Ended(pin, record, bodies[record.record_id])


def branch_record(rollout: Rollout, pin: SettledBranch, config: EmissionConfig, bodies: Bodies) -> BranchRecord:
    """The record of a settled branch. Raises BrokenLogError when the log does not hold what was pinned."""
    pieces = (rollout.pinned_events() or {}).get(pin.branch_index, [])
    if raw_digest(pieces) != pin.raw_digest:
        raise BrokenLogError(
            f"rollout {rollout.rollout_id}, branch {pin.branch_index}: the events in the log are not those that were "
            f"settled ({n_events(pieces)} found, {pin.n_events} pinned); it cannot be rebuilt"
        )
    return _record(rollout, pin, pieces, config, bodies)


def _record(
    rollout: Rollout, pin: SettledBranch, pieces: list[Piece], config: EmissionConfig, bodies: Bodies | None = None
) -> BranchRecord:
    return build_branch(
        BranchFacts(
            rollout_id=rollout.rollout_id,
            branch_index=pin.branch_index,
            attempt=pin.attempt,
            pieces=pieces,
            gaps=pin.gaps,
            status=pin.status or "running",
            error=pin.error,
            workspace=pin.workspace,
            info=pin.info,
            opened=rollout.opened if rollout.settled is None or rollout.settled.opened else None,
            raw_digest=pin.raw_digest,
        ),
        config,
        bodies,
    )


@breaks_alone
def emit(
    rollout: Rollout,
    config: EmissionConfig | None = None,
    ended: Mapping[int, Ended] | None = None,
    *,
    evidence: bool = True,
) -> Emission:
    """Everything that follows from the closed facts; `config` replaces the pinned configuration (what-if).

    `ended` has branch records that were made when the branches ended, under the configuration in force: those that
    settled just so are not made again. Without `evidence` there is none: for those who only want numbers.
    """
    settled, closed = rollout.settled, rollout.closed
    assert settled is not None
    assert closed is not None
    config_digest = settled.config_digest if config is None else config.digest
    config = config or pinned_config(settled)
    opening = cleaned_opening(rollout.opened if settled.opened else None, redacting=config.redact)
    opened = opening.opened
    pinned = rollout.pinned_verdicts()
    if pinned is None:
        raise BrokenLogError(
            f"rollout {rollout.rollout_id}: verdicts that were settled are not in the log; it cannot be rebuilt"
        )
    bodies, terms = Bodies(config.version), terms_of(config.version, opened)
    branches: dict[int, BranchRecord] = {}
    for pin in settled.branches:
        known = (ended or {}).get(pin.branch_index)
        if known is not None and vars(known.pin) == vars(pin) | {"verdict_ids": (), "verdict_kinds": ()}:
            branches[pin.branch_index] = known.record
            bodies[known.record.record_id] = known.body
        else:
            branches[pin.branch_index] = branch_record(rollout, pin, config, bodies)
    verdicts = {index: {kind_of(verdict): verdict for verdict in found} for index, found in pinned.items()}
    outcomes = branch_outcomes(rollout, config, settled.branches)
    decided = {index for index, pieces in (rollout.pinned_events() or {}).items() if _holds_decision(pieces)}
    votes = [_vote(rollout, vote_id) for vote_id in closed.vote_ids]
    result: RankingResult
    ranking, result = ranking_of(settled, closed, branches, outcomes, votes, config, config_digest, bodies)
    judges = judges_of(branches, votes if config.version == 1 else _comparing(votes, comparable(outcomes)))
    candidates = []
    for ranked in ranking.branches:
        index, status = ranked.branch_index, ranked.objective_status
        branch, found = branches[index], verdicts[index]
        judged = Judged(
            branch,
            status,
            found,
            ranked.flags,
            opened,
            judges[index].known,
            decided=index in decided,
            unremoved=has_unremoved((*branch.redactions, *dict(opening.counts))),
        )
        reward = reward_of(status, found, JudgedScores(ranked.judge_score, ranked.judge_scalar), config, ranked.flags)
        candidates.append(Candidate(ranked, branch, judged, reward))
    rows = RowMaker(settled, closed, opening, config, config_digest, result.probability, bodies).make(candidates)
    in_order = tuple(branches[index] for index in sorted(branches))
    chain: list[Placed] = []
    if evidence:
        by_index = {ranked.branch_index: ranked for ranked in ranking.branches}
        acts = [
            branch_evidence(branches[index], pinned[index], by_index[index], judges[index], opened, closed, terms)
            for index in sorted(branches)
        ]
        emitted = [_emitted(record, bodies) for record in (*in_order, *rows.rows, *rows.rejected)]
        ranking_digest = bodies.digest(ranking.ranking_id).hex()
        chain = chain_of(acts, ranking, ranking_digest, settled, closed, votes, emitted)
    # The JSON that is signed is longer than its Avro.
    _check_sizes(rollout, (*bodies.values(), *(placed.message for placed in chain)))
    return Emission(
        branches=in_order,
        ranking=ranking,
        rows=rows.rows,
        rejected=rows.rejected,
        bodies=bodies,
        redacted=rollout.redacting and config.redact,
        evidence=tuple(placed.record for placed in chain),
        messages=tuple(placed.message for placed in chain),
    )


def _check_sizes(rollout: Rollout, bodies: Iterable[bytes]) -> None:
    """All or nothing: rows whose evidence could not be written would be rows without any."""
    largest = max(map(len, bodies), default=0)
    if largest > MOST_BYTES:
        raise BrokenLogError(
            f"rollout {rollout.rollout_id}: one of its records has {largest:,} bytes, and {MOST_BYTES:,} are allowed"
        )


def _holds_decision(pieces: list[Piece]) -> bool:
    for piece in pieces:
        for each in piece.noted:
            if type(each.body) is Decision:
                return True
    return False


def _comparing(votes: list[JudgeVote], statuses: Mapping[int, ObjectiveStatus]) -> list[JudgeVote]:
    """The votes that say anything: scores, and comparisons of two branches of one tier."""
    return [
        vote
        for vote in votes
        if vote.b is None or "unknown" != statuses.get(vote.a, "unknown") == statuses.get(vote.b, "unknown")
    ]


def _vote(rollout: Rollout, vote_id: str) -> JudgeVote:
    stamped = rollout.votes.get(vote_id)
    if stamped is None or not isinstance(stamped.fact, JudgeVote):
        raise BrokenLogError(
            f"rollout {rollout.rollout_id}: vote {vote_id} was counted and is not in the log; it cannot be rebuilt"
        )
    return stamped.fact


def _emitted(record: BranchRecord | Row | RejectedRecord, bodies: Bodies) -> EmittedRecord:
    digest = bodies.digest(record.record_id).hex()
    return _emitted_record(topic=SINKS[type(record)], record_id=record.record_id, digest=digest)
