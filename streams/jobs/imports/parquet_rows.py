"""Rows of a Parquet file as JSON values: datasets as the Hugging Face Hub keeps them."""

from collections.abc import Iterator
from typing import Any, BinaryIO

import orjson

from schemas.extras import needs

with needs("export", "braid import of Parquet files"):
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

ROWS = 16
"""Rows in memory at a time: a row may be a whole session."""


class BadParquetError(ValueError):
    """A file that is not Parquet, or is damaged."""


def parquet_rows(source: BinaryIO) -> Iterator[dict[str, Any]]:
    """The rows, one by one. Raises BadParquetError."""
    try:
        for batch in pq.ParquetFile(source).iter_batches(batch_size=ROWS):
            for row in batch.to_pylist():
                yield orjson.loads(orjson.dumps(row, default=str, option=orjson.OPT_NON_STR_KEYS))
    except (pa.ArrowException, orjson.JSONEncodeError, OSError, UnicodeDecodeError) as error:
        raise BadParquetError(str(error)) from None


def parquet_head(source: BinaryIO, size: int) -> bytes:
    """The first rows as JSON lines, long values truncated, up to `size` bytes; empty for a damaged file."""
    head = b""
    try:
        for row in parquet_rows(source):
            head += orjson.dumps(_cut(row)) + b"\n"
            if len(head) >= size:
                break
    except BadParquetError:
        return b""
    return head[:size]


def _cut(value: Any) -> Any:
    """The value with the beginnings of long texts and arrays: a head shows every column."""
    if isinstance(value, str):
        return value[:2000]
    if isinstance(value, list):
        return [_cut(each) for each in value[:3]]
    return {name: _cut(each) for name, each in value.items()} if isinstance(value, dict) else value
