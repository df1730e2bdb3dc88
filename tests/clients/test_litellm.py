"""The callback of LiteLLM with the real package, against a played API: every call once, in order, as it was sent."""

from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response

from tests.clients.environments import CLIENT, Environment
from tests.clients.gateway_server import serving
from tests.model_server import Reply, model_server, refusal, reply, text

TURNS = 4
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


async def play(body: dict[str, Any], number: int) -> Reply | Response:
    """The answer names the number of messages."""
    del number
    if body["messages"][-1]["content"] == "fail":
        return refusal(500, "server_error")
    return reply([text(f"after {len(body['messages'])}")])


def test_every_call_of_litellm_is_recorded_as_it_was_sent(tmp_path: Path) -> None:
    """Whole, streamed and asynchronous: requests are those that the server got, although the agent changed its list since."""
    environment = Environment(tmp_path / "env")
    environment.install("litellm", "mcp", CLIENT)
    with serving() as server, model_server(play) as model:
        script = Path(__file__).with_name("litellm_agent.py")
        done = environment.run(
            script, model.chat_url, str(TURNS), BRAID_URL=server.url, LITELLM_LOCAL_MODEL_COST_MAP="True"
        )
    assert done.returncode == 0, done.stderr
    received = [each.body for each in model.received]
    for branch in (0, 1):
        calls = [item for item in server.captures(branch) if item["kind"] == "call"]
        asked = received[branch * TURNS : (branch + 1) * TURNS]
        assert [call["request"]["messages"] for call in calls] == [body["messages"] for body in asked]
        said = [call["response"]["choices"][0]["message"]["content"] for call in calls]
        assert said == [f"after {len(body['messages'])}" for body in asked]
        assert server.captures(branch)[-1]["kind"] == "end", "the end waits for the last report"
    for branch in (2, 3):  # side by side
        *answered, failed, _ = server.captures(branch)
        asked = [call["request"]["messages"][0]["content"] for call in answered]
        assert sorted(asked) == [f"{branch} asks {number}" for number in range(TURNS)]
        assert (failed["status"], failed["response"], failed["error"]["kind"]) == (500, None, "InternalServerError")
