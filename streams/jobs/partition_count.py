"""How many partitions the lines of files are spread over. Imports nothing that is slow to load."""

from collections.abc import Sequence
from pathlib import Path

PARTITION_BYTES = 32 * 1024 * 1024
"""Input per partition: a partition is processed at once, so this bounds memory."""

MAX_PARTITIONS = 512

STREAM_PARTITIONS = 32
"""For standard input, whose length is not known."""


def total_bytes(files: Sequence[Path]) -> int | None:
    """How many bytes there are to read; None if a stream is among the files."""
    sizes = [path.stat().st_size if path.is_file() else None for path in files]
    return None if None in sizes else sum(size for size in sizes if size is not None)


def partitions_for(size: int | None) -> int:
    """How many partitions an input of so many bytes is spread over; None: the size is not known."""
    return STREAM_PARTITIONS if size is None else min(MAX_PARTITIONS, size // PARTITION_BYTES + 1)
