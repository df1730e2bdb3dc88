"""The part of a partition that is read before its facts are folded: the pins of decisions, and the number of records of
each rollout.

Events come before the settling that decides whether they are redacted, and nothing in a record marks it as a rollout's
last.
"""

from collections import Counter
from collections.abc import Iterable

from agents.rollouts.broken_log import BrokenLogError
from agents.rollouts.pinned_config import pinned_config
from schemas.closures import Closure
from schemas.emission import EmissionConfig
from schemas.errors import DecodeError
from streams.log.facts import read_fact, rollout_of_key
from streams.log.fold import decided_in
from streams.log.record import LogRecord
from streams.log.topics import CLOSURES
from streams.log.wire import Codec


class Ahead:
    """Facts about a partition that are known before its first fact is folded."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self.configs: dict[str, EmissionConfig] = {}
        """By rollout, the configuration that it was settled under."""
        self.unusable: dict[str, str] = {}
        """Rollouts whose configuration cannot be read from the log, and why."""
        self.records: Counter[str] = Counter()
        """By rollout, how many records are about it."""

    def count(self, records: Iterable[LogRecord]) -> None:
        """Count records of any topic but the decisions."""
        for record in records:
            try:
                self.records[rollout_of_key(record.key)] += 1
            except DecodeError:
                continue  # unknown; named when it is folded

    def decide(self, record: LogRecord) -> None:
        """Count a decision, and keep its pins. One that cannot be read is named when it is folded."""
        named = set[str]()
        try:
            named.add(rollout_id := rollout_of_key(record.key))
            fact = read_fact(self._codec, CLOSURES, record.value, rollout_id)
        except DecodeError:
            self.records.update(named | decided_in(self._codec, record))
            return
        self.records[rollout_id] += 1
        if isinstance(fact, Closure) and fact.settled is not None and rollout_id not in self.configs:
            try:
                self.configs[rollout_id] = pinned_config(fact.settled)
            except BrokenLogError as error:
                self.unusable[rollout_id] = str(error)
