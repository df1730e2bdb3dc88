"""Write facts as lines that `LineReader` reads back as the same facts."""

from typing import Any

from agents.conversations.tokens import unpack_ids, unpack_logprobs
from agents.facts.fact import Fact
from schemas.events import AgentEvent, AgentEvents
from schemas.jsontext import parse_object
from schemas.lifecycle import Lifecycle
from schemas.verdicts import BuildVerdict, CheckVerdict, VisualVerdict

_KINDS = {BuildVerdict: "build", VisualVerdict: "visual", CheckVerdict: "check"}


def lines_of(fact: Fact) -> list[dict[str, Any]]:
    """Return the lines of a producer's fact: an opening, a slice, a verdict."""
    if isinstance(fact, Lifecycle) and fact.opened is not None:
        return [{"type": "rollout", **_plain(fact.opened)}]
    if isinstance(fact, AgentEvents):
        return _slice(fact)
    return [{"type": _KINDS[type(fact)], **_plain(fact)}]  # producers write no other facts


def _slice(fact: AgentEvents) -> list[dict[str, Any]]:
    where = {"rollout_id": fact.rollout_id, "branch_index": fact.branch_index, "attempt": fact.attempt}
    info = {} if fact.branch is None else _plain(fact.branch)
    lines: list[dict[str, Any]] = []
    for offset, event in enumerate(fact.events):
        said = _plain(event) | {"data": _data(event)}
        said.pop("tokens", None)
        lines.append({"type": "event", **where, "seq": fact.first_seq + offset, **info, "event": said})
        info = {}
    if fact.ended:
        end = {
            name: value for name, value in _plain(fact).items() if name in ("status", "error", "workspace", "last_seq")
        }
        lines.append({"type": "end", **where, **end})
    return lines


def _data(event: AgentEvent) -> dict[str, Any]:
    """Return the data of an event. The tokens of a call become arrays if the event has all of them."""
    data, tokens = parse_object(event.data), event.tokens
    if tokens is not None and not tokens.prompt_keep:
        lists: dict[str, Any] = {"prompt_ids": unpack_ids(tokens.prompt_ids), "ids": unpack_ids(tokens.ids)}
        if tokens.logprobs is not None:
            lists["logprobs"] = unpack_logprobs(tokens.logprobs, wide=tokens.wide)
        data["tokens"] = {**data["tokens"], **lists}
    return data


def _plain(record: Any) -> dict[str, Any]:
    plain: dict[str, Any] = record.model_dump(mode="json", exclude_none=True)
    return plain
