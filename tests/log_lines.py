"""Structured logs inside a test, as a command sets them up."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from streams.cluster import structured_logs


@contextmanager
def configured_logs(level: str = "info") -> Iterator[None]:
    """Log as JSON lines to standard error until the block ends; afterwards logs are as they were."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    try:
        structured_logs.configure(level, json_lines=True)
        yield
    finally:
        root.handlers, root.level = before
        structlog.reset_defaults()
