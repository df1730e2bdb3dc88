"""Closed rollouts made into records again, under the rules of a replay."""

from time import process_time
from typing import NamedTuple

from agents.evidence.signing import SigningKey
from agents.rollouts.broken_log import BrokenLogError
from agents.rollouts.decision import decide
from agents.rollouts.emission import Emission, emit
from agents.rollouts.pinned_config import pinned_config
from agents.rollouts.policy import ClosingPolicy
from agents.rollouts.rollout import Rollout
from schemas.closures import Closure, RolloutSettled
from schemas.emission import EmissionConfig
from streams.jobs.counts import Counts
from streams.jobs.made_record import Made
from streams.jobs.replay.emitted import Emitted
from streams.jobs.replay.lookahead import Ahead
from streams.jobs.replay.overrides import Overrides
from streams.log.fold import Hole
from streams.log.topics import CLOSURES

FOR_EVER = 2**53
"""A time that everything comes before: a bounded log has been read past every deadline."""


class Rules(NamedTuple):
    """The settings for all rollouts of a replay."""

    overrides: Overrides
    reclose: bool
    """Whether closings are decided again."""
    policy: ClosingPolicy
    """When rollouts close, if that is decided again."""
    unpinned: EmissionConfig
    """The configuration of rollouts that never settled."""
    evidence: bool


class Making:
    """Makes the rollouts of one partition, and counts their output."""

    def __init__(self, rules: Rules, ahead: Ahead, key: SigningKey | None, partition: int, *, remember: bool) -> None:
        self._rules = rules
        self._ahead = ahead
        self._key = key
        self._partition = partition
        self.counts = Counts()
        self.emitted = Emitted(remember=remember)
        self.broken: list[Hole] = []
        """Rollouts that could not be made."""
        self.undecided = 0
        """Rollouts that do not close under these rules."""
        self.emitting = 0.0
        """CPU seconds."""
        self.signing = 0.0

    def make(self, rollout: Rollout) -> list[Made]:
        """The output of a rollout; None if it does not close or cannot be made."""
        began = process_time()
        try:
            if self._rules.reclose and not self._closed_anew(rollout):
                self.undecided += 1
                return []
            emission = self._emission(rollout)
        except BrokenLogError as error:
            self.broken.append(Hole(rollout.rollout_id, (str(error),)))
            return []
        then = process_time()
        made = self.emitted.add(emission, self._key)
        self.counts.add(emission)
        self.emitting += then - began
        self.signing += process_time() - then
        return made

    def _emission(self, rollout: Rollout) -> Emission:
        rules, config = self._rules, None
        if rules.overrides.touches_emission and not rules.reclose:
            assert rollout.settled is not None
            config = rules.overrides.config(pinned_config(rollout.settled))
        return emit(rollout, config, evidence=rules.evidence)

    def _closed_anew(self, rollout: Rollout) -> bool:
        """Settle and close a rollout; whether it has closed."""
        if rollout.rollout_id in self._ahead.unusable:
            raise BrokenLogError(self._ahead.unusable[rollout.rollout_id])
        rules = self._rules
        config = rules.overrides.config(self._ahead.configs.get(rollout.rollout_id, rules.unpinned))
        rollout.date()
        while (decision := decide(rollout, config, rules.policy, FOR_EVER, {})) is not None:
            closure = Closure(settled=decision) if isinstance(decision, RolloutSettled) else Closure(closed=decision)
            rollout.add(closure, decision.decided_at_ms, (CLOSURES.name, self._partition, 0))
        return rollout.has_closed_facts()
