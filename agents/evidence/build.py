"""Evidence records of a closed rollout: one per branch, then one for the ranking, which lists the whole.

A record here is unsigned; its JSON view is hashed, chained and signed. The chain runs through the rollout: a record
names the hash of the one before, and the last one states how many there are and lists every branch record and training row.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, final

from agents.evidence.canonical import canonical_bytes, digest
from agents.evidence.side_effects import side_effect, worst
from agents.evidence.signing import SigningKey, signed_bytes
from agents.verdicts.meaning import Terms, Verdict, kind_of, meaning
from schemas.branches import BranchRecord
from schemas.closures import RolloutClosed, RolloutSettled
from schemas.codec.maker import unchecked
from schemas.evidence import AepAction, AepBudget, AepClosing, AepRecord, AepSignature, AepVerifierResult, EmittedRecord
from schemas.judging import CONTENT_JUDGE, JudgeVote
from schemas.lifecycle import RolloutOpened
from schemas.rankings import RankedBranch, Ranking
from schemas.verdicts import CheckVerdict

_record: Final = unchecked(AepRecord)
_action: Final = unchecked(AepAction)
_result: Final = unchecked(AepVerifierResult)
_budget: Final = unchecked(AepBudget)
_closing: Final = unchecked(AepClosing)
_signature: Final = unchecked(AepSignature)


@final
class Judges:
    """The names of all verifiers that gave an answer about a branch. A tie by content is no verifier's answer, and
    neither is a call without one."""

    __slots__ = ("compared", "scored")

    def __init__(self, compared: tuple[str, ...] = (), scored: tuple[str, ...] = ()) -> None:
        self.compared = compared
        """With another branch."""
        self.scored = scored
        """By itself."""

    @property
    def known(self) -> bool:
        """Whether a judge is among the branch's verifiers."""
        return bool(self.compared or self.scored)


def judges_of(branches: Iterable[int], votes: Iterable[JudgeVote]) -> dict[int, Judges]:
    """The judges of each branch, out of the votes that count."""
    compared: dict[int, set[str]] = {index: set() for index in branches}
    scored: dict[int, set[str]] = {index: set() for index in compared}
    for vote in votes:
        values = vars(vote)
        a, b, judge = values["a"], values["b"], values["judge"]
        if judge == CONTENT_JUDGE:
            continue
        if b is None:
            if values["score"] is not None and a in scored:
                scored[a].add(judge)
        elif values["preferred"] is not None:
            for index in (a, b):
                if index in compared:
                    compared[index].add(judge)
    return {index: Judges(tuple(sorted(names)), tuple(sorted(scored[index]))) for index, names in compared.items()}


def branch_evidence(
    branch: BranchRecord,
    verdicts: Sequence[Verdict],
    ranked: RankedBranch,
    judges: Judges,
    opened: RolloutOpened | None,
    closed: RolloutClosed,
    terms: Terms,
) -> AepRecord:
    """The actions and verifier results of a branch, without its place in the chain."""
    started = next(
        (time for time in (branch.first_event_ms, branch.last_event_ms) if time is not None), closed.decided_at_ms
    )
    classes = [side_effect(call.name, call.arguments) for call in branch.tool_calls]
    actions = tuple(
        _action(
            action_id=call.call_id,
            tool_name=call.name,
            state_changing=effect != "read",
            arguments_digest=call.arguments_digest,
            result_digest=call.output_digest,
            side_effect_class=effect,
            timestamp_ms=next((time for time in (call.started_ms, call.ended_ms) if time is not None), started),
        )
        for call, effect in zip(branch.tool_calls, classes, strict=True)
    )
    usage = branch.usage
    return _record(
        record_id="-",
        rollout_id=branch.rollout_id,
        run_id=f"{branch.rollout_id}/b{branch.branch_index}/a{branch.attempt}",
        model_id=branch.agent.model if branch.agent else None,
        repo_commit=opened.repo_commit if opened else None,
        tool_manifest_digest=opened.tool_manifest_digest if opened else None,
        raw_digest=branch.raw_digest,
        actions=actions,
        verifier_results=_verifier_results(verdicts, ranked, judges, terms),
        budget_ledger=_budget(
            input_tokens=usage.input_tokens if usage else None,
            output_tokens=usage.output_tokens if usage else None,
            tool_calls=len(actions),
            usd=usage.usd if usage else None,
        ),
        created_at_ms=closed.decided_at_ms,
        run_side_effect_class_max=worst(classes),
    )


def _verifier_results(
    verdicts: Sequence[Verdict], ranked: RankedBranch, judges: Judges, terms: Terms
) -> tuple[AepVerifierResult, ...]:
    """Known outcomes only: an unknown has no boolean."""
    results = []
    for verdict in sorted(verdicts, key=kind_of):
        outcome = meaning(verdict, terms).outcome
        if outcome != "unknown":
            name = f"check:{verdict.name}" if isinstance(verdict, CheckVerdict) else kind_of(verdict)
            score = verdict.score if isinstance(verdict, CheckVerdict) else None
            results.append(_result(verifier_id=name, passed=outcome == "pass", score=score))
    for kind, names, score in (
        ("judge", judges.compared, ranked.judge_score),
        ("judge_scalar", judges.scored, ranked.judge_scalar),
    ):
        if names and score is not None:
            results.append(_result(verifier_id=f"{kind}:{'+'.join(names)}", passed=score >= 5, score=score))
    return tuple(results)


class Placed(NamedTuple):
    """A record in its place in the chain."""

    record: AepRecord
    message: bytes
    """Its canonical bytes: they are hashed and signed."""


def chain_of(
    branches: Sequence[AepRecord],
    ranking: Ranking,
    ranking_digest: str,
    settled: RolloutSettled,
    closed: RolloutClosed,
    votes: Sequence[JudgeVote],
    emitted: Sequence[EmittedRecord],
) -> list[Placed]:
    """The rollout's evidence in order, chained, with the closing record last."""
    chained: list[Placed] = []
    head = None
    for record in branches:
        chained.append(_placed(record, head))
        head = chained[-1].record.record_id
    closing = _record(
        record_id="-",
        rollout_id=ranking.rollout_id,
        run_id=f"{ranking.rollout_id}/ranking",
        created_at_ms=closed.decided_at_ms,
        closing=_closing(
            records=len(chained),
            head=head,
            ranking_id=ranking.ranking_id,
            ranking_digest=ranking_digest,
            settled_id=settled.settled_id,
            closed_id=closed.closed_id,
            vote_ids=tuple(vote.vote_id for vote in votes),
            emitted=tuple(emitted),
        ),
    )
    return [*chained, _placed(closing, head)]


def _placed(record: AepRecord, head: str | None) -> Placed:
    vars(record)["prev_record_hash"] = head  # not shared before it has an id: no copy is needed
    message = canonical_bytes(json_view(record))
    vars(record)["record_id"] = digest(message)
    return Placed(record, message)


def unlisting(last: AepRecord, topic: str) -> AepRecord:
    """The closing record of a rollout as it was made before it listed the records of a topic; unsigned."""
    assert last.closing is not None
    kept = tuple(entry for entry in last.closing.emitted if entry.topic != topic)
    closing = _closing(**vars(last.closing) | {"emitted": kept})
    return _placed(_record(**vars(last) | {"closing": closing, "signature": None}), last.prev_record_hash).record


def sign(record: AepRecord, key: SigningKey, message: bytes | None = None) -> AepRecord:
    """The record with its signature; `message` has its canonical bytes where the caller has them already."""
    message = signed_bytes(json_view(record)) if message is None else message
    signature = _signature(alg="ed25519", key_id=key.key_id, sig=key.sign(message))
    return _record(**vars(record) | {"signature": signature})


def json_view(record: AepRecord) -> dict[str, Any]:
    """The record as AEP JSON: unknown fields are left out; `prev_record_hash` is always there."""
    values = vars(record)  # all at once: an attribute of a model takes five times as long as an entry of a dict
    view: dict[str, Any] = {
        "schema_version": values["schema_version"],
        "run_id": values["run_id"],
        "input_refs": [],
        "output_refs": [],
        "capability_decisions": [],
        "actions": [
            _known(vars(action)) | {"evidence_refs": [], "recording_mode": "validation"} for action in values["actions"]
        ],
        "verifier_results": [_known(vars(result)) | {"claim_ids": []} for result in values["verifier_results"]],
        "created_at_ms": values["created_at_ms"],
        "prev_record_hash": values["prev_record_hash"],
    }
    for name in ("model_id", "repo_commit", "tool_manifest_digest", "raw_digest", "run_side_effect_class_max"):
        value = values[name]
        if value is not None:
            view[name] = value
    if values["budget_ledger"] is not None:
        view["budget_ledger"] = _ledger(values["budget_ledger"])
    if values["closing"] is not None:
        closing = vars(values["closing"])
        emitted = [dict(vars(row)) for row in closing["emitted"]]
        view["closing"] = closing | {"vote_ids": list(closing["vote_ids"]), "emitted": emitted}
    if values["signature"] is not None:
        view["signature"] = dict(vars(values["signature"]))
    return view


def _ledger(budget: AepBudget) -> dict[str, Any]:
    ledger: dict[str, Any] = {"tool_budget": {"spent": budget.tool_calls}}
    given, written, usd = budget.input_tokens, budget.output_tokens, budget.usd
    if given is not None or written is not None:
        ledger["token_budget"] = _known({"spent": (given or 0) + (written or 0), "input": given, "output": written})
    if usd is not None:
        ledger["cost_usd"] = {"spent": usd}
    return ledger


def _known(plain: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in plain.items() if value is not None}
