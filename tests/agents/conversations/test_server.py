"""The test that matters: rows rendered back equal what a model server received and sent, call by call, over both protocols.

Both sides are mapped in the same two ways: call ids are numbered by position, and secrets are removed.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx
import pytest

from agents.models.anthropic_adapter import AnthropicModel
from agents.models.openai_adapter import OpenAIModel
from agents.models.service import ServiceOptions
from agents.redaction.redaction import redact
from schemas.training import Message
from streams.cluster.config import Settings
from streams.jobs.run.run import run_files
from tests.agents.conversations.chats import ChatAgent, opened, rendered, rendered_row
from tests.agents.fork.forks import ListLog, run_all, runner
from tests.agents.formats.rollouts import encoded, group_of_facts
from tests.model_server import ModelServer, Protocol, Reply, Said, model_server, refusal, reply, text, thinking, use

PROTOCOLS: tuple[Protocol, ...] = ("messages", "chat")
SECRET = "sk-proj-" + "a1B2" * 12

Chat = list[dict[str, Any]]


# -- what the server saw, as plain chat messages ---------------------------------------------------------------------------


def received(body: dict[str, Any], protocol: Protocol) -> Chat:
    """The messages of a request."""
    if protocol == "chat":
        return [_chat(message) for message in body["messages"]]
    system = body.get("system") or []
    words = system if isinstance(system, str) else "".join(block["text"] for block in system)
    found: Chat = [{"role": "system", "content": words}] if words else []
    for message in body["messages"]:
        found += _blocks(message)
    return found


def _chat(message: dict[str, Any]) -> dict[str, Any]:
    calls = [{"id": call["id"], **call["function"]} for call in message.get("tool_calls", ())]
    shown = {"role": message["role"], "content": message.get("content"), "tool_calls": calls}
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    return shown | {"tool_call_id": message.get("tool_call_id"), "reasoning": reasoning}


def _blocks(message: dict[str, Any]) -> Chat:
    content = message["content"]
    blocks = [text(content)] if isinstance(content, str) else content
    results = [
        {"role": "tool", "content": block["content"], "tool_call_id": block["tool_use_id"]}
        for block in blocks
        if block["type"] == "tool_result"
    ]
    return results or [said(blocks, message["role"])]


def said(blocks: list[dict[str, Any]], role: str = "assistant") -> dict[str, Any]:
    """A message of content blocks."""
    return {
        "role": role,
        "content": "".join(block["text"] for block in blocks if block["type"] == "text"),
        "reasoning": "".join(block["thinking"] for block in blocks if block["type"] == "thinking"),
        "tool_calls": [
            {
                "id": block["id"],
                "name": block["name"],
                "arguments": block.get("arguments") or json.dumps(block["input"]),
            }
            for block in blocks
            if block["type"] == "tool_use"
        ],
    }


def plainly(messages: Chat) -> Chat:
    """Both maps; arguments as values, since the Messages API has no text of them; no content and an empty one are the same."""
    return [_plain(message) for message in rendered(messages)]


def _plain(message: dict[str, Any]) -> dict[str, Any]:
    calls = [(name, tool, redact(_sorted(arguments)).text) for name, tool, arguments in message.get("tool_calls", ())]
    texts = {name: redact(message.get(name) or "").text for name in ("content", "reasoning")}
    return {"role": message["role"], "calls": calls, "answers": message.get("tool_call_id"), **texts}


def _sorted(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except ValueError:
        return arguments


def trained(conversations: Iterable[tuple[Message, ...]]) -> list[str]:
    """Every response in rows, with all that stands before it."""
    found = []
    for messages in conversations:
        shown = [_plain(message) for message in rendered_row(messages)]
        found += [repr(shown[: at + 1]) for at, message in enumerate(messages) if message.trained]
    return sorted(found)


class Kept:
    """A server's play that keeps what was sent back."""

    def __init__(self, *replies: Said) -> None:
        self._replies = replies
        self.sent: dict[int, Reply] = {}

    async def __call__(self, _body: dict[str, Any], number: int) -> Said:
        told = self._replies[number]
        if isinstance(told, Reply) and told.cut_after is None and told.error is None:
            self.sent[number] = told
        return told

    def calls(self, api: ModelServer, protocol: Protocol) -> list[str]:
        """Every call that has a response: what was received, and what was sent."""
        return sorted(
            repr(plainly([*received(api.bodies[number], protocol), said(told.content)]))
            for number, told in self.sent.items()
        )


# -- the fork agent --------------------------------------------------------------------------------------------------------


def fork_play() -> Kept:
    return Kept(
        reply([thinking("Erst…"), text("Looking."), use("read_file", 1, path="table.py"), use("run", 2, command="seq 12000")], "tool_use"),
        refusal(429, "rate_limit_error", retry_after="0"),
        reply([thinking("cut"), text("gone")], cut_after=3),
        reply([text("Größe: "), use("run", 1, command=f"echo {SECRET} ü")], "tool_use"),
        reply([thinking("hm"), use("read_file", 4, path="nope"), use("write_file", 5, path="ü.txt", content="é\n" * 9)], "tool_use"),
        reply([thinking("so"), text("Fertig ✓")]),
    )  # fmt: skip


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("reasoning", [True, False])
async def test_rows_of_the_fork_agent_are_what_the_server_received_and_sent(
    tmp_path: Path, protocol: Protocol, reasoning: bool
) -> None:
    play = fork_play()
    with model_server(play) as api:
        service = ServiceOptions(api.base_url(protocol), send_reasoning=reasoning)
        kind = AnthropicModel if protocol == "messages" else OpenAIModel
        model = kind("test-model", service, api_key="k")
        log = ListLog()
        async with runner(tmp_path, lambda _: model, log) as forked:
            [result] = await run_all(forked)
        await model.close()
    assert result.status == "answered", result.error
    group = group_of_facts(log.facts, passes=[0])
    assert {row.fidelity for row in group.ppo} == {"exact"}
    assert len(play.sent) == 4
    assert trained((*row.prompt, *row.completion) for row in group.ppo) == play.calls(api, protocol)
    whole = reasoning or protocol == "messages"
    assert len(group.ppo) == (1 if whole else 3), "a history without its reasoning is another one"
    assert SECRET not in str(group.ppo)
    (branch,) = group.branches
    assert [call.name for call in branch.tool_calls] == ["read_file", "run", "run", "read_file", "write_file"]
    assert branch.tool_calls[1].output_bytes is not None
    assert branch.tool_calls[1].output_bytes > 60_000


async def test_a_fork_from_the_middle_continues_the_conversation(tmp_path: Path) -> None:
    """The beginning is told as it was recorded; what follows continues it."""
    play = Kept(
        reply([thinking("a"), text("Looking."), use("read_file", 1, path="table.py")], "tool_use"),
        reply([text("First.")]),
        reply([text("Second.")]),
    )
    with model_server(play) as api:
        model = AnthropicModel("test-model", ServiceOptions(api.url), api_key="k")
        log, again = ListLog(), ListLog()
        async with runner(tmp_path / "a", lambda _: model, log) as forked:
            await run_all(forked)
        events = log.events()
        until = next(at for at, event in enumerate(events) if event.event == "tool_result")
        async with runner(tmp_path / "b", lambda _: model, again, prefix=tuple(events[: until + 1])) as forked:
            [result] = await run_all(forked)
        await model.close()
    assert result.status == "answered", result.error
    group = group_of_facts(again.facts, passes=[0])
    (row,) = group.sft
    assert [message.trained for message in row.messages if message.role == "assistant"] == [True, True]
    both = [repr(plainly([*received(api.bodies[at], "messages"), said(play.sent[at].content)])) for at in (0, 2)]
    assert trained([row.messages]) == sorted(both)


# -- an agent that writes the lines itself -----------------------------------------------------------------------------------


class LineAgent(ChatAgent):
    """Asks the server by plain HTTP, and writes what it asked and heard."""

    def __init__(self, api: ModelServer, protocol: Protocol) -> None:
        super().__init__()
        self._api = api
        self._protocol = protocol

    def call(self, context: list[str], after: str | None = None, **more: Any) -> tuple[str, str]:
        """Ask with these messages; returns the ids of the response and of the call."""
        messages = [self._messages[each] for each in context]
        body, path = self._body(messages)
        answer = httpx.post(f"{self._api.url}{path}", json=body, timeout=30)
        if answer.status_code != 200:
            return "", self.ask(context, None, after, **more)
        heard = self._heard(answer.json())
        name = {"agent": more["agent"]} if "agent" in more else {}
        found = self.message(heard.pop("role"), heard.pop("content"), **heard, **name)
        return found, self.ask(context, found, after, **more)

    def _body(self, messages: Chat) -> tuple[dict[str, Any], str]:
        if self._protocol == "chat":
            return {"model": "m", "messages": [self._written(message) for message in messages]}, "/v1/chat/completions"
        system = [message["content"] for message in messages if message["role"] == "system"]
        rest: Chat = []
        for message in messages:
            if message["role"] == "tool":
                result = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
                if not (rest and rest[-1].get("results")):
                    rest.append({"role": "user", "content": [], "results": True})
                rest[-1]["content"].append(result)
            elif message["role"] != "system":
                rest.append({"role": message["role"], "content": self._as_blocks(message)})
        shown = [{"role": message["role"], "content": message["content"]} for message in rest]
        return {"model": "m", "max_tokens": 99, "system": "".join(system), "messages": shown}, "/v1/messages"

    def _written(self, message: dict[str, Any]) -> dict[str, Any]:
        made = {name: message[name] for name in ("role", "content", "tool_call_id") if name in message}
        if message.get("reasoning"):
            made["reasoning_content"] = message["reasoning"]
        calls = [
            {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}
            for call in message.get("tool_calls", ())
        ]
        return made | ({"tool_calls": calls} if calls else {})

    def _as_blocks(self, message: dict[str, Any]) -> Chat:
        blocks = [thinking(message["reasoning"])] if message.get("reasoning") else []
        blocks += [text(message["content"])] if message.get("content") else []
        for call in message.get("tool_calls", ()):
            given = json.loads(call["arguments"])
            blocks.append({"type": "tool_use", "id": call["id"], "name": call["name"], "input": given})
        return blocks

    def _heard(self, answer: dict[str, Any]) -> dict[str, Any]:
        heard = said(answer["content"]) if self._protocol == "messages" else _chat(answer["choices"][0]["message"])
        return {name: value for name, value in heard.items() if value or name == "content"}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_rows_of_an_agent_that_writes_lines_are_what_the_server_received_and_sent(
    tmp_path: Path, protocol: Protocol
) -> None:
    """Three user turns, parallel calls, a retry, a sub-agent, a compaction, and an output of 60 KB."""
    play = Kept(
        reply([thinking("zwei Dateien"), text("Ich schaue."), use("read_file", 1, path="a"), use("read_file", 2, path="ü")], "tool_use"),
        refusal(529, "overloaded_error"),
        reply([text("Beide gelesen.")]),
        reply([text("Gefunden: 42")]),
        reply([thinking("noch eins"), use("read_file", 1, path="big")], "tool_use"),
        reply([text("Das war lang.")]),
        reply([text("Zusammengefasst weiter.")]),
    )  # fmt: skip
    with model_server(play) as api:
        agent = LineAgent(api, protocol)
        context = [agent.message("system", "Sei kurz."), agent.message("user", "Lies a und ü.")]
        turn, call = agent.call(context)
        context += [
            turn,
            *(agent.message("tool", f"{n} — {SECRET}", tool_call_id=f"toolu_{n}", name="read_file") for n in (1, 2)),
        ]
        _, call = agent.call(context, call)
        turn, call = agent.call(context, call)
        sub = [
            agent.message(role, words, agent="sub") for role, words in (("system", "Du suchst."), ("user", "Suche 42."))
        ]
        agent.call(sub, agent="sub")
        context += [turn, agent.message("user", "Und big?")]
        turn, call = agent.call(context, call)
        context += [turn, agent.message("tool", "é" * 30_000, tool_call_id="toolu_1", name="read_file")]
        turn, call = agent.call(context, call)
        context = [context[0], agent.message("user", "Bisher: alles gelesen. Weiter?")]
        agent.call(context, call)
    (tmp_path / "lines.ndjson").write_bytes(encoded([opened(), *agent.end()]))
    run_files([tmp_path / "lines.ndjson"], tmp_path / "out", Settings(), None)
    written = [json.loads(line) for line in (tmp_path / "out" / "ppo.jsonl").read_text("utf-8").splitlines()]
    rows = [
        tuple(Message.model_validate(message) for message in (*row["prompt"], *row["completion"])) for row in written
    ]
    assert trained(rows) == play.calls(api, protocol)
    assert [(row.get("agent"), row["sequence"], row["n_sequences"]) for row in written] == [
        (None, 0, 3), ("sub", 1, 3), (None, 2, 3),
    ]  # fmt: skip
    assert SECRET not in str(rows)
