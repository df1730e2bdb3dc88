"""The counts that `braid import --check` displays. They are equal for both forms of a branch."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from agents.importers.traces.format import Episode

COUNTED = ("tool_call", "tool_result", "errors", "texts", "user", "final", "pass", "fail", "tokens_in", "tokens_out")


class Tally:
    """The counts of some episodes."""

    def __init__(self) -> None:
        self.found: Counter[str] = Counter()
        self.ends: Counter[str] = Counter()

    def add(self, episode: Episode) -> None:
        """Count an episode."""
        exact = any(event["event"] == "model_call" for event in episode.events)
        self.found.update(_exact(episode.events) if exact else _transcript(episode.events))
        if episode.status is not None:
            self.ends[episode.status] += 1
        for verdict in episode.verdicts:
            said = {"success": "pass", "failure": "fail"}.get(verdict["status"], verdict["status"])
            self.found[said] += said in ("pass", "fail")

    def plain(self) -> dict[str, Any]:
        """Return the counts for `--json`."""
        return {name: self.found[name] for name in COUNTED} | {"ends": dict(sorted(self.ends.items()))}


def _transcript(events: Iterable[dict[str, Any]]) -> Counter[str]:
    found: Counter[str] = Counter()
    tokens = {"inputTokens": 0, "outputTokens": 0}
    for event in events:
        kind, data = event["event"], event["data"]
        if kind in ("tool_call", "tool_result"):
            found[kind] += 1
            found["errors"] += kind == "tool_result" and data.get("error") is not None
        elif kind == "assistant_message":
            found["texts"] += 1
        elif kind == "user_message":
            found["user"] += 1
        elif kind == "final_answer":
            found.update(("texts", "final"))
            found["user"] += data.get("reply") is not None
        elif kind == "model_done":
            tokens.update({name: data[name] for name in tokens if name in data})
    found["tokens_in"], found["tokens_out"] = tokens["inputTokens"], tokens["outputTokens"]
    return found


def _exact(events: Iterable[dict[str, Any]]) -> Counter[str]:
    found: Counter[str] = Counter()
    said = [event["data"] for event in events if event["event"] == "message"]
    calls = [event["data"] for event in events if event["event"] == "model_call"]
    responses = {call["response"] for call in calls if call.get("response") is not None}
    last: dict[str, Any] | None = None
    for message in said:
        role = message["role"]
        if message.get("id") in responses:
            last = message
            found["texts"] += bool(message.get("content"))
            found["tool_call"] += len(message.get("tool_calls") or ())
        elif role == "tool":
            found["tool_result"] += 1
            found["errors"] += bool(message.get("is_error"))
        elif role == "user" and last is not None:
            found["user"] += 1
    found["final"] += last is not None and not last.get("tool_calls")
    for call in calls:
        usage = call.get("usage") or {}
        found["tokens_in"] += usage.get("input") or 0
        found["tokens_out"] += usage.get("output") or 0
    return found
