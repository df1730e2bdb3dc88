"""The fold of one rollout: facts go in one by one, in any interleaving of their topics; decisions come out.

Open rollouts live in memory only; the log is their state. Nothing here reads a clock: times are append times of the
log. The output of a closed rollout (`emit`) depends on the pinned facts alone, so a crash, another order of topics, or
a repetition gives the same bytes.
"""

from collections.abc import Callable, Sequence
from copy import copy
from typing import ClassVar, Literal, NamedTuple, final

from agents.conversations.held_text import IN_MEMORY, TextStore
from agents.evidence.canonical import CanonicalError
from agents.facts.fact import Fact
from agents.rollouts.attempt import Attempt, TooManyGapsError
from agents.rollouts.status import Status
from agents.summarize.pieces import Piece
from agents.trust.verdict_signature import content_digest, same_content
from agents.verdicts.meaning import Verdict, kind_of
from schemas.closures import Closure, RolloutClosed, RolloutSettled, SettledBranch
from schemas.events import AgentEvents
from schemas.jsontext import as_array, parse
from schemas.judging import HIGHEST_SCORE, JudgeVote
from schemas.lifecycle import Lifecycle, RolloutOpened
from schemas.verdicts import BuildVerdict, CheckVerdict, VisualVerdict

Reason = Literal[
    "conflict", "fenced", "late", "branch_out_of_range", "bad_event", "bad_opening", "bad_vote", "given_up"
]
"""Why a fact does not count; `given_up`: its rollout cannot be made."""

Ref = tuple[str, int, int]
"""The position of a fact in the log: topic, partition, offset."""


VerdictKey = tuple[int, str, str]
"""Branch, kind and id: a verdict repeats another only when all three are equal."""


class Complaint(NamedTuple):
    """A fact that does not count, and why."""

    ref: Ref
    reason: Reason
    message: str


@final
class Stamped:
    """A verdict or vote with its append time and its position."""

    __slots__ = ("_digest", "at", "fact", "ref")

    def __init__(self, fact: Verdict | JudgeVote, at: int, ref: Ref) -> None:
        self.fact = fact
        self.at = at
        self.ref = ref
        self._digest: str | None = None

    def digest(self) -> str:
        """The content digest of a verdict; made once."""
        if self._digest is None:
            assert not isinstance(self.fact, JudgeVote)
            self._digest = content_digest(self.fact)
        return self._digest


class Rollout:
    """All facts of one rollout that may still count."""

    __slots__: ClassVar[tuple[str, ...]] = (
        "_ending", "_kinds", "_namesakes", "_opened_ref", "_pinned", "_pinned_verdicts", "_pins", "_slices", "branches", "cancelled_at",
        "close_at", "close_is_end_of_input", "closed", "held", "latest", "opened", "opened_at",
        "redacting", "released_at", "rollout_id", "settled", "started_at", "status", "texts", "times",
        "verdicts", "votes",
    )  # fmt: skip

    def __init__(self, rollout_id: str, *, redacting: bool = True, texts: TextStore = IN_MEMORY) -> None:
        self.rollout_id = rollout_id
        self.redacting = redacting
        self.texts = texts
        """The store of long texts of its events."""
        self.status = Status.OPEN
        self.opened: RolloutOpened | None = None
        self.opened_at = 0
        self.started_at: int | None = None
        """When its first fact was appended."""
        self.latest = 0
        """When its last fact was appended."""
        self.times: list[int] = []
        """When each fact was appended; idle times are measured on these."""
        self.cancelled_at: int | None = None
        self.close_at: int | None = None
        self.close_is_end_of_input = False
        self.held = False
        """Whether its opening holds it: even if complete, it does not settle before it is released."""
        self.released_at: int | None = None
        """The append time of the last release since it was last held."""
        self.branches: dict[int, dict[int, Attempt]] = {}
        self.verdicts: dict[VerdictKey, Stamped] = {}
        self._namesakes: dict[VerdictKey, list[Stamped]] = {}
        """Verdicts with the key of an earlier one and other content: they do not count, unless a settling pins their
        digest. Its worker did not accept the earlier verdict: no key that it trusts had signed that.
        """
        self.votes: dict[str, Stamped] = {}
        self.settled: RolloutSettled | None = None
        self.closed: RolloutClosed | None = None
        self._kinds: dict[tuple[int, str], list[str]] | None = None
        """By branch and id, the kinds of verdicts: needed if an older version settled."""
        self._slices: list[tuple[Ref, int, int, int, int, int]] = []
        self._ending: set[tuple[int, int]] = set()
        self._opened_ref: Ref = ("", 0, 0)
        self._pins: dict[int, SettledBranch] = {}
        """By branch, the part of the settling that is about it."""
        self._pinned: dict[int, list[Piece]] | None = None
        self._pinned_verdicts: dict[int, list[Verdict]] | None = None

    def __copy__(self) -> "Rollout":
        """Said here, because compiled classes have no way of their own to be copied."""
        other = Rollout(self.rollout_id)
        for name in Rollout.__slots__:
            setattr(other, name, getattr(self, name))
        return other

    def add(self, fact: Fact, at: int, ref: Ref) -> list[Complaint]:
        """Add a fact. Returns complaints about facts that do not count; a repetition is silently ignored."""
        # Facts have no subclasses; comparing the class itself is quicker, and a fold does it millions of times.
        if type(fact) is Closure:
            return self._add_closure(fact)
        self.started_at = at if self.started_at is None else min(self.started_at, at)
        self.latest = max(self.latest, at)
        self.times.append(at)
        if type(fact) is JudgeVote:
            return self._add_vote(fact, at, ref)
        if type(fact) is AgentEvents:
            return self._add_events(fact, at, ref)
        if type(fact) is Lifecycle:
            return self._add_lifecycle(fact, at, ref)
        assert type(fact) is BuildVerdict or type(fact) is VisualVerdict or type(fact) is CheckVerdict
        return self._add_verdict(fact, at, ref)

    # -- facts ---------------------------------------------------------------------------------------------------------

    def _add_lifecycle(self, fact: Lifecycle, at: int, ref: Ref) -> list[Complaint]:
        if fact.cancelled is not None and self.cancelled_at is None:
            self.cancelled_at = at
        asked = fact.close_requested
        if asked is not None and asked.when_complete:
            self.released_at = at
        elif asked is not None and self.close_at is None:
            self.close_at, self.close_is_end_of_input = at, asked.end_of_input
        if fact.opened is None:
            return []
        if self.settled is not None and not self.settled.opened:
            return [Complaint(ref, "late", "the rollout settled before it was opened")]
        try:
            as_array(parse(fact.opened.tools))
        except ValueError as error:
            return [Complaint(ref, "bad_opening", f"tools: {error}")]
        if self.opened is None:
            self.opened, self.opened_at, self._opened_ref = fact.opened, at, ref
        elif self.opened != fact.opened.model_copy(update={"held": self.opened.held}):
            return [
                Complaint(ref, "conflict", "the rollout was opened before, with other content; the first one counts")
            ]
        if fact.opened.held:  # a producer that opens it again has more to add: hold it until the next release
            self.held, self.released_at = True, None
        return []

    def _add_events(self, piece: AgentEvents, at: int, ref: Ref) -> list[Complaint]:
        if self.settled is not None:
            late = self._late_events(piece, at, ref)
            if late is not None:
                return late
        index, number = piece.branch_index, piece.attempt
        attempts = self.branches.setdefault(index, {})
        if attempts and number < max(attempts) and not self._repeats(attempts.get(number), piece):
            return [Complaint(ref, "fenced", f"attempt {max(attempts)} of branch {index} has begun")]
        attempt = attempts.get(number)
        if attempt is None:
            attempt = Attempt()
        try:
            conflicts = attempt.add(piece, at, redacting=self.redacting, texts=self.texts)
        except (ValueError, CanonicalError, TooManyGapsError) as error:
            if not attempts:
                del self.branches[index]
            what = "" if isinstance(error, TooManyGapsError) else "event data is not a JSON object: "
            return [Complaint(ref, "bad_event", f"{what}{error}")]
        attempts[number] = attempt
        if self.settled is None:
            self._slices.append((ref, at, index, number, piece.first_seq, len(piece.events)))
        if attempt.may_have_ended:
            self._ending.add((index, number))
        if conflicts:
            return [
                Complaint(
                    ref, "conflict", f"{conflicts} events differ from earlier ones with the same seq; the first count"
                )
            ]
        return []

    @staticmethod
    def _repeats(attempt: Attempt | None, piece: AgentEvents) -> bool:
        """Whether a slice of an older attempt only repeats known events."""
        return attempt is not None and all(
            attempt.digest(seq) is not None for seq in range(piece.first_seq, piece.first_seq + len(piece.events))
        )

    def _late_events(self, piece: AgentEvents, at: int, ref: Ref) -> list[Complaint] | None:
        """Complaints about events that the settling does not pin; None when all of them may count."""
        assert self.settled is not None
        pin = self._pins.get(piece.branch_index)
        if pin is None:
            return [Complaint(ref, "late", f"branch {piece.branch_index} is not part of the settled rollout")]
        if piece.attempt != pin.attempt:
            if at <= self.settled.decided_at_ms:
                return []  # another attempt was known and did not count
            return [Complaint(ref, "late", f"attempt {pin.attempt} of branch {piece.branch_index} has settled")]
        seqs = range(piece.first_seq, piece.first_seq + len(piece.events))
        if seqs and not _all_pinned(seqs, pin):
            return [Complaint(ref, "late", f"branch {piece.branch_index} settled at seq {pin.last_seq}")]
        return None

    def date(self) -> None:
        """Start a rollout without a time of opening (0, as in files) at its first event."""
        events = (
            piece.at for attempts in self.branches.values() for each in attempts.values() for piece in each.pieces
        )
        first = min((at for at in events if at > 0), default=0)
        self.opened_at = self.opened_at or first
        self.started_at = self.started_at or first

    def newly_ended(self) -> list[tuple[int, int]]:
        """(branch, attempt) of those that have ended without gaps since the last call; none before the opening is
        known.

        A branch record depends on the opening (task, summary limits), so it waits for it.
        """
        if self.opened is None or not self._ending:
            return []
        found = sorted(place for place in self._ending if self.branches[place[0]][place[1]].view().complete)
        self._ending.difference_update(found)
        return found

    def _add_verdict(self, verdict: Verdict, at: int, ref: Ref) -> list[Complaint]:
        key = verdict_key(verdict)
        known = self.verdicts.get(key)
        if known is not None:
            return self._add_namesake(key, known, Stamped(verdict, at, ref))
        if self.settled is not None and at > self.settled.decided_at_ms and not self._pins_verdict(key):
            return [Complaint(ref, "late", "the rollout has settled")]
        self.verdicts[key] = Stamped(verdict, at, ref)
        self._kinds = None
        return []

    def _add_namesake(self, key: VerdictKey, known: Stamped, other: Stamped) -> list[Complaint]:
        """Add a verdict with a known id: it repeats that verdict, or does not count."""
        others = self._namesakes.get(key, [])
        if not any(_says_the_same(each, other) for each in (known, *others)):
            self._namesakes[key] = [*others, other]
        if _says_the_same(known, other) or self._pins_content(key, other):
            return []
        return [Complaint(other.ref, "conflict", "another verdict has this id; the first one counts")]

    def keep_verdicts(self, counts: Callable[[Verdict], bool]) -> None:
        """Remove the verdicts that may not count; of several with one id, the first that may count is kept."""
        kept: list[tuple[Ref, VerdictKey, Stamped]] = []
        for key, first in self.verdicts.items():
            for each in (first, *self._namesakes.get(key, ())):
                if not isinstance(each.fact, JudgeVote) and counts(each.fact):
                    kept.append((each.ref, key, each))
                    break
        kept.sort(key=lambda found: found[0])  # of a kind the last one counts, as the log has them
        self.verdicts, self._namesakes, self._kinds = {key: each for _, key, each in kept}, {}, None

    def _add_vote(self, vote: JudgeVote, at: int, ref: Ref) -> list[Complaint]:
        values = vars(vote)  # all at once: an attribute of a model takes five times as long as an entry of a dict
        a, score, vote_id = values["a"], values["score"], values["vote_id"]
        if a == values["b"]:
            return [Complaint(ref, "bad_vote", f"the vote compares branch {a} with itself")]
        if score is not None and not 0 <= score <= HIGHEST_SCORE:
            return [Complaint(ref, "bad_vote", f"score: expected 0 to {HIGHEST_SCORE}, found {score:g}")]
        if vote_id in self.votes:
            return []  # the first vote with an id counts, later ones are ignored
        if self.closed is not None and vote_id not in self.closed.vote_ids:
            return [Complaint(ref, "late", "the rollout has closed")]
        self.votes[vote_id] = Stamped(vote, at, ref)
        return []

    def _add_closure(self, fact: Closure) -> list[Complaint]:
        if fact.settled is not None and self.settled is None:
            self.settled = fact.settled
            self._pins = pins_of(fact.settled)
            self.status = self.status.to(Status.SETTLED)
            strays = self._strays(fact.settled)
            if self.opened is not None and not fact.settled.opened:
                strays.append(Complaint(self._opened_ref, "late", "the rollout settled before it was opened"))
                self.opened = None
            return strays
        # A closing that refers to another settling than the first one in the log has no effect.
        follows = (
            fact.closed is not None and self.settled is not None and fact.closed.settled_id == self.settled.settled_id
        )
        if fact.closed is None or not follows or self.closed is not None:
            return []
        self.closed = fact.closed
        self.status = self.status.to(Status.CLOSED)
        counted = frozenset(fact.closed.vote_ids)
        return [
            Complaint(stamped.ref, "late", "the rollout closed without this vote")
            for vote_id, stamped in self.votes.items()
            if vote_id not in counted
        ]

    def under(self, settled: RolloutSettled) -> "Rollout":
        """The same facts without votes under another settling that pins the same facts: for a new judgment."""
        other = copy(self)
        other.settled, other.closed, other.votes, other.status = settled, None, {}, Status.SETTLED
        other._pins, other._pinned_verdicts = pins_of(settled), None
        return other

    # -- what a decision pins --------------------------------------------------------------------------------------------

    def _pins_verdict(self, key: VerdictKey) -> bool:
        branch, kind, verdict_id = key
        pin = self._pins.get(branch)
        if pin is None or verdict_id not in pin.verdict_ids:
            return False
        found = pinned_ids(pin)
        return (kind, verdict_id) in found or (None, verdict_id) in found

    def pinned_by(self, pin: SettledBranch) -> list[Stamped | None]:
        """The verdicts of a branch that count; None for those that have not been read."""
        index, ids = pin.branch_index, pin.verdict_ids
        kinds: Sequence[str] = pin.verdict_kinds
        if len(kinds) != len(ids):
            kinds = self._kinds_of(pin)
        return [self._found((index, kinds[at], name), pinned_digest(pin, at)) for at, name in enumerate(ids)]

    def _found(self, key: VerdictKey, digest: str) -> Stamped | None:
        """The verdict with a key: the first one, or the one with this content where a digest is pinned."""
        first = self.verdicts.get(key)
        if first is None or not digest:
            return first
        candidates = (first, *self._namesakes.get(key, ()))
        return next((each for each in candidates if each.digest() == digest), None)

    def _pins_content(self, key: VerdictKey, stamped: Stamped) -> bool:
        """Whether the settling pins this very content."""
        branch, kind, verdict_id = key
        pin = self._pins.get(branch)
        if pin is None or not pin.verdict_digests or (kind, verdict_id) not in pinned_ids(pin):
            return False
        return pinned_digest(pin, pinned_ids(pin).index((kind, verdict_id))) == stamped.digest()

    def _kinds_of(self, pin: SettledBranch) -> list[str]:
        """The kinds of ids that an older version pinned without them; "" for those that have not been read.

        No two have the same kind: an id used for verdicts of two kinds gets the kind that no other id has.
        """
        if self._kinds is None:
            self._kinds = {}
            for branch, kind, verdict_id in self.verdicts:
                self._kinds.setdefault((branch, verdict_id), []).append(kind)
        known = [self._kinds.get((pin.branch_index, verdict_id), [""]) for verdict_id in pin.verdict_ids]
        taken = {kinds[0] for kinds in known if len(kinds) == 1}
        found = []
        for kinds in known:
            free = kinds if len(kinds) == 1 else [kind for kind in kinds if kind not in taken] or kinds
            taken.add(free[0])
            found.append(free[0])
        return found

    def _strays(self, settled: RolloutSettled) -> list[Complaint]:
        """Facts that were read and that the settling does not pin: they came too late."""
        pins, until = self._pins, settled.decided_at_ms
        strays = []
        for ref, at, index, number, first_seq, count in self._slices:
            pin = pins.get(index)
            if pin is None:
                n = self.opened.branches if self.opened is not None else None
                reason: Reason = "branch_out_of_range" if n is not None and index >= n else "late"
                strays.append(Complaint(ref, reason, f"branch {index} is not part of the settled rollout"))
            elif number == pin.attempt and count and not _all_pinned(range(first_seq, first_seq + count), pin):
                strays.append(Complaint(ref, "late", f"branch {index} settled at seq {pin.last_seq}"))
            elif number != pin.attempt and at > until:
                strays.append(Complaint(ref, "late", f"attempt {pin.attempt} of branch {index} has settled"))
        for key, stamped in self.verdicts.items():
            branch = key[0]
            if branch not in pins:
                strays.append(
                    Complaint(stamped.ref, "branch_out_of_range", f"branch {branch} is not part of the settled rollout")
                )
            elif stamped.at > until and not self._pins_verdict(key):
                strays.append(Complaint(stamped.ref, "late", "the rollout has settled"))
        self._slices = []
        return strays

    def pinned_events(self) -> dict[int, list[Piece]] | None:
        """By branch, the events that the settling pins; None while some of them have not been read."""
        assert self.settled is not None
        if self._pinned is not None:
            return self._pinned  # pinned facts never change
        found: dict[int, list[Piece]] = {}
        for index, pin in self._pins.items():
            attempt, last_seq = self.branches.get(index, {}).get(pin.attempt), pin.last_seq
            events = attempt.pinned(last_seq, pin.gaps) if attempt is not None else None
            if events is None and last_seq is not None:
                return None
            found[index] = events or []
        self._pinned = found
        return found

    def pinned_verdicts(self) -> dict[int, list[Verdict]] | None:
        """By branch, the verdicts that the settling pins; None while some of them have not been read."""
        assert self.settled is not None
        if self._pinned_verdicts is not None:
            return self._pinned_verdicts
        found: dict[int, list[Verdict]] = {}
        guessed = False
        for index, pin in self._pins.items():
            facts: list[Verdict] = []
            for stamped in self.pinned_by(pin):
                if stamped is None:
                    return None
                if not isinstance(stamped.fact, JudgeVote):
                    facts.append(stamped.fact)
            found[index] = facts
            guessed = guessed or len(pin.verdict_kinds) != len(facts)
        if not guessed:  # a kind that is found by the id alone may change when more verdicts are known
            self._pinned_verdicts = found
        return found

    def has_settled_facts(self) -> bool:
        """Whether the rollout has settled and everything that the settling pins has been read."""
        if self.settled is None or (self.settled.opened and self.opened is None):
            return False
        return self.pinned_events() is not None and self.pinned_verdicts() is not None

    def has_closed_facts(self) -> bool:
        """Whether the rollout has closed and everything that was pinned has been read."""
        return (
            self.closed is not None
            and all(vote_id in self.votes for vote_id in self.closed.vote_ids)
            and self.has_settled_facts()
        )


def _says_the_same(one: Stamped, other: Stamped) -> bool:
    assert not isinstance(one.fact, JudgeVote)
    assert not isinstance(other.fact, JudgeVote)
    return same_content(one.fact, other.fact)


def verdict_key(verdict: Verdict) -> VerdictKey:
    """Under which a rollout keeps a verdict."""
    return verdict.branch_index, kind_of(verdict), verdict.verdict_id


def pins_of(settled: RolloutSettled) -> dict[int, SettledBranch]:
    """By branch, the part of a settling that is about it."""
    return {pin.branch_index: pin for pin in settled.branches}


def pinned_ids(pin: SettledBranch) -> list[tuple[str | None, str]]:
    """(kind, id) of the verdicts that count of a branch; no kind where an older version settled it."""
    kinds: tuple[str | None, ...] = pin.verdict_kinds
    ids = pin.verdict_ids
    if len(kinds) != len(ids):
        return [(None, verdict_id) for verdict_id in ids]
    return [(kinds[at], verdict_id) for at, verdict_id in enumerate(ids)]


def pinned_digest(pin: SettledBranch, at: int) -> str:
    """The content digest of the verdict at a position among those that count; "" if none is pinned."""
    return pin.verdict_digests[at] if at < len(pin.verdict_digests) else ""


def _all_pinned(seqs: range, pin: SettledBranch) -> bool:
    last_seq, gaps = pin.last_seq, pin.gaps
    if last_seq is None or seqs[-1] > last_seq:
        return False
    return not gaps or not any(seq in gaps for seq in seqs)
