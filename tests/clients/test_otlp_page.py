"""The page "Connect an instrumented agent", run: its blocks as they stand, in one shell."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from streams.cluster.config import Settings
from tests.agents.capture.span_captures import events_in
from tests.model_server import Reply, model_server, reply
from tests.model_server import text as words
from tests.real_agents.installed import python
from tests.streams.services.otlp.test_receiver import slices
from tests.streams.services.proxy.proxying import folding, gateway_of

PAGE = (Path(__file__).parents[2] / "docs" / "otlp.md").read_text("utf-8")


@pytest.mark.kafka
@pytest.mark.timeout(200)
def test_the_blocks_of_the_page_end_in_events_of_the_branch(settings: Settings, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    script = "set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"
    script += "\n".join(re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL))
    script = script.replace("braid otlp &", f"braid otlp --port {port} &").replace(
        "127.0.0.1:4318", f"127.0.0.1:{port}"
    )
    env = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "BRAID_KAFKA": settings.kafka,
        "BRAID_REGISTRY": settings.registry, "BRAID_PREFIX": settings.prefix, "BRAID_PARTITIONS": str(settings.partitions),
        "BRAID_STATE_DIR": str(tmp_path / "state"), "BRAID_CAPTURE__TRACE_IDLE_S": "2",
    }  # fmt: skip
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=180
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "The capital of France" in done.stdout
    assert "{}" in done.stdout, "the receiver's answer"


async def play(_body: dict[str, object], _number: int) -> Reply:
    return reply([words("Paris")])


@pytest.mark.kafka
@pytest.mark.timeout(900)
@pytest.mark.long
@pytest.mark.parametrize("sdk", ["openai", "anthropic", "langgraph", "pydantic-ai"])
def test_an_instrumented_agent_of_the_page_becomes_an_exact_branch(
    sdk: str, settings: Settings, tmp_path: Path
) -> None:
    """Each in an environment of its own, with the SDK and the instrumentation that the registry has."""
    program, name = python(f"instrumented-{sdk}"), f"with_{sdk.replace('-', '_')}"
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        (tmp_path / code[2 : code.index("\n")]).write_text(code)
    house = settings.model_copy(update={"capture": settings.capture.model_copy(update={"trace_idle_s": 4.0})})
    with gateway_of(house) as url, folding(house), model_server(play) as model:
        env = os.environ | {
            "OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_RESOURCE_ATTRIBUTES": f"braid.rollout_id={name},braid.branch_index=2",
            "OPENAI_API_KEY": "sk-played", "ANTHROPIC_API_KEY": "sk-played", "OPENAI_BASE_URL": model.chat_url,
            "ANTHROPIC_BASE_URL": model.url,
        }  # fmt: skip
        done = subprocess.run(
            [program, f"{name}.py"],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert (done.returncode, done.stdout.strip()) == (0, "Paris"), done.stderr[-3000:]
        ((place, found),) = slices(house, name).items()
    events = events_in(found)
    said = [(each["data"]["role"], each["data"]["content"]) for each in events if each["event"] == "message"]
    assert (place, said) == ((name, 2, 0), [("user", "The capital of France, in one word?"), ("assistant", "Paris")])
    assert sum(each["event"] == "model_call" for each in events) == 1, "told twice, counted once"
    assert "sk-played" not in json.dumps(events)
