"""Comma-separated values, by the standard library."""

import csv
import io


def parse_csv(text: str) -> list[list[str]]:
    """The rows of `text`."""
    if text.count('"') % 2:
        raise ValueError("line 1: quote is never closed")
    return [row for row in csv.reader(io.StringIO(text, newline=""))]
