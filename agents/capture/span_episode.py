"""The episode described by spans, as the events of a captured branch: the same ones as an import of these spans gives."""

from collections.abc import Iterator, Sequence
from typing import Any

from agents.importers.traces.format import Bad, Episode
from agents.importers.traces.rollout_book import configured, first_message, fitted_event, is_fitting, source_event
from agents.importers.traces.tracker import Event
from schemas.events import AgentInfo, BranchInfo

FORMAT = "otel"


def events_of_spans(episode: Episode, bad: Sequence[Bad]) -> Iterator[Event]:
    """The events: first the source, last the spans that could not be read."""
    yield source_event(FORMAT, episode)
    config: dict[str, Any] = {"systemPrompt": episode.system} if episode.system is not None else {}
    if episode.tools:
        config["tools"] = list(episode.tools)
    for event in episode.events:
        if config and event["event"] == "run_start":
            event, config = configured(event, config), {}  # noqa: PLW2901 - there is no opening that says them
        yield from map(dict, fitted_event(event))
    for each in (*bad, *episode.unreadable):
        data = {"position": each.position or each.field, "reason": each.reason}
        yield {"channel": "status", "event": "unreadable", "data": data}


def branch_info(episode: Episode) -> BranchInfo:
    """Facts about the branch."""
    told = {name: value for name, value in episode.info.items() if is_fitting(name, value)}
    agent = told.get("agent")
    return BranchInfo(
        session_id=told.get("session_id"),
        agent=AgentInfo(**agent) if agent else None,
        task=first_message(episode.events),
    )
