"""The fold of one partition of lines: facts to the log, rollouts settled, judged and closed, and everything that follows.

Times in the log are those of the events themselves. A rollout that is still open when the input ends closes with cause
end_of_input; the facts that it lacks are unknown.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from agents.evidence.signing import SigningKey
from agents.facts.fact import Fact, rollout_of
from agents.importers.line_error import LineError
from agents.importers.lines import LineReader, read_line
from agents.importers.slices import Slicer
from agents.judge.requests import Asking
from agents.judge.votes import calls_of
from agents.rollouts.broken_log import BrokenLogError
from agents.rollouts.closure import close_now
from agents.rollouts.emission import emit
from agents.rollouts.judge_requests import judge_requests
from agents.rollouts.policy import ClosingPolicy
from agents.rollouts.rollout import Complaint, Ref, Rollout
from agents.rollouts.settlement import settle_now
from agents.trust.trusted_keys import UNTRUSTED
from schemas.base import Record
from schemas.closures import Closure
from schemas.codec.maker import unchecked
from schemas.emission import EmissionConfig
from schemas.judging import JudgeVote
from streams.jobs.counts import Counts
from streams.jobs.judge.inline import InlineJudge
from streams.jobs.run.bad_lines import BadLines
from streams.jobs.verdict_trust import VerdictTrust
from streams.log.envelope import Envelope
from streams.log.file_writer import LogWriter
from streams.log.headers import domain_time, identity
from streams.log.input_lines import Doubted, Line
from streams.log.json_lines import Outputs
from streams.log.letters import letter_of
from streams.log.progress import Say
from streams.log.record import LogRecord
from streams.log.text_spill import process_texts
from streams.log.wire import Codec

_closure: Final = unchecked(Closure)

SAY_EVERY = 1000
"""Lines between two reports of progress."""


class PartitionFold:
    """Folds one partition."""

    def __init__(
        self, partition: int, config: EmissionConfig, closing: ClosingPolicy, log: LogWriter, outputs: Outputs, bad: BadLines,
        trust: VerdictTrust,
    ) -> None:  # fmt: skip
        self._partition = partition
        self._config = config
        self._closing = closing
        self._log = log
        self._outputs = outputs
        self._bad = bad
        self._trust = trust
        self._envelope = Envelope(Codec(), "run", 0, is_limited=False)
        self._rollouts: dict[str, Rollout] = {}
        # A fact that turns out not to count when its rollout settles becomes a dead letter: its bytes are kept until
        # then.
        self._stored: dict[str, dict[Ref, LogRecord]] = {}
        self.counts = Counts()
        self.doubted = Doubted()

    def fold(self, lines: Iterable[Line], moved: Callable[[int], None]) -> None:
        """Take all lines of the partition, and settle their rollouts."""
        reader, slicer = LineReader(for_fold=True), Slicer()
        checks = self._trust.is_set
        for number, line in enumerate(lines, start=1):
            if number % SAY_EVERY == 0:
                moved(SAY_EVERY)
            try:
                value = read_line(line.text)
            except LineError as error:
                self._bad.add(line, error, is_readable=False)
                continue
            try:
                facts = reader.read_object(value)
                if checks:
                    facts = self._let_in(line, facts)
            except LineError as error:
                self._bad.add(line, error, is_readable=True)
                continue
            self.doubted.note(line, facts)
            for fact in facts:
                for ready in slicer.add(fact):
                    self._take(ready)
        for ready in slicer.flush():
            self._take(ready)
        for rollout_id in sorted(self._rollouts):
            self._settle(rollout_id)

    async def ask(self, judge: InlineJudge, say: Say) -> None:
        """Ask a judge about the settled rollouts, many at once; its votes are facts like any other."""
        waiting: list[tuple[Rollout, Asking]] = []
        calls = 0
        for number, rollout_id in enumerate(sorted(self._rollouts), start=1):
            rollout = self._rollouts[rollout_id]
            asking = judge_requests(rollout)
            judge.spent.own_work += asking.own_model
            waiting.append((rollout, asking))
            calls += sum(len(calls_of(request)) for request in asking.requests)
            if calls >= judge.calls_at_once or number == len(self._rollouts):
                share = number / len(self._rollouts)
                await self._answer(judge, waiting, partial(_say_votes, say, judge, share))
                waiting, calls = [], 0

    async def _answer(self, judge: InlineJudge, waiting: list[tuple[Rollout, Asking]], say: Callable[[], None]) -> None:
        paid = {
            name: each.fact
            for rollout, _ in waiting for name, each in rollout.votes.items() if isinstance(each.fact, JudgeVote)
        }  # fmt: skip
        requests = [request for _, asking in waiting for request in asking.requests]
        answers = iter(await judge.votes(requests, paid, say))
        for rollout, asking in waiting:
            for request in asking.requests:
                self._write(request, rollout.latest, emission=self._config.version)
            for vote in (*asking.ties, *(vote for _ in asking.requests for vote in next(answers))):
                if vote.vote_id not in rollout.votes:
                    self._take(vote)

    def close(self, key: SigningKey | None, *, evidence: bool) -> None:
        """Close everything, and write the results; evidence signed, if there is a key."""
        for rollout_id in sorted(self._rollouts):
            self._close(self._rollouts.pop(rollout_id), key, evidence=evidence)
            del self._stored[rollout_id]

    def _take(self, fact: Fact) -> None:
        """Append a fact to the log and fold it. The time of a rollout in the log is that of its newest event so far."""
        rollout_id = rollout_of(fact)
        rollout = self._rollouts.get(rollout_id)
        if rollout is None:
            rollout = Rollout(rollout_id, redacting=self._config.redact, texts=process_texts())
            self._rollouts[rollout_id] = rollout
            self._stored[rollout_id] = {}
        at = max(rollout.latest, domain_time(fact) or 0)
        ref, stored = self._write(fact, at)
        self._stored[rollout_id][ref] = stored
        self._bury(rollout.add(fact, at, ref), rollout_id)

    def _let_in(self, line: Line, facts: list[Fact]) -> list[Fact]:
        """The facts that may count: verdicts only with a trusted signature. Raises LineError."""
        found = []
        for fact in [self._trust.vouched(fact) for fact in facts]:
            why = self._trust.refusal(line, fact)
            if why is None:
                found.append(fact)
            else:
                self._refuse(fact, why)
        return found

    def _refuse(self, fact: Fact, why: str) -> None:
        """Append a fact that may not count, and its dead letter."""
        rollout = self._rollouts.get(rollout_of(fact))
        (topic, partition, _), stored = self._write(fact, 0 if rollout is None else rollout.latest)
        self.counts.dead_letters += 1
        self._log.write(letter_of(topic, partition, stored, UNTRUSTED, why).outgoing(), stored.at)

    def _bury(self, complaints: list[Complaint], rollout_id: str) -> None:
        for complaint in complaints:
            self.counts.dead_letters += 1
            topic, partition, _ = complaint.ref
            stored = self._stored[rollout_id][complaint.ref]
            letter = letter_of(topic, partition, stored, complaint.reason, complaint.message)
            self._log.write(letter.outgoing(), stored.at)

    def _settle(self, rollout_id: str) -> None:
        rollout = self._rollouts[rollout_id]
        if not rollout.branches and not rollout.verdicts and rollout.opened is None:
            del self._rollouts[rollout_id], self._stored[rollout_id]  # nothing but votes: there is nothing to close
            return
        self._decided(rollout, _closure(settled=settle_now(rollout, self._config, self._closing)))

    def _close(self, rollout: Rollout, key: SigningKey | None, *, evidence: bool) -> None:
        self._decided(rollout, _closure(closed=close_now(rollout)))
        try:
            emission = emit(rollout, evidence=evidence)
        except BrokenLogError as error:
            self.counts.broken.append(str(error))
            return
        bodies, at, redacted = emission.bodies, rollout.latest, emission.redacted
        signed = emission.signed(key)
        records = (
            *emission.branches,
            emission.ranking,
            *emission.compliance,
            *emission.rows,
            *emission.rejected,
            *signed,
        )
        for record in records:
            self._write(record, at, bodies.get(identity(record)), bodies.emission, redacted=redacted)
        self._outputs.write(records)
        self.counts.add(emission)

    def _decided(self, rollout: Rollout, closure: Closure) -> None:
        ref, stored = self._write(closure, rollout.latest)
        self._bury(rollout.add(closure, stored.at, ref), rollout.rollout_id)

    def _write(
        self, record: Record, at: int, body: bytes | None = None, emission: int | None = None, *, redacted: bool = False
    ) -> tuple[Ref, LogRecord]:
        sent = self._envelope.outgoing(record, body, emission, partition=self._partition, redacted=redacted)
        stored = self._log.write(sent, at)
        return (sent.topic, self._partition, stored.offset), stored


def _say_votes(say: Say, judge: InlineJudge, share: float) -> None:
    say(f"judging, {judge.spent.asked:,} votes", share)
