"""The decisions of `braid verify`: evidence record by record, and whether every row is the one its evidence lists.

The closing record of a rollout lists the id and digest of each of its branch records and training rows, and of its ranking. A
row is ok when a closing record that can be trusted lists exactly it, and whatever is listed must be there. A closing
record that lists branches but no branch records was made before they were listed: it neither covers them nor
contradicts them. Only hashes and positions are kept, so memory grows with the number of records, not with their size.
Nothing here opens a file or talks to a broker.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from agents.evidence.signing import Json
from agents.evidence.structure import CLOSING_SUFFIX, closing_of, printable, quoted
from agents.evidence.verification import Authenticity, Evidence, RecordVerdict, Verifier
from streams.jobs.verify.findings import Finding, Outcome, Tell
from streams.log.topics import BRANCHES, COMPLIANCE_EVALS, DPO, EVIDENCE, PPO, RANKINGS, REJECTED, SFT, Topic

ROW_TOPICS: tuple[Topic, ...] = (SFT, DPO, PPO, REJECTED, RANKINGS, BRANCHES, COMPLIANCE_EVALS)
"""The records that a closing record lists."""

TRUSTED = {Authenticity.DSSE_VALID, Authenticity.INLINE_VALID}

_BRANCH_RUN = re.compile(r"(?s)(?P<rollout>.+)/b[0-9]+/a[0-9]+")


class Claims(NamedTuple):
    """A stored record's own fields, compared with the signed JSON view."""

    record_id: str
    rollout_id: str
    key: bytes | None
    """The key in the log; None if the record is not in a log."""


class Row(NamedTuple):
    """A training row, ranking or branch record."""

    position: str
    topic: Topic
    rollout_id: str
    record_id: str
    differs: Callable[[str], str]
    """Returns why its content does not have this digest; empty if it does."""
    key: bytes | None = None
    """The key in the log; None in a file."""


@dataclass(slots=True)
class _Closing:
    position: str
    record_hash: str | None
    trusted: bool
    covers_branches: bool = False


class _Run(NamedTuple):
    """A trusted record of evidence."""

    record_hash: str | None
    raw_digest: str | None


@dataclass(slots=True)
class _Listed:
    digest: str
    rollout_id: str
    found: bool = False


class Inspection:
    """One body of evidence and its rows: a directory, a log, a cluster, or the files of one call."""

    def __init__(
        self,
        keys: Mapping[str, bytes],
        outcome: Outcome,
        tell: Tell,
        *,
        allow_unsigned: bool = False,
        repetitions: bool = True,
        copy: bool = False,
    ) -> None:
        self._keys = keys
        self._verifier = Verifier(keys, allow_unsigned=allow_unsigned)
        self._trusted = TRUSTED | ({Authenticity.UNSIGNED} if allow_unsigned else set())
        self._outcome = outcome
        self._tell = tell
        self._repetitions = repetitions
        """Whether the same row may occur twice: a log may deliver again, a dataset must not."""
        self._copy = copy
        """Whether this is a second copy of evidence that is verified elsewhere: then nothing is counted twice, and only
        faults are reported.
        """
        self._unclosed: dict[str, str] = {}
        self._closings: dict[str, _Closing] = {}
        self._listed: dict[str, _Listed] = {}
        self._runs: dict[str, _Run] = {}

    def evidence(self, item: Evidence, claims: Claims | None = None) -> None:
        """Judge the next evidence record."""
        self._outcome.records += not self._copy
        self._outcome.copies += self._copy
        verdict = self._verifier.add(item)
        reasons = verdict.reasons
        if item.record is not None:
            self._note_key(item.record)
            reasons += tuple(self._note_place(item.record, verdict))
            if self._is_trusted(verdict) and verdict.run_id is not None:
                self._runs[verdict.run_id] = _Run(verdict.record_hash, _text(item.record.get("raw_digest")))
            if claims is not None:
                reasons += tuple(_false_claims(claims, verdict))
        plain = verdict.as_json()
        more = {name: plain[name] for name in ("structural", "semantic", "authenticity")}
        self.found(Finding(item.position, verdict.run_id, not reasons, reasons, more))

    def row(self, row: Row) -> None:
        """Judge a row; all evidence must have been added before."""
        self._outcome.rows[row.topic.name] += not self._copy
        reasons = tuple(f"row: {why}" for why in self._row_faults(row))
        self.found(Finding(row.position, None, not reasons, reasons, _about(row)))

    def is_unlisted(self, row: Row) -> bool:
        """Whether a branch record of a log does not have to be listed by evidence: of an open rollout, or replaced
        before it closed.

        A log next to the files of a run has only closed rollouts.
        """
        if self._copy or row.topic != BRANCHES or row.key != row.rollout_id.encode():
            return False
        closing = self._closings.get(row.rollout_id)
        return closing is None or (closing.trusted and closing.covers_branches and self._listing(row) is None)

    def explained(self, row: Row, *, exactly: bool) -> None:
        """Note an unlisted branch record that the log explains: `exactly`, or at least by its events."""
        self._outcome.rows[row.topic.name] += 1
        self._outcome.unlisted += 1
        doubtful = not exactly and row.rollout_id in self._closings
        self._outcome.doubtful += doubtful
        why = "not what this version makes of its events" if doubtful else "its branch ended"
        self.found(
            Finding(row.position, None, ok=True, reasons=(f"row: not listed by evidence: {why}",), more=_about(row))
        )

    def bad_row(self, position: str, topic: Topic, problem: str) -> None:
        """Note an item that is not a row."""
        self._outcome.rows[topic.name] += not self._copy
        self.found(Finding(position, None, ok=False, reasons=(f"row: {problem}",), more={"topic": topic.name}))

    def count_row(self, name: str) -> None:
        """Count a row of a file that was compared elsewhere."""
        self._outcome.rows[name] += 1

    def unsupported(self, rollout_id: str, record: Mapping[str, Any]) -> str:
        """Return why trusted evidence does not cover a record that a dataset names; empty if it does."""
        closing = self._closings.get(rollout_id)
        if closing is None or not closing.trusted:
            return f"no closing record of rollout {quoted(rollout_id)} that can be trusted is there"
        if record["topic"] == EVIDENCE.name:
            return self._other_run(rollout_id, record)
        is_branch = record["topic"] == BRANCHES.name
        if is_branch and not closing.covers_branches:
            self._outcome.uncovered.add(rollout_id)
            return self._other_run(rollout_id, record)
        name = f"{record['topic']}/{record['record_id']}"
        listed = self._listed.get(name)
        if listed is None or listed.rollout_id != rollout_id:
            return f"the closing record ({closing.position}) does not list {quoted(name)}"
        return self._other_run(rollout_id, record) if is_branch else ""

    def _other_run(self, rollout_id: str, record: Mapping[str, Any]) -> str:
        """Return why a record is not from a run of the rollout: a branch by its events, evidence by its hash."""
        run = self._runs.get(record["run_id"])
        belongs = str(record["run_id"]).startswith(f"{rollout_id}/")
        if run is None or not belongs:
            return f"no evidence of the run {quoted(record['run_id'])} that can be trusted is there"
        evidence = record["topic"] == EVIDENCE.name
        same = record["record_id"] == run.record_hash if evidence else record["raw_digest"] == run.raw_digest
        return "" if same else f"the evidence of the run {quoted(record['run_id'])} is about something else"

    def has_closing(self, key: bytes | None) -> bool:
        """Whether the closing record of the rollout with this key was read."""
        return (key or b"").decode(errors="replace") in self._closings

    def closings(self) -> dict[str, str]:
        """By rollout, the position of its closing record."""
        return {rollout_id: closing.position for rollout_id, closing in self._closings.items()}

    def finish(self, topics: tuple[Topic, ...]) -> None:
        """After the last row, report what is missing (rows of these topics), and judge the chains."""
        for rollout_id, position in self._unclosed.items():
            self.found(_about_closing(position, rollout_id, "the closing record that should follow is missing"))
        names = {topic.name for topic in topics}
        if BRANCHES in topics:
            self._outcome.uncovered |= {
                rollout_id
                for rollout_id, closing in self._closings.items()
                if closing.trusted and not closing.covers_branches
            }
        for key, listed in self._listed.items():
            topic, _, record_id = key.partition("/")
            if listed.found or topic not in names:
                continue
            position = self._closings[listed.rollout_id].position
            more = {"topic": topic, "rollout_id": printable(listed.rollout_id), "record_id": printable(record_id)}
            reason = f"row: {printable(record_id)} is listed here and missing in {topic}"
            self.found(Finding(position, None, ok=False, reasons=(reason,), more=more))
        self._outcome.chains += [chain for chain in self._verifier.finish() if not (self._copy and chain.ok)]

    def compare(self, other: "Inspection", name: str) -> None:
        """Report which rollouts are in only one of this copy and another copy of the same evidence (called `name`)."""
        for rollout_id in sorted(self._closings.keys() | other._closings.keys()):
            mine, theirs = self._closings.get(rollout_id), other._closings.get(rollout_id)
            if mine and theirs and mine.record_hash == theirs.record_hash:
                continue
            at, what = (mine, "missing") if mine and not theirs else (mine or theirs, "another one" if mine else "only")
            assert at is not None
            self.found(_about_closing(at.position, rollout_id, f"the closing record is {what} in {name}"))

    def _is_trusted(self, verdict: RecordVerdict) -> bool:
        return verdict.structural and verdict.semantic and verdict.authenticity in self._trusted

    def found(self, finding: Finding) -> None:
        """Report and count a finding."""
        self._outcome.not_ok += not finding.ok
        if not (self._copy and finding.ok):
            self._tell(finding)

    def _note_key(self, record: Json) -> None:
        key_id = _key_id(record)
        if key_id is not None and not self._copy:
            (self._outcome.signers if key_id in self._keys else self._outcome.strangers)[printable(key_id)] += 1

    def _note_place(self, record: Json, verdict: RecordVerdict) -> Iterator[str]:
        """Store the state of a rollout's evidence, and the list in its closing record."""
        run_id = record.get("run_id")
        closing = closing_of(record)
        if not isinstance(run_id, str):
            return
        if closing is None:
            branch = _BRANCH_RUN.fullmatch(run_id)
            if branch is not None and branch["rollout"] not in self._closings:
                self._unclosed[branch["rollout"]] = verdict.position
            return
        rollout_id = run_id.removesuffix(CLOSING_SUFFIX)
        self._unclosed.pop(rollout_id, None)
        trusted = self._is_trusted(verdict)
        known = self._closings.get(rollout_id)
        if known is not None and (known.trusted or not trusted):
            return  # a repetition; another closing record of the rollout is a fault of the chain
        self._closings[rollout_id] = _Closing(verdict.position, verdict.record_hash, trusted)
        if trusted:
            yield from self._note_listed(rollout_id, closing)

    def _note_listed(self, rollout_id: str, closing: Json) -> Iterator[str]:
        entries = closing.get("emitted", [])
        entries = [*entries, *_ranking_entry(closing)] if isinstance(entries, list) else [None]
        branches = 0
        for entry in entries:
            texts = [entry.get(name) for name in ("topic", "record_id", "digest")] if isinstance(entry, dict) else []
            if len(texts) != 3 or not all(isinstance(text, str) for text in texts):
                yield "closing.emitted: must list topic, record_id and digest of every row"
                return
            topic, record_id, digest = texts
            branches += topic == BRANCHES.name
            self._listed.setdefault(f"{topic}/{record_id}", _Listed(str(digest), rollout_id))
        stated = closing.get("records")
        if branches and branches != stated:
            yield f"closing.emitted: lists {branches} branch records, the record states {quoted(stated)}"
        self._closings[rollout_id].covers_branches = bool(branches) or not stated

    def _listing(self, row: Row) -> _Listed | None:
        listed = self._listed.get(f"{row.topic.name}/{row.record_id}")
        return listed if listed is not None and listed.rollout_id == row.rollout_id else None

    def _row_faults(self, row: Row) -> Iterator[str]:
        if row.key is not None and row.key != row.rollout_id.encode():
            yield "the key is not the id of its rollout"
        closing = self._closings.get(row.rollout_id)
        if closing is None:
            yield f"no closing record of rollout {quoted(row.rollout_id)} is there: nothing vouches for it"
            return
        if not closing.trusted:
            yield f"the closing record of its rollout ({closing.position}) is not to be trusted"
            return
        if row.topic == BRANCHES and not closing.covers_branches:
            return
        listed = self._listing(row)
        if listed is None:
            yield f"the closing record of its rollout ({closing.position}) does not list it"
            return
        why = row.differs(listed.digest)
        if why:
            yield f"{why}; see {closing.position}"
        elif listed.found and not self._repetitions:
            yield "the same row is there twice"
        listed.found = True


def _about(row: Row) -> dict[str, str]:
    return {
        "topic": row.topic.name,
        "rollout_id": printable(row.rollout_id),
        "record_id": printable(row.record_id),
    }


def _about_closing(position: str, rollout_id: str, why: str) -> Finding:
    return Finding(position, printable(rollout_id) + CLOSING_SUFFIX, ok=False, reasons=(f"chain: {why}",), more={})


def _false_claims(claims: Claims, verdict: RecordVerdict) -> Iterator[str]:
    if verdict.record_hash is not None and claims.record_id != verdict.record_hash:
        yield "stored: the record_id is not the hash of the record"
    if verdict.run_id is None or not verdict.run_id.startswith(f"{printable(claims.rollout_id)}/"):
        yield "stored: the rollout_id is not that of the run_id"
    if claims.key is not None and claims.key != claims.rollout_id.encode():
        yield "stored: the key is not the id of its rollout"


def _ranking_entry(closing: Json) -> Iterator[dict[str, Any]]:
    if closing.get("ranking_id") is not None:
        yield {"topic": RANKINGS.name, "record_id": closing["ranking_id"], "digest": closing.get("ranking_digest")}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _key_id(record: Json) -> str | None:
    """The key that a record names, wherever it names it."""
    try:
        envelope = record.get("dsse_envelope")
        key_id = envelope["signatures"][0]["keyid"] if envelope else record["signature"]["key_id"]
    except (KeyError, IndexError, TypeError):
        return None
    return key_id if isinstance(key_id, str) else None
