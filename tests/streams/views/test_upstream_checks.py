"""`braid doctor` tries the model APIs behind the proxy."""

import pytest
from pydantic import SecretStr

from streams.cluster.config import ProxyConfig, Settings, Token, Upstream
from streams.views.upstream_checks import upstream_checks
from tests.streams.services.proxy.played_api import played_api


async def test_an_upstream_that_answers_is_well_and_a_dead_one_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOME_KEY", raising=False)
    async with played_api() as api:
        upstreams = {"a": Upstream(url=api.url, key_variable="SOME_KEY"), "b": Upstream(url="http://127.0.0.1:1")}
        settings = Settings(kafka="127.0.0.1:1", proxy=ProxyConfig(upstreams=upstreams))
        checks = await upstream_checks(settings)
        assert [(check.name, check.result) for check in checks] == [("upstream a", "ok"), ("upstream b", "problem")]
        assert "proxy.upstreams.b.url" in checks[1].advice
        token = Token(token=SecretStr("t"), roles=("agent",))
        guarded = settings.model_copy(update={"gateway": settings.gateway.model_copy(update={"tokens": (token,)})})
        assert (await upstream_checks(guarded))[0].result == "warning"
