"""Read rows that `braid export` wrote: the place of their branch, its end, its verdicts and its usage.

Each of these formats has a place for additional fields. All of them use the same names there.
"""

from collections.abc import Mapping
from typing import Any, get_args

from agents.importers.line_error import LineError
from agents.importers.lines import LineReader
from agents.importers.traces.fields import an_object, array_in, number_in, object_in, text_in, whole_in
from agents.importers.traces.usage import NONE, Usage
from schemas.events import EndStatus

_LINE = ("rollout_id", "branches", "labels", "branch_index", "attempt", "temperature", "seed", "session_id")
_EVENT = ("branch_index", "attempt", "temperature", "seed", "session_id")
"""`_LINE` members are copied to lines unchanged; `_EVENT` members are those of event lines."""

RUNNING = "running"
"""The end value of a branch that has not ended."""

NAMES = (
    "rollout_id", "branch_index", "attempt", "ended", "error", "status", "objective_status", "verdicts", "usage", "sequence",
    "main", "after", "context", "errors", "values", "given", "answered", "temperature", "seed", "labels", "admission",
    "branches",
)  # fmt: skip
"""The member names that this module reads."""

_VERDICT = (
    "type", "name", "status", "score", "hint", "exit_code", "stage", "tests", "verdict", "confidence",
    "reason", "uncaught_errors", "console_errors", "dom_probes", "renders_non_empty",
)  # fmt: skip


class OwnRow:
    """A row's own notes about its branch. Empty for a row of another writer."""

    def __init__(self, extra: Mapping[str, Any]) -> None:
        self.is_own = (
            text_in(extra, "rollout_id") is not None
            and whole_in(extra, "branch_index") is not None
            and extra.get("ended") in (*get_args(EndStatus), RUNNING)
        )
        self._extra = extra if self.is_own else {}
        self.is_main = self._extra.get("main") is not False
        """False for a secondary conversation of a branch: a sub-agent's, or a history that began anew."""

    @property
    def status(self) -> str | None:
        """Return the end of the branch, or None if it has not ended."""
        found = text_in(self._extra, "ended")
        return None if found == RUNNING else found

    def answers(self, status: str | None) -> bool:
        """Return whether the last text is the final answer. If the row does not specify it, `status` decides."""
        said = self._extra.get("answered")
        return said if isinstance(said, bool) else status == "answered"

    @property
    def error(self) -> str | None:
        """Return the reason of its failure."""
        return text_in(self._extra, "error")

    @property
    def usage(self) -> Usage:
        """Return the total usage of the branch. It counts only in the main conversation."""
        found = object_in(self._extra, "usage") if self.is_main else {}
        return Usage(
            whole_in(found, "input_tokens"), whole_in(found, "output_tokens"), whole_in(found, "cached_tokens"), number_in(found, "usd")
        ) if found else NONE  # fmt: skip

    @property
    def agent(self) -> dict[str, Any]:
        """Return name, model and version of the agent, as far as they are known."""
        found = object_in(self._extra, "agent")
        return {name: found[name] for name in ("name", "model", "version") if isinstance(found.get(name), str)}

    @property
    def session_id(self) -> str | None:
        """Return the session id in the agent's own system."""
        return text_in(self._extra, "session_id")

    @property
    def tools(self) -> list[Any] | None:
        """Return the tools that the model was offered."""
        found = self._extra.get("tools")
        return found if isinstance(found, list) else None

    def place(self) -> dict[str, Any]:
        """Return an episode's place: its branch, or a rollout of its own for another sequence of the branch.

        Raises LineError.
        """
        if not self.is_own:
            return {}
        self._require_fitting()
        named: dict[str, Any] = {
            "rollout_id": self._extra["rollout_id"],
            "branch_index": whole_in(self._extra, "branch_index"),
            "attempt": whole_in(self._extra, "attempt") or 0,
            "may_be_empty": True,
        }
        if not self.is_main:
            return {
                "task_key": [*list(named.values())[:3], self._extra.get("sequence")],
                "labels": {"parent": str(named["rollout_id"]), "parent_branch": str(named["branch_index"])},
                "may_be_empty": True,
            }
        labels = object_in(self._extra, "labels")
        kept = {name: text for name, text in labels.items() if isinstance(text, str) and name != "format"}
        branches = whole_in(self._extra, "branches")
        return named | ({"labels": kept} if kept else {}) | ({"branches": branches} if branches else {})

    def _require_fitting(self) -> None:
        """Raise LineError for a member that the log would reject."""
        given = {name: self._extra[name] for name in _LINE if self._extra.get(name) is not None}
        lines = (
            {"type": "rollout", "task": "", **{name: given[name] for name in _LINE if name in given and name not in _EVENT}},
            {"type": "event", "seq": 0, "event": {"event": "status"}, **{name: given[name] for name in _EVENT if name in given}},
        )  # fmt: skip
        for line in lines:
            LineReader().read_object(line | {"rollout_id": given["rollout_id"]})

    def info(self) -> dict[str, Any]:
        """Return the branch's sampling options, as far as they are known."""
        found = {"temperature": number_in(self._extra, "temperature"), "seed": self._extra.get("seed")}
        return {name: value for name, value in found.items() if isinstance(value, int | float)}

    def verdicts(self, format_name: str) -> list[dict[str, Any]]:
        """Return the verdicts as lines. If only the outcome is known, return a check of that name. Raises LineError."""
        if not self.is_main:
            return []
        by = {"produced_by": f"import:{format_name}"}
        found = [_verdict(each, number) | by for number, each in enumerate(array_in(self._extra, "verdicts"))]
        outcome = text_in(self._extra, "objective_status")
        if not found and "verdicts" not in self._extra and outcome in ("pass", "fail"):
            return [{"type": "check", "name": "outcome", "status": outcome, **by}]
        return found

    def places(self, name: str) -> frozenset[int]:
        """Return the positions of messages under `context`, `errors`, `values`, or `given`."""
        return frozenset(each for each in array_in(self._extra, name) if isinstance(each, int))


def _verdict(value: Any, number: int) -> dict[str, Any]:
    """Return a verdict as the members of a line that the log accepts. Raises LineError."""
    field = f"verdicts[{number}]"
    given = an_object(value, field)
    line = {name: given[name] for name in _VERDICT if given.get(name) is not None}
    if line.get("type") not in ("build", "check", "visual"):
        raise LineError(field, "expected a build, check or visual verdict")
    try:
        LineReader().read_object({"rollout_id": "r", "branch_index": 0, **line})
    except LineError as error:
        raise LineError(f"{field}.{error.field}".rstrip("."), error.reason) from None
    return line
