"""Output of commands: results as JSON on standard output, remarks on standard error."""

import sys
from typing import Any

import orjson


def print_json(value: Any) -> None:
    """Print a JSON value on a line of its own."""
    sys.stdout.write(orjson.dumps(value).decode() + "\n")


def complain(*lines: str) -> None:
    """Print remarks on standard error, each on a line of its own."""
    for each in lines:
        sys.stderr.write(f"braid: {each}\n")
