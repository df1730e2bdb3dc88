"""Structured logs on standard error: people's colours on a terminal, JSON lines elsewhere. Secrets are redacted."""

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

from agents.redaction.redaction import redact, redact_json

NOISY = ("aiokafka", "faust", "mode", "httpx", "httpcore", "asyncio", "streams.services.live.seams")
"""Libraries whose own logs are of little use to an operator: warnings and worse only."""


def configure(level: str = "info", *, json_lines: bool | None = None) -> None:
    """Set logging up for a command."""
    as_json = not sys.stderr.isatty() if json_lines is None else json_lines
    renderer: Any = (
        structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    number = getattr(logging, level.upper())
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,  # before secrets are removed: a message may quote one
        _without_secrets,
    ]
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processor=renderer, foreign_pre_chain=shared))
    logging.basicConfig(handlers=[handler], level=number, force=True)
    for name in NOISY:
        logging.getLogger(name).setLevel(logging.ERROR)


def _without_secrets(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for name, value in event.items():
        if isinstance(value, str):
            event[name] = redact(value).text
        elif isinstance(value, (dict, list)):
            event[name] = redact_json(value).value
    return event
