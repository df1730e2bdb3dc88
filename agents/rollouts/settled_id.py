"""The id of a settling: a function of everything in it; without pinned contents the same as in earlier versions."""

from typing import Final

from schemas.closures import Closure, RolloutSettled
from schemas.codec.avro import writer_of
from schemas.codec.body import with_content_id
from schemas.versions import part_of

_without_digests: Final = writer_of(part_of(Closure, 2, RolloutSettled))
"""Writes a settling as it was before it could pin the contents of verdicts."""


def with_settled_id(settled: RolloutSettled) -> RolloutSettled:
    """The settling with its id. Facts without signatures have the same id as before verdicts could be signed."""
    pins_contents = any(pin.verdict_digests for pin in settled.branches)
    return with_content_id(settled, "settled_id", older=None if pins_contents else _without_digests)
