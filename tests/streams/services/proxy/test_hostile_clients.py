"""Clients that mean harm: requests are refused in a sentence, stay below their upstream, and no key is quoted anywhere.

The broker is away in these tests: nothing of this needs it.
"""

import asyncio
import gzip
import json
import os
import socket
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path

import pytest
from pydantic import SecretStr

from streams.cluster.config import ConfigError, GatewayConfig, Settings, Token, Upstream, load
from streams.services.proxy import proxy, proxy_site
from streams.services.proxy.proxy import named_upstreams
from tests.live import until
from tests.log_lines import configured_logs
from tests.streams.services.proxy.played_api import PlayedApi, played_api
from tests.streams.services.proxy.proxying import gateway_of, proxying
from tests.streams.services.proxy.raw_requests import CHAT, answered, request
from tests.streams.services.proxy.test_transparency import away, spooled

KEY = "hx-4f9Kq2Zr8Wd1Lm6Tn3Vb7Ys5"
"""A key of no known maker: no rule of redaction finds it by its shape."""


@pytest.fixture
async def api() -> AsyncIterator[PlayedApi]:
    async with played_api() as api:
        yield api


@pytest.fixture
def settings(api: PlayedApi, tmp_path: Path) -> Settings:
    return away(tmp_path, api.url)


OUT_OF_THE_UPSTREAM = [
    b"/r/t/b/0/openai/../../admin", b"/r/t/b/0/openai/%2e%2e/admin", b"/openai/v1/%2E./x", b"/openai/v1/./x", b"/openai/..;/admin",
    b"/openai/..%2fadmin", b"/openai/v1%2f%2e.%2fadmin", b"/openai/v1/..%5cadmin", b"/openai/v1/..",
    b"/r/t/b/0/openai/v1/chat/completions#x",
]  # fmt: skip


@pytest.mark.parametrize("target", OUT_OF_THE_UPSTREAM)
async def test_a_path_that_leads_out_of_its_upstream_is_refused(
    api: PlayedApi, settings: Settings, target: bytes
) -> None:
    with proxying(settings) as url:
        status, _ = await answered(url, request(target))
    assert (status, api.requests) == (400, [])


NO_PLACE = {
    b"http://evil.example" + CHAT: b"POST", b"evil.example:443": b"CONNECT", b"/openai@evil.example/v1/x": b"POST", b"*": b"OPTIONS",
    b"/v1/rollouts/t/branches/0/verdicts/build": b"POST", b"/r/t/b/0/v1/rollouts": b"POST",
}  # fmt: skip


@pytest.mark.parametrize(("target", "method"), NO_PLACE.items())
async def test_no_other_host_and_no_verdict_is_reached_through_the_proxy(
    api: PlayedApi, settings: Settings, target: bytes, method: bytes
) -> None:
    with proxying(settings) as url:
        status, _ = await answered(url, request(target, b"{}", method=method))
    assert (status, api.requests) == (404, [])


async def test_headers_do_not_choose_the_upstream(api: PlayedApi, settings: Settings) -> None:
    names = (b"X-Forwarded-Host", b"X-Forwarded-For", b"Forwarded", b"X-Original-URL", b"X-Rewrite-URL", b"X-Upstream")
    with proxying(settings) as url:
        status, _ = await answered(url, request(CHAT, None, *(name + b": http://127.0.0.1:9/x" for name in names)))
    assert status == 200
    assert [(target, got["host"]) for target, got, _ in api.requests] == [
        ("/v1/chat/completions", api.url.removeprefix("http://"))
    ]


UNREADABLE = {
    "both lengths": request(CHAT, b"{}", b"Transfer-Encoding: chunked"),
    "two lengths": request(CHAT, b"{}", b"Content-Length: 9"),
    "a length that is none": request(CHAT, None, b"Content-Length: +2") + b"{}",
    "an odd encoding": request(CHAT, None, b"Transfer-Encoding: xchunked"),
    "a folded line": request(CHAT, b"{}", b"X-A: b\r\n c"),
    "a bare line feed": request(CHAT, b"{}", b"X-A: b\nX-Braid-Rollout: other"),
    "a space before the colon": request(CHAT, b"{}", b"Authorization : Bearer " + KEY.encode()),
    "a zero byte": request(CHAT, b"{}", b"Authorization: Bearer " + KEY.encode() + b"\x00"),
    "no colon": request(CHAT, b"{}", KEY.encode()),
    "two hosts": request(CHAT, b"{}", b"Host: evil.example"),
    "a chunk of no size": request(CHAT, None, b"Transfer-Encoding: chunked") + b"zz\r\n{}\r\n0\r\n\r\n",
    "a long header": request(CHAT, b"{}", b"X-Key: " + KEY.encode() * 8000),
    "many headers": request(CHAT, b"{}", *(b"X-%d: a" % number for number in range(5000))),
    "a long path": request(CHAT + b"?key=" + KEY.encode() * 8000, b"{}"),
    "another protocol": bytes.fromhex("16030100c8010000c403"),
    "letters of another script": request(b"/r/t/b/\xd9\xa1/openai/v1/x", b"{}"),
}


@pytest.mark.parametrize("name", UNREADABLE)
async def test_a_request_that_readers_may_read_in_two_ways_is_refused_and_not_quoted(
    api: PlayedApi, settings: Settings, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with configured_logs("debug"), proxying(settings) as url:
        status, told = await answered(url, UNREADABLE[name])
    said = "".join(capfd.readouterr())
    assert (status, api.requests) == (400, [])
    for text in (told.decode("latin-1"), said):
        assert KEY not in text
        assert "Traceback" not in text


@pytest.fixture
def mounted(settings: Settings) -> Iterator[str]:
    """A gateway with the proxy in it, whose HTTP is read by another library."""
    with gateway_of(settings) as url:
        yield url


async def test_a_gateway_that_is_the_proxy_refuses_the_same(
    api: PlayedApi, mounted: str, capfd: pytest.CaptureFixture[str]
) -> None:
    lenient = {"a folded line", "a bare line feed", "many headers"}
    odd = [told for name, told in UNREADABLE.items() if name not in lenient] + [
        request(each) for each in OUT_OF_THE_UPSTREAM
    ]
    odd += [request(target, b"{}", method=method) for target, method in NO_PLACE.items() if b"verdicts" not in target]
    with configured_logs("debug"):
        statuses = {(await answered(mounted, each))[0] for each in odd}
    assert statuses <= {400, 404, None}
    assert api.requests == []
    assert KEY not in "".join(capfd.readouterr())
    assert (await answered(mounted, request(CHAT)))[0] == 200


async def test_identities_that_say_two_things_are_refused(api: PlayedApi, settings: Settings) -> None:
    twice = request(b"/openai/v1/chat/completions", b"{}", b"X-Braid-Rollout: a", b"X-Braid-Rollout: b")
    with proxying(settings) as url:
        assert (await answered(url, twice))[0] == 400
    assert api.requests == []


IDS = {
    b"a%2Fb": "a/b", b"..": "..", b"%2e%2e%2f%2e%2e%2fetc": "../../etc", b"a%00b": "a\0b", b"%F0%9F%98%80" * 256: "😀" * 256,
    b"x" * 257: None, b"%ED%A0%80": None, b"": None,
}  # fmt: skip


@pytest.mark.parametrize(("written", "rollout"), IDS.items())
async def test_an_id_is_any_text_and_never_a_path(
    settings: Settings, tmp_path: Path, written: bytes, rollout: str | None
) -> None:
    before = sorted(tmp_path.rglob("*"))
    with proxying(settings) as url:
        status, _ = await answered(url, request(b"/r/" + written + b"/b/0/openai/v1/chat/completions"))
        made = {path.name for path in set(tmp_path.rglob("*")) - set(before)}
    assert status == (400 if rollout is None else 200)
    assert [capture.rollout_id for capture in spooled(tmp_path)] == ([] if rollout is None else [rollout])
    assert made <= {"spool", "lock", "000000000.captures"}


@pytest.mark.parametrize("upgrade", [b"websocket", b"WebSocket, h2c", b"h2c, websocket"])
async def test_web_sockets_are_refused_before_anything_is_sent(
    api: PlayedApi, settings: Settings, upgrade: bytes
) -> None:
    asks = request(CHAT, None, b"Upgrade: " + upgrade, b"Connection: Upgrade", method=b"GET")
    with proxying(settings) as url:
        assert (await answered(url, asks))[0] == 426
    assert api.requests == []


BODIES = {
    "no JSON": b"\xff\xfe", "a number that is none": b'{"messages":[NaN],"play":{}}', "half a pair": b'{"messages":["\\ud800"]}',
    "deep": b'{"messages":' + b"[" * 200_000 + b"]" * 200_000 + b"}", "a long number": b'{"seed":' + b"9" * 5000 + b',"messages":[]}',
    "a list": b"[1]", "empty": b"",
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
async def test_a_body_that_is_no_request_reaches_the_upstream_as_it_is(
    api: PlayedApi, settings: Settings, tmp_path: Path, name: str
) -> None:
    with proxying(settings) as url:
        assert (await answered(url, request(CHAT, BODIES[name])))[0] == 200
    assert [body for _, _, body in api.requests] == [BODIES[name]]
    assert len(spooled(tmp_path)) == 1


async def test_a_packed_body_that_unpacks_beyond_the_limit_passes_and_is_not_captured(
    api: PlayedApi, settings: Settings, tmp_path: Path
) -> None:
    packed = gzip.compress(gzip.compress(b"[" + b" " * 2**26, 9), 9)
    with proxying(settings) as url:
        assert (await answered(url, request(CHAT, packed, b"Content-Encoding: gzip, gzip")))[0] == 200
    assert [body for _, _, body in api.requests] == [packed]
    assert [capture.source for capture in spooled(tmp_path)] == ["proxy-lost"]


async def test_an_api_that_repeats_the_key_and_an_agent_that_says_it_leave_no_key_in_the_capture(
    tmp_path: Path,
) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        said = json.dumps({"error": {"message": f"Incorrect key {KEY} for cookie {KEY[::-1]}", "type": KEY}}).encode()
        writer.write(b"HTTP/1.1 401 No\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(said) + said)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    upstream = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    escaped = "".join(f"\\u{ord(each):04x}" for each in KEY)
    body = b'{"messages":[{"role":"user","content":"env: %s, %s"}]}' % (KEY.encode(), escaped.encode())
    with proxying(away(tmp_path, upstream)) as url:
        asked = request(CHAT, body, b"X-Api-Key: " + KEY.encode(), b"Cookie: a=b; s=" + KEY[::-1].encode())
        status, told = await answered(url, asked)
    server.close()
    (capture,) = spooled(tmp_path)
    assert (status, KEY.encode() in told) == (401, True), "the client sees what the API says"
    assert KEY.encode() not in capture.body
    assert KEY[::-1].encode() not in capture.body
    assert b"Incorrect key [REDACTED:authorization]" in capture.body


@pytest.mark.parametrize("names", [(b"Authorization: Bearer ",), (b"X-Braid-Token: ", b"Authorization: Bearer ")])
async def test_an_agent_that_says_its_token_or_is_told_the_upstreams_key_leaves_neither_in_the_capture(
    names: tuple[bytes, ...], api: PlayedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, key = KEY, KEY[::-1]
    monkeypatch.setenv("SOME_UPSTREAM_KEY", key)
    settings = away(tmp_path, api.url)
    upstreams = {"openai": Upstream(url=api.url, key_variable="SOME_UPSTREAM_KEY")}
    known = GatewayConfig(tokens=(Token(token=SecretStr(token), roles=["agent"], rollout="t", branch=0),))
    settings = settings.model_copy(
        update={"gateway": known, "proxy": settings.proxy.model_copy(update={"upstreams": upstreams})}
    )
    told = b'{"messages":[{"role":"user","content":"env: %s, %s"}],"play":{}}' % (token.encode(), key.encode())
    given = [name + value.encode() for name, value in zip(names, (token, key), strict=False)]
    with proxying(settings) as url:
        assert (await answered(url, request(CHAT, told, *given)))[0] == 200
    (capture,) = spooled(tmp_path)
    assert api.requests[0][1]["authorization"] == f"Bearer {key}"
    assert b"env: [REDACTED:authorization], [REDACTED:authorization]" in capture.body


async def test_a_placeholder_for_a_key_is_a_word_like_any_other(settings: Settings, tmp_path: Path) -> None:
    body = b'{"messages":[{"role":"user","content":"placeholder, not-needed, anything"}],"play":{}}'
    with proxying(settings) as url:
        for word in (b"placeholder", b"not-needed", b"anything"):
            await answered(url, request(CHAT, body, b"Authorization: Bearer " + word))
    assert all(b"REDACTED" not in capture.body for capture in spooled(tmp_path))


async def test_the_spool_is_for_its_user_alone(settings: Settings, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with proxying(settings) as url:
            await answered(url, request(CHAT))
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "spool").glob("*.captures")}
    assert modes == {"000000000.captures": 0o600}
    assert stat.S_IMODE((tmp_path / "spool").stat().st_mode) == 0o700


async def test_a_link_in_the_place_of_a_spool_file_is_not_followed(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "spool").mkdir()
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (tmp_path / "spool" / "000000000.captures").symlink_to(precious)
    with proxying(settings) as url:
        await answered(url, request(CHAT))
    assert precious.read_text() == "precious"


async def test_a_call_that_found_no_room_is_told_when_there_is_some(api: PlayedApi, tmp_path: Path) -> None:
    large = json.dumps({"messages": [{"role": "user", "content": "x" * 5000}], "play": {}}).encode()
    with proxying(away(tmp_path, api.url, spool_bytes=4000)) as url:
        for branch in (b"1", b"1", b"2"):
            assert (await answered(url, request(b"/r/t/b/" + branch + b"/openai/v1/chat/completions", large)))[0] == 200
    found = spooled(tmp_path)
    assert {(each.branch_index, each.source) for each in found} == {(1, "proxy-lost"), (2, "proxy-lost")}


async def test_a_connection_that_never_asks_is_closed(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_site, "HEADER_S", 0.3)
    with proxying(settings) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        async with asyncio.timeout(10):
            assert await _dripping(reader, writer)


async def _dripping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Send a byte at a time until the other side closes the connection."""
    try:
        while not reader.at_eof():
            writer.write(b"X")
            await writer.drain()
            await asyncio.sleep(0.05)
    except ConnectionError:
        pass
    writer.close()
    return True


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="needs Linux: this kernel gives no client up")
async def test_a_client_that_does_not_read_its_answer_is_given_up(
    api: PlayedApi, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy_site, "UNREAD_S", 1.0)
    body = b'{"messages":[],"play":{"size":8000000,"pieces":1}}'
    with proxying(settings) as url, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        host, _, port = url.removeprefix("http://").partition(":")
        client.connect((host, int(port)))
        client.sendall(request(CHAT, body))
        await until(lambda: _captured(tmp_path), "the call is over", 60)
    (capture,) = spooled(tmp_path)
    assert json.loads(capture.body)["error"]["message"] == "the client hung up"


async def _captured(tmp_path: Path) -> bool:
    return bool(spooled(tmp_path))


async def test_silent_connections_make_room_for_one_that_asks(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy_site, "MAX_CONNECTIONS", 8)
    with proxying(settings) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        silent = [await asyncio.open_connection(host, int(port)) for _ in range(40)]
        assert (await answered(url, request(CHAT)))[0] == 200
        await until(lambda: _closed(silent, 20), "silent ones are closed", 60)
        for _, writer in silent:
            writer.close()


async def _closed(connections: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]], count: int) -> bool:
    gone = [reader.at_eof() or reader.exception() is not None for reader, _ in connections]
    return sum(gone) >= count


async def test_a_key_of_its_own_beside_the_token_goes_to_the_upstream(api: PlayedApi, tmp_path: Path) -> None:
    token = Token(token=SecretStr("token-of-ours-1234567"), roles=["agent"], rollout="t", branch=0)
    settings = away(tmp_path, api.url)
    settings = settings.model_copy(update={"gateway": GatewayConfig(tokens=(token,))})
    ours, own = b"Authorization: Bearer token-of-ours-1234567", b"X-Api-Key: " + KEY.encode()
    with proxying(settings) as url:
        assert (await answered(url, request(b"/anthropic/v1/messages", b'{"play":{}}', ours, own)))[0] == 200
        assert (await answered(url, request(b"/r/t/b/1/anthropic/v1/messages", b"{}", ours, own)))[0] == 403
        assert (await answered(url, request(b"/r/t/b/0/anthropic/v1/messages", b"{}", own)))[0] == 401
    ((_, got, _),) = api.requests
    assert (got.get("x-api-key"), got.get("authorization")) == (KEY, None)


async def test_a_token_that_is_no_agents_uses_no_key_of_an_upstream(
    api: PlayedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_KEY", KEY)
    token = Token(token=SecretStr("token-of-a-viewer-123"), roles=("viewer", "verifier"))
    settings = away(tmp_path, api.url)
    upstreams = {"openai": Upstream(url=api.url, key_variable="TEST_KEY")}
    settings = settings.model_copy(update={"proxy": settings.proxy.model_copy(update={"upstreams": upstreams})})
    settings = settings.model_copy(update={"gateway": GatewayConfig(tokens=(token,))})
    with proxying(settings) as url:
        for target in (b"/openai/v1/embeddings", b"/r/t/b/0/openai/v1/models", CHAT):
            told = await answered(url, request(target, b"{}", b"Authorization: Bearer token-of-a-viewer-123"))
            assert told[0] == 403
    assert api.requests == []


SPELLINGS = [
    b"/v1/chat/completions/",
    b"/v1//chat///completions",
    b"/v1/chat%2Fcompletions",
    b"/v1/Chat/%63ompletions",
    b"/v1/messages%2f",
]


@pytest.mark.parametrize("path", SPELLINGS)
async def test_no_spelling_of_a_path_passes_uncaptured(settings: Settings, tmp_path: Path, path: bytes) -> None:
    with proxying(settings) as url:
        assert (await answered(url, request(b"/openai" + path)))[0] == 400, "which branch?"
        assert (await answered(url, request(b"/r/t/b/0/openai" + path)))[0] == 200
    assert len(spooled(tmp_path)) == 1


@asynccontextmanager
async def saying(raw: bytes) -> AsyncIterator[str]:
    """An upstream that answers every request with the same bytes, whatever they are; gives its URL."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(raw)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()


async def test_redirects_of_an_upstream_are_the_clients_to_follow(tmp_path: Path) -> None:
    there = b"HTTP/1.1 307 There\r\nLocation: http://127.0.0.1:9/metadata\r\nContent-Length: 0\r\n\r\n"
    async with saying(there) as upstream:
        with proxying(away(tmp_path, upstream)) as url:
            status, told = await answered(url, request(CHAT, b"{}"))
    assert (status, b"Location: http://127.0.0.1:9/metadata" in told) == (307, True)


@pytest.mark.parametrize("through", [proxying, gateway_of])
@pytest.mark.parametrize("status", [b"101 Switching Protocols", b"600 Odd"])
async def test_a_status_that_is_no_answer_is_a_502_and_a_failed_call(
    through: Callable[[Settings], AbstractContextManager[str]], status: bytes, tmp_path: Path
) -> None:
    async with saying(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n") as upstream:
        with through(away(tmp_path, upstream)) as url:
            assert (await answered(url, request(CHAT, b"{}")))[0] == 502
    (capture,) = spooled(tmp_path)
    assert (
        json.loads(capture.body)["error"]["message"] == f"the upstream answered with the status {status[:3].decode()}"
    )


@pytest.mark.parametrize("through", [proxying, gateway_of])
async def test_letters_beyond_ascii_in_headers_go_through_as_utf_8(
    through: Callable[[Settings], AbstractContextManager[str]], tmp_path: Path
) -> None:
    async with saying("HTTP/1.1 200 OK\r\nX-Organization: Société\r\nContent-Length: 2\r\n\r\n{}".encode()) as upstream:
        with through(away(tmp_path, upstream)) as url:
            _, told = await answered(url, request(CHAT, b"{}"))
    assert "Société" in told.decode()


@pytest.mark.parametrize("through", [proxying, gateway_of])
async def test_a_client_that_hangs_up_in_its_request_is_named_and_not_the_upstream(
    through: Callable[[Settings], AbstractContextManager[str]], settings: Settings, tmp_path: Path
) -> None:
    with through(settings) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(request(CHAT, None, b"Content-Length: 100") + b"{")
        await writer.drain()
        writer.close()
        await until(lambda: _captured(tmp_path), "the call is over", 10)
    (capture,) = spooled(tmp_path)
    assert json.loads(capture.body)["error"]["message"] == "the client hung up"


async def test_a_copy_that_fails_does_not_touch_the_call(
    api: PlayedApi, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_given: object) -> None:
        raise TypeError("a mistake of ours")

    monkeypatch.setattr(proxy, "call_body", fails)
    with proxying(settings) as url:
        status, told = await answered(url, request(CHAT, b'{"messages":[],"play":{"length":true}}'))
    assert (status, told.endswith(b"}]}")) == (200, True)
    assert [capture.source for capture in spooled(tmp_path)] == ["proxy-lost"]


async def test_bodies_that_are_read_whole_have_a_limit_together(
    api: PlayedApi, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy, "BODIES_AT_ONCE", 0.001)
    given = b"[" + b" " * 100_000 + b"]"
    settings = settings.model_copy(update={"proxy": settings.proxy.model_copy(update={"adopt": True})})
    with proxying(settings) as url:
        for target in (b"/openai/v1/chat/completions", b"/v1/rollouts/t/branches/0/captures", b"/r/t/b/0/end"):
            assert (await answered(url, request(target, given)))[0] == 503
    assert api.requests == []


@pytest.mark.parametrize("name", ["r", "v1", "metrics", "Open", "a/b", "a.b", ""])
def test_an_upstream_has_a_path_of_its_own(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError):
        load(proxy={"upstreams": named_upstreams([f"{name}=http://127.0.0.1:1"])})
