"""Inspect: evaluation logs (JSON or .eval). Each sample has its conversation and its scores."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from agents.importers.formats.inspect_sample import read_conversation, told_subagents
from agents.importers.line_error import LineError
from agents.importers.traces.episode_reader import base_name, guarded, is_json, members
from agents.importers.traces.fields import an_object, as_text, number_in, object_in, rest_of, text_in, whole_in
from agents.importers.traces.format import Bad, Episode, FileUse, Format, Head, Item, Options, Part, Reading
from agents.importers.traces.verdicts import check, rewarded, scored

NAME = "inspect"
PASSES, FAILS = ("C", "1", "true"), ("I", "0", "false")
PARTLY = 0.5
"""The score of Inspect's grade P."""

Verdicts = list[dict[str, Any]]
Judge = Callable[[Mapping[str, Any], "Log", Options], Verdicts]
"""Returns the verdicts for a sample's scores."""


class Log(NamedTuple):
    """The header of a log."""

    header: dict[str, Any]
    spec: dict[str, Any]
    """The field `eval` of the log."""
    task: str
    """The task's name without its package."""


def task_of(head: bytes) -> str | None:
    """Return the task's name from the head of a log. Returns None for a file that is not an Inspect log."""
    found = members(head)
    spec = found.get("eval", b"")
    if "version" not in found or not spec.startswith(b"{"):
        return None
    inner = members(spec)
    if "task" not in inner or not {"eval_id", "run_id", "task_id"} & inner.keys():
        return None
    return _short(inner["task"].strip(b'"').decode(errors="replace"))


def _short(task: str) -> str:
    return task.rsplit("/", 1)[-1]


def is_agent_harm(task: str) -> bool:
    """Return whether a task is AgentHarm or a variant of it."""
    return task.lower().replace("_", "").replace("-", "").startswith("agentharm")


def recognise(names: Sequence[str], head: Head) -> bool:
    """Recognise logs of tasks other than AgentHarm."""
    return any((task := _task(name, head)) is not None and not is_agent_harm(task) for name in names)


def _task(name: str, head: Head) -> str | None:
    return task_of(head(name)) if is_json(name) or name.endswith(".eval") else None


def plan(names: Sequence[str], head: Head) -> list[Part]:
    """Plan a part for each log."""
    logs = [name for name in names if _task(name, head) is not None]
    tried = logs or [name for name in names if is_json(name) or name.endswith(".eval")]
    return [Part(base_name(name), (FileUse(name, "eval", ("samples",), constants=True),)) for name in tried]


def read_as(judge: Judge) -> Callable[[Iterable[Item], Options], Reading]:
    """Return a reader of logs that computes verdicts with `judge`."""

    def read(items: Iterable[Item], options: Options) -> Reading:
        log, first = Log({}, {}, ""), True
        for item in items:
            value = item.value
            if not item.position and isinstance(value, dict) and "epoch" not in value:
                spec = object_in(value, "eval")
                log, first = Log(value, spec, _short(text_in(spec, "task") or "")), True
                continue
            yield from guarded(item, _read(item, log, options, judge, first=first))
            first = False

    return read


def _read(item: Item, log: Log, options: Options, judge: Judge, *, first: bool) -> Iterator[Episode | Bad]:
    sample = an_object(item.value, "")
    if sample.get("id") is None:
        raise LineError("id", "missing")
    model = text_in(log.spec, "model")
    conversation = read_conversation(sample, item, model)
    status, error = _end(sample)
    events = conversation.chat.writer.finish(answers=status == "answered")
    source = rest_of(
        sample,
        "id",
        "epoch",
        "messages",
        "events",
        "events_data",
        "attachments",
        "output",
        "timelines",
        "error",
        "input",
    )
    header = rest_of(log.header, "samples") if first else {}  # once for all samples of a log
    yield Episode(
        file=item.file, position=item.position, run=text_in(log.spec, "eval_id", "run_id") or item.run,
        task_key=[log.task, sample["id"]], trial=sample.get("epoch"), branches=_epochs(log.spec),
        version=as_text(log.header["version"]) if "version" in log.header else None,
        source=source | ({"log": header} if header else {}), record=sample,
        system=conversation.chat.system, tools=conversation.tools, labels={"task": log.task} if log.task else {},
        info={**conversation.sampling, "session_id": text_in(sample, "uuid"), "agent": {"model": model} if model else None},
        events=events, subagents=told_subagents(conversation, item, events), unreadable=conversation.chat.unreadable,
        status=status, error=error,
        verdicts=() if status == "infra_error" or sample.get("invalidation") else judge(sample, log, options),
    )  # fmt: skip


def _end(sample: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return the end of a sample.

    An error is the fault of the harness or the provider. A limit counts as the model's failure, unless an operator set
    it.
    """
    error = sample.get("error")
    if error:
        return "infra_error", text_in(error, "message") if isinstance(error, dict) else as_text(error)
    limit = object_in(sample, "limit")
    if not limit:
        return "answered", None
    kind = text_in(limit, "type") or "unknown"
    return "aborted" if kind == "operator" else "failed", text_in(limit, "reason") or f"{kind} limit"


def _epochs(spec: Mapping[str, Any]) -> int | None:
    count = whole_in(object_in(spec, "config"), "epochs")
    return count if count is not None and 1 <= count <= 100_000 else None


def verdicts(sample: Mapping[str, Any], _log: Log, options: Options, format_name: str = NAME) -> Verdicts:
    """Return a check for each scorer.

    If a score has several values, they are degrees and not pass or fail: their status is unknown.
    """
    found: Verdicts = []
    for name, score in object_in(sample, "scores").items():
        value = score.get("value") if isinstance(score, dict) else score
        if isinstance(value, dict):
            for facet, each in value.items():
                found += _facet(format_name, f"{name}.{facet}", each, options)
        elif value is not None:
            found += graded(format_name, name, value, options)
    return found


def graded(format_name: str, name: str, value: Any, options: Options) -> Verdicts:
    """Return the check of a score: C, 1 and true pass; I, 0 and false fail. Others are unknown and keep their score."""
    grade = value if isinstance(value, str) else as_text(value)
    number = number_in({"value": value}, "value")
    if grade in PASSES or number == 1:
        return [check(format_name, name, "pass", 1)]
    if grade in FAILS or number == 0:
        return [check(format_name, name, "fail", 0)]
    number = PARTLY if grade == "P" else number
    if number is not None:
        return rewarded(format_name, name, number, options)
    return [check(format_name, name, "unknown", hint=grade[:1000])]


def _facet(format_name: str, name: str, value: Any, options: Options) -> Verdicts:
    if value in ("C", "I"):
        return graded(format_name, name, value, options)
    number = float(value) if isinstance(value, bool) else number_in({"value": value}, "value")
    if number is None:
        return [] if value is None else [check(format_name, name, "unknown", hint=as_text(value)[:1000])]
    return scored(format_name, name, number, options, passes=float("inf"), fails=float("-inf"))


FORMAT = Format(
    name=NAME,
    about="logs of Inspect: .json or .eval (a zip with zstd members)",
    rollout="sample id / epoch",
    verdict="a check per scorer: C, 1, true pass; I, 0, false fail; else unknown",
    unknown="which facet of a score with several values decides (--required, --pass-at)",
    recognise=recognise,
    plan=plan,
    read=read_as(verdicts),
)
