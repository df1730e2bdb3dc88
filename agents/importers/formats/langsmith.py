"""LangSmith: runs of LangChain, LangGraph and wrapped clients, as lists, lines, or {post, patch} batches to merge.

llm runs are the calls; tool runs are the results. Chain, prompt and parser runs only repeat their messages (a message
is in up to five runs), so their content is not read.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from agents.importers.langsmith.llm_run import Run, error_of, read_llm
from agents.importers.line_error import LineError
from agents.importers.traces.episode_reader import each_alone, is_json, members, per_item, says
from agents.importers.traces.fields import an_object, array_in, millis, nanos, object_in, rest_of, text_in
from agents.importers.traces.format import Bad, Episode, Format, Head, Item, Options, Piece
from agents.importers.traces.span_tree import SpanTree
from agents.importers.traces.spoken_chat import Unread
from agents.importers.traces.tool_join import Moment, RunCall, ToolRun
from agents.importers.traces.traced_end import TracedEnd, traced_end
from agents.importers.traces.traced_run import TracedRun
from agents.importers.traces.tracker import TracedCall
from agents.importers.traces.verdicts import checks_of
from schemas.jsontext import compact


def recognise(names: Sequence[str], head: Head) -> bool:
    """Recognise runs: they have run_type, with trace_id or dotted_order."""
    return any(
        is_json(name)
        and says(head(name), b"run_type")
        and (says(head(name), b"trace_id") or says(head(name), b"dotted_order"))
        and not {"run_type", "post", "patch", "runs"}.isdisjoint(members(head(name)))
        for name in names
    )


def _scatter(item: Item, _options: Options) -> Iterator[Piece | Bad]:
    """Yield the runs of an item, grouped by trace."""
    value = an_object(item.value, "")
    if "run_type" in value or "id" in value:
        yield from _pieces(value, None)
        return
    members = [name for name in ("post", "patch", "runs") if isinstance(value.get(name), list)]
    if not members:
        raise LineError("run_type", "missing")
    for member in members:
        for number, each in enumerate(value[member]):
            try:
                yield from _pieces(an_object(each, ""), None)
            except LineError as error:
                field = f"{member}[{number}].{error.field}".rstrip(".")
                yield Bad(item.file, item.position, field, error.reason, each)


def _pieces(run: Mapping[str, Any], trace: str | None) -> Iterator[Piece]:
    """Yield a run and the runs inside it."""
    if text_in(run, "id") is None:
        raise LineError("id", "missing")
    found = trace or text_in(run, "trace_id") or _from_order(run)
    if found is None:
        if text_in(run, "parent_run_id") is not None:
            raise LineError("trace_id", "missing, and so is dotted_order")
        found = str(run["id"])
    yield Piece(f"trace {found}", {name: value for name, value in run.items() if name != "child_runs"})
    for each in array_in(run, "child_runs"):
        yield from _pieces({"parent_run_id": run["id"], **an_object(each, "child_runs")}, found)


def _from_order(run: Mapping[str, Any]) -> str | None:
    """Return the trace id at the beginning of a dotted order: <time>Z<id>.<time>Z<id>..."""
    first = (text_in(run, "dotted_order") or "").split(".", 1)[0]
    return first.partition("Z")[2] or None


def _merged(values: Sequence[Run]) -> dict[str, Run]:
    """Merge runs by id and keep the most complete value of each field.

    A run is posted at its start and patched at its end.
    """
    runs: dict[str, Run] = {}
    for value in values:
        run = runs.setdefault(str(value["id"]), {})
        for name, given in value.items():
            if name not in run or _more(given, run[name]):
                run[name] = given
    return {name: runs[name] for name in sorted(runs)}


def _more(one: Any, other: Any) -> bool:
    mine, theirs = compact(one), compact(other)
    return (len(mine), mine) > (len(theirs), theirs)


def _read(item: Item, options: Options) -> Iterator[Episode]:
    tree = SpanTree(_merged(item.value), lambda run: text_in(run, "parent_run_id"))
    reading = _Reading(tree)
    root = min(tree.roots(), key=_at)
    run = TracedRun(reading.calls, reading.tools)
    end = reading.end(run)
    trace, example = item.position.removeprefix("trace "), text_in(root, "reference_example_id")
    metadata = object_in(root, "extra", "metadata")
    thread = text_in(metadata, "thread_id", "session_id", "conversation_id")
    yield Episode(
        file=item.file, position=item.position, run=text_in(root, "session_name", "session_id") or item.run,
        task_key=trace if example is None else example, order=_at(root), record=root,
        source=rest_of(root, "inputs", "outputs", "id", "trace_id", "events", "serialized", "feedback", "error"),
        events=run.events(answered=end.status == "answered"), system=run.system, tools=run.offered,
        info={"session_id": thread} | ({"agent": {"name": name}} if (name := text_in(root, "name")) else {}),
        verdicts=[] if end.status == "infra_error" else checks_of(_feedback(root), "import:langsmith", options, is_binary=True),
        status=end.status, error=end.error,
        unreadable=[Bad(item.file, item.position, field, reason, raw) for field, reason, raw in reading.unread.found],
    )  # fmt: skip


class _Reading:
    """The runs of one trace, sorted into calls, tool runs and notes."""

    def __init__(self, tree: SpanTree[Run]) -> None:
        self._tree = tree
        self.unread = Unread()
        told = {name: read_llm(run, self.unread) for name, run in tree.spans.items() if run.get("run_type") == "llm"}
        outer = {
            name: next((str(each["id"]) for each in tree.ancestors(name) if str(each["id"]) in told), None)
            for name in told
        }
        around = {each for name, each in outer.items() if each is not None and told[name].messages}
        self.calls: list[RunCall] = []
        for name, llm in told.items():
            above = outer[name]
            if (above is not None and told[above].messages) or (name in around and not llm.messages):
                continue  # a wrapped client repeats the call of the enclosing model run
            run = tree.spans[name]
            first = llm.choices[0] if llm.choices else None
            recorded = bool(llm.messages) and (first is not None or llm.facts.error is not None)
            call = TracedCall(llm.messages, first, name, self._agent(run), llm.facts)
            self.calls.append(RunCall(_at(run), call, tree.parent(name) or "", recorded, llm.choices[1:]))
        self.tools = [self._tool(run) for run in tree.spans.values() if run.get("run_type") == "tool"]

    def _agent(self, run: Run) -> str | None:
        return text_in(object_in(run, "extra", "metadata"), "lc_agent_name")

    def _tool(self, run: Run) -> ToolRun:
        outputs, inputs = object_in(run, "outputs"), object_in(run, "inputs")
        output = outputs.get("output", outputs or None)
        message = object_in(output, "kwargs") or output if isinstance(output, dict) else {}
        error = error_of(run)
        if error is None and message.get("status") == "error":
            error = str(message.get("content"))
        given = inputs.get("input") if set(inputs) == {"input"} and isinstance(inputs["input"], str) else inputs
        call_id = text_in(object_in(run, "extra"), "tool_call_id") or text_in(message, "tool_call_id")
        return ToolRun(
            _at(run), text_in(run, "name"), given, message.get("content", output),
            None if error is None else {"message": error}, call_id, self._tree.parent(str(run["id"])) or "",
            millis(run.get("end_time")), self._agent(run), {"run": run["id"], "tags": run.get("tags") or []},
        )  # fmt: skip

    def end(self, run: TracedRun) -> TracedEnd:
        """Return the end of the trace: the end of its roots."""
        roots = sorted(self._tree.roots(), key=_at)
        ended = all(
            root.get("end_time") and root.get("status") != "pending" and text_in(root, "parent_run_id") is None
            for root in roots
        )
        errors = [error for root in roots if root.get("run_type") != "llm" and (error := error_of(root)) is not None]
        return traced_end(ended=bool(ended), last_trouble=run.last_trouble, error=errors[-1] if errors else None)


def _feedback(root: Run) -> Iterator[dict[str, Any]]:
    """Yield the feedback of the root: each entry, or the average of several."""
    each_told = [each for each in array_in(root, "feedback") if isinstance(each, dict)]
    for each in each_told:
        yield {
            "name": text_in(each, "key"),
            "score": each.get("score"),
            "label": each.get("value"),
            "explanation": text_in(each, "comment"),
        }
    if not each_told:
        for name, stats in object_in(root, "feedback_stats").items():
            if isinstance(stats, dict):
                yield {"name": name, "score": stats.get("avg"), "label": None, "explanation": None}


def _at(run: Run) -> Moment:
    return nanos(run.get("start_time")) or 0, str(run["id"])


FORMAT = Format(
    name="langsmith",
    about="runs of LangSmith (LangChain, LangGraph, wrapped clients): lists, lines, or batches {post, patch}",
    rollout="reference_example_id in a session / trace; else the trace",
    verdict="check per feedback: 1 pass, 0 fail, else unknown",
    unknown="whether an answer was right where there is no feedback",
    recognise=recognise,
    plan=partial(each_alone, fits=is_json),
    read=per_item(_read),
    scatter=_scatter,
)
