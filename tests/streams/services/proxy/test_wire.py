"""The server test for the proxy: rows rendered back equal what the upstream received and sent, call by call, over both protocols.

Three user turns, parallel calls, reasoning, a retry, a sub-agent, a compaction, and an output of 60 KB.
"""

from pathlib import Path
from typing import Any

import httpx
import pytest

from schemas.lifecycle import Lifecycle, RolloutOpened
from streams.cluster.config import Settings
from tests.agents.conversations.test_server import PROTOCOLS, SECRET, Kept, LineAgent, trained
from tests.agents.formats.rollouts import group_of_facts
from tests.model_server import ModelServer, Protocol, model_server, refusal, reply, text, thinking, use
from tests.streams.services.proxy.proxying import events_until_ended, folding, proxying, with_proxy

pytestmark = pytest.mark.kafka

PATHS = {"messages": "/anthropic", "chat": "/openai"}


class WireAgent(LineAgent):
    """Asks by plain HTTP through the proxy, and writes nothing itself."""

    def __init__(self, api: ModelServer, protocol: Protocol, url: str, *, stream: bool) -> None:
        super().__init__(api, protocol)
        self._base = url + PATHS[protocol]
        self._stream = stream

    def call(self, context: list[str], after: str | None = None, **more: Any) -> tuple[str, str]:
        """Ask with these messages; the answer is the one that the server keeps."""
        body, path = self._body([self._messages[each] for each in context])
        number = self._api.calls
        answer = httpx.post(f"{self._base}{path}", json={**body, "stream": self._stream}, timeout=30)
        if answer.status_code != 200:
            return "", ""
        told = self._api.replies[number]
        heard = self._heard_reply(told)
        return self.message(heard.pop("role"), heard.pop("content"), **heard), ""

    def _heard_reply(self, told: Any) -> dict[str, Any]:
        from tests.agents.conversations.test_server import said

        return {name: value for name, value in said(told.content).items() if value or name == "content"}


def play() -> Kept:
    return Kept(
        reply([thinking("zwei Dateien"), text("Ich schaue."), use("read_file", 1, path="a"), use("read_file", 2, path="ü")], "tool_use"),
        refusal(529, "overloaded_error"),
        reply([thinking("cut"), text("gone")], cut_after=3),
        reply([text("Beide gelesen.")]),
        reply([text("Gefunden: 42")]),
        reply([thinking("noch eins"), use("read_file", 1, path="big")], "tool_use"),
        reply([text("Das war lang.")]),
        reply([text("Zusammengefasst weiter.")]),
    )  # fmt: skip


def run_agent(agent: WireAgent) -> None:
    context = [agent.message("system", "Sei kurz."), agent.message("user", "Lies a und ü.")]
    turn, _ = agent.call(context)
    results = [f"{n} — {SECRET}" for n in (1, 2)]
    context += [turn, *(agent.message("tool", each, tool_call_id=f"toolu_{n}") for n, each in enumerate(results, 1))]
    for _ in range(3):  # overloaded, cut, answered
        try:
            turn, _ = agent.call(context)
        except httpx.RemoteProtocolError:
            continue
    agent.call([agent.message("system", "Du suchst."), agent.message("user", "Suche 42.")])
    context += [turn, agent.message("user", "Und big?")]
    turn, _ = agent.call(context)
    context += [turn, agent.message("tool", "é" * 30_000, tool_call_id="toolu_1")]
    turn, _ = agent.call(context)
    agent.call([context[0], agent.message("user", "Bisher: alles gelesen. Weiter?")])


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("stream", [True, False])
async def test_rows_of_a_captured_branch_are_what_the_upstream_received_and_sent(
    settings: Settings, tmp_path: Path, protocol: Protocol, stream: bool
) -> None:
    kept = play()
    with model_server(kept) as api:
        configured = with_proxy(settings, tmp_path / "spool", api.url)
        with proxying(configured) as url, folding(configured):
            branch = f"{url}/r/r%2F1/b/0"
            run_agent(WireAgent(api, protocol, branch, stream=stream))
            assert httpx.post(f"{branch}/end").status_code == 202
            slices = await events_until_ended(configured)
    assert slices[-1].status == "answered"
    opened = RolloutOpened(
        rollout_id="r/1", task="Chat", branches=1, required=("build",), repo_commit="c", tool_manifest_digest="d" * 64
    )
    group = group_of_facts([Lifecycle(opened=opened), *slices], passes=[0])
    assert {row.fidelity for row in group.ppo} == {"exact"}
    assert len(kept.sent) == 6
    assert trained((*row.prompt, *row.completion) for row in group.ppo) == kept.calls(api, protocol)
    assert [(row.agent, row.n_sequences) for row in group.ppo] == [(None, 3), ("agent-2", 3), (None, 3)]
    assert SECRET not in str(group.ppo)
