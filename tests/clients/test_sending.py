"""Sending in the background: a server that is away, hangs or refuses; threads, forks, and the end of the process."""

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from braidstream import Braid, Run, tracer

from tests.clients.gateway_server import Server, serving


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture
def run(server: Server) -> Run:
    return Braid(server.url).rollout("r").branch(0)


def in_a_process(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], env=os.environ | env, capture_output=True, text=True, timeout=60, check=False
    )


def test_an_agent_is_not_held_up_by_a_server_that_hangs(
    server: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server answers only after the agent is done: were an answer waited for, this test would not end."""
    monkeypatch.setattr(tracer, "BRANCH_FLUSH_S", 0.1)
    server.held.clear()
    braid = Braid(server.url)
    for branch in range(3):
        with braid.rollout("r").branch(branch) as run:
            for number in range(1000):
                run.tool(str)(number)
    assert server.requests == []
    server.held.set()
    assert braid.flush(30)
    assert [len(server.captures(branch)) for branch in range(3)] == [2001] * 3
    assert (braid.lost, caplog.records) == (0, [])


def test_a_hanging_server_is_waited_for_once(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first branch had to give up waiting, the ends of the others do not wait at all."""
    monkeypatch.setattr(tracer, "BRANCH_FLUSH_S", 0.1)
    server.held.clear()
    rollout = Braid(server.url).rollout("r")
    with rollout.branch(0):
        pass
    monkeypatch.setattr(tracer, "BRANCH_FLUSH_S", 3600.0)
    for branch in range(1, 50):
        with rollout.branch(branch):
            pass
    assert server.requests == []


def test_answers_of_500_are_tried_again_and_nothing_comes_twice(server: Server) -> None:
    """The end of the branch does not wait for a server in trouble; the items go when it is well again."""
    server.answers = [(500, {}), (503, {}), (429, {})]
    braid = Braid(server.url)
    with braid.rollout("r").branch(0) as run:
        for number in range(5):
            run.user(f"{number}")
    assert braid.flush(30)
    assert [data["text"] for _, data in server.events()] == ["0", "1", "2", "3", "4"]
    assert (server.repeated, run.lost) == (0, 0)


def test_an_item_whose_answer_was_lost_is_sent_again_under_its_id(run: Run, server: Server) -> None:
    """The server took it, and the connection broke: the second time it is a repetition."""
    server.unanswered = 1
    run.user("once")
    assert run.rollout.braid.flush(30)
    assert (len(server.items), server.repeated, run.lost) == (1, 1, 0)


def test_a_connection_that_the_server_closed_is_opened_again(run: Run, server: Server) -> None:
    """A kept connection that broke costs nothing."""
    run.user("one")
    assert run.rollout.braid.flush()
    (connection,) = run.rollout.braid._sender._connections.values()
    connection.sock.shutdown(2)
    run.user("two")
    assert run.rollout.braid.flush()
    assert [data["text"] for _, data in server.events()] == ["one", "two"]


@pytest.mark.parametrize(("limit", "most"), [("MAX_QUEUED_ITEMS", 10), ("MAX_QUEUED_BYTES", 1200)])
def test_a_full_queue_loses_and_counts_and_the_branch_is_unknown(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, limit: str, most: int
) -> None:
    """Memory is bounded; the end says that something is missing, and finds room always."""
    monkeypatch.setattr(tracer, limit, most)
    server.held.clear()
    run = Braid(server.url).rollout("r").branch(0)
    for number in range(30):
        run.user(f"{number}")
    run.end("answered")
    server.held.set()
    assert run.rollout.braid.flush(30)
    assert server.end()["status"] == "infra_error"
    assert run.lost >= 1
    assert len(server.items) + run.lost == 32, "thirty messages, a note of the loss, and the end"
    assert [record.levelname for record in caplog.records] == ["WARNING"], "said once"
    assert "the queue is full" in caplog.text


def test_captures_go_to_the_proxy_and_the_rest_to_the_gateway(server: Server) -> None:
    """The proxy knows which calls of a branch are under way: its end follows them."""
    with serving() as proxy:
        with Braid(server.url, proxy_url=proxy.url).rollout("r", task="t") as r:
            with r.branch(0) as run:
                run.user("hi")
            r.check(0, "tests", passed=True)
        assert r.braid.flush()
    assert [request.path for request in server.requests] == ["/v1/rollouts", "/v1/rollouts/r/branches/0/verdicts/check"]
    assert [item["kind"] for item in proxy.captures()] == ["event", "end"]


def test_a_refusal_is_counted_and_said_once(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """A request that a server will never take is not sent again; the log has the reason."""
    server.always = (403, {"errors": [{"index": None, "field": "", "reason": "an agent writes no verdict"}]})
    r = Braid(server.url).rollout("r")
    for branch in range(3):
        r.check(branch, "tests", passed=True)
    assert r.braid.flush()
    assert (r.lost, r.braid.lost) == (3, 3)
    (record,) = caplog.records
    assert "403: : an agent writes no verdict" in record.getMessage()


def behind_one(run: Run, server: Server, *texts: str) -> None:
    """Queue items that will be sent together, behind one that is under way."""
    server.held.clear()
    run.user("under way")
    until = time.monotonic() + 60
    while run.rollout.braid._sender._under_way != 1:
        assert time.monotonic() < until
        time.sleep(0.005)
    for text in texts:
        run.user(text)


def test_of_a_batch_that_was_taken_in_part_the_rest_is_counted(run: Run, server: Server) -> None:
    """207 names the items that were refused."""
    behind_one(run, server, "0", "1", "2")
    server.answers = [(202, {}), (207, {"errors": [{"index": 1, "field": "event", "reason": "no"}]})]
    server.held.set()
    assert run.rollout.braid.flush(30)
    assert run.lost == 1


def test_a_batch_over_the_servers_limit_goes_in_pieces(run: Run, server: Server) -> None:
    """413 for a batch: each item is sent by itself, and only one that is too large alone is lost."""
    behind_one(run, server, "0", "1", "2")
    server.answers = [(202, {}), (413, {}), (413, {})]
    server.held.set()
    assert run.rollout.braid.flush(30)
    assert [data["text"] for _, data in server.events()] == ["1", "2"]
    assert run.lost == 1


def test_threads_share_a_run(run: Run, server: Server) -> None:
    """Every event arrives once, in the order of its thread."""

    def work(name: int) -> None:
        for number in range(200):
            run.event("status", thread=name, number=number)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert run.rollout.braid.flush(30)
    for name in range(8):
        assert [data["number"] for _, data in server.events() if data["thread"] == name] == list(range(200))


FORKS = """
import os
from braidstream import Braid
run = Braid().rollout("r").branch(0)
run.user("before")
child = os.fork() == 0
run.user("child" if child else "parent")
assert run.rollout.braid.flush()
if child:
    os._exit(0)
assert os.wait()[1] == 0
"""


def test_parent_and_child_of_a_fork_send_their_own(server: Server) -> None:
    """Events that waited at the fork are sent by the parent alone, and neither hangs on a lock of the other."""
    done = in_a_process(FORKS, BRAID_URL=server.url)
    assert done.returncode == 0, done.stderr
    assert sorted(data["text"] for _, data in server.events()) == ["before", "child", "parent"]
    assert server.repeated == 0


def test_the_rest_is_sent_when_the_process_ends(server: Server) -> None:
    """A script that never closes its branch loses nothing."""
    code = "from braidstream import Braid\nrun = Braid().rollout('r').branch(0)\nfor n in range(300): run.user(str(n))"
    done = in_a_process(code, BRAID_URL=server.url)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(server.events()) == 300


def test_retries_leave_the_random_numbers_of_the_agent_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A seeded agent draws the same numbers with this client and without it."""
    pauses: list[float] = []
    tried = threading.Event()

    class Jitter(random.SystemRandom):
        def uniform(self, a: float, b: float) -> float:
            pauses.append(super().uniform(a, b))
            if len(pauses) == 2:
                tried.set()
            return pauses[-1]

    monkeypatch.setattr(tracer, "RETRIES_S", (0.01, 0.01))
    monkeypatch.setattr(tracer, "_jitter", Jitter())
    before = random.getstate()
    Braid("http://127.0.0.1:9").rollout("r").branch(0).user("hi")
    assert tried.wait(30)
    assert random.getstate() == before


def test_a_process_without_a_server_ends_and_says_what_was_lost() -> None:
    """Two lines on the logger: the first loss with its reason, and the number of all."""
    code = (
        "from braidstream import Braid, tracer\ntracer.EXIT_FLUSH_S = 0.2\n"
        "with Braid('http://127.0.0.1:9').rollout('r', task='t') as r, r.branch(0) as run: run.user('hi')"
    )
    done = in_a_process(code)
    assert done.returncode == 0
    first, last = done.stderr.splitlines()
    assert "the process ended before it was sent" in first
    assert last == "3 records did not reach Braidstream"
