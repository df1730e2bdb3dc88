"""60 seeded secrets in headers, query strings and bodies: what authorizes is stored nowhere, the rest is in no dataset.

Checked on the bytes: of the topic, of the spool as it was written, of the log file, and of the rows.
"""

import asyncio
import random
import string
from pathlib import Path

import aiohttp
import pytest

from schemas.lifecycle import Lifecycle, RolloutOpened
from streams.cluster.config import Settings
from streams.log.topics import CAPTURES
from tests.agents.formats.rollouts import group_of_facts
from tests.live import read_all
from tests.log_lines import configured_logs
from tests.streams.services.proxy.played_api import played_api
from tests.streams.services.proxy.proxying import events_until_ended, folding, proxying, with_proxy

pytestmark = pytest.mark.kafka

HEADERS = ("Authorization", "x-api-key", "api-key", "Cookie", "Proxy-Authorization", "X-Braid-Token")
QUERIES = ("key", "api_key", "api-key", "access_token")


def seeded(count: int, seed: int) -> list[str]:
    chance = random.Random(seed)
    return ["sk-proj-" + "".join(chance.choices(string.ascii_letters + string.digits, k=48)) for _ in range(count)]


async def test_no_secret_of_60_is_stored_where_it_must_not_be(
    settings: Settings, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    headers, queries, bodies = seeded(24, 1), seeded(16, 2), seeded(20, 3)
    spool, spooled = tmp_path / "spool", b""
    with configured_logs("debug"):
        async with played_api() as api, aiohttp.ClientSession() as client:
            away = with_proxy(settings.model_copy(update={"kafka": "127.0.0.1:1"}), spool, api.url)
            with proxying(away) as url:
                for number, secret in enumerate(headers):
                    name = HEADERS[number % len(HEADERS)]
                    value = {"Authorization": f"Bearer {secret}", "Cookie": f"session={secret}"}.get(name, secret)
                    body = {
                        "model": "m",
                        "messages": [{"role": "user", "content": f"one {number}"}],
                        "play": {"seed": number},
                    }
                    query = f"?{QUERIES[number % 4]}={queries[number % 16]}"
                    await (
                        await client.post(
                            f"{url}/r/s/b/0/openai/v1/chat/completions{query}", json=body, headers={name: value}
                        )
                    ).read()
                for number, secret in enumerate(bodies):
                    content = (f"my key is {secret}", f"export OPENAI_API_KEY={secret}")[number % 2]
                    body = {"model": "m", "messages": [{"role": "user", "content": content}], "play": {"seed": number}}
                    await (await client.post(f"{url}/r/s/b/0/openai/v1/chat/completions", json=body)).read()
                dead = f"{url}/r/s/b/1/nowhere/v1?key={queries[0]}"
                await (await client.post(dead, headers={"Authorization": f"Bearer {headers[0]}"})).read()
                spooled = b"".join(file.read_bytes() for file in spool.glob("*.captures"))
            configured = with_proxy(settings, spool, api.url)
            with proxying(configured) as url, folding(configured):
                await (await client.post(f"{url}/r/s/b/0/end")).read()
                slices = await events_until_ended(configured)
    captured = await read_all(settings, settings.prefix + CAPTURES.name)
    topic = b"".join((each.value or b"") + b"".join(value for _, value in each.headers) for each in captured)
    said = "".join(capfd.readouterr()).encode()
    opened = RolloutOpened(rollout_id="s", task="t", branches=1, required=("build",))
    group = await asyncio.to_thread(group_of_facts, [Lifecycle(opened=opened), *slices], passes=[0])
    rows = repr((group.sft, group.dpo, group.ppo, group.branches)).encode()
    assert len(captured) == 45
    assert b"one 23" in spooled
    for place, where in ((spooled, "spool"), (topic, "topic"), (said, "log file"), (rows, "rows")):
        for secret in (*headers, *queries):
            assert secret.encode() not in place, (where, secret)
    for secret in bodies:
        assert secret.encode() not in rows
        assert secret.encode() not in said
