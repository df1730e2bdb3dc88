"""A trace format, the items it is read from, and the episodes that come out.

A format never touches the disk. It says which files belong together and how each is read (`plan`); the shell hands it the
items of those files one after the other, and takes episodes and rejections back.
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
    """Its path below the folder that was named, or its base name."""
    shape: Shape = "json"
    streamed: tuple[str, ...] = ()
    """Members of a top-level object whose elements are items of their own. The rest of the object comes first, as one item."""
    constants: bool = False
    """Read NaN and Infinity, which Python writes into JSON, as null: the producer means that there is no value."""
    comments: bool = False
    """Pass over lines that begin with #."""


class Part(NamedTuple):
    """Files that are read together, in this order: a session, a run, a job."""

    run: str
    """The name of the run where its content does not say one; empty: that of the file or folder that was named."""
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
    """Whether the value is the list of the pieces of a group, which the position names."""


class Piece(NamedTuple):
    """A value that is read together with all others of its group, wherever they stand: a span of a trace."""

    group: str
    value: Any


class Bad(NamedTuple):
    """Something that cannot be read; the rest goes on."""

    file: str
    position: str
    field: str
    reason: str
    raw: Any = None
    """The bytes, or the value, for the sidecar."""


@dataclass(frozen=True)
class Options:
    """The choices that a format may need."""

    run: str | None = None
    pass_at: float | None = None
    """The score from which a check passes; unset: the format's own rule."""
    tasks: Mapping[str, str] = field(default_factory=dict)
    """Texts of tasks by their key, where the format has none."""
    shape: Literal["real", "seed"] = "real"
    """Read the producer's files, or the shapes that the seed documents describe."""


@dataclass(frozen=True)
class SubAgent:
    """Events of a sub-agent inside an episode."""

    name: str
    at: int
    """The number of the episode's own events before it."""
    events: Sequence[dict[str, Any]]


def call_places(events: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """By the id of a tool call, its place among the events: a sub-agent stands after the call that started it."""
    calls = [(event["data"]["callId"], place) for place, event in enumerate(events) if event["event"] == "tool_call"]
    return dict(reversed(calls))


@dataclass(frozen=True, kw_only=True)
class Episode:
    """One branch: what an agent did, and what is known about it."""

    file: str
    position: str
    run: str
    """The producer's run id, or the part's name."""
    task_key: Any
    """A JSON value: the same for all branches of a task."""
    events: Sequence[dict[str, Any]]
    """Without `import_source`, which comes first by itself."""
    trial: Any = None
    """The producer's number of the branch; None: the order of appearance decides."""
    rollout_id: str | None = None
    """Where the trace names its rollout itself."""
    branch_index: int | None = None
    """Where the trace names its branch itself."""
    attempt: int | None = None
    version: str | None = None
    """The producer's version of its format."""
    source: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the record that have no other place: nothing is dropped."""
    record: Mapping[str, Any] = field(default_factory=dict)
    """The object that --group-by looks into."""
    order: tuple[int, str] | None = None
    """When it began, and an id: its place among other episodes, where that of the file means nothing."""
    task: str | None = None
    """The task that all branches share, where the format has it; else the first user message."""
    task_shown: bool = True
    """False where the model never saw that task."""
    branches: int | None = None
    """How many branches the rollout has, where the producer says so."""
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
    """Whether it is known that nothing was said: a branch that was exported from a log."""
    subagents: Sequence[SubAgent] = ()
    unreadable: Sequence[Bad] = ()
    """Elements inside the episode that could not be read; each has its `unreadable` event, too."""


Reading = Iterator[Episode | Bad | Piece]
Scatter = Callable[[Item, Options], Iterable[Piece | Bad]]
Read = Callable[[Iterable[Item], Options], Reading]
Head = Callable[[str], bytes]
"""The first 64 KiB of a file, unpacked."""


class Format(NamedTuple):
    """A format that `braid import` reads."""

    name: str
    about: str
    """The producer, and what its files are."""
    rollout: str
    """The things that become a rollout, and those that become a branch."""
    verdict: str
    unknown: str
    """Facts that its files cannot say."""
    recognise: Callable[[Sequence[str], Head], bool]
    """Whether the files of a folder, or a single file, are of this format."""
    plan: Callable[[Sequence[str], Head], list[Part]]
    """Which files are read, how, and which of them together."""
    read: Read
    """The episodes of one part."""
    hands_bad: bool = False
    """Whether lines make sessions together: then a line that cannot be read is handed over, too, as an item whose value is its `Bad`."""
    scatter: Scatter | None = None
    """For episodes whose pieces stand anywhere in any file: the pieces of an item. `read` is then handed one item for each group.
    A piece that `read` yields goes to another group, which is read afterwards; without `scatter`, after the part."""
    has_folders: bool = False
    """Whether it is a layout of folders: files of other formats inside belong to it."""
