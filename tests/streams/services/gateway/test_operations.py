"""The gateway as a service: its pages, its metrics, its command, and a broker that is away."""

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import orjson
import pytest
from starlette.types import Receive, Scope, Send

from schemas.event_kinds import KINDS
from streams.cluster.config import ConfigError, Settings
from streams.commands.gateway import gateway
from streams.services.gateway.app import create_app
from streams.services.gateway.door import Door
from streams.services.gateway.gateway_metrics import GatewayMetrics
from streams.services.gateway.limits import Budget
from streams.services.gateway.problems import RefusedError
from streams.services.web.server import ListenError
from tests.streams.services.gateway.serving import serving, with_gateway

ROOT = Path(__file__).parents[4]
EVENT = {"seq": 0, "event": {"event": "step_start"}}
URL = re.compile(r"""(?:src|href|url)\s*[=:]\s*["']((?:https?:)?//[^"']+)""")


@pytest.mark.kafka
def test_docs_load_nothing_from_another_host(client: httpx.Client) -> None:
    """A machine without a way out shows them just the same."""
    page = client.get("/docs")
    assert page.status_code == 200
    assert URL.findall(page.text) == []
    assert "cdn" not in page.text
    for asset in re.findall(r"""(?:src|href)=["'](/[^"']+)""", page.text):
        assert client.get(asset).status_code == 200


@pytest.mark.kafka
def test_the_client_is_served_as_one_file(guarded: httpx.Client, tmp_path: Path) -> None:
    """Without a token, and it runs alone where nothing is installed."""
    answer = guarded.get("/tracer.py")
    assert answer.content == (ROOT / "clients/python/braidstream/tracer.py").read_bytes()
    (tmp_path / "tracer.py").write_bytes(answer.content)
    code = "import sys; sys.path.insert(0, '.'); from tracer import Braid; print(Braid('http://127.0.0.1:9').rollout('r').branch(0))"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "Run('r', branch=0, attempt=0)\n"


@pytest.mark.kafka
def test_the_openapi_names_every_route_with_examples(client: httpx.Client) -> None:
    """The requests, and the answers."""
    described = client.get("/openapi.json").json()
    posts = {path: methods["post"] for path, methods in described["paths"].items() if "post" in methods}
    assert set(posts) == {
        "/v1/rollouts",
        "/v1/rollouts/{rollout_id}/cancel",
        "/v1/rollouts/{rollout_id}/close",
        "/v1/rollouts/{rollout_id}/branches/{branch_index}/events",
        "/v1/rollouts/{rollout_id}/branches/{branch_index}/captures",
        "/v1/rollouts/{rollout_id}/branches/{branch_index}/verdicts/{kind}",
        "/v1/rollouts/{rollout_id}/votes",
        "/v1/lines",
    }
    for operation in posts.values():
        assert operation["requestBody"]["content"]["application/json"]["examples"]
        assert {"202", "207", "401", "403", "413", "422", "503"} <= set(operation["responses"])


@pytest.mark.kafka
def test_the_openapi_has_an_example_of_every_kind_of_event(client: httpx.Client) -> None:
    """The kinds are those of the one table, which docs/events.md is made of, too."""
    described = client.get("/openapi.json").json()
    events = described["paths"]["/v1/rollouts/{rollout_id}/branches/{branch_index}/events"]["post"]
    assert {kind.name for kind in KINDS} <= set(events["requestBody"]["content"]["application/json"]["examples"])


@pytest.mark.kafka
def test_examples_of_the_openapi_are_accepted(client: httpx.Client, rollout: str) -> None:
    """Every example works when it is copied."""
    for path, methods in client.get("/openapi.json").json()["paths"].items():
        content = methods.get("post", {}).get("requestBody", {}).get("content", {})
        for kind in ("build", "visual", "check") if "{kind}" in path else ("",):
            target = path.format(rollout_id=rollout, branch_index=0, kind=kind) + (
                "?first_seq=7" if "events" in path else ""
            )
            examples = content.get("application/json", {}).get("examples", {})
            bodies = [
                ("application/json", orjson.dumps(examples[name]["value"])) for name in examples if kind in ("", name)
            ]
            for other in content.keys() - {"application/json"}:
                example = content[other]["example"]
                bodies.append((other, example.encode() if isinstance(example, str) else orjson.dumps(example)))
            for content_type, body in bodies:
                answer = client.post(target, content=body, headers={"content-type": content_type})
                assert answer.status_code == 202, (target, body, answer.text)


@pytest.mark.kafka
def test_metrics_count_requests_records_and_errors(client: httpx.Client, house: Settings, rollout: str) -> None:
    """By route, topic and reason, in a registry of their own."""
    client.post(f"/v1/rollouts/{rollout}/branches/0/events", json=[EVENT, {"seq": "x", "event": EVENT["event"]}])
    text = client.get("/metrics").text
    assert (
        'braid_gateway_requests_total{method="POST",route="/v1/rollouts/{rollout_id}/branches/{branch_index}/events",status="207"}'
        in text
    )
    assert f'braid_gateway_records_total{{topic="{house.prefix}rollouts.agent-events.v1"}}' in text
    assert 'braid_gateway_errors_total{reason="invalid"}' in text
    assert "braid_gateway_ready 1.0" in text
    assert "python_gc" not in text


@pytest.mark.kafka
def test_health_and_readiness_say_so(client: httpx.Client) -> None:
    """The process answers, and the broker can be reached."""
    assert (client.get("/healthz").text, client.get("/readyz").text) == ("ok\n", "ready\n")


def test_a_broker_that_is_away_is_a_503_with_a_time_to_come_back() -> None:
    """The gateway itself is well, says what is missing, and shows no traceback."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    settings = Settings(kafka=f"127.0.0.1:{port}", registry="", partitions=4)
    with serving(settings) as url, httpx.Client(base_url=url, timeout=30) as client:
        answer = client.post("/v1/rollouts/r/branches/0/events", json=EVENT)
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) > 0
        assert "does not answer" in answer.json()["errors"][0]["reason"]
        assert "Traceback" not in answer.text
        assert (client.get("/healthz").status_code, client.get("/readyz").status_code) == (200, 503)


async def test_a_bug_is_an_answer_without_its_traceback() -> None:
    """The sender learns that it was not his fault; the log has the rest."""

    async def broken(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise RuntimeError("inner words")

    metrics = GatewayMetrics()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(Door(broken, metrics=metrics, is_open=False))) as client:
        answer = await client.post("http://gateway/v1/lines")
    assert answer.status_code == 500
    assert "inner words" not in answer.text
    assert metrics.registry.get_sample_value(
        "braid_gateway_requests_total", {"method": "POST", "route": "none", "status": "500"}
    )


def test_no_gateway_is_open_to_others() -> None:
    """Without tokens it does not even start on another address than loopback."""
    with pytest.raises(ConfigError, match="no tokens are configured"):
        create_app(with_gateway(Settings(kafka="x:1", registry=""), host="0.0.0.0"))


def test_bodies_share_a_budget() -> None:
    """When it is used up others are told to come back; when one is done its share is free again."""
    budget = Budget(100)
    with budget.hold() as first:
        for _ in range(3):
            budget.hold().__enter__().take(100)
        first.take(50)
        with pytest.raises(RefusedError) as full, budget.hold() as second:
            second.take(51)
        with pytest.raises(RefusedError) as large:
            first.take(51)
    assert (full.value.status, large.value.status) == (503, 413)
    with budget.hold() as third:
        third.take(100)


@contextmanager
def command(settings: Settings, *arguments: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    environment = os.environ | {
        "BRAID_KAFKA": settings.kafka,
        "BRAID_REGISTRY": settings.registry,
        "BRAID_PREFIX": settings.prefix,
        "BRAID_PARTITIONS": str(settings.partitions),
        **variables,
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "streams.cli", "gateway", *arguments],
        env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.kafka
def test_the_command_prints_its_address_and_ends_well(house: Settings, open_url: str, rollout: str) -> None:
    """Port 0 is a free one, SIGTERM ends it with 0, and no token was ever printed."""
    tokens = '[{"token": "very-secret-token", "roles": ["agent"]}]'
    with command(house, "--port", "0", "--json", "--log-level", "debug", BRAID_GATEWAY__TOKENS=tokens) as process:
        assert process.stdout is not None
        said = orjson.loads(process.stdout.readline())
        assert said["host"] == "127.0.0.1"
        path = f"{said['url']}/v1/rollouts/{rollout}/branches/0/events"
        assert httpx.post(path, json=EVENT, headers={"Authorization": "Bearer very-secret-token"}).status_code == 202
        assert httpx.post(path, json=EVENT, headers={"Authorization": "Bearer wrong-secret"}).status_code == 401
        process.send_signal(signal.SIGTERM)
        out, log = process.communicate(timeout=30)
    assert process.returncode == 0
    assert rollout in log
    assert "very-secret" not in out + log
    assert "wrong-secret" not in out + log
    assert "Traceback" not in log


def test_the_command_refuses_an_address_that_is_taken_or_open_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one sentence each, before anything listens."""
    monkeypatch.setenv("BRAID_KAFKA", "127.0.0.1:1")
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ListenError, match="cannot listen on"):
        gateway(port=taken.getsockname()[1])
    with pytest.raises(ConfigError, match="no tokens are configured"):
        gateway(host="0.0.0.0")


@pytest.mark.kafka
@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_commands_of_the_documentation_work(open_url: str, rollout: str) -> None:
    """Copied as they are, in their order."""
    page = (ROOT / "docs" / "gateway.md").read_text()
    commands = re.findall(r"^    (curl .*?)\n\n", page, re.MULTILINE | re.DOTALL)
    assert len(commands) >= 7
    for shown in commands:
        arguments = shlex.split(
            shown.replace("\\\n", " ").replace("http://127.0.0.1:8790", open_url).replace("r1", rollout)
        )
        done = subprocess.run(
            [*arguments, "-w", "\n%{http_code}"], capture_output=True, text=True, check=True, timeout=30
        )
        assert done.stdout.endswith("\n202"), (shown, done.stdout)
