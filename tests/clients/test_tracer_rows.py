"""The server test for the tracer: rows rendered back equal what the model's server received and sent, call by call.

The agent asks with the SDKs of OpenAI and Anthropic, not through the proxy, and tells the tracer; a gateway takes it, the fold reads it.
Three user turns, parallel calls, reasoning, a retry, a sub-agent, a compaction, and an output of 60 KB.
"""

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest
from braidstream import Braid, Run

from schemas.lifecycle import Lifecycle, RolloutOpened
from streams.cluster.config import Settings
from streams.log.topics import DEAD_LETTERS
from tests.agents.conversations.test_server import PROTOCOLS, SECRET, trained
from tests.agents.formats.rollouts import group_of_facts
from tests.live import records_of
from tests.model_server import ModelServer, Protocol, Reply, model_server, reply, text
from tests.streams.services.gateway.serving import serving
from tests.streams.services.proxy.proxying import events_until_ended, folding, proxying, with_proxy
from tests.streams.services.proxy.test_wire import WireAgent, play, run_agent

pytestmark = pytest.mark.kafka


class TracedAgent(WireAgent):
    """Asks the server itself, by an SDK, and tells the tracer."""

    def __init__(self, api: ModelServer, protocol: Protocol, run: Run) -> None:
        super().__init__(api, protocol, "", stream=False)
        self._run = run
        if protocol == "chat":
            self._create: Any = openai.OpenAI(base_url=api.chat_url, api_key="k", max_retries=0).chat.completions.create
        else:
            self._create = anthropic.Anthropic(base_url=api.url, api_key="k", max_retries=0).messages.create

    def call(self, context: list[str], after: str | None = None, **more: Any) -> tuple[str, str]:
        body, _ = self._body([self._messages[each] for each in context])
        number = self._api.calls
        try:
            answer = self._create(**body)
        except (openai.APIError, anthropic.APIError, httpx.HTTPError, json.JSONDecodeError) as error:
            self._run.model_call(body, error=error)
            return "", ""
        self._run.model_call(body, answer)
        heard = self._heard_reply(self._api.replies[number])
        return self.message(heard.pop("role"), heard.pop("content"), **heard), ""


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_rows_of_a_traced_branch_are_what_the_server_received_and_sent(
    settings: Settings, protocol: Protocol
) -> None:
    kept = play()
    with model_server(kept) as api, serving(settings) as url, folding(settings):
        braid = Braid(url)
        with braid.rollout("r/1").branch(0) as run:
            run_agent(TracedAgent(api, protocol, run))
        assert braid.flush(30)
        slices = await events_until_ended(settings)
    assert (slices[-1].status, run.lost) == ("answered", 0)
    opened = RolloutOpened(
        rollout_id="r/1", task="Chat", branches=1, required=("build",), repo_commit="c", tool_manifest_digest="d" * 64
    )
    group = group_of_facts([Lifecycle(opened=opened), *slices], passes=[0])
    assert {row.fidelity for row in group.ppo} == {"exact"}
    assert len(kept.sent) == 6
    assert trained((*row.prompt, *row.completion) for row in group.ppo) == kept.calls(api, protocol)
    assert [(row.agent, row.n_sequences) for row in group.ppo] == [(None, 3), ("agent-2", 3), (None, 3)]
    assert SECRET not in str(group.ppo)


BRANCHES, TURNS = 8, 3


async def answers(body: dict[str, Any], number: int) -> Reply:
    del number
    return reply([text(f"after {len(body['messages'])}")])


def converse(run: Run) -> None:
    """Ask through the proxy, streamed, and end at once."""
    client = openai.OpenAI(base_url=run.base_url("openai"), api_key="k", max_retries=0)
    messages: list[Any] = [{"role": "user", "content": f"go {run.index}"}]
    for number in range(TURNS):
        stream = client.chat.completions.create(model="m", messages=messages, stream=True)
        said = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
        run.tool(len, name="measure")(said)
        messages += [{"role": "assistant", "content": said}, {"role": "user", "content": f"and {number}?"}]


async def test_a_branch_that_ends_at_once_has_all_its_calls(settings: Settings, tmp_path: Path) -> None:
    """Proxy and gateway are two services: the end follows the last call although nothing waits for it."""
    with model_server(answers) as api:
        configured = with_proxy(settings, tmp_path / "spool", api.url)
        with serving(settings) as url, proxying(configured) as proxy_url, folding(configured):
            braid = Braid(url, proxy_url=proxy_url)
            for index in range(BRANCHES):
                with braid.rollout("r").branch(index) as run:
                    await asyncio.to_thread(converse, run)
            assert braid.flush(30)
            slices = await events_until_ended(configured, BRANCHES)
            late = await records_of(configured, DEAD_LETTERS)
    counted = Counter((piece.branch_index, event.event) for piece in slices for event in piece.events)
    for index in range(BRANCHES):
        assert [counted[index, kind] for kind in ("model_call", "tool_call", "tool_result")] == [TURNS] * 3
    assert {piece.status for piece in slices if piece.ended} == {"answered"}
    assert (late, braid.lost) == ([], 0)
