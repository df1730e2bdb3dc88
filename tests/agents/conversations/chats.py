"""Chats for tests: an agent that keeps every request and response, and writes the lines of both."""

from typing import Any

Line = dict[str, Any]
Said = dict[str, Any]
"""A message as a model server sees it."""


class ChatAgent:
    """One branch: its messages and calls as lines, and what was sent and received."""

    def __init__(self, rollout_id: str = "r", branch: int = 0) -> None:
        self._place = {"rollout_id": rollout_id, "branch_index": branch}
        self.lines: list[Line] = []
        self.calls: list[tuple[list[Said], Said]] = []
        """Of each call with a response: the messages that were sent, and the one that came back."""
        self._messages: dict[str, Said] = {}
        self._contexts: dict[str, list[str]] = {}
        self._n = 0

    def event(self, kind: str, data: dict[str, Any], channel: str = "conversation") -> None:
        event = {"channel": channel, "event": kind, "data": data}
        self.lines.append({"type": "event", **self._place, "event": event})

    def message(self, role: str, content: Any = None, **more: Any) -> str:
        """Write a message; returns its id."""
        name = f"m-{len(self._messages)}"
        self._messages[name] = {"role": role, "content": content, **more}
        self.event("message", {"id": name, "role": role, "content": content, **more})
        return name

    def ask(self, context: list[str], answer: str | None, after: str | None = None, **more: Any) -> str:
        """Write a call with these messages, as a difference to `after`; returns its id. Without an answer it failed."""
        context = [*context]
        self._n += 1
        call_id = f"k{self._n}"
        known = self._contexts.get(after or "", [])
        keep = next((at for at, pair in enumerate(zip(known, context, strict=False)) if pair[0] != pair[1]), None)
        keep = min(len(known), len(context)) if keep is None else keep
        data: dict[str, Any] = {"call_id": call_id, "model": "m", **more}
        data["context"] = {"after": after, "keep": keep, "add": context[keep:]} if after else {"add": context}
        data |= {"response": answer} if answer else {"error": {"kind": "rate_limited", "message": "wait"}}
        self.event("model_call", data)
        self._contexts[call_id] = [*context, answer] if answer else context
        if answer is not None:
            self.calls.append(([self._messages[each] for each in context], self._messages[answer]))
        return call_id

    def end(self, *, passes: bool | None = True, status: str = "answered") -> list[Line]:
        """Return all lines, with the end and the verdict."""
        lines = [*self.lines, {"type": "end", **self._place, "status": status}]
        if passes is not None:
            build = {"status": "success", "exit_code": 0} if passes else {"status": "failure", "exit_code": 1}
            lines.append({"type": "build", **self._place, **build})
        return lines


def opened(branches: int = 1, **more: Any) -> Line:
    """The opening of a rollout whose branches are well evidenced."""
    return {
        "type": "rollout", "rollout_id": "r", "task": "Chat", "branches": branches, "required": ["build"],
        "repo_commit": "c0ffee", "tool_manifest_digest": "d" * 64, **more,
    }  # fmt: skip


def rendered(messages: list[Said]) -> list[Said]:
    """Messages as rows hold them: calls numbered by position, a tool message at the nearest call of its id."""
    shown, waiting, n = [], dict[str, list[str]](), 0
    for message in messages:
        view = {"role": message["role"], "content": message.get("content")}
        if message.get("tool_calls"):
            view["tool_calls"] = []
            for call in message["tool_calls"]:
                view["tool_calls"].append((f"call_{n}", call["name"], call["arguments"]))
                waiting.setdefault(call["id"], []).append(f"call_{n}")
                n += 1
        if message["role"] == "tool":
            view["tool_call_id"] = waiting[message["tool_call_id"]].pop()
        if message.get("reasoning"):
            view["reasoning"] = message["reasoning"]
        shown.append(view)
    return shown


def rendered_row(messages: Any) -> list[Said]:
    """The messages of a row in the same form."""
    shown = []
    for message in messages:
        view = {"role": message.role, "content": message.content}
        if message.tool_calls:
            view["tool_calls"] = [(call.id, call.function.name, call.function.arguments) for call in message.tool_calls]
        if message.role == "tool":
            view["tool_call_id"] = message.tool_call_id
        if message.reasoning_content:
            view["reasoning"] = message.reasoning_content
        shown.append(view)
    return shown
