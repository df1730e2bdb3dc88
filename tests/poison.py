"""Records that are none, in every bad shape, written to every topic by a foreign client."""

from typing import NamedTuple

from confluent_kafka import Producer

from streams.cluster.config import Settings
from streams.log.topics import BRANCHES, JUDGE_REQUESTS, LIFECYCLE, TOPICS, Topic
from tests.live import codec_of

HUGE = bytes(11 * 1024 * 1024)
"""Fits into every topic when it is compressed, and into no dead letter."""


class Shape(NamedTuple):
    """One bad record."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    def __repr__(self) -> str:
        return f"Shape({(self.key or b'')[:20]!r}, {(self.value or b'')[:20]!r})"


class Place(NamedTuple):
    """Where a bad record stands."""

    topic: str
    partition: int
    offset: int


def shapes(good: bytes, other: bytes) -> dict[str, Shape]:
    """Bad records by name; `good` is a record of the topic about rollout `honest`, `other` one of another topic."""
    return {
        "no key": Shape(None, good),
        "an empty key": Shape(b"", good),
        "no value": Shape(b"honest", None),
        "an empty value": Shape(b"honest", b""),
        "neither": Shape(None, None),
        "neither, with odd headers": Shape(
            None, None, (("none", None), ("__braid.errors.offset", b"x"), ("", b"\xff"))
        ),
        "foreign bytes": Shape(b"honest", b"\x7fELF\xff\xfe\x00"),
        "a schema that is not there": Shape(b"honest", b"\x00\x7f\xff\xff\xff" + good[5:]),
        "cut off": Shape(b"honest", good[:-1]),
        "another type": Shape(b"honest", other),
        "a key that is no text": Shape(b"\xff\xfe\xfa", good),
        "another rollout's key": Shape(b"somebody", good),
    }


OVERSIZED = {
    LIFECYCLE: Shape(HUGE, b"x"),
    JUDGE_REQUESTS: Shape(b"honest", HUGE),
    BRANCHES: Shape(b"honest", b"x", (("h", HUGE),)),
}
"""Shapes that cost time: one for each kind of worker."""


async def poison(settings: Settings, records: dict[Topic, object]) -> dict[Place, Shape]:
    """Write every shape to every topic."""
    codec = await codec_of(settings)
    producer = Producer({
        "bootstrap.servers": settings.kafka, "message.max.bytes": 4 * len(HUGE), "compression.type": "zstd", "linger.ms": 0,
        "batch.num.messages": 1,
    })  # fmt: skip
    written: dict[Place, Shape] = {}

    def note(shape: Shape) -> object:
        def delivered(error: object, message: object) -> None:
            assert error is None, error
            written[Place(message.topic(), message.partition(), message.offset())] = shape  # type: ignore[attr-defined]

        return delivered

    for topic in TOPICS:
        good = codec.encode(records[topic]) if topic in records else b"\xc3\x01nothing"  # type: ignore[arg-type]
        other = codec.encode(records[next(each for each in records if each is not topic)])  # type: ignore[arg-type]
        costly = [OVERSIZED[topic]] if topic in OVERSIZED else []
        for shape in (*shapes(good, other).values(), *costly):
            producer.produce(
                settings.prefix + topic.name, shape.value, key=shape.key, partition=0, headers=list(shape.headers),
                on_delivery=note(shape),
            )  # fmt: skip
    producer.flush(30)
    return written
