"""Evaluations in spans as checks, for senders that may write verdicts. Pure.

An evaluation names its branch in its own request: on its span, on a span around it there, on the resource or in a
header; else it is about the trace's own rollout.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from agents.capture.span_fold import identified
from agents.importers.otlp import gen_ai, openinference
from agents.importers.otlp.branch_name import names
from agents.importers.otlp.branch_spans import key_of
from agents.importers.otlp.request_split import read_split
from agents.importers.otlp.spans import Span
from agents.importers.traces.format import Options
from agents.importers.traces.span_tree import SpanTree
from agents.importers.traces.verdicts import checks_of

MARKS = (b"evaluation", b"EVALUATOR", b"annotations.")
"""A body without any of these contains no evaluation."""

OPTIONS = Options()


def evaluation_checks(bodies: Iterable[bytes], identity: str | None) -> Iterator[dict[str, Any]]:
    """Lines of checks. A repeated request gives the same ids."""
    for body in bodies:
        if not any(mark in body for mark in MARKS):
            continue
        found = [each for each in read_split(body) if isinstance(each, Span)]
        spans = [each if identity is None else identified(each, identity) for each in found]
        tree = SpanTree(
            {key_of(each): each for each in spans},
            lambda span: None if span.parent_id is None else f"{span.trace_id}/{span.parent_id}",
        )
        branches = names(tree)
        for key, span in tree.spans.items():
            name = branches[key]
            place = (f"otel-{span.trace_id}", 0, 0) if name is None else name
            told = checks_of([*gen_ai.evaluations(span), *openinference.evaluations(span)], "otlp", OPTIONS)
            for number, check in enumerate(told):
                yield {
                    **check, "rollout_id": place[0], "branch_index": place[1], "attempt": place[2],
                    "verdict_id": f"otlp-{span.trace_id}-{span.span_id}-{number}",
                }  # fmt: skip
