"""The rules of each emission version, in one table.

A settling pins its emission version, and a released version never changes (CONTRIBUTING.md). Code that decides by
version checks one of these rules by name; a new rule is a new field here, off for every version that was released
without it.
"""

from typing import Final, NamedTuple


class Rules(NamedTuple):
    """The decisions in which emission versions differ."""

    failing_tests_contradict: bool
    """A build with status success is inconsistent if tests fail or could not be collected."""
    collection_errors_excuse: bool
    """Fewer tests than the baseline do not confirm a hack if a file could not be collected."""
    doubts_exclude: bool
    """Conflicts and bad ends are flags. A confirmed hack has no rank, and a suspected branch is not compared."""
    votes_need_one_tier: bool
    """A comparison makes its judge a verifier only where both branches are comparable and of one tier."""
    incomplete_is_audited: bool
    """A branch with gaps or conflicts is kept for audit and not trained on."""
    passes_earn_most: bool
    """Every pass is rewarded above every fail, and coverage is a bonus if all passes of the group have it."""
    unfit_is_rejected: bool
    """A blank task, a bad end, or a margin against the outcome keeps a row out."""
    groups_are_trained_on: bool
    """Only branches that are trained on count in the statistics of their group."""
    weak_verdicts_count_half: bool
    """A weak verdict is half a verifier in the admission score, and admission names it as a reason."""
    decisions_are_verdicts: bool
    """A policy decision is a check verdict named `policy`. Events that claim a policy decision have no effect, because
    agents write them.
    """
    signals_are_read: bool
    """Hack signals of verdicts, events and siblings are flags; what is confirmed makes pairs, or a penalised row."""
    rows_are_conversations: bool
    """Rows contain exactly what the model saw and said, and how that is known. A conversation that is not known exactly
    makes no row.
    """


RULES: Final = {
    1: Rules(
        failing_tests_contradict=False,
        collection_errors_excuse=False,
        doubts_exclude=False,
        votes_need_one_tier=False,
        incomplete_is_audited=False,
        passes_earn_most=False,
        unfit_is_rejected=False,
        groups_are_trained_on=False,
        weak_verdicts_count_half=False,
        decisions_are_verdicts=False,
        signals_are_read=False,
        rows_are_conversations=False,
    ),
    2: Rules(
        failing_tests_contradict=True,
        collection_errors_excuse=True,
        doubts_exclude=True,
        votes_need_one_tier=True,
        incomplete_is_audited=True,
        passes_earn_most=True,
        unfit_is_rejected=True,
        groups_are_trained_on=True,
        weak_verdicts_count_half=True,
        decisions_are_verdicts=True,
        signals_are_read=True,
        rows_are_conversations=True,
    ),
}
"""By emission version."""
