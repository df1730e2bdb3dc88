"""Terminal-Bench: a run folder has a folder for each trial, with its results and the logs of its agent."""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

from agents.importers.formats.terminus import Reply, read_reply
from agents.importers.line_error import LineError
from agents.importers.traces.content import Content
from agents.importers.traces.episode_reader import guarded, is_json, members, per_part
from agents.importers.traces.fields import an_object, millis, object_in, rest_of, text_in, whole_in
from agents.importers.traces.format import Bad, Episode, FileUse, Format, Head, Item, Options, Part, SubAgent
from agents.importers.traces.transcript_writer import Called, TranscriptWriter, Turn
from agents.importers.traces.usage import Usage
from schemas.jsontext import compact

NAME = "terminal-bench"
TOOL = "terminal"
BROKEN = ("agent_installation_failed", "unknown_agent_error", "unknown")
"""Failures of the harness or the environment."""
ANSWERED = ("unset", "none", "test_timeout")

_METADATA, _RESULTS, _LOGS = "run_metadata.json", "results.json", "agent-logs/"
_EPISODE = re.compile(r"agent-logs/episode-(\d+)/(prompt\.txt|response\.(?:txt|json))")
_TRIAL = re.compile(r"\.(\d+)-of-(\d+)(?:\.|$)")


def recognise(names: Sequence[str], head: Head) -> bool:
    """Recognise a run folder: run_metadata.json, and trial results two folders below."""
    return any(_is_trial(members(head(name))) for base in _runs(names) for name in _trials(names, base))


def _is_trial(found: Mapping[str, bytes]) -> bool:
    return {"task_id", "trial_name"} <= found.keys() and bool({"is_resolved", "failure_mode"} & found.keys())


def _runs(names: Sequence[str]) -> list[str]:
    return [name.removesuffix(_METADATA) for name in names if f"/{name}".endswith(f"/{_METADATA}")]


def _trials(names: Sequence[str], base: str) -> list[str]:
    below = (name for name in names if name.startswith(base) and name.endswith(f"/{_RESULTS}"))
    return [name for name in below if name.removeprefix(base).count("/") == 2]


Others = Mapping[str, Format]
"""Possible formats of other agents' logs."""


def plan(names: Sequence[str], head: Head, *, others: Others) -> list[Part]:
    """Plan a part for each trial: the run's settings, the trial's results and logs.

    Without folders a run has only results.
    """
    parts: list[Part] = []
    names = sorted(names)
    for base in _runs(names):
        run, metadata, trials = (
            base.rstrip("/").rsplit("/", 1)[-1],
            FileUse(base + _METADATA),
            _trials(names, base),
        )
        folders = [(FileUse(name), _logs(names, name.removesuffix(_RESULTS), head, others)) for name in trials]
        parts += [Part(run, (metadata, results, *logs)) for results, logs in folders]
        if not trials and base + _RESULTS in names:
            parts.append(Part(run, (metadata, FileUse(base + _RESULTS, streamed=("results",)))))
    return parts


def _logs(names: Sequence[str], folder: str, head: Head, others: Others) -> list[FileUse]:
    """Return the logs of a trial: the episodes of Terminus in order, else files of known formats."""
    beginning = folder + _LOGS
    inside = names[bisect_left(names, beginning) : bisect_left(names, beginning + chr(0x10FFFF))]
    episodes = [(int(found[1]), name) for name in inside if (found := _EPISODE.fullmatch(name.removeprefix(folder)))]
    if episodes:
        return [FileUse(name, "text") for _, name in sorted(episodes)]
    return [FileUse(name) for name in inside if is_json(name) and _fitting(name, head, others)]


def _fitting(name: str, head: Head, others: Others) -> list[Format]:
    return [each for each in others.values() if each.recognise([name], head)]


def _read(items: Sequence[Item], options: Options, *, others: Others) -> Iterator[Episode | Bad]:
    metadata: Any = next((item.value for item in items if f"/{item.file}".endswith(f"/{_METADATA}")), {})
    trials = [item for item in items if f"/{item.file}".endswith(f"/{_RESULTS}") and _LOGS not in item.file]
    logs = [item for item in items if _LOGS in item.file]
    for item in trials:
        if item.position or "results" not in an_object(item.value, ""):
            yield from guarded(
                item, _trial(item, metadata if isinstance(metadata, dict) else {}, logs, options, others)
            )


def _trial(
    item: Item, metadata: Mapping[str, Any], logs: Sequence[Item], options: Options, others: Others
) -> Iterator[Episode | Bad]:
    result = an_object(item.value, "")
    task = text_in(result, "task_id")
    if task is None:
        raise LineError("task_id", "missing")
    mode = text_in(result, "failure_mode") or "unset"
    status = "infra_error" if mode in BROKEN else "answered" if mode in ANSWERED else "failed"
    spent = Usage(whole_in(result, "total_input_tokens"), whole_in(result, "total_output_tokens"))
    told = _own_logs(logs, spent, status) or _other_logs(logs, options, others)
    events = told.events if told is not None else _without_logs(spent)
    number = _TRIAL.search(text_in(result, "trial_name") or "")
    count = int(number[2]) if number is not None and 1 <= int(number[2]) <= 100_000 else None
    yield Episode(
        file=item.file, position=item.position, run=text_in(metadata, "run_id") or item.run, task_key=task,
        trial=int(number[1]) if number is not None else text_in(result, "trial_name"), branches=count,
        task=text_in(result, "instruction"), source=_source(result, metadata, told), record=result,
        info=_about(result, metadata, told), events=events, status=status, error=None if status == "answered" else mode,
        system=told.system if told else None, tools=told.tools if told else None, subagents=told.subagents if told else (),
        unreadable=told.unreadable if told else (), verdicts=() if status == "infra_error" else _verdicts(result),
    )  # fmt: skip


class _Told(NamedTuple):
    """The conversation of a trial."""

    events: Sequence[dict[str, Any]]
    system: str | None = None
    tools: Sequence[Any] | None = None
    info: Mapping[str, Any] = {}
    source: Mapping[str, Any] = {}
    subagents: Sequence[SubAgent] = ()
    unreadable: Sequence[Bad] = ()


def _own_logs(logs: Sequence[Item], spent: Usage, status: str) -> _Told | None:
    """Read the episodes of Terminus.

    A prompt after a call is the call's result. A prompt after text is a user message.
    """
    episodes: dict[int, dict[str, str]] = {}
    for item in logs:
        found = _EPISODE.search(item.file)
        if found is not None and isinstance(item.value, str):
            episodes.setdefault(int(found[1]), {})[found[2].partition(".")[0]] = item.value
    if not episodes:
        return None
    writer = TranscriptWriter()
    last = max((number for number, each in episodes.items() if "response" in each), default=None)
    for number, each in sorted(episodes.items()):
        if "prompt" in each:
            if writer.waiting:
                writer.result(None, TOOL, each["prompt"])
            else:
                writer.user(each["prompt"])
        if "response" in each:
            _tell(writer, read_reply(each["response"]), number, spent if number == last else Usage())
    return _Told(writer.finish(answers=status == "answered"))


def _tell(writer: TranscriptWriter, reply: Reply, number: int, spent: Usage) -> None:
    calls = [] if reply.commands is None else [Called(TOOL, {"commands": reply.commands})]
    writer.model(Turn(Content(reply.text or None), calls, f"episode-{number}", usage=spent, source=reply.rest))


def _other_logs(logs: Sequence[Item], options: Options, others: Others) -> _Told | None:
    """Read logs of other agents with their own formats.

    The longest is the trial's; the others are kept as additional ones.
    """
    found: list[Episode] = []
    for file, items in groupby(logs, key=lambda item: item.file):
        session = list(items)
        head = b"\n".join(compact(item.value).encode() for item in session[:20])
        formats = _fitting(file, {file: head}.__getitem__, others)
        if len(formats) == 1:
            found += [each for each in formats[0].read(session, options) if isinstance(each, Episode)]
    if not found:
        return None
    main = max(found, key=lambda each: len(each.events))
    beside = [
        SubAgent(each.file.rsplit("/", 1)[-1], len(main.events), each.events) for each in found if each is not main
    ]
    unreadable = [bad for each in found for bad in each.unreadable]
    return _Told(main.events, main.system, main.tools, main.info, main.source, [*main.subagents, *beside], unreadable)


def _without_logs(spent: Usage) -> list[dict[str, Any]]:
    writer = TranscriptWriter()
    if spent != Usage():
        tokens = {"inputTokens": spent.input, "outputTokens": spent.output}
        writer.note("model_done", {name: count for name, count in tokens.items() if count is not None}, channel="model")
    return writer.finish()


def _source(result: Mapping[str, Any], metadata: Mapping[str, Any], told: _Told | None) -> dict[str, Any]:
    read = ("task_id", "instruction", "is_resolved", "total_input_tokens", "total_output_tokens")
    found = rest_of(result, *read) | {"run": rest_of(metadata)}
    return found | ({"log": dict(told.source)} if told is not None and told.source else {})


def _about(result: Mapping[str, Any], metadata: Mapping[str, Any], told: _Told | None) -> dict[str, Any]:
    agent = {"name": text_in(metadata, "agent_name"), "model": text_in(metadata, "model_name")}
    return {**(told.info if told is not None else {}), "session_id": text_in(result, "id"), "agent": agent}


def _verdicts(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the build verdict of the trial's tests, or none if it is unknown whether the task is resolved."""
    resolved = result.get("is_resolved")
    if not isinstance(resolved, bool):
        return []
    made: dict[str, Any] = {"type": "build", "status": "success" if resolved else "failure", "stage": "test"}
    if resolved:
        made["exit_code"] = 0
    tests = object_in(result, "parser_results")
    if tests:
        counts = Counter(str(each).lower() for each in tests.values())
        passed, skipped = counts["passed"], counts["skipped"]
        made["tests"] = {
            "passed": passed,
            "failed": len(tests) - passed - skipped,
            "skipped": skipped,
            "total": len(tests),
        }
    begun, ended = millis(result.get("test_started_at")), millis(result.get("test_ended_at"))
    if begun is not None and ended is not None and ended >= begun:
        made["wall_ms"] = ended - begun
    return [made | {"produced_by": f"import:{NAME}"}]


def made(others: Others) -> Format:
    """Return the format. `others` read the logs of other agents."""
    return _FORMAT._replace(plan=partial(plan, others=others), read=per_part(partial(_read, others=others)))


_FORMAT = Format(
    name=NAME,
    about="run folders of Terminal-Bench: run_metadata.json, <task>/<trial>/results.json, agent-logs/",
    rollout="task_id / k-of-n",
    verdict="build, from is_resolved and the tests",
    unknown="tokens of single calls; logs of agents whose own format is not read",
    recognise=recognise,
    plan=partial(plan, others={}),
    read=per_part(partial(_read, others={})),
    has_folders=True,
)
