"""The table of counts in IMPORT-FACTS.md, and the same counts of lines. Shares no code with the importers."""

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from tests.conformance import conformance

COLUMNS = ("rollouts", "branches", "tool_call", "tool_result", "errors", "texts", "user", "final", "pass", "fail")


class Fact(NamedTuple):
    """A row of the table."""

    sample: str
    counts: dict[str, int]
    ends: dict[str, int]
    tokens: tuple[int, int] | None
    rejected: int


def facts() -> dict[str, Fact]:
    """All rows, by sample."""
    text = conformance("imports", "IMPORT-FACTS.md").read_text()
    rows = text.partition("## Counts")[2].splitlines()
    found = {}
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        if len(cells) != 14 or not cells[1].isdigit():
            continue
        ends = dict(part.rsplit(" ", 1) for part in cells[11].split(", "))
        tokens = None if cells[12] == "-" else tuple(int(each) for each in cells[12].split(" / "))
        counts = dict(zip(COLUMNS, map(int, cells[1:11]), strict=True))
        found[cells[0]] = Fact(
            cells[0], counts, {name: int(count) for name, count in ends.items()}, tokens, int(cells[13])
        )  # type: ignore[arg-type]
    return found


def count(lines: Iterable[dict[str, Any]]) -> tuple[dict[str, int], dict[str, int], tuple[int, int]]:
    """Count lines as the table counts them: counts, ends, tokens in and out."""
    found: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    branches: dict[tuple[Any, Any], list[dict[str, Any]]] = {}
    for line in lines:
        kind = line["type"]
        found["rollouts"] += kind == "rollout"
        if kind == "end":
            ends[line["status"]] += 1
        elif kind in ("check", "build"):
            said = {"success": "pass", "failure": "fail"}.get(line["status"], line["status"])
            found[said] += said in ("pass", "fail")
        elif kind == "event":
            branches.setdefault((line["rollout_id"], line["branch_index"]), []).append(line["event"])
    tokens = [0, 0]
    for events in branches.values():
        said, spent = _branch(events)
        found.update(said)
        tokens = [one + other for one, other in zip(tokens, spent, strict=True)]
    found["branches"] = len(branches)
    return {name: found[name] for name in COLUMNS}, dict(ends), (tokens[0], tokens[1])


def _branch(events: list[dict[str, Any]]) -> tuple[Counter[str], tuple[int, int]]:
    kinds = [event["event"] for event in events]
    if "model_call" in kinds:
        return _exact(events)
    found: Counter[str] = Counter(kind for kind in kinds if kind in ("tool_call", "tool_result"))
    found["texts"] = kinds.count("assistant_message") + kinds.count("final_answer")
    found["final"] = kinds.count("final_answer")
    found["user"] = kinds.count("user_message")
    spent = (0, 0)
    for event in events:
        data = event["data"]
        found["errors"] += event["event"] == "tool_result" and "error" in data
        found["user"] += event["event"] == "final_answer" and "reply" in data
        if event["event"] == "model_done":
            spent = (data.get("inputTokens", spent[0]), data.get("outputTokens", spent[1]))
    return found, spent


def _exact(events: list[dict[str, Any]]) -> tuple[Counter[str], tuple[int, int]]:
    messages = {event["data"]["id"]: event["data"] for event in events if event["event"] == "message"}
    calls = [event["data"] for event in events if event["event"] == "model_call"]
    responses = [messages[call["response"]] for call in calls if call.get("response")]
    found: Counter[str] = Counter()
    begun = False
    for name, message in messages.items():
        is_response = any(each["id"] == name for each in responses)
        begun |= is_response
        found["tool_call"] += len(message.get("tool_calls", ())) if is_response else 0
        found["texts"] += is_response and bool(message.get("content"))
        found["tool_result"] += message["role"] == "tool"
        found["errors"] += bool(message.get("is_error"))
        found["user"] += message["role"] == "user" and begun
    found["final"] += bool(responses) and not responses[-1].get("tool_calls")
    spent = [sum((call.get("usage") or {}).get(name) or 0 for call in calls) for name in ("input", "output")]
    return found, (spent[0], spent[1])
