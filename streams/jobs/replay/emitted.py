"""The records that a partition has emitted: counts, and one digest per sink that does not depend on the order of
records."""

from hashlib import sha256

from agents.evidence.build import unlisting
from agents.evidence.signing import SigningKey
from agents.rollouts.emission import Emission
from schemas.codec import body as avro_body
from schemas.evidence import AepRecord
from streams.jobs.made_record import Made
from streams.log.headers import identity
from streams.log.topics import BRANCHES, BY_RECORD, EVIDENCE

DIGESTS = 2**256
"""The number of SHA-256 digests."""


class Emitted:
    """Counts the records of rollouts, in the form in which they are written."""

    def __init__(self, *, remember: bool) -> None:
        self._remember = remember
        self._records: dict[str, int] = {}
        self._sums: dict[str, int] = {}
        self.known: dict[tuple[str, str], bytes] = {}
        """By sink and id, the digest of each record; only if requested."""
        self.earlier: dict[bytes, str] = {}
        """By the digest of closing evidence without branch records, the id of the same with them."""
        self.rollouts: set[str] = set()

    def add(self, emission: Emission, key: SigningKey | None) -> list[Made]:
        """Count the records of a rollout; return them in the form in which they are written, evidence signed."""
        bodies, redacted = emission.bodies, emission.redacted
        number = bodies.numbers[AepRecord.__name__]
        if self._remember:
            self.rollouts.add(emission.ranking.rollout_id)
        made = []
        for record in (*emission.branches, emission.ranking, *emission.compliance, *emission.rows, *emission.rejected):
            name = identity(record)
            self._count(BY_RECORD[type(record)].name, name, bodies.digest(name))
            made.append(Made(record, bodies[name], redacted, bodies.emission))
        for evidence, signed in zip(emission.evidence, emission.signed(key), strict=True):
            body = avro_body.encode(evidence, number)
            self._count(EVIDENCE.name, evidence.record_id, sha256(body).digest())
            made.append(Made(signed, body if signed is evidence else None, redacted, bodies.emission))
        if self._remember and emission.branches and emission.evidence:
            last = emission.evidence[-1]
            before = avro_body.encode(unlisting(last, BRANCHES.name), number)
            self.earlier[sha256(before).digest()] = last.record_id
        return made

    def _count(self, sink: str, record_id: str, digest: bytes) -> None:
        self._records[sink] = self._records.get(sink, 0) + 1
        self._sums[sink] = self._sums.get(sink, 0) + int.from_bytes(digest, "big")
        if self._remember:
            self.known[sink, record_id] = digest

    def records(self) -> dict[str, int]:
        """The number of records of each sink."""
        return dict(sorted(self._records.items()))

    def digests(self) -> dict[str, str]:
        """By sink, the sum of all SHA-256 digests modulo 2^256: the same records in any order give the same."""
        return {name: f"{total % DIGESTS:064x}" for name, total in sorted(self._sums.items())}


def combined(digests: list[dict[str, str]]) -> dict[str, str]:
    """The digests of several partitions as one."""
    sums: dict[str, int] = {}
    for each in digests:
        for name, digest in each.items():
            sums[name] = sums.get(name, 0) + int(digest, 16)
    return {name: f"{total % DIGESTS:064x}" for name, total in sorted(sums.items())}
