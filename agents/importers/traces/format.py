"""A trace format, its input items, and the resulting episodes.

A format never accesses the disk. `plan` returns which files belong together and how each is read. The caller passes the
items of those files one by one and receives episodes and rejections.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

Shape = Literal["json", "csv", "text", "eval", "otlp", "count"]
"""How a file is read: `json` is lines, an array, one value after the other, one object, or rows of Parquet; `csv` a row at a time;
`text` whole; `eval` a log of Inspect (a zip); `otlp` JSON lines or protobuf; `count` only how many lines it has."""


class FileUse(NamedTuple):
    """One file of a part."""

    name: str
    """Its path relative to the folder on the command line, or its base name."""
    shape: Shape = "json"
    streamed: tuple[str, ...] = ()
    """Members of a top-level object whose elements become separate items.

    The rest of the object comes first, as one item.
    """
    constants: bool = False
    """Read NaN and Infinity, which Python writes into JSON, as null: the producer means that there is no value."""
    comments: bool = False
    """Skip lines that begin with #."""


class Part(NamedTuple):
    """Files that are read together, in this order: a session, a run, a job."""

    run: str
    """The run's name if its content has none. Empty: the name of the file or folder on the command line."""
    files: tuple[FileUse, ...]


class Item(NamedTuple):
    """One value of a file."""

    file: str
    position: str
    """`line 12`, `[3]`, `samples[3]`; empty for a whole file."""
    value: Any
    """A JSON value; a row as an object of texts; a text."""
    run: str = ""
    """The part's name."""
    is_group: bool = False
    """Whether the value is the list of a group's pieces. The position names the group."""


class Piece(NamedTuple):
    """A value that is read together with all others of its group, in any file: a span of a trace."""

    group: str
    value: Any


class Bad(NamedTuple):
    """A value that cannot be read. Other values are still read."""

    file: str
    position: str
    field: str
    reason: str
    raw: Any = None
    """The bytes, or the value, for the sidecar."""


@dataclass(frozen=True)
class Options:
    """Options for formats."""

    run: str | None = None
    pass_at: float | None = None
    """The score from which a check passes; unset: the format's own rule."""
    tasks: Mapping[str, str] = field(default_factory=dict)
    """Texts of tasks by their key, for formats without them."""
    shape: Literal["real", "seed"] = "real"
    """Read the producer's files, or the shapes that the seed documents describe."""


@dataclass(frozen=True)
class SubAgent:
    """Events of a sub-agent inside an episode."""

    name: str
    at: int
    """The number of the episode's own events that come before it."""
    events: Sequence[dict[str, Any]]


def call_places(events: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return each tool call's position among the events, by call id.

    A sub-agent comes after the call that started it.
    """
    calls = [(event["data"]["callId"], place) for place, event in enumerate(events) if event["event"] == "tool_call"]
    return dict(reversed(calls))


@dataclass(frozen=True, kw_only=True)
class Episode:
    """One branch: the actions of an agent, and facts about it."""

    file: str
    position: str
    run: str
    """The producer's run id, or the part's name."""
    task_key: Any
    """A JSON value: the same for all branches of a task."""
    events: Sequence[dict[str, Any]]
    """The events without `import_source`, which is added as the first one."""
    trial: Any = None
    """The producer's number of the branch. None: the order of appearance decides."""
    rollout_id: str | None = None
    """The rollout's id, if the trace names it."""
    branch_index: int | None = None
    """The branch's index, if the trace names it."""
    attempt: int | None = None
    version: str | None = None
    """The producer's version of its format."""
    source: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the record that have no other place: nothing is dropped."""
    record: Mapping[str, Any] = field(default_factory=dict)
    """The object with the fields for --group-by."""
    order: tuple[int, str] | None = None
    """Its start time and an id. They order episodes if their order in the file has no meaning."""
    task: str | None = None
    """The task that all branches share, if the format has it; otherwise the first user message."""
    task_shown: bool = True
    """False if the model never saw that task."""
    branches: int | None = None
    """The number of branches in the rollout, if the producer provides it."""
    system: str | None = None
    tools: Sequence[Any] | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    info: Mapping[str, Any] = field(default_factory=dict)
    """temperature, seed, session_id, agent {name, model, version} of the branch."""
    verdicts: Sequence[dict[str, Any]] = ()
    """`build` and `check` lines without their identity."""
    status: str | None = None
    """answered, failed, aborted, infra_error; None: not ended."""
    error: str | None = None
    may_be_empty: bool = False
    """Whether the branch may have no messages, as in an export from a log."""
    subagents: Sequence[SubAgent] = ()
    unreadable: Sequence[Bad] = ()
    """Unreadable elements inside the episode. Each also has its `unreadable` event."""


Reading = Iterator[Episode | Bad | Piece]
Scatter = Callable[[Item, Options], Iterable[Piece | Bad]]
Read = Callable[[Iterable[Item], Options], Reading]
Head = Callable[[str], bytes]
"""The first 64 KiB of a file, unpacked."""


class Format(NamedTuple):
    """A format that `braid import` reads."""

    name: str
    about: str
    """The producer and its files."""
    rollout: str
    """The things that become a rollout, and those that become a branch."""
    verdict: str
    unknown: str
    """Facts that its files cannot contain."""
    recognise: Callable[[Sequence[str], Head], bool]
    """Whether the files of a folder, or a single file, are of this format."""
    plan: Callable[[Sequence[str], Head], list[Part]]
    """Which files are read, how, and which of them together."""
    read: Read
    """The episodes of one part."""
    hands_bad: bool = False
    """Whether several lines form a session.

    Then an unreadable line is passed on, too, as an item whose value is its `Bad`.
    """
    scatter: Scatter | None = None
    """Yields the pieces of an item, for episodes whose pieces may be in any file.

    `read` then gets one item for each group. A piece that `read` yields belongs to another group, which is read
    afterwards; without `scatter`, after the part.
    """
    has_folders: bool = False
    """Whether the format is a folder layout: files of other formats inside belong to it."""
