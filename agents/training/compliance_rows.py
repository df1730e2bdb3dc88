"""Rows of branches that are compliance runs: which rounds and answers may be trained on, and why others may not.

Prompt = the task, answer = the text: no hints, no repair prompts. The events describe a round; the verifier alone
decides whether it passes. A text that was never produced makes no row.
"""

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from agents.summarize.pieces import Piece, Round
from agents.verdicts.meaning import COMPLIANCE, Verdict, compliance_details
from schemas.training import Fidelity
from schemas.verdicts import CheckVerdict

EDITED = "edited_answer"
REPEATED = "repeated_answer"
REPAIRED = "repaired"
CONTAINS = "rejected_contains_chosen"
BLANK = "blank_side"
SAME_PAIR = "repeated_pair"


class ComplianceRun(NamedTuple):
    """A branch as a compliance run."""

    rounds: tuple[Round, ...]
    answer: str
    details: Mapping[str, Any]
    """Of its verdict."""
    seen: Mapping[int, dict[str, Any]]
    """The verdict of each round."""

    @property
    def draft(self) -> Round | None:
        """Round 0."""
        return next((each for each in self.rounds if each.number == 0), None)

    @property
    def answer_round(self) -> int | None:
        """The first round whose text is the answer; None if the answer comes from no round."""
        return next((each.number for each in self.rounds if each.output == self.answer), None)

    @property
    def made_by(self) -> str:
        """`edit` if every committed repair was made by code alone, and there was one."""
        held = [each for each in self.rounds if each.number and each.committed]
        return "edit" if held and all(each.made_by == "edit" for each in held) else "model"

    @property
    def fidelity(self) -> Fidelity:
        """exact where the answer is the response to the task itself."""
        return "exact" if self.draft is not None and self.draft.output == self.answer else "composed"

    def status_of(self, number: int) -> str:
        """Return the verifier's status of a round."""
        return str(self.seen.get(number, {}).get("status", "unknown"))

    def share_of(self, number: int) -> float:
        """Return the share of hard constraints that a round keeps."""
        total, violations = self.details.get("constraints_total"), self.seen.get(number, {}).get("violations", ())
        if type(total) is not int or total <= 0:
            return 0.0
        broken = sum(1 for each in violations if isinstance(each, dict) and each.get("level") == "hard")
        return max(0.0, 1 - broken / total)


def verified_rounds(rounds: Sequence[Round], details: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    """Return the verdicts of rounds by number: only of rounds that are reported once, with the verified text."""
    listed = details.get("rounds")
    entries = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    found = {}
    for each in rounds:
        own = [entry for entry in entries if entry.get("round") == each.number]
        alone = len(own) == 1 and sum(1 for other in rounds if other.number == each.number) == 1
        if alone and own[0].get("output_digest") == each.digest and isinstance(own[0].get("violations"), list):
            found[each.number] = own[0]
    return found


def compliance_run(
    pieces: Sequence[Piece], answer: str | None, verdicts: Mapping[str, Verdict]
) -> ComplianceRun | None:
    """Return a branch as a compliance run; None if it is not one, or has no answer."""
    verdict = verdicts.get(COMPLIANCE)
    rounds = tuple(each.body for piece in pieces for each in piece.noted if isinstance(each.body, Round))
    if not rounds or answer is None:
        return None
    details = compliance_details(verdict) if isinstance(verdict, CheckVerdict) else {}
    return ComplianceRun(rounds, answer, details, verified_rounds(rounds, details))


class Side(NamedTuple):
    """One side of a pair."""

    branch: int
    round: int | None
    text: str
    made_by: str


class RoundPair(NamedTuple):
    """A pair of texts for one task, of which one passes."""

    chosen: Side
    rejected: Side
    basis: str
    margin: float


def repair_pairs(index: int, run: ComplianceRun) -> Iterator[RoundPair]:
    """Yield the pairs of a passing branch: its answer against its draft, then against other failing proposals."""
    number = run.answer_round
    chosen = Side(index, number, run.answer, run.made_by)
    for each in run.rounds:
        if each.number != number and run.status_of(each.number) == "fail":
            rejected = Side(index, each.number, each.output, each.made_by)
            yield RoundPair(chosen, rejected, "repair", 1 - run.share_of(each.number))


def refusal(pair: RoundPair, seen: set[tuple[str, str]]) -> str | None:
    """Return why a pair makes no row; None if it may. It is then added to `seen`."""
    chosen, rejected = folded(pair.chosen.text), folded(pair.rejected.text)
    if not chosen or not rejected:
        return BLANK
    if chosen == rejected:
        return "same_completion"
    if (chosen, rejected) in seen:
        return SAME_PAIR
    seen.add((chosen, rejected))
    return CONTAINS if chosen in rejected else None


def folded(text: str) -> str:
    """Return a text in the form in which it is compared: NFC, whitespace as single spaces."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def repeats(runs: Mapping[int, ComplianceRun]) -> frozenset[int]:
    """Return the branches whose answer an earlier branch gave already."""
    seen: set[str] = set()
    found = []
    for index in sorted(runs):
        if runs[index].answer in seen:
            found.append(index)
        seen.add(runs[index].answer)
    return frozenset(found)


MOST_PAIRS: Final = 4
"""Rows of pairs per rollout."""
