"""The status of branches and the meaning of verdicts, from the folded facts alone."""

from collections.abc import Sequence
from typing import NamedTuple

from agents.hacks.verdict import HACKS, looks_of
from agents.redaction.redaction import redact
from agents.rollouts.branch_outcomes import required_verdicts
from agents.rollouts.pinned_config import pinned_config
from agents.rollouts.rollout import Rollout, Stamped, VerdictKey, verdict_key
from agents.rollouts.settlement import counting_attempt
from agents.summarize.branch import form_of, last_word, n_events
from agents.summarize.pieces import EXACT, Answer, Call, Piece
from agents.summarize.told_steps import last_response, told_steps
from agents.verdicts.meaning import CURRENT, Meaning, Terms, Verdict, counting, kind_of, meaning, objective, terms_of
from schemas.closures import SettledBranch
from schemas.emission import EmissionConfig
from schemas.judging import JudgeVote
from schemas.rankings import ObjectiveStatus
from schemas.verdicts import BuildVerdict, CheckVerdict, OutputTail, VisualVerdict
from streams.log.terminal_text import WHOLE, line


class BranchStanding(NamedTuple):
    """The state of a branch now."""

    branch_index: int
    attempt: int
    """The attempt that counts, or would count now."""
    attempts: int
    ended: str | None
    """How it ended; None while it runs."""
    events: int
    gaps: int
    calls: int
    text: str
    """Its answer or its error, one redacted line."""
    objective: ObjectiveStatus


class VerdictStanding(NamedTuple):
    """A verdict and its meaning."""

    branch_index: int
    attempt: int
    kind: str
    meaning: Meaning
    detail: str
    """The observation, one redacted line."""
    counts: bool
    """Whether it decides: the last final one of its kind, for the attempt that counts."""
    produced_by: str
    at: int
    screenshot: str | None = None
    """SHA-256 of the picture that a look at the page took, in hex."""


def branch_standings(rollout: Rollout, config: EmissionConfig) -> list[BranchStanding]:
    """Every branch with any facts; after the rollout has settled, as pinned."""
    required, terms = required_verdicts(rollout, config_of(rollout, config)), _terms(rollout, config)
    indexes = set(rollout.branches) | {fact.branch_index for fact in verdict_facts(rollout)}
    if rollout.settled is not None:
        indexes |= {pin.branch_index for pin in rollout.settled.branches}
    return [_standing(rollout, index, required, terms) for index in sorted(indexes)]


def config_of(rollout: Rollout, config: EmissionConfig) -> EmissionConfig:
    """The configuration that decides: the pinned one once the rollout has settled, else the one in force."""
    return config if rollout.settled is None else pinned_config(rollout.settled)


def _terms(rollout: Rollout, config: EmissionConfig) -> Terms:
    return terms_of(config_of(rollout, config).version, rollout.opened)


def _standing(rollout: Rollout, index: int, required: tuple[str, ...], terms: Terms) -> BranchStanding:
    attempts = rollout.branches.get(index, {})
    number, attempt, view = counting_attempt(attempts, None)
    pin = None
    if rollout.settled is not None:
        pin = next((pin for pin in rollout.settled.branches if pin.branch_index == index), None)
    if pin is not None:
        number, attempt = pin.attempt, attempts.get(pin.attempt)
    ended = view.status if pin is None else pin.status
    pieces = view.pieces if pin is None else (attempt.pinned(pin.last_seq, pin.gaps) if attempt else None) or []
    text = (view.end.error if view.end else None) or ""
    if (said := last_word(pieces)) is not None:
        text = said.text if isinstance(said, Answer) else said.message
    calls, answer = _told(pieces)
    facts = verdict_facts(rollout, index, number)
    verdicts = counting(
        facts if pin is None else [fact for fact in facts if verdict_key(fact) in _pinned(rollout, pin)]
    )
    return BranchStanding(
        branch_index=index,
        attempt=number,
        attempts=len(attempts),
        ended=ended,
        events=n_events(pieces) if pin is None else pin.n_events,
        gaps=len(view.gaps if pin is None else pin.gaps),
        calls=calls,
        text=line(text or answer),
        objective=objective(ended or "running", required, verdicts, terms),
    )


def _told(pieces: Sequence[Piece]) -> tuple[int, str]:
    """How many tools were called, and the answer in the messages."""
    form = form_of(pieces)
    if not form:
        return sum(isinstance(noted.body, Call) for piece in pieces for noted in piece.noted), ""
    calls = sum(isinstance(noted.body, Call) for noted in told_steps(pieces, exact=form == EXACT))
    last = last_response(pieces, exact=form == EXACT)
    return calls, "" if last is None or last.tools else last.text or ""


def verdict_standings(rollout: Rollout, config: EmissionConfig) -> list[VerdictStanding]:
    """Every verdict, by branch, in the order of the log."""
    chosen: set[VerdictKey] = set()
    for index in {fact.branch_index for fact in verdict_facts(rollout)}:
        if rollout.settled is None:
            number, _, _ = counting_attempt(rollout.branches.get(index, {}), None)
            chosen |= {verdict_key(fact) for fact in counting(verdict_facts(rollout, index, number)).values()}
    for pin in rollout.settled.branches if rollout.settled is not None else ():
        chosen |= _pinned(rollout, pin)
    stamped, terms = sorted(rollout.verdicts.values(), key=_when), _terms(rollout, config)
    return [
        VerdictStanding(
            fact.branch_index, fact.attempt, kind_of(fact), meaning(fact, terms), detail_of(fact), verdict_key(fact) in chosen,
            line(fact.produced_by), each.at, fact.screenshot_digest if isinstance(fact, VisualVerdict) else None,
        )
        for each in stamped if not isinstance(fact := each.fact, JudgeVote)
    ]  # fmt: skip


def _pinned(rollout: Rollout, pin: SettledBranch) -> set[VerdictKey]:
    """The verdicts of a settled branch that count, as far as they were read."""
    stamped = rollout.pinned_by(pin)
    return {verdict_key(each.fact) for each in stamped if each is not None and not isinstance(each.fact, JudgeVote)}


def _when(stamped: Stamped) -> tuple[int, int, int]:
    fact = stamped.fact
    return (-1 if isinstance(fact, JudgeVote) else fact.branch_index, stamped.at, stamped.ref[2])


def verdict_facts(rollout: Rollout, index: int | None = None, attempt: int | None = None) -> list[Verdict]:
    """The verdicts of a rollout; of one branch and attempt when asked."""
    facts = [each.fact for each in rollout.verdicts.values() if not isinstance(each.fact, JudgeVote)]
    return [fact for fact in facts if index in (None, fact.branch_index) and attempt in (None, fact.attempt)]


def detail_of(verdict: Verdict) -> str:
    """A verifier's observation, in a line."""
    if isinstance(verdict, BuildVerdict):
        return _build_detail(verdict)
    if isinstance(verdict, CheckVerdict):
        score = [] if verdict.score is None else [f"score {verdict.score:g}"]
        said = [verdict.status, *score, *([verdict.hint] if verdict.hint else [])]
        return "; ".join([line("; ".join(said)), *(line(each, WHOLE) for each in _looks_detail(verdict))])
    return _visual_detail(verdict)


def _looks_detail(verdict: CheckVerdict) -> list[str]:
    """The experiments of a hack verifier: those that were made, and why others were not."""
    if verdict.name != HACKS:
        return []
    looks = [(str(each.get("name")), each.get("made") is True, each.get("why")) for each in looks_of(verdict.details)]
    tried = ", ".join(name for name, made, _ in looks if made)
    missed = "; ".join(f"not {name}: {why}" if why else f"not {name}" for name, made, why in looks if not made)
    return [*([f"tried {tried}"] if tried else []), *([missed] if missed else [])]


def _visual_detail(verdict: VisualVerdict) -> str:
    said: list[str] = [verdict.verdict or "no verdict of its own"]
    said += [f"failed probe {probe.name}" for probe in verdict.dom_probes if not probe.ok]
    said += [f"uncaught: {error}" for error in verdict.uncaught_errors]
    said += [f"console: {error}" for error in verdict.console_errors]
    said += ["nothing drawn"] if verdict.renders_non_empty is False else []
    return line("; ".join([*said, *([verdict.reason] if verdict.reason else [])]))


def _build_detail(verdict: BuildVerdict) -> str:
    said = [verdict.status + ("" if verdict.stage is None else f" in {verdict.stage}")]
    said += [] if verdict.exit_code is None else [f"exit {verdict.exit_code}"]
    said += [] if verdict.tests is None else [f"{verdict.tests.passed}/{verdict.tests.total} tests"]
    said += [] if verdict.coverage is None else [f"coverage {verdict.coverage:.0%}"]
    said += ["protected files changed"] if verdict.protected_paths_intact is False else []
    said += [] if verdict.isolation is None else [f"{verdict.isolation} isolation"]
    last = "" if meaning(verdict, CURRENT).outcome == "pass" else last_line(verdict.stderr) or last_line(verdict.stdout)
    return line(", ".join([*said, *([last] if last else [])]))


def last_line(tail: OutputTail | None) -> str:
    """The last line of an output that is not empty; redacted as a whole first, because a secret may span lines."""
    if tail is None:
        return ""
    return next((text for part in reversed(redact(tail.text).text.split("\n")) if (text := line(part))), "")
