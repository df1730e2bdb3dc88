"""Collects the spans of a trace, or of a branch, until they are complete; then makes the same events of them as `braid
import otel`.

A trace is collected under its own id, whatever its spans name: references between spans are known only when all of it
has arrived. At its end the spans that name a branch are moved there, as captures; the rest is a branch of its own. So
the order of bodies has no effect.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from agents.importers.formats.otel import EMPTY, branch_episode, trace_episodes
from agents.importers.line_error import LineError
from agents.importers.otlp.branch_name import ATTEMPT, BRANCH, ROLLOUT, BranchName
from agents.importers.otlp.request_heads import heads_of
from agents.importers.otlp.request_json import Problem
from agents.importers.otlp.request_split import read_split, read_written, written
from agents.importers.otlp.spans import Span, read_plain
from agents.importers.traces.format import Bad, Episode, Options, Piece
from schemas.captures import Capture
from schemas.jsontext import compact, parse, parse_object

RECEIVED = "otlp"
"""The source of captures sent by an exporter."""

MOVED = "trace"
"""The source of captures that were moved from a trace to the branch that it names."""

MOVED_BYTES = 1024 * 1024
"""Bytes of a capture of moved spans, unless a single span has more."""

OPTIONS = Options()


class FinishedSpans(NamedTuple):
    """The result of the spans of a trace or a branch."""

    episode: Episode | None
    moved: list[Capture]
    bad: list[Bad]


class SpanFold:
    """The spans of one trace, or those that were moved to one branch."""

    def __init__(self, place: Mapping[str, Any]) -> None:
        self._place = place
        self._received: list[tuple[bytes, str | None]] = []
        self._moved: list[bytes] = []
        self._trace_id = ""
        self._received_ms = 0
        self._ids: set[bytes] = set()
        self._open: set[bytes] = set()
        self._missing: set[bytes] = set()

    @property
    def is_whole(self) -> bool:
        """Whether every span of a trace has ended, and every parent has arrived."""
        return bool(self._ids) and not self._open and not self._missing and not self._moved

    @property
    def has_moved(self) -> bool:
        """Whether spans of other traces were moved here."""
        return bool(self._moved)

    def add(self, capture: Capture, body: bytes) -> None:
        """Add a capture of spans or log records."""
        if capture.source == MOVED:
            self._moved.append(body)
            return
        self._received.append((body, capture.identity))
        if not self._trace_id:
            self._trace_id, self._received_ms = capture.trace_id or "", capture.received_ms
        if capture.kind != "span":
            return
        for span_id, parent, ended in heads_of(body):
            self._ids.add(span_id)
            self._missing.discard(span_id)
            if parent is not None and parent not in self._ids:
                self._missing.add(parent)
            if ended:
                self._open.discard(span_id)
            else:
                self._open.add(span_id)

    def finish(self) -> FinishedSpans:
        """Return the result, when no more spans are expected."""
        bad: list[Bad] = []
        if self._moved:
            return FinishedSpans(self._branch(self._moved_spans(), bad), [], bad)
        own: list[tuple[bool, Span]] = []
        episode: Episode | None = None
        named: dict[str, list[Any]] = {}
        for found in trace_episodes("", list(self._spans(bad)), OPTIONS):
            if isinstance(found, Piece):
                named.setdefault(found.group.removeprefix("branch "), []).append(found.value)
            elif isinstance(found, Episode):
                episode = found
            elif found is not EMPTY:
                bad.append(found)
        name = compact(list(self._place.values()))
        own = [(outside, read_plain(value)) for outside, value in named.pop(name, ())]
        if own:
            episode = self._branch(own, bad)
        return FinishedSpans(episode, list(self._moves(named)), bad)

    def _branch(self, spans: Iterable[tuple[bool, Span]], bad: list[Bad]) -> Episode | None:
        found = branch_episode("", BranchName(*self._place.values()), list(spans), OPTIONS)
        if isinstance(found, Episode):
            return found
        bad.append(found)
        return None

    def _spans(self, bad: list[Bad]) -> Iterator[Span]:
        for body, identity in self._received:
            try:
                found = read_split(body)
            except (LineError, ValueError, TypeError) as error:
                bad.append(Bad("", "", "", f"spans that cannot be read: {error}"))
                continue
            for each in found:
                if isinstance(each, Problem):
                    bad.append(Bad("", each.place, "", each.reason, each.raw))
                elif each.name or each.start or any(event.name.startswith("gen_ai.") for event in each.events):
                    yield each if identity is None else identified(each, identity)

    def _moved_spans(self) -> Iterator[tuple[bool, Span]]:
        for body in self._moved:
            for outside, value in read_written(body):
                yield outside, read_plain(value)

    def _moves(self, named: Mapping[str, list[Any]]) -> Iterator[Capture]:
        """Captures of the branches that the trace names. A repetition has the same ids."""
        for name in sorted(named):
            rollout_id, branch_index, attempt = parse(name)
            values = sorted(named[name], key=lambda value: str(value[1][1]))
            for number, body in enumerate(_bodies(values)):
                yield Capture(
                    rollout_id=rollout_id, branch_index=branch_index, attempt=attempt, kind="span", source=MOVED,
                    capture_id=f"{self._trace_id}-{number}", trace_id=self._trace_id, received_ms=self._received_ms, body=body,
                )  # fmt: skip


def _bodies(values: list[Any]) -> Iterator[bytes]:
    held: list[bytes] = []
    size = 0
    for value in values:
        text = written(value)
        if held and size + len(text) > MOVED_BYTES:
            yield b"[" + b",".join(held) + b"]"
            held, size = [], 0
        held.append(text)
        size += len(text)
    yield b"[" + b",".join(held) + b"]"


def identified(span: Span, identity: str) -> Span:
    """A span with the branch that its sender names outside of it: its resource takes precedence, unless the sender's
    token is bound to that branch.
    """
    told = parse_object(identity)
    given = {key: told[name] for key, name in _KEYS.items() if told.get(name) is not None}
    if not told.get("bound"):
        return span._replace(resource={**given, **span.resource})
    return span._replace(attributes={**span.attributes, **given})


_KEYS = {ROLLOUT: "rollout_id", BRANCH: "branch_index", ATTEMPT: "attempt"}
