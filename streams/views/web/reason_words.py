"""Reason codes in words: why a row was rejected, and why two branches are not a pair."""

from collections.abc import Sequence

from schemas.emission import EmissionConfig
from streams.views.web.strands import Strand

BASES = {
    "objective": "one passes, the other fails",
    "judge": "same outcome, told apart by the votes",
    "hack": "the rejected one gamed its tests",
    "repair": "two rounds of one branch: one keeps its constraints, the other breaks some",
}
"""By the basis of a preference row, why one side is preferred."""

WORDS = {
    "audit_only": "kept for audits only",
    "below_min_probability": "the votes do not tell the branches apart surely enough",
    "conflicts": "events were sent twice with different content",
    "context_rewritten": "its context was rewritten, and the request is not on record",
    "duplicate_of": "a row with the same messages is there already",
    "edited_answer": "code alone wrote the answer, not the model",
    "empty_answer": "the branch has no answer that a reader sees",
    "empty_chosen_answer": "the better branch has no answer that a reader sees",
    "empty_completion": "the branch did and said nothing",
    "empty_prompt": "nothing that a reader sees comes before the model's first words",
    "ended_badly": "the branch ended with a failure, whatever its build says",
    "gaps": "events are missing",
    "hack_confirmed": "a hack is confirmed",
    "hack_penalised": "a confirmed hack: trained on with its penalty",
    "hack_suspected": "a hack is suspected",
    "hack_judged": "a judge takes it for a hack",
    "inconsistent_build": "the build verdict contradicts itself",
    "inconsistent_compliance": "its compliance verdict contradicts itself",
    "malformed_arguments": "the arguments of a call are no JSON object",
    "margin_against_outcome": "the totals say the opposite of the outcomes",
    "no_reward": "there is nothing to make a reward of",
    "no_shared_prompt": "the two sides do not begin with the same messages",
    "not_compared": "no vote compares the branches",
    "not_passing": "the branch does not pass",
    "not_representable": "what the model saw cannot be said exactly",
    "objective_fail": "its outcome is a fail",
    "objective_not_required": "no verdict was required of it",
    "objective_unknown": "its outcome is unknown",
    "other_tools": "the two sides were offered different tools",
    "output_too_large": "an output that the model saw is too large for a row",
    "over_max_per_rollout": "the rollout has as many pairs as it may have",
    "quarantine": "kept in quarantine",
    "reject": "rejected",
    "rejected_contains_chosen": "the worse side contains the better one",
    "repaired": "the branch was repaired",
    "repeated_answer": "a sibling has the same answer, and a row of it is there",
    "repeated_pair": "a row with the same two answers is there already",
    "same_completion": "both sides did and said the same",
    "secret_not_removed": "a secret could not be removed",
    "subagent": "conversations of sub-agents are left out by configuration",
    "thin_evidence": "there is little evidence for it",
    "too_large": "the row is longer than its topic takes",
    "weak_evidence": "there is too little evidence for it",
    "weak_verdict": "the code under test could reach its tests",
}


def reason_words(reasons: Sequence[str]) -> list[str]:
    """Each reason in words, with its code."""
    return [_words(reason) for reason in reasons]


def _words(reason: str) -> str:
    code, _, rest = reason.partition(":")
    if code == "pairs" and rest.isdigit():
        return f"{rest} {'pair' if rest == '1' else 'pairs'} of these branches"
    known = WORDS.get(code)
    if known is None:
        return reason.replace("_", " ")
    return f"{known} ({reason})"


def unpaired_words(a: Strand, b: Strand, probability: float | None, config: EmissionConfig) -> list[str]:
    """Why two branches of a closed rollout were not considered as a pair, or not chosen."""
    for each in (a, b):
        if each.objective == "unknown":
            return [f"Branch {each.branch} has an unknown outcome: such a branch is in no pair."]
        if each.ranked is None or each.ranked.rank is None:
            why = f" ({', '.join(each.flags)})" if each.flags else ""
            return [f"Branch {each.branch} has no rank{why}: only ranked branches are paired."]
    if a.objective != b.objective:
        return ["Their outcomes are of different kinds, which no rule compares."]
    if probability is None:
        return ["Both have the same outcome, and no vote compares them: nothing tells them apart (not_compared)."]
    needed = config.pairs.min_probability
    if probability < needed:
        sure = f"the better one is better with probability {probability:.3f}, and {needed:g} is needed"
        return [
            f"Both have the same outcome, and the votes do not tell them apart surely enough: {sure} (below_min_probability)."
        ]
    return ["The rollout emitted no training rows for them: it was cancelled, or its rows are not in this log."]
