"""The judge worker on a real Kafka, with a server that plays the model: nothing is paid for twice, nothing is invented."""

import asyncio
import socket
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from agents.judge.judge import JudgeSetupError
from schemas.closures import RolloutClosed
from schemas.emission import JudgeConfig
from streams.cluster.config import Settings
from streams.log.topics import DEAD_LETTERS, JUDGE_REQUESTS
from tests.agents.judge.asking import request_of
from tests.live import read_all, until
from tests.model_server import Play, Said, answer, model_server, refusal
from tests.streams.services.judge.running import ANTHROPIC, JudgeProcess, committed, judging, put, until_votes, votes_of

pytestmark = pytest.mark.kafka

REQUESTS = [request_of(f"one {n}", f"two {n}", rollout=f"r{n}") for n in range(8)]


def closing(rollout: str) -> RolloutClosed:
    return RolloutClosed(closed_id="c", rollout_id=rollout, settled_id="s", cause="judge_deadline", decided_at_ms=1)


def slow(seconds: float, letter: str = "a") -> Play:
    async def play(_body: dict[str, Any], _number: int) -> Said:
        await asyncio.sleep(seconds)
        return answer({"preferred": letter, "reasoning": "because"})

    return play


async def test_a_killed_worker_costs_at_most_the_calls_under_way(settings: Settings, tmp_path: Path) -> None:
    """After SIGKILL every vote is there once, and calls beyond the votes are at most those in flight; SIGTERM ends with 0."""
    await put(settings, REQUESTS)
    wanted, kills = 4 * len(REQUESTS), 1
    with model_server(slow(0.25)) as api:
        env = ANTHROPIC | {"BRAID_JUDGE__BASE_URL": api.url, "BRAID_JUDGE__CONCURRENCY": "4"}
        for kill in range(kills):
            with JudgeProcess(settings, tmp_path / "judge.log", **env):
                seen = api.calls

                async def busy(seen: int = seen) -> bool:
                    return api.calls >= seen + 10

                await until(busy, f"calls before kill {kill}")
        with JudgeProcess(settings, tmp_path / "judge.log", **env) as worker:
            votes = await until_votes(settings, wanted)
            await committed(settings, len(REQUESTS))
            code, seconds = worker.stop()
            assert (code, seconds < 5) == (0, True)
        assert api.calls <= wanted + kills * 4
    assert len({vote.vote_id for vote in votes}) == wanted
    assert len(votes) <= wanted + kills * 4
    assert Counter((vote.rollout_id, vote.order) for vote in votes if vote.sample < 2).keys() == {
        (request.rollout_id, order) for request in REQUESTS for order in ("ab", "ba")
    }
    # The model always said A: what was shown first, whichever branch that was.
    assert {(vote.order, vote.preferred) for vote in votes} == {("ab", "a"), ("ba", "b")}
    assert all(vote.usage is not None and vote.latency_ms is not None for vote in votes)


@pytest.fixture
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test")


@pytest.mark.usefixtures("_key")
async def test_what_has_closed_meanwhile_is_not_paid_for(settings: Settings) -> None:
    """Requests that wait for their turn when their rollout closes are passed over, and committed."""
    await put(settings, REQUESTS)
    with model_server(slow(0.5)) as api:
        async with judging(settings, base_url=api.url, concurrency=1):
            await until_votes(settings, 1)
            await put(settings, [closing(request.rollout_id) for request in REQUESTS])
            await committed(settings, len(REQUESTS))
            calls = api.calls
            await put(settings, [request_of("late", "later", rollout="r0")])
            await committed(settings, len(REQUESTS) + 1)
        assert calls == api.calls < 2 * len(REQUESTS)


@pytest.mark.usefixtures("_key")
async def test_requests_that_come_again_cost_nothing(settings: Settings) -> None:
    """A request written twice, or read again by a new worker, makes no call when its votes are in the log."""
    await put(settings, REQUESTS[:3])
    with model_server(slow(0.0)) as api:
        async with judging(settings, base_url=api.url):
            await until_votes(settings, 12)
            await put(settings, REQUESTS[:3])
            await committed(settings, 6)
        await put(settings, REQUESTS[:3])
        async with judging(settings, base_url=api.url):
            await committed(settings, 9)
        assert api.calls == 12
    assert len(await votes_of(settings)) == 12


@pytest.mark.usefixtures("_key")
async def test_a_slow_model_does_not_hold_up_the_group_and_stopping_waits_for_it(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    """A call longer than the group's session loses nothing; told to stop, the worker writes the votes under way, no more."""

    async def play(_body: dict[str, Any], number: int) -> Said:
        await asyncio.sleep(6.5 if number < 2 else 1.0)
        return answer({"preferred": "tie", "reasoning": "because"})

    short = settings.model_copy(update={"worker": settings.worker.model_copy(update={"session_timeout_s": 6.0})})
    await put(settings, REQUESTS[:6])
    with model_server(play) as api:
        async with judging(short, base_url=api.url, concurrency=2):

            async def more() -> bool:
                return api.calls == 4

            await until(more, "the next two calls")
        assert api.calls == 4
    assert len(await votes_of(settings)) == 4
    assert capsys.readouterr().out.count("ready") == 1


@pytest.mark.usefixtures("_key")
async def test_a_second_worker_takes_its_share_and_nothing_is_lost(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    """While partitions move, calls under way are finished by the worker that made them: at most those are made
    twice."""
    await put(settings, REQUESTS)
    wanted = 4 * len(REQUESTS)
    with model_server(slow(0.3)) as api:
        async with judging(settings, base_url=api.url, concurrency=2):

            async def busy() -> bool:
                return api.calls >= 4

            await until(busy, "calls of the first worker")
            async with judging(settings, base_url=api.url, concurrency=2, slot=1):
                await committed(settings, len(REQUESTS))
        assert api.calls <= wanted + 2
    votes = await votes_of(settings)
    assert len({vote.vote_id for vote in votes}) == wanted
    assert len(votes) == api.calls
    assert capsys.readouterr().out.count("ready") >= 3  # the first, the first again with fewer, the second


@pytest.mark.usefixtures("_key")
async def test_trouble_becomes_causes_and_bad_bytes_a_dead_letter(settings: Settings) -> None:
    """Beyond the budget no call is made; an overloaded model is a cause; what is no request is buried; all is committed."""

    async def overloaded(_body: dict[str, Any], number: int) -> Said:
        return refusal(529, "overloaded_error") if number < 5 else answer({"preferred": "tie", "reasoning": "same"})

    await put(settings, [b"\xc3\x01 no request", *REQUESTS[:2]])
    with model_server(overloaded) as api:
        async with judging(settings, base_url=api.url, concurrency=1, calls_per_hour=8, longest_wait_s=0.01):
            votes = await until_votes(settings, 8)
            await committed(settings, 3)
        assert api.calls == 8
    assert Counter((vote.preferred, vote.cause) for vote in votes) == {
        (None, "http_5xx"): 1, ("tie", None): 3, (None, "budget"): 4,
    }  # fmt: skip
    (letter,) = await read_all(settings, settings.prefix + DEAD_LETTERS.name)
    assert dict(letter.headers)["__braid.errors.reason"] == b"undecodable"
    assert JUDGE_REQUESTS.name.encode() in b"".join(content for _, content in letter.headers)


@pytest.mark.usefixtures("_key")
async def test_a_restarted_worker_remembers_its_budget_and_says_how_its_judge_behaves(settings: Settings) -> None:
    """Votes of the last hour count against the budget; answers, causes, tokens and the judge's bias are on /metrics."""
    await put(settings, REQUESTS[:1])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with model_server(slow(0.0)) as api:
        async with judging(settings, base_url=api.url, calls_per_hour=6):
            await committed(settings, 1)
        await put(settings, REQUESTS[1:2])
        async with judging(settings, base_url=api.url, calls_per_hour=6, metrics_port=port, concurrency=1):
            await committed(settings, 2)
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
                pages = {path: await client.get(path) for path in ("/healthz", "/readyz", "/metrics", "/else")}
        assert api.calls == 6
    assert {path: page.status_code for path, page in pages.items()} == {
        "/healthz": 200, "/readyz": 200, "/metrics": 200, "/else": 404,
    }  # fmt: skip
    said = dict(line.rsplit(" ", 1) for line in pages["/metrics"].text.splitlines() if not line.startswith("#"))
    judge = 'judge="judge-model"'
    assert {name: said.get(name) for name in said if "judge_votes_total" in name or "missing_total" in name} == {
        f'braid_judge_votes_total{{{judge},outcome="first"}}': "2.0",
        f'braid_judge_votes_total{{{judge},outcome="missing"}}': "2.0",
        f'braid_judge_missing_total{{cause="budget",{judge}}}': "2.0",
    }
    assert said[f"braid_judge_first_position_rate{{{judge}}}"] == "1.0"
    assert said[f"braid_judge_position_consistency{{{judge}}}"] == "0.0"
    assert said[f"braid_judge_tie_rate{{{judge}}}"] == "0.0"
    assert said[f'braid_judge_tokens_total{{{judge},kind="input"}}'] == "200.0"
    assert said[f"braid_judge_call_seconds_count{{{judge}}}"] == "4.0"
    assert said["braid_judge_budget_left_calls"] == "0.0"


@pytest.mark.usefixtures("_key")
@pytest.mark.parametrize(
    ("status", "kind", "said"),
    [(401, "authentication_error", ""), (400, "invalid_request_error", "Your credit balance is too low.")],
)
async def test_a_refused_account_ends_the_worker_without_a_vote(
    settings: Settings, status: int, kind: str, said: str
) -> None:
    """A wrong key, no credit: the error says what is wrong; the requests stay for later."""

    async def refused(_body: dict[str, Any], _number: int) -> Said:
        return refusal(status, kind, said)

    await put(settings, REQUESTS[:1])
    with model_server(refused) as api, pytest.raises(JudgeSetupError, match=f"HTTP {status}.*{said}"):
        async with judging(settings, base_url=api.url) as worker:
            await asyncio.wait([worker], timeout=30)
    assert await votes_of(settings) == []
    assert await committed(settings) == 0


async def test_a_rollout_that_has_closed_is_not_judged(settings: Settings, tmp_path: Path) -> None:
    """A worker that comes back after an outage does not pay for votes that would come too late."""
    closed = closing("r0")
    await put(settings, [*REQUESTS[:2], closed])
    rules = tmp_path / "rules.toml"
    rules.write_text('judge = "rules-1"\n[[rule]]\nprefer = "longest"\n')
    async with judging(settings, JudgeConfig(kind="scripted"), rules=rules):
        await committed(settings, 2)
    assert {(vote.rollout_id, vote.judge) for vote in await votes_of(settings)} == {("r1", "rules-1")}
