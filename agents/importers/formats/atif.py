"""ATIF, the trajectories of Harbor: steps of system, user and agent, with observations."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agents.importers.line_error import LineError
from agents.importers.traces.chat import marked
from agents.importers.traces.content import Content, read_content
from agents.importers.traces.fields import (
    an_array,
    an_object,
    array_in,
    as_text,
    millis,
    object_in,
    rest_of,
    text_in,
    whole_in,
)  # fmt: skip
from agents.importers.traces.format import Bad, Episode, FileUse, Format, Head, Item, Options, Part, SubAgent
from agents.importers.traces.reading import base_name, is_json, is_part_of_job, members, per_item
from agents.importers.traces.transcript_writer import Called, TranscriptWriter, Turn
from agents.importers.traces.usage import Usage
from schemas.jsontext import kind_of

MAX_DEPTH = 8
"""Sub-agents of sub-agents."""

_STEP = (
    "step_id", "timestamp", "source", "model_name", "message", "reasoning_content", "tool_calls", "observation", "is_copied_context",
)  # fmt: skip
_ROOT = ("schema_version", "session_id", "agent", "steps", "subagent_trajectories")


class Trajectory:
    """A trajectory that was read."""

    def __init__(self, value: Mapping[str, Any], item: Item, where: str = "", depth: int = 0) -> None:
        self.agent = object_in(value, "agent")
        self.value = value
        self.unreadable: list[Bad] = []
        self.writer = TranscriptWriter()
        self.system: str | None = None
        self.subagents: list[SubAgent] = []
        self._item = item
        self._inner = {
            as_text(each.get("trajectory_id")): each
            for each in (array_in(value, "subagent_trajectories") if depth < MAX_DEPTH else ())
            if isinstance(each, dict)
        }
        self._depth = depth
        self._callers: dict[str, str | None] = {}
        """By sub-agent that a result refers to, the call."""
        steps = an_array(value.get("steps"), f"{where}steps")
        self._last = (
            None if any(isinstance(each, dict) and each.get("metrics") for each in steps) else _last_turn(steps)
        )
        for number, step in enumerate(steps):
            field = f"{where}steps[{number}]"
            try:
                self._tell(an_object(step, ""), number)
            except LineError as error:
                self.unreadable.append(
                    Bad(item.file, item.position, f"{field}.{error.field}".rstrip("."), error.reason, step)
                )
                self.writer.note("unreadable", {"position": field, "reason": error.reason, "raw": step})

    def finish(self, *, answers: bool = True) -> list[dict[str, Any]]:
        """The events; those of sub-agents are in `subagents`."""
        events = self.writer.finish(answers=answers)
        results = {event["data"]["callId"]: at for at, event in enumerate(events) if event["event"] == "tool_result"}
        for name, value in self._inner.items():
            inner = Trajectory(value, self._item, f"{name}.", self._depth + 1)
            self.unreadable += inner.unreadable
            told = inner.finish()
            agent = text_in(inner.agent, "name") or "subagent"
            self.subagents.append(SubAgent(agent, results.get(self._callers.get(name), len(events)), told))
            self.subagents += [sub for sub in inner.subagents if sub.events]
        return events

    @property
    def answered(self) -> bool:
        """Whether the last step is an answer of the agent."""
        last = array_in(self.value, "steps")[-1:]
        return bool(
            last and isinstance(last[0], dict) and last[0].get("source") == "agent" and not last[0].get("tool_calls")
        )

    def _tell(self, step: dict[str, Any], number: int) -> None:
        source, time = step.get("source"), millis(step.get("timestamp"))
        content, left = read_content(step.get("message")), rest_of(step, *_STEP)
        copied = step.get("is_copied_context") is True
        if source == "system":
            if number == 0 and content.text and not content.media:
                self.system = content.text
            elif content.text or content.media:
                self.writer.context(content, time, left, "system")
        elif source == "user":
            (self.writer.context if copied else self.writer.user)(content, time, left)
        elif source != "agent":
            raise LineError("source", "missing" if source is None else f"unknown: {as_text(source)}")
        elif copied or whole_in(step, "llm_call_count") == 0:
            self._tell_given(step, content, time, left)
        else:
            self.writer.model(self._turn(step, content, time, left))
        for result in array_in(object_in(step, "observation"), "results"):
            self._tell_result(an_object(result, "observation.results"), time, called=bool(step.get("tool_calls")))

    def _tell_given(self, step: dict[str, Any], content: Content, time: int | None, left: dict[str, Any]) -> None:
        """Words in the agent's name that no model said in this run: of a run before it, or of a rule."""
        if step.get("tool_calls") or not self.writer.given(content, time, left):
            self.writer.model(self._turn(step, content, time, left))
            self.writer.note("content_left_out", {"reason": "given_message", "count": 1})

    def _turn(self, step: dict[str, Any], content: Content, time: int | None, left: dict[str, Any]) -> Turn:
        beside = text_in(step, "reasoning_content")
        if beside is not None:
            content = content._replace(reasoning=((beside, None),))
        metrics = self._totals() if step is self._last else object_in(step, "metrics")
        usage = Usage(
            whole_in(metrics, "prompt_tokens"), whole_in(metrics, "completion_tokens"), whole_in(metrics, "cached_tokens"),
            cost if isinstance(cost := metrics.get("cost_usd"), float) else None,
        )  # fmt: skip
        details = object_in(step, "extra", "tool_call_details")
        calls = [_call(each, details, number) for number, each in enumerate(array_in(step, "tool_calls"))]
        model = text_in(step, "model_name") or text_in(self.agent, "model_name")
        return Turn(content, calls, None, model, text_in(object_in(step, "extra"), "stop_reason"), usage, time, left)

    def _totals(self) -> dict[str, Any]:
        """The usage of the whole run, for its last turn: where no step says its own."""
        totals = object_in(self.value, "final_metrics")
        return {name.removeprefix("total_"): count for name, count in totals.items() if name.startswith("total_")}

    def _tell_result(self, result: dict[str, Any], time: int | None, *, called: bool) -> None:
        extra = object_in(result, "extra")
        metadata = object_in(extra, "tool_result_metadata")
        raw = object_in(metadata, "raw_tool_result")  # the converter adds its own words to what the model got
        content = read_content(raw["content"] if "content" in raw else result.get("content"))
        failed = (
            extra.get("tool_result_is_error") is True
            or metadata.get("is_error") is True
            or extra.get("is_error") is True
        )
        left = rest_of(result, "source_call_id", "content") | (
            {"content": result["content"]} if "content" in raw else {}
        )
        call_id = text_in(result, "source_call_id")
        for refers in array_in(result, "subagent_trajectory_ref"):
            if isinstance(refers, dict):
                self._callers[as_text(refers.get("trajectory_id"))] = call_id
        if call_id is None and not called:
            self.writer.context(content, time, left)  # of actions that are no tool calls: what the model was shown next
            return
        output = content.text if content.text is not None else ""
        self.writer.result(call_id, None, output, marked(output, failed=failed), time, left)
        if content.media:
            self.writer.note(
                "content_left_out", {"reason": "media", "count": len(content.media), "media": list(content.media)}
            )


def _last_turn(steps: Sequence[Any]) -> dict[str, Any] | None:
    """The last step that a model made."""
    turns = [step for step in steps if isinstance(step, dict) and step.get("source") == "agent"]
    return next((step for step in reversed(turns) if step.get("is_copied_context") is not True), None)


def _call(value: Any, details: Mapping[str, Any], number: int) -> Called:
    if not isinstance(value, dict):
        raise LineError(f"tool_calls[{number}]", f"expected a call, found {kind_of(value)}")
    name, call_id = text_in(value, "function_name"), text_in(value, "tool_call_id")
    if name is None:
        raise LineError(f"tool_calls[{number}].function_name", "missing")
    written = object_in(value, "extra").get("raw_arguments", object_in(details, call_id or "").get("raw_arguments"))
    arguments = written if isinstance(written, str) else value.get("arguments")
    return Called(name, arguments, call_id, rest_of(value, "tool_call_id", "function_name", "arguments"))


def info_of(trajectory: Trajectory) -> dict[str, Any]:
    """The agent of a branch, and its session."""
    agent = trajectory.agent
    named = {
        "name": text_in(agent, "name"),
        "model": text_in(agent, "model_name"),
        "version": text_in(agent, "version"),
    }
    known = {name: value for name, value in named.items() if value is not None and value != "unknown"}
    return {"agent": known or None, "session_id": text_in(trajectory.value, "session_id")}


def _read(item: Item, _options: Options) -> Iterator[Episode]:
    value = an_object(item.value, "")
    if not str(value.get("schema_version")).startswith("ATIF-v1"):
        raise LineError("schema_version", "expected ATIF-v1.*")
    read, extra = Trajectory(value, item), object_in(value, "extra")
    status = text_in(extra, "status") or ("answered" if read.answered else None)
    events = read.finish(answers=status in ("answered", None))
    given = text_in(extra, "rollout_id")
    yield Episode(
        file=item.file, position=item.position, run=item.run, version=text_in(value, "schema_version"),
        task_key=text_in(value, "session_id", "trajectory_id") or item.position or item.file,
        rollout_id=given, branch_index=whole_in(extra, "branch_index") if given else None, attempt=whole_in(extra, "attempt"),
        source=rest_of(value, *_ROOT), record=value, system=read.system, tools=array_in(read.agent, "tool_definitions") or None,
        info=info_of(read), events=events, verdicts=_verdicts(extra),
        status=status if status in ("answered", "failed", "aborted", "infra_error") else None,
        error=text_in(extra, "error"), subagents=read.subagents, unreadable=read.unreadable,
    )  # fmt: skip


def _verdicts(extra: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The verdicts of a trajectory that this product exported."""
    kinds = ("build", "visual", "check")
    given = [each for each in array_in(extra, "verdicts") if isinstance(each, dict) and each.get("type") in kinds]
    return [{"produced_by": "import:atif", **each} for each in given]


def recognise(names: Sequence[str], head: Head) -> bool:
    """A trajectory says its schema."""
    return not is_part_of_job(names) and any(_is_trajectory(name, head) for name in names)


def _is_trajectory(name: str, head: Head) -> bool:
    return is_json(name) and members(head(name)).get("schema_version", b"").startswith(b'"ATIF-v1')


def plan(names: Sequence[str], head: Head) -> list[Part]:
    """Every trajectory is a part of its own."""
    chosen = [name for name in names if _is_trajectory(name, head)] if len(names) > 1 else names
    return [Part(base_name(name), (FileUse(name),)) for name in chosen]


FORMAT = Format(
    name="atif",
    about="trajectories of Harbor's interchange format, ATIF v1.0 to v1.8: files, lines, or folders",
    rollout="session",
    verdict="none; those that `braid export` wrote",
    unknown="whether it ended by itself; what failed, unless the converter says so",
    recognise=recognise,
    plan=plan,
    read=per_item(_read),
)
