"""Pages that are alive: over a real Kafka, beside a real worker, in a real browser; and mounted in a gateway."""

import asyncio
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import orjson
import pytest
import uvloop
from playwright.sync_api import Browser

from agents.workspace.files import File
from agents.workspace.snapshot import TakenOf
from agents.workspace.snapshot_adapter import SnapshotStore
from schemas.events import AgentEvent, AgentEvents
from schemas.lifecycle import Lifecycle, RolloutOpened
from schemas.verdicts import BuildVerdict
from streams.cluster.config import Settings
from streams.commands.view import view_app
from streams.log.kafka_writer import FactWriter
from streams.log.topic_setup import ensure_topics
from streams.services.gateway.app import create_app
from streams.services.web.server import Server, address_of, listen
from tests.live import Worker
from tests.streams.views.web.conftest import Look, await_that, viewing
from tests.streams.views.web.test_in_browser import reading

ROOT = Path(__file__).parents[4]

ANSWER = AgentEvent(channel="text", event="final_answer", data='{"answer": "done"}', timestamp_ms=1)


def write(settings: Settings, *facts: Lifecycle | AgentEvents | BuildVerdict) -> None:
    async def run() -> None:
        async with FactWriter(settings, "test") as writer:
            for fact in facts:
                await writer.append(fact)

    with ThreadPoolExecutor(1) as thread:  # the browser keeps a loop running in its own
        thread.submit(asyncio.run, run()).result()


@pytest.mark.kafka
@pytest.mark.timeout(120)
def test_an_open_page_shows_that_its_rollout_closed(settings: Settings, look: Look, tmp_path: Path) -> None:
    """The page is not touched: it waits for a verdict, the verdict comes, and the page shows the closed rollout."""
    asyncio.run(ensure_topics(settings))
    opened = RolloutOpened(rollout_id="live", task="Watch it", branches=1, required=("build",))
    write(
        settings, Lifecycle(opened=opened), AgentEvents(rollout_id="live", branch_index=0, events=(ANSWER,), ended=True)
    )
    worker = Worker(settings, tmp_path / "worker.log").start()

    def do(browser: Browser) -> float:
        with (
            viewing(settings.model_copy(update={"state_dir": tmp_path})) as address,
            reading(browser, address) as reader,
        ):
            await_that(lambda: httpx.get(f"{address}/rollouts/live").status_code == 200)  # the index has read it
            page = reader.open("/rollouts/live")
            page.wait_for_selector("#waits >> text=no final verdict: build of branch 0", timeout=30_000)
            page.wait_for_selector("#live:not([hidden])", timeout=30_000)
            work = httpx.get(f"{address}/v1/work?needs=build").json()["branches"]
            assert [(each["rollout_id"], each["branch_index"]) for each in work] == [("live", 0)]
            verdict = BuildVerdict(rollout_id="live", branch_index=0, verdict_id="v", status="success", exit_code=0)
            write(settings, verdict)
            page.wait_for_selector(".title .state.closed", timeout=60_000)
            shown = time.time()
            assert page.locator("#waits").count() == 0
            assert httpx.get(f"{address}/v1/work?needs=build").json()["branches"] == []
            (row,) = httpx.get(f"{address}/v1/rollouts").json()["rollouts"]
            return shown - row["latest_at"] / 1000

    try:
        seconds = look(do)
    finally:
        worker.stop()
    print(f"from the last record of the closing to the page: {seconds:.2f} s")
    assert seconds < 10  # 2 s on a quiet machine


@pytest.fixture
def gateway(settings: Settings, tmp_path: Path) -> Iterator[str]:
    """The address of a gateway with pages."""
    changed = settings.model_copy(
        update={"state_dir": tmp_path, "gateway": settings.gateway.model_copy(update={"view": True})}
    )
    asyncio.run(ensure_topics(changed))
    bound, started = listen("127.0.0.1", 0), threading.Event()
    server = Server(create_app(changed, view_app(changed, mounted=True)), started.set)

    def run() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(server.serve([bound]))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert started.wait(60)
    url = address_of(bound).url
    await_that(lambda: httpx.get(f"{url}/readyz").status_code == 200)
    yield url
    server.end()
    thread.join(30)
    assert not thread.is_alive()


def post(url: str, body: object) -> None:
    answer = httpx.post(url, content=orjson.dumps(body), headers={"Content-Type": "application/json"})
    assert answer.status_code == 202, answer.text


@pytest.mark.kafka
def test_a_gateway_with_pages_takes_facts_and_shows_them(gateway: str) -> None:
    """One address: what is posted is read back; /docs stays the gateway's."""
    post(f"{gateway}/v1/rollouts", {"rollout_id": "posted", "task": "Post it", "branches": 1})
    await_that(lambda: httpx.get(f"{gateway}/v1/rollouts/posted").status_code == 200)
    assert "Post it" in httpx.get(f"{gateway}/rollouts/posted").text
    assert "swagger" in httpx.get(f"{gateway}/docs").text
    assert httpx.get(f"{gateway}/metrics").text.count("braid_gateway_requests_total")


@pytest.mark.kafka
def test_the_verifier_of_the_page_needs_nothing_but_curl(gateway: str, tmp_path: Path) -> None:
    """The example as it stands gives two branches their verdicts, by the files that they left; a third left none."""
    opened = {"rollout_id": "tabs/and spaces", "task": "No tabs", "branches": 3, "required": ["no_tabs"]}
    post(f"{gateway}/v1/rollouts", opened)
    store = SnapshotStore(tmp_path / "snapshots")
    for branch, content in enumerate((b"a b", b"a\tb")):
        left = store.keep({"x.py": File(content)}, TakenOf("tabs/and spaces", branch, 0))
        end = {"type": "end", "status": "answered", "workspace": left.plain()}
        answer = {"seq": 0, "event": {"event": "final_answer", "data": {"answer": "done"}}}
        post(f"{gateway}/v1/rollouts/tabs%2Fand%20spaces/branches/{branch}/events", [answer, end])
    post(
        f"{gateway}/v1/rollouts/tabs%2Fand%20spaces/branches/2/events", [answer, {"type": "end", "status": "answered"}]
    )
    work = f"{gateway}/v1/work?needs=no_tabs"
    await_that(lambda: len(httpx.get(work).json()["branches"]) == 3)
    script = ROOT / "docs" / "examples" / "no_tabs_verifier.sh"
    done = subprocess.run(
        ["bash", str(script)],
        env={"PATH": os.environ["PATH"], "GATEWAY": gateway},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    await_that(lambda: [each["branch_index"] for each in httpx.get(work).json()["branches"]] == [2])
    address = f"{gateway}/v1/rollouts/tabs%2Fand%20spaces"
    await_that(lambda: len(httpx.get(address).json()["verdicts"]) == 3)  # the last of them leaves the list as it was
    assert [(each["branch_index"], each["meaning"]["outcome"]) for each in httpx.get(address).json()["verdicts"]] == [
        (0, "pass"),
        (1, "fail"),
        (2, "unknown"),
    ]
