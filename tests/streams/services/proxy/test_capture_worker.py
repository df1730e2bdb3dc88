"""The capture worker, with captures that it reads again."""

from aiokafka.structs import ConsumerRecord

from schemas.captures import Capture
from schemas.closures import RolloutSettled
from streams.cluster.config import Settings
from streams.log.kafka_writer import FactWriter
from streams.services.capture.capture_worker import CaptureWorker
from streams.services.group_worker import Held

SETTLED = RolloutSettled(
    settled_id="s", rollout_id="r", cause="deadline", decided_at_ms=1000, opened=False, branches=(), config="{}", config_digest="",
)  # fmt: skip


async def test_captures_of_a_settled_rollout_are_not_folded_from_the_middle_on() -> None:
    """Nothing is written: a fold of the rest would tell another branch under the same numbers. The offset is done with."""
    worker, held = CaptureWorker(FactWriter(Settings(kafka="127.0.0.1:1"), "test")), Held(0)
    worker.settled(held, SETTLED)
    capture = Capture(rollout_id="r", branch_index=0, capture_id="c7", kind="call", received_ms=1, body=b"{}")
    stored = ConsumerRecord("captures", 0, 7, 900, 1, b"r", b"", None, 1, 0, ())
    assert await worker.do(held, capture, stored)
