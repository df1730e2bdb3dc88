"""Write ATIF trajectories (v1.0 to v1.8) to a transcript: an agent's steps with their calls and observations."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agents.importers.line_error import LineError
from agents.importers.traces.chat import json_value, marked, tell_result
from agents.importers.traces.content import Content, read_content
from agents.importers.traces.exact_steps import ExactSteps
from agents.importers.traces.fields import an_array, an_object, array_in, millis, object_in, rest_of, text_in
from agents.importers.traces.format import Bad, Item, SubAgent, call_places
from agents.importers.traces.synthetic import SYNTHETIC, is_api_error
from agents.importers.traces.transcript_writer import Called, TranscriptWriter, Turn
from agents.importers.traces.usage import NONE, Usage, read_usage

MARK = b"ATIF-v1."
"""The beginning of every schema_version."""

_STEP = (
    "step_id", "timestamp", "source", "message", "model_name", "reasoning_content", "tool_calls", "observation", "metrics",
    "is_copied_context",
)  # fmt: skip
_COUNTS = ("prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd")
_DONE = "mark_task_complete"
"""The call by which Harbor's own agent reports that it has finished."""


class Trajectory:
    """One trajectory and its continuations."""

    def __init__(self, item: Item, beside: Mapping[str, Any] | None = None, *, is_own: bool = False) -> None:
        self.writer = TranscriptWriter()
        self.exact = ExactSteps()
        """Its calls, if the steps have token ids."""
        self.value = an_object(item.value, "")
        self.agent = object_in(self.value, "agent")
        self.model = text_in(self.agent, "model_name")
        self.system: str | None = None
        self.unreadable: list[Bad] = []
        self.done: bool | None = None
        """Whether the last step is an answer. None: it is a call and nothing followed it."""
        self._item = item
        self._is_own = is_own
        """Whether `braid export` wrote it. Then `extra` of its elements is read."""
        self._beside = beside or {}
        """Other trajectories of the same folder, by file name."""
        self._embedded = {
            text_in(each, "trajectory_id"): each
            for each in array_in(self.value, "subagent_trajectories")
            if isinstance(each, dict)
        }
        self._started: list[tuple[str | None, Mapping[str, Any]]] = []
        """Sub-agents, each with the call that started it."""
        self.error: str | None = None
        """The provider's failure in the last step."""
        self._last_call: str | None = None
        self._said = 0

    def tell(self, spent: Usage = NONE) -> None:
        """Write all steps.

        `spent` is the total usage, for a trajectory whose steps have none. Raises LineError.
        """
        steps = an_array(self.value.get("steps"), "steps")
        total = read_usage(_plain_totals(object_in(self.value, "final_metrics")))
        counted = any(isinstance(step, dict) and read_usage(step.get("metrics")) != NONE for step in steps)
        owed = NONE if counted else total if total != NONE else spent
        agents = [place for place, step in enumerate(steps) if _is_turn(step)]
        self._tell_steps(steps, {agents[-1]: owed} if agents else {})
        self._continue(self.value)

    def _tell_steps(self, steps: Sequence[Any], owed: Mapping[int, Usage]) -> None:
        sides: dict[str, list[Any]] = {}
        for place, step in enumerate(steps):
            try:
                agent = _side_agent(step)
                if agent is None:
                    self._step(an_object(step, ""), owed.get(place, NONE))
                    continue
                self.exact.give_up()
                if agent not in sides:
                    sides[agent] = []
                    self._started.append((self._last_call, {"agent": {"name": agent}, "steps": sides[agent]}))
                extra = {name: value for name, value in step["extra"].items() if name != "is_sidechain"}
                sides[agent].append(step | {"extra": extra})
            except LineError as error:
                self.exact.give_up()
                field = f"steps[{place}].{error.field}".rstrip(".")
                self.unreadable.append(Bad(self._item.file, self._item.position, field, error.reason, step))
                self.writer.note("unreadable", {"position": f"steps[{place}]", "reason": error.reason, "raw": step})

    def _continue(self, value: Mapping[str, Any]) -> None:
        """Write the trajectories that continue this one. The agent continued with a summary of the earlier steps."""
        seen = set()
        while (name := text_in(value, "continued_trajectory_ref")) is not None and name not in seen:
            seen.add(name)
            self.exact.give_up()
            following = self._beside.get(name.rpartition("/")[2])
            self.writer.note("context_rewritten", {"kept": 0, "dropped": self._said, "source": {"continued_in": name}})
            if not isinstance(following, dict):
                reason = f"{name} continues it and is not among the files"
                self.unreadable.append(Bad(self._item.file, self._item.position, "continued_trajectory_ref", reason))
                self.writer.note("unreadable", {"position": name, "reason": reason})
                return
            self._tell_steps(array_in(following, "steps"), {})
            value = following

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _step(self, step: Mapping[str, Any], owed: Usage) -> None:
        source, time = step.get("source"), millis(step.get("timestamp"))
        content = self._content(step, "message")
        left = self._left(step)
        copied = step.get("is_copied_context") is True
        if copied:
            self.exact.give_up()
        if source in ("user", "system") and (content.text or content.media):
            self.exact.given(str(source), content)
        if source == "agent":
            self._agent(step, owed, copied=copied)
        elif source == "user":
            (self.writer.context if copied else self.writer.user)(content, time, left)
        elif source == "system":
            if self.system is None and not self._said and not content.media and content.text and not copied:
                self.system = content.text
            elif content.text or content.media:
                role = text_in(object_in(step, "extra"), "role") if self._is_own else None
                self.writer.context(content, time, left, role or "system")
        else:
            raise LineError("source", f"unknown: {source!r}" if source is not None else "missing")
        self._said += 1
        if source != "agent" or not copied:
            if self._is_own and copied:
                return  # another conversation of the branch writes these results
            self._observe(step, time)

    def _content(self, holder: Mapping[str, Any], name: str) -> Content:
        """Return a content. `braid export` stores all media references separately."""
        content = read_content(holder.get(name))
        media = array_in(object_in(holder, "extra"), "media") if self._is_own else []
        return content._replace(media=tuple(each for each in media if isinstance(each, dict))) if media else content

    def _left(self, step: Mapping[str, Any]) -> dict[str, Any]:
        return rest_of(step, *_STEP, *(("extra", "llm_call_count") if self._is_own else ()))

    def _agent(self, step: Mapping[str, Any], owed: Usage, *, copied: bool) -> None:
        content = self._content(step, "message")
        if (reasoning := text_in(step, "reasoning_content")) is not None:
            content = content._replace(reasoning=((reasoning, None),))
        calls = [self._called(call, number) for number, call in enumerate(array_in(step, "tool_calls"))]
        left, time = self._left(step), millis(step.get("timestamp"))
        if copied:
            results = array_in(object_in(step, "observation"), "results")
            self.writer.given(content, time, left | ({"results": results} if results else {}), calls)
            return
        if step.get("model_name") == SYNTHETIC and not calls:
            self.exact.give_up()
            self._in_its_place(content, time, left)
            return
        metrics = object_in(step, "metrics")
        if step.get("llm_call_count") == 0:  # the program made the call, not the model
            self.writer.note("content_left_out", {"reason": "given_message", "count": 1}, time)
        usage = read_usage(metrics) if metrics else owed
        model = text_in(step, "model_name") or self.model
        self.exact.turn(content, calls, metrics, usage, model, time)
        self.writer.model(
            Turn(
                content, calls, text_in(step, "id"), model, text_in(object_in(step, "extra"), "stop_reason"), usage, time, left,
                rest_of(metrics, *_COUNTS),
            )
        )  # fmt: skip
        self.error = None
        self._last_call = next((call.id for call in reversed(calls) if call.id), self._last_call)
        self.done = None if calls and calls[-1].name != _DONE else bool(calls or content.text or content.media)

    def _called(self, call: Any, number: int) -> Called:
        field = f"tool_calls[{number}]"
        value = an_object(call, field)
        name = text_in(value, "function_name", "name")
        if name is None:
            raise LineError(f"{field}.function_name", "missing")
        source = rest_of(value, "tool_call_id", "function_name", "name", "arguments")
        written = text_in(object_in(value, "extra"), "arguments_text") if self._is_own else None
        if written is not None:
            return Called(name, written, text_in(value, "tool_call_id"), rest_of(source, "extra"))
        return Called(name, value.get("arguments"), text_in(value, "tool_call_id"), source)

    def _in_its_place(self, content: Content, time: int | None, left: Mapping[str, Any]) -> None:
        """Write a message that the program wrote in the model's place."""
        text = content.text or ""
        if is_api_error(text):
            self.writer.note("api_error", {"message": text, "source": left}, time)
            self.done, self.error = None, text
        else:
            self.writer.given(content, time, left)

    def _observe(self, step: Mapping[str, Any], time: int | None) -> None:
        """Write the results of a step. A result without a call id goes to the step's first call without a result."""
        waiting = [text_in(call, "tool_call_id") for call in array_in(step, "tool_calls") if isinstance(call, dict)]
        for result in array_in(object_in(step, "observation"), "results"):
            if not isinstance(result, dict):
                raise LineError("observation.results", "expected objects")
            extra = object_in(result, "extra")
            call = text_in(result, "source_call_id") or (text_in(extra, "call_id") if self._is_own else None)
            call = call or next(iter(waiting), None)
            if call in waiting:
                waiting.remove(call)
            self._refer(result, call, time)
            if (
                result.get("content") is None
                and array_in(result, "subagent_trajectory_ref")
                and "source_call_id" not in result
            ):
                continue  # it only refers to them
            failed = any(
                each.get(name) is True
                for each in (extra, object_in(extra, "tool_result_metadata"))
                for name in ("tool_result_is_error", "is_error", "isError")
            )
            self.exact.result(call, self._output(result, extra), failed=failed)
            tell_result(
                self.writer, call, None, self._output(result, extra),
                lambda output, failed=failed: marked(output, failed=failed), time,  # type: ignore[misc]
                rest_of(result, "source_call_id", "content", *(("extra",) if self._is_own else ())),
            )  # fmt: skip

    def _output(self, result: Mapping[str, Any], extra: Mapping[str, Any]) -> Any:
        """Return the output of a result. `braid export` stores values that are not text separately."""
        content = result.get("content")
        if not self._is_own:
            return content
        if array_in(extra, "media"):
            text = read_content(content).text
            return [*([{"type": "text", "text": text}] if text else []), *array_in(extra, "media")]
        if extra.get("is_value") is True:
            return json_value(content)
        return None if extra.get("is_null") is True else content

    def _refer(self, result: Mapping[str, Any], call: str | None, time: int | None) -> None:
        for ref in array_in(result, "subagent_trajectory_ref"):
            if not isinstance(ref, dict):
                continue
            path = (text_in(ref, "trajectory_path") or "").rpartition("/")[2]
            found = self._embedded.pop(text_in(ref, "trajectory_id"), None) or self._beside.get(path)
            if isinstance(found, dict):
                self._started.append((call, found))
            if ".summarization-" in path and call is None:  # Harbor's own agent summarised its history
                self.writer.note("context_rewritten", {"kept": 0, "dropped": self._said, "source": {"by": path}}, time)

    # -- what is around ------------------------------------------------------------------------------------------------

    def subagents(self, events: Sequence[Mapping[str, Any]]) -> list[SubAgent]:
        """Return the sub-agents, each after the call that started it. Those without a call are at the end."""
        places = call_places(events)
        found = [*self._started, *((None, each) for each in self._embedded.values())]
        return [
            made for call, value in found for made in self._subagent(value, places.get(call or "", len(events) - 1) + 1)
        ]

    def _subagent(self, value: Mapping[str, Any], place: int) -> Iterable[SubAgent]:
        told = Trajectory(self._item._replace(value=value), self._beside, is_own=self._is_own)
        told.tell()
        self.unreadable += told.unreadable
        events = told.writer.finish()
        yield SubAgent(text_in(told.agent, "name") or "subagent", place, events)
        for inner in told.subagents(events):
            yield SubAgent(inner.name, place, inner.events)


def _side_agent(step: Any) -> str | None:
    """Return the sub-agent of a step among its parent's steps.

    Harbor's converter of Claude Code sessions writes such steps.
    """
    extra = object_in(step, "extra") if isinstance(step, dict) else {}
    return (text_in(extra, "agent_id") or "subagent") if extra.get("is_sidechain") is True else None


def _is_turn(step: Any) -> bool:
    if not isinstance(step, dict) or _side_agent(step) is not None or step.get("model_name") == SYNTHETIC:
        return False
    return step.get("source") == "agent" and step.get("is_copied_context") is not True


def _plain_totals(metrics: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix("total_"): value for name, value in metrics.items() if name.startswith("total_")}
