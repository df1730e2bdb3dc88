"""Google ADK: sessions, lines of events, and evaluation results that contain their sessions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agents.importers.formats.adk_events import Told, named, rewound, tell_events
from agents.importers.line_error import LineError
from agents.importers.traces.episode_reader import base_name, guarded, is_json, members
from agents.importers.traces.fields import (
    an_array,
    an_object,
    array_in,
    as_text,
    number_in,
    object_in,
    rest_of,
    text_in,
)
from agents.importers.traces.format import (
    Bad,
    Episode,
    FileUse,
    Format,
    Head,
    Item,
    Options,
    Part,
    Piece,
    Reading,
    SubAgent,
)
from agents.importers.traces.verdicts import check
from schemas.jsontext import parse

NAME = "adk"
_CASES = ("eval_case_results", "evalCaseResults")
PASSED, FAILED = (1, "PASSED"), (2, "FAILED")
"""Values of ADK's eval status."""


def recognise(names: Sequence[str], head: Head) -> bool:
    """A session with events {author, content.parts}, lines of such events, or results of an evaluation."""
    return any(is_json(name) and _is_ours(head(name)) for name in names)


def _is_ours(head: bytes) -> bool:
    found = members(head)
    if any(name in found for name in _CASES) or b'\\"eval_case_results\\"' in head[:4096]:
        return True
    events = found.get("events", b"")
    if "id" in found and events.startswith(b"["):
        return b'"author"' in events and (b'"parts"' in events or b'"invocation' in events)
    is_event = "author" in found and bool({"invocationId", "invocation_id"} & found.keys())
    return is_event and (
        b'"parts"' in found.get("content", b"") or bool({"errorCode", "error_code", "actions"} & found.keys())
    )


def plan(names: Sequence[str], head: Head) -> list[Part]:
    """Plan a part for each file."""
    files = [name for name in names if is_json(name)]
    fitting = [name for name in files if _is_ours(head(name))] or files
    return [
        Part(base_name(name), (FileUse(name, streamed=_CASES if _is_cases(head(name)) else ()),)) for name in fitting
    ]


def _is_cases(head: bytes) -> bool:
    return any(name in members(head) for name in _CASES)


def read(items: Iterable[Item], options: Options) -> Reading:
    """Read the episodes of a file. Events in lines are pieces of their session."""
    header: dict[str, Any] = {}
    for item in items:
        value = item.value
        if item.is_group:
            events = [Item(item.file, position, each, item.run) for position, each in value]
            yield from guarded(events[0]._replace(position=""), _loose(item.position, events))
        elif isinstance(value, str):  # older evaluations are a JSON string that contains JSON
            yield from guarded(item, _packed(item, options))
        elif not isinstance(value, dict):
            yield from guarded(item, _session(item, value, item.run))
        elif item.position.startswith(_CASES):
            yield from guarded(item, _case(item, header, options))
        elif any(name in value for name in _CASES):
            header = value
            if item.position:  # an evaluation on a line of its own, which was not streamed
                yield from guarded(item, _cases(item, options))
        elif "author" in value and "events" not in value:
            yield Piece(text_in(value, "session_id", "sessionId") or "", [item.position, value])
        else:
            yield from guarded(item, _session(item, value, item.run))


def _packed(item: Item, options: Options) -> Iterator[Episode | Bad]:
    try:
        value = an_object(parse(item.value), "")
    except ValueError as error:
        raise LineError("", f"neither a session nor an evaluation: {error}") from None
    yield from _cases(item._replace(value=value), options)


def _cases(item: Item, options: Options) -> Iterator[Episode | Bad]:
    cases = next((item.value[name] for name in _CASES if name in item.value), None)
    for number, case in enumerate(an_array(cases, _CASES[0])):
        inner = item._replace(position=f"{item.position} {_CASES[0]}[{number}]".strip(), value=case)
        yield from guarded(inner, _case(inner, item.value, options))


def _session(item: Item, value: Any, run: str) -> Iterator[Episode | Bad]:
    session = an_object(value, "")
    key = session.get("id")
    if key is None:
        raise LineError("id", "missing: neither a session nor an event")
    events = [(f"events[{number}]", event) for number, event in enumerate(an_array(session.get("events"), "events"))]
    for branch in rewound(events):
        source = rest_of(session, "id", "events") | branch.source
        yield _episode(item, branch.events, session, key, run, source=source, trial=branch.number)


def _loose(name: str, items: Sequence[Item]) -> Iterator[Episode | Bad]:
    """Read events in lines: the events of one session, or of the whole file if they name no session."""
    events = [(item.position, item.value) for item in items]
    first = items[0]
    about = {key: first.value[key] for key in ("app_name", "appName", "user_id", "userId") if key in first.value}
    whole, record = first._replace(position=""), {"id": name, **about}
    for branch in rewound(events):
        source = about | branch.source
        yield _episode(whole, branch.events, record, name or first.file, first.run, source=source, trial=branch.number)


def _episode(
    item: Item, events: Sequence[tuple[str, Any]], record: Mapping[str, Any], key: Any, run: str, **more: Any
) -> Episode:
    """Build the episode of a session. Parallel agents, each with its own branch, become sub-agents."""
    apart: dict[str, list[tuple[str, Any]]] = {}
    for each in events:
        branch = text_in(each[1], "branch") if isinstance(each[1], dict) and each[1].get("author") != "user" else None
        apart.setdefault(branch or "", []).append(each)
    only = len(apart) == 2 and not any(
        isinstance(each, dict) and each.get("author") != "user" for _, each in apart.get("", [])
    )
    told = tell_events(events if only else apart.pop("", []), item)
    beside = {} if only else {name: tell_events(each, item) for name, each in apart.items() if name}
    if beside and not told.writer.turns:
        told.writer.note("status", {"message": f"{len(beside)} agents side by side"})
    status, error = _end(told, list(beside.values()))
    main = told.writer.finish(answers=status == "answered")
    return Episode(
        file=item.file, position=item.position, run=run, task_key=key, record=record, events=main, status=status, error=error,
        info=_about(told, record), unreadable=[bad for each in (told, *beside.values()) for bad in each.unreadable],
        subagents=[SubAgent(name, len(main), each.writer.finish()) for name, each in beside.items()], **more,
    )  # fmt: skip


def _end(told: Told, beside: Sequence[Told]) -> tuple[str | None, str | None]:
    """Return the end of a session. If only parallel agents wrote messages, return their end."""
    if told.writer.turns or not beside:
        return told.status, told.error
    for status in ("infra_error", "failed", None):
        found = [each for each in beside if each.status == status]
        if found:
            return found[0].status, found[0].error
    return "answered", None


def _about(told: Told, record: Mapping[str, Any]) -> dict[str, Any]:
    agent = {"name": told.author, "model": told.model} if told.author or told.model else None
    return {"session_id": text_in(record, "id"), "agent": agent}


# -- evaluations -------------------------------------------------------------------------------------------------------


def _case(item: Item, header: Mapping[str, Any], _options: Options) -> Iterator[Episode | Bad]:
    case = an_object(item.value, "")
    session = named(case, "session_details")
    name = named(case, "eval_id")
    if not isinstance(session, dict):
        session = {"id": named(case, "session_id"), "events": _invocations(case)}
    events = [(f"events[{number}]", event) for number, event in enumerate(array_in(session, "events"))]
    run = named(header, "eval_set_result_id")
    made = _episode(item, events, session, [named(case, "eval_set_id") or named(header, "eval_set_id"), name],
                    run if isinstance(run, str) else item.run,
                    source=rest_of(case, "session_details", "sessionDetails", "eval_id", "evalId"))  # fmt: skip
    yield made if made.status == "infra_error" else replace(made, verdicts=_verdicts(case))


def _invocations(case: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Build events for a case without a session: the question, the tools and the last response."""
    made: list[dict[str, Any]] = []
    for each in named(case, "eval_metric_result_per_invocation") or []:
        ran = object_in({"": named(each, "actual_invocation") if isinstance(each, dict) else None}, "")
        between = object_in({"": named(ran, "intermediate_data")}, "")
        made.append({"author": "user", "content": named(ran, "user_content")})
        told = named(between, "invocation_events")
        made += [event for event in told if isinstance(event, dict)] if isinstance(told, list) else _tools(between)
        if named(ran, "final_response"):
            made.append({"author": "agent", "content": named(ran, "final_response")})
    return made


def _tools(between: Mapping[str, Any]) -> list[dict[str, Any]]:
    calls = [{"function_call": each} for each in named(between, "tool_uses") or []]
    results = [{"function_response": each} for each in named(between, "tool_responses") or []]
    return [{"author": "agent", "content": {"parts": parts}} for parts in (calls, results) if parts]


def _verdicts(case: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a check for each evaluated metric."""
    found = []
    for metric in named(case, "overall_eval_metric_results") or []:
        if not isinstance(metric, dict):
            continue
        status, score = named(metric, "eval_status"), number_in(metric, "score")
        verdict = "pass" if status in PASSED else "fail" if status in FAILED else None
        if verdict is not None:
            limit = number_in(metric, "threshold")
            hint = None if limit is None else f"threshold {as_text(limit)}"
            found.append(check(NAME, as_text(named(metric, "metric_name") or "metric"), verdict, score, hint))
    return found


FORMAT = Format(
    name=NAME,
    about="sessions of the Google ADK (JSON, or lines), lines of its events, and results of its evaluations",
    rollout="session; eval case",
    verdict="none; a check per metric of an evaluation",
    unknown="instructions and tools of the agents",
    recognise=recognise,
    plan=plan,
    read=read,
)
