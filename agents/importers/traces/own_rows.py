"""Rows that `braid export` wrote: the place of their branch, how it ended, its verdicts and its usage.

Each of these formats has a place for more than its own fields; all write the same names there.
"""

from collections.abc import Mapping
from typing import Any

from agents.importers.traces.fields import array_in, number_in, object_in, text_in, whole_in
from agents.importers.traces.usage import NONE, Usage

NAMES = (
    "rollout_id", "branch_index", "attempt", "ended", "error", "status", "objective_status", "verdicts", "usage", "sequence",
    "main", "after", "context", "errors",
)  # fmt: skip
"""The names that are read here."""

_VERDICT = ("type", "name", "status", "score", "hint", "exit_code", "stage", "tests", "verdict", "confidence")


class OwnRow:
    """What a row says about its branch; nothing for a row of another writer."""

    def __init__(self, extra: Mapping[str, Any]) -> None:
        self.is_own = (
            text_in(extra, "rollout_id") is not None
            and whole_in(extra, "branch_index") is not None
            and "ended" in extra
        )
        self._extra = extra if self.is_own else {}

    @property
    def status(self) -> str | None:
        """How the branch ended; None where it did not."""
        found = text_in(self._extra, "ended")
        return None if found == "running" else found

    @property
    def error(self) -> str | None:
        """Why it failed."""
        return text_in(self._extra, "error")

    @property
    def usage(self) -> Usage:
        """All that the branch used."""
        found = object_in(self._extra, "usage")
        return Usage(
            whole_in(found, "input_tokens"), whole_in(found, "output_tokens"), whole_in(found, "cached_tokens"), number_in(found, "usd")
        ) if found else NONE  # fmt: skip

    @property
    def tools(self) -> list[Any] | None:
        """The tools on offer."""
        found = self._extra.get("tools")
        return found if isinstance(found, list) else None

    def place(self) -> dict[str, Any]:
        """Fields of an episode: its branch, or for another sequence of it a rollout of its own."""
        if not self.is_own:
            return {}
        named = {name: self._extra.get(name) for name in ("rollout_id", "branch_index", "attempt")}
        if self._extra.get("main") is False:
            return {
                "task_key": [*named.values(), self._extra.get("sequence")],
                "labels": {"parent": str(named["rollout_id"])},
            }
        return named

    def verdicts(self, format_name: str) -> list[dict[str, Any]]:
        """The verdicts as lines; where only the outcome is known, a check of that name."""
        if self._extra.get("main") is False:
            return []
        by = {"produced_by": f"import:{format_name}"}
        found = [
            {name: each[name] for name in _VERDICT if each.get(name) is not None} | by
            for each in array_in(self._extra, "verdicts")
            if isinstance(each, dict) and each.get("type") in ("build", "check", "visual")
        ]
        outcome = text_in(self._extra, "objective_status")
        if not found and "verdicts" not in self._extra and outcome in ("pass", "fail"):
            return [{"type": "check", "name": "outcome", "status": outcome, **by}]
        return found

    def places(self, name: str) -> frozenset[int]:
        """Positions of messages: `context`, or `errors`."""
        return frozenset(each for each in array_in(self._extra, name) if isinstance(each, int))
