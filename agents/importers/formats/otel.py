"""OpenTelemetry traces in files: OTLP export requests, in JSON or protobuf, with gen_ai or OpenInference attributes.

Spans may come in any order and in any file. They are first grouped by trace. Spans that name a branch (braid.*) are
then grouped with the spans of other traces that name the same branch.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from agents.importers.otlp.branch_name import BranchName, names
from agents.importers.otlp.branch_spans import BranchSpans, key_of, order_of
from agents.importers.otlp.request_json import Problem, read_request
from agents.importers.otlp.request_proto import read_body
from agents.importers.otlp.spans import Span, plain, read_plain
from agents.importers.traces.episode_reader import first_value, guarded, is_json, members
from agents.importers.traces.format import Bad, Episode, FileUse, Format, Head, Item, Options, Part, Piece, Reading
from agents.importers.traces.span_tree import SpanTree, told_once
from agents.importers.traces.verdicts import checks_of
from schemas.jsontext import compact, parse

_MEMBERS = frozenset({"resourceSpans", "resource_spans", "resourceLogs", "resource_logs"})
_LENGTH = rb"[\x80-\xff]{0,4}[\x00-\x7f]"
_BODY = re.compile(rb"\n%b(?:\n(?:\x00|%b\n%b\n)|\x12%b\n)" % (_LENGTH, _LENGTH, _LENGTH, _LENGTH), re.DOTALL)
"""Start of a body: a sized entry with a resource (empty, or with an attribute that has a key) or a scope's spans."""


def recognise(sources: Sequence[str], head: Head) -> bool:
    """Recognise export requests: `resourceSpans` in JSON, or a protobuf body."""
    return any(_is_otlp(name, head(name)) for name in sources)


def _is_otlp(name: str, head: bytes) -> bool:
    if is_json(name) and first_value(head).startswith(b"{"):
        return not _MEMBERS.isdisjoint(members(head))
    return name.removesuffix(".gz").removesuffix(".zst").endswith((".pb", ".bin", ".otlp", ".proto")) and _is_body(head)


def _is_body(head: bytes) -> bool:
    return _BODY.match(head) is not None or _BODY.match(head[4:]) is not None


def plan(sources: Sequence[str], head: Head) -> list[Part]:
    """Plan one part of all files, because a trace may be spread over them."""
    found = tuple(FileUse(name, "otlp") for name in sources if _is_otlp(name, head(name)) or len(sources) == 1)
    return [Part("", found)] if found else []


def scatter(item: Item, _options: Options) -> Iterator[Piece | Bad]:
    """Yield the spans of a request, grouped by trace."""
    for found in read_body(item.value) if isinstance(item.value, bytes) else read_request(item.value):
        if isinstance(found, Problem):
            yield Bad(item.file, item.position, found.place, found.reason, found.raw)
        elif found.name or found.start or any(each.name.startswith("gen_ai.") for each in found.events):
            yield Piece(f"trace {found.trace_id}", plain(found))


def read(items: Iterable[Item], options: Options) -> Reading:
    """Read the episodes of traces, and of branches that traces name."""
    empty, file = 0, ""
    for item in items:
        file = item.file
        if item.position.startswith("branch "):
            yield from guarded(item, _branch(item, options))
            continue
        for found in guarded(item, _trace(item, options)):
            if found is EMPTY:
                empty += 1
            else:
                yield found
    if empty:
        yield Bad(file, "", "", f"{empty} traces hold no span of a model, a tool or an agent")


EMPTY = Bad("", "", "", "a trace of something else")


def _trace(item: Item, options: Options) -> Iterator[Episode | Piece | Bad]:
    return trace_episodes(item.file, [read_plain(value) for value in item.value], options)


def trace_episodes(file: str, told: Sequence[Span], options: Options) -> Iterator[Episode | Piece | Bad]:
    """Yield the episode of a trace that names no branch, or the pieces of the branches that it names."""
    tree = _tree(told)
    branches = names(tree)
    unnamed = {key: span for key, span in tree.spans.items() if branches[key] is None}
    for key, span in tree.spans.items():
        name, parent = branches[key], tree.parent(key)
        if name is not None:
            outside = parent is not None and branches[parent] != name
            yield Piece(f"branch {compact(list(name))}", [outside, plain(span)])
    if unnamed:
        spans = BranchSpans(SpanTree(unnamed, tree.parent_of), frozenset())
        if spans.tells_something or len(unnamed) == len(tree.spans):
            yield _episode(file, spans, None, options) if spans.tells_something else EMPTY


def _branch(item: Item, options: Options) -> Iterator[Episode | Bad]:
    name = BranchName(*parse(item.position.removeprefix("branch ")))
    yield branch_episode(item.file, name, [(outside, read_plain(value)) for outside, value in item.value], options)


def branch_episode(file: str, name: BranchName, told: Sequence[tuple[bool, Span]], options: Options) -> Episode | Bad:
    """Build the episode of a branch that one or more traces name.

    Each span comes with a flag: its parent belongs to another branch.
    """
    outside = frozenset(key_of(span) for is_outside, span in told if is_outside)
    found = BranchSpans(_tree([span for _, span in told]), outside)
    if found.tells_something:
        return _episode(file, found, name, options)
    reason = f"names {name.rollout_id}, and holds no span of a model, a tool or an agent"
    return Bad(file, _position(found), "", reason)


def _episode(file: str, spans: BranchSpans, name: BranchName | None, options: Options) -> Episode:
    root, end = spans.root, spans.end()
    checks = [] if end.status == "infra_error" else checks_of(spans.evaluations(), "import:otel", options)
    source: dict[str, Any] = {
        "resource": root.resource,
        "root": {"name": root.name, "scope": root.scope, "attributes": root.attributes},
    }
    if spans.kinds[key_of(root)] in ("model", "tool"):
        del source["root"]
    position = _position(spans)
    return Episode(
        file=file, position=position, run="", task_key=root.trace_id if name is None else list(name),
        rollout_id=f"otel-{root.trace_id}" if name is None else name.rollout_id,
        branch_index=None if name is None else name.branch_index, attempt=None if name is None else name.attempt,
        order=order_of(list(spans.tree.spans.values())), source=source, record=spans.record(),
        events=spans.run.events(answered=end.status == "answered"), system=spans.run.system, tools=spans.run.offered,
        info=spans.info(), verdicts=checks, status=end.status, error=end.error,
        unreadable=[Bad(file, position, field, reason, raw) for field, reason, raw in spans.unread.found],
    )  # fmt: skip


def _position(spans: BranchSpans) -> str:
    traces = {span.trace_id for span in spans.tree.spans.values()}
    return f"trace {spans.root.trace_id}" + (f" and {len(traces) - 1} more" if len(traces) > 1 else "")


def _tree(spans: Sequence[Span]) -> SpanTree[Span]:
    """Return the tree of spans without duplicates. A log record is an event of its span."""
    records = [span for span in spans if not span.name and not span.start]
    once = told_once(
        (span for span in spans if span.name or span.start), key_of, size_of=lambda span: compact(plain(span))
    )
    for record in sorted(records, key=lambda each: (each.events[0].time, compact(plain(each)))):
        span = once.get(key_of(record))
        if span is not None:
            once[key_of(record)] = span._replace(events=[*span.events, *record.events])
    return SpanTree(once, lambda span: None if span.parent_id is None else f"{span.trace_id}/{span.parent_id}")


FORMAT = Format(
    name="otel",
    about="OpenTelemetry traces: OTLP export requests in JSON or protobuf, gen_ai or OpenInference attributes",
    rollout="braid.rollout_id / braid.branch_index on a span or resource, else the trace",
    verdict="check per evaluation; unknown unless its label says pass or fail",
    unknown="messages where an instrumentation does not record them; whether an answer was right",
    recognise=recognise,
    plan=plan,
    read=read,
    scatter=scatter,
)
