"""Parquet files of rows: written in groups, read in batches. Importing this module needs pyarrow (the extra `export`)."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from agents.formats.shape import Column, ListOf, Struct
from schemas.extras import needs
from streams.jobs.export.row_file import Writer, as_columns, values_digest
from streams.log.durable_files import open_output

with needs("export", "Parquet"):
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

ROWS_AT_ONCE = 1000
BYTES_AT_ONCE = 8 * 1024 * 1024
"""A group has so many rows, or as many as were made from so many bytes of the log."""


class ParquetFile(Writer):
    """One file while it is written."""

    def __init__(self, path: Path, columns: Mapping[str, Column]) -> None:
        super().__init__(path)
        self._columns = columns
        self._schema = pa.schema([(name, arrow_type(column)) for name, column in columns.items()])
        self._file = open_output(path)
        self._out = pq.ParquetWriter(self._file, self._schema, compression="zstd")
        self._waiting: list[dict[str, Any]] = []
        self._weight = 0

    def write(self, rows: Sequence[dict[str, Any]], weight: int) -> list[str]:
        """Add rows; a full group is written."""
        columns = [as_columns(row, self._columns) for row in rows]
        self._waiting += columns
        self.rows += len(rows)
        self._weight += weight
        if len(self._waiting) >= ROWS_AT_ONCE or self._weight >= BYTES_AT_ONCE:
            self._flush()
        return [values_digest(row) for row in columns]

    def close(self) -> None:
        """Write the last group and the footer."""
        if self._waiting:
            self._flush()
        try:
            self._out.close()
        finally:
            self._file.close()

    def discard(self) -> None:
        """Remove the file."""
        self._waiting = []
        with suppress(pa.ArrowException):  # on a full disk the last flush fails, too
            self.close()
        super().discard()

    def _flush(self) -> None:
        self._out.write_table(pa.Table.from_pylist(self._waiting, schema=self._schema))
        self._waiting, self._weight = [], 0


def arrow_type(column: Column) -> Any:
    """The Arrow type of a column; free-form JSON is text."""
    if isinstance(column, ListOf):
        return pa.list_(arrow_type(column.of))
    if isinstance(column, Struct):
        return pa.struct([(name, arrow_type(of)) for name, of in column.fields.items()])
    return {"text": pa.string(), "json": pa.string(), "whole": pa.int64(), "real": pa.float64(), "truth": pa.bool_()}[
        column
    ]


def read_parquet(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file. Raises OSError if it cannot be read, and any error that Arrow raises for damaged bytes."""
    try:
        for batch in pq.ParquetFile(path).iter_batches(batch_size=ROWS_AT_ONCE):
            yield from batch.to_pylist()
    except pa.ArrowException as error:
        raise OSError(str(error)) from error
