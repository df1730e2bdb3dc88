"""The pages and their data over HTTP: what is there, who may read it, and what every answer carries."""

import re
from base64 import b64encode
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from pydantic import SecretStr

from streams.cluster.config import ConfigError, GatewayConfig, Settings, Token, ViewConfig
from streams.commands.options import LogFlags
from streams.commands.view import view_app
from streams.jobs.run.run import run_files
from tests.streams.views.web.conftest import await_that, viewing, write_lines
from tests.streams.views.web.view_data_lines import HOSTILE_ID, picture, secrets

PAGES = (
    "/", "/?status=closed&q=cache", "/rollouts/lru-cache", "/rollouts/lru-cache?zoom=2&fold=fail", "/rollouts/lru-cache/rows",
    "/rollouts/lru-cache/branches/0", "/rollouts/lru-cache/branches/0/turns/last", "/rollouts/lru-cache/branches/0/turns/0/calls/0",
    "/rollouts/lru-cache/pairs/0/2", "/rollouts/lru-cache?a=0&b=1", "/dead-letters",
    "/static/view.css", "/static/view.js", "/static/braid.svg", "/favicon.ico",
)  # fmt: skip

DATA = (
    "/v1/rollouts", "/v1/rollouts/lru-cache", "/v1/rollouts/lru-cache/branches/0?first=1&limit=1",
    "/v1/rollouts/six/branches/3/turns/last", "/v1/rollouts/lru-cache/pairs/0/2", "/v1/rollouts/lru-cache/rows",
    "/v1/rollouts/lru-cache/evidence", "/v1/dead-letters", "/v1/work?needs=build",
)  # fmt: skip


@pytest.mark.parametrize("path", PAGES + DATA)
def test_every_page_answers_with_a_policy_that_lets_nothing_else_run(address: str, path: str) -> None:
    answer = httpx.get(address + path)
    assert answer.status_code == 200
    assert answer.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    if answer.headers["content-type"].startswith("text/html"):
        assert not re.search(r"<[^>]* (style|on[a-z]+)=", answer.text)
        assert re.findall(r"<script[^>]*>", answer.text) == ['<script src="/static/view.js" defer>']


def test_unknown_things_are_not_found_with_a_reason(address: str) -> None:
    for path in (
        "/rollouts/none",
        "/rollouts/lru-cache/branches/99",
        "/rollouts/lru-cache/branches/x",
        "/nope",
        "/static/../site.py",
        "/v1/rows/none",
    ):
        answer = httpx.get(address + path)
        assert answer.status_code == 404, path
    meant = httpx.get(f"{address}/v1/rollouts/lru-cach").json()
    assert "did you mean lru-cache?" in meant["error"]
    assert httpx.get(f"{address}/v1/work").status_code == 400
    assert httpx.get(f"{address}/?" + "&".join(f"a{number}=1" for number in range(30))).status_code == 400
    assert httpx.get(f"{address}/rollouts/%ff%00%fe").status_code == 404
    assert 'data-live="not-yet"' in httpx.get(f"{address}/rollouts/not-yet").text  # it is shown as soon as it is there
    assert httpx.get(f"{address}/v1/rollouts?first=x").json()["error"].startswith("first: a whole number is expected")


def test_nothing_can_be_written(address: str) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert httpx.request(method, f"{address}/v1/rollouts").status_code == 405


def test_pages_of_others_cannot_read_here(address: str) -> None:
    assert httpx.get(address, headers={"Host": "evil.example"}).status_code == 403
    assert httpx.get(f"{address}/v1/rollouts", headers={"Origin": "http://evil.example"}).status_code == 403


def test_rollouts_are_filtered_searched_and_paged(address: str) -> None:
    everything = httpx.get(f"{address}/v1/rollouts?limit=200").json()
    assert everything["total"] == len(everything["rollouts"]) == 16
    found = httpx.get(f"{address}/v1/rollouts?q=FASTAPI").json()
    assert [row["rollout_id"] for row in found["rollouts"]] == ["signup-endpoint"]
    second = httpx.get(f"{address}/v1/rollouts?first=1&limit=1").json()["rollouts"]
    assert second == everything["rollouts"][1:2]
    assert httpx.get(f"{address}/v1/rollouts?status=open").json()["rollouts"] == []
    row = next(row for row in everything["rollouts"] if row["rollout_id"] == "lru-cache")
    assert (row["status"], row["beads"], row["rows"]["dpo"]) == ("closed", "PPPP", 4)
    hacks = {row["rollout_id"]: row["hacks"] for row in everything["rollouts"] if row["hacks"]}
    assert hacks["flaky-date-test"] == {"confirmed": 1}
    assert "lru-cache" not in hacks
    assert httpx.get(address).text.count('title="hack signals: 1 confirmed"') >= 1


def test_a_record_is_found_by_its_id(address: str) -> None:
    rows = httpx.get(f"{address}/v1/rollouts/lru-cache/rows").json()["rows"]
    for row in rows[:3]:
        kind = "rejected" if row["topic"] == "training.rejected.v1" else "rows"
        found = httpx.get(f"{address}/v1/{kind}/{row['record_id']}").json()
        assert found["record"]["record_id"] == row["record_id"]
        assert found["rollout_id"] == "lru-cache"
    evidence = httpx.get(f"{address}/v1/rollouts/lru-cache/evidence").json()
    assert evidence["ok"] is True
    assert httpx.get(f"{address}/v1/evidence/{evidence['records'][0]['record_id']}").status_code == 200


def test_an_exact_branch_shows_the_messages_that_were_sent(address: str) -> None:
    last = httpx.get(f"{address}/v1/rollouts/six/branches/3/turns/last").json()
    assert last["exact"] is True
    assert [message["text"] for message in last["saw"]] == ["Be brief.", "Summary so far: two moons were found."]
    before = httpx.get(f"{address}/v1/rollouts/six/branches/3/turns/1").json()
    assert [message["role"] for message in before["saw"]] == ["system", "user", "assistant", "tool"]
    assert before["saw"][-1]["text"] == "Phobos and Deimos"


def test_a_screenshot_is_a_picture_and_nothing_else(address: str) -> None:
    answer = httpx.get(f"{address}/rollouts/six/branches/2/screenshot")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/png")
    assert answer.content == picture()
    missing = httpx.get(f"{address}/rollouts/six/branches/5/screenshot")
    assert missing.status_code == 404
    assert "The picture is not kept here" in httpx.get(f"{address}/rollouts/six/branches/5").text
    assert "Screenshot" not in httpx.get(f"{address}/rollouts/six/branches/0").text


def test_a_turn_on_a_later_page_is_reached_by_its_link(address: str) -> None:
    """A branch of more than forty turns: links to a turn lead to the page that has it."""
    turns = httpx.get(f"{address}/v1/rollouts/secrets/branches/0").json()["total"]
    page = httpx.get(f"{address}/rollouts/secrets/branches/0").text
    last = turns - 1
    first = last // 40 * 40
    assert first > 0
    assert f'href="/rollouts/secrets/branches/0?first={first}#turn-{last}"' in page
    assert f'id="turn-{last}"' in httpx.get(f"{address}/rollouts/secrets/branches/0?first={first}").text


def test_a_branch_says_what_of_it_is_trained_on_and_in_which_form(address: str) -> None:
    trained = httpx.get(f"{address}/rollouts/lru-cache/branches/1").text
    assert trained.count("trained on: SFT, PPO · rejected in: DPO<") == 3
    assert trained.count("trained on: SFT, PPO<") == 1  # of the pair it is the prompt
    assert "as the rows have it" in trained
    best = httpx.get(f"{address}/rollouts/lru-cache/branches/0").text
    assert best.count("trained on: SFT, DPO, PPO<") == 3
    assert "rejected in:" not in best
    left = httpx.get(f"{address}/rollouts/six/branches/4").text
    assert "No row was made of it." in left
    assert "trained on:" not in left
    assert "rejected in:" not in left


def test_a_branch_that_cheated_is_trained_on_in_no_row(address: str) -> None:
    """Rows may have it as the side to avoid; the page says so, and never that it is trained on."""
    page = httpx.get(f"{address}/rollouts/flaky-date-test/branches/1").text
    assert page.count("rejected in: DPO<") == 3
    assert "trained on: " not in page


def test_what_was_left_out_is_grouped_by_its_reasons(address: str) -> None:
    page = httpx.get(f"{address}/rollouts/resumable-import").text
    left = page.partition("Left out (")[2]
    assert left.count("<tr>") < 10
    assert "over_max_per_rollout" in left
    rejected = httpx.get(f"{address}/v1/rollouts/six/rows").json()["rows"]
    count = sum(row["topic"] == "training.rejected.v1" for row in rejected)
    assert f"Left out ({count})" in httpx.get(f"{address}/rollouts/six").text


def test_left_out_pairs_are_named_where_one_record_stands_for_many(address: str) -> None:
    """The record has their number; the page names each, and each of them has a page that says why."""
    rows = httpx.get(f"{address}/v1/rollouts/lru-cache/rows").json()["rows"]
    (many,) = [row["reasons"] for row in rows if any(reason.startswith("pairs:") for reason in row.get("reasons", ()))]
    left = httpx.get(f"{address}/rollouts/lru-cache").text.partition("Left out (")[2].partition("</section>")[0]
    pairs = {tuple(map(int, found)) for found in re.findall(r'pairs/(\d+)/(\d+)"', left)}
    unnamed = pairs - {tuple(row["branches"]) for row in rows if row.get("kind") == "dpo"}
    assert many == ["below_min_probability", f"pairs:{len(unnamed)}"]
    for a, b in unnamed:
        why = httpx.get(f"{address}/v1/rollouts/lru-cache/pairs/{a}/{b}").json()["why_no_row"]
        assert "below_min_probability" in why[0]


def test_pages_say_where_nothing_is_flagged(address: str) -> None:
    """Of one branch that cheated, of none that did, and of those without a look."""
    one = httpx.get(f"{address}/rollouts/flaky-date-test").text
    assert "No sign of a hack: branches 0, 2" in one
    none = httpx.get(f"{address}/rollouts/six").text
    assert "Hack signals: none" in none
    assert "No sign of a hack is on record. No verdict looked for one." in none
    assert "No sign of a hack is on record." in httpx.get(f"{address}/rollouts/flaky-date-test/branches/0").text
    assert "No sign of a hack" not in httpx.get(f"{address}/rollouts/flaky-date-test/branches/1").text


def test_rows_have_another_form_only_of_turns_that_they_have(address: str) -> None:
    """Of every branch: where a page says that rows have an output in another form, a row has that turn."""
    seen = 0
    for rollout in ("lru-cache", "six"):
        data = httpx.get(f"{address}/v1/rollouts/{rollout}").json()
        for branch in (each["branch_index"] for each in data["branches"]):
            page = httpx.get(f"{address}/rollouts/{rollout}/branches/{branch}").text
            for turn in page.split('<li id="turn-')[1:]:
                told = "Rows have it in another form" in turn or "as the rows have it" in turn
                seen += told
                assert not told or "trained on: " in turn or "not trained on" not in turn, (rollout, branch)
    assert seen


def test_times_of_the_log_and_of_agents_are_told_apart(address: str) -> None:
    """A file of lines is a log as of its last event; the page says both times, and whose they are."""
    assert '<th scope="col">on the log since</th>' in httpx.get(address).text
    page = httpx.get(f"{address}/rollouts/six").text
    branch = httpx.get(f"{address}/rollouts/six/branches/0").text
    logged = re.search(r"<dt>on the log since</dt><dd><time[^>]*>([^<]*)</time>", page)
    told = re.search(r"by agents[^<]* clocks <time title=\"([^\"]*)\">", page)
    first = re.search(r'id="turn-0".*?<time[^>]*>([^<]*)</time>', branch, re.DOTALL)
    assert logged
    assert told
    assert first
    assert logged[1] != told[1] == first[1]
    assert "Times are those of its agent" in branch


def test_statuses_are_told_in_words(address: str) -> None:
    assert "closed: it is ranked, and its rows are made." in httpx.get(address).text
    page = httpx.get(f"{address}/rollouts/six").text
    assert "settled: outcomes are final" in page
    assert "closed: rows are made" in page


def test_hostile_ids_and_texts_stay_text(address: str) -> None:
    """Every page of the hostile rollout: payloads are there as text, and nowhere as markup."""
    base = f"/rollouts/{quote(HOSTILE_ID, safe='')}"
    parts = (
        "",
        "/rows",
        *(f"/branches/{branch}" for branch in range(3)),
        "/branches/0/turns/1",
        "/branches/2/turns/last",
    )
    for path in (*parts, "/pairs/0/1", "/pairs/1/2", "?fold=pass"):
        answer = httpx.get(address + base + path)
        assert answer.status_code == 200, path
        for bad in ("<script>alert", "<svg onload", "<img src=x", "\x1b", "\u202e", "<b>bad"):
            assert bad not in answer.text, (path, bad)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in httpx.get(f"{address}{base}/branches/0").text
    assert len(httpx.get(f"{address}{base}/branches/0").content) < 300_000
    whole = httpx.get(f"{address}{base}/branches/0/turns/0/calls/0")
    assert whole.headers["content-type"] == "text/plain; charset=utf-8"
    assert len(whole.content) > 900_000


def test_no_response_holds_a_secret_of_the_corpus(address: str) -> None:
    """All pages and all data of a rollout that is full of them."""
    known = {secret for secret, _ in secrets()}
    turns = httpx.get(f"{address}/v1/rollouts/secrets/branches/0").json()["total"]
    paths = [
        "/",
        "/v1/rollouts",
        "/v1/rollouts/secrets",
        "/v1/rollouts/secrets/rows",
        "/v1/rollouts/secrets/evidence",
        "/rollouts/secrets",
        "/rollouts/secrets/rows",
    ]
    paths += [f"/v1/rollouts/secrets/branches/0?first={first}&limit=200" for first in range(0, turns, 200)]
    paths += [f"/rollouts/secrets/branches/0?first={first}" for first in range(0, turns, 40)]
    paths += [f"/rollouts/secrets/branches/0/turns/{turn}" for turn in (0, turns - 1)]
    paths += [f"/v1/rollouts/secrets/branches/0/turns/{turn}?limit=200" for turn in (0, turns - 1)]
    paths += [f"/rollouts/secrets/branches/0/turns/{turn}/calls/0" for turn in range(turns - 1)]
    paths += ["/?q=secrets", "/dead-letters", "/v1/dead-letters", "/v1/work?needs=build"]
    with httpx.Client() as client:
        for path in paths:
            answer = client.get(address + path)
            assert answer.status_code == 200, path
            assert not [secret for secret in known if secret in answer.text], path


def _tokens() -> tuple[Token, ...]:
    return (
        Token(token=SecretStr("see-all"), roles=("viewer",)),
        Token(token=SecretStr("see-one"), roles=("viewer",), rollout="six"),
        Token(token=SecretStr("verify"), roles=("verifier",)),
        Token(token=SecretStr("act"), roles=("agent",)),
    )


def test_a_token_reads_what_its_role_and_binding_allow(ran: Path, tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path, gateway=GatewayConfig(tokens=_tokens()))
    with viewing(settings, ran) as url:

        def status(path: str, token: str | None) -> int:
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            return httpx.get(url + path, headers=headers).status_code

        assert [status("/", token) for token in (None, "wrong", "act", "verify", "see-all")] == [
            401,
            401,
            403,
            403,
            200,
        ]
        assert [status("/rollouts/lru-cache", token) for token in ("see-one", "see-all")] == [403, 200]
        assert [
            status(path, "see-one") for path in ("/rollouts/six", "/v1/rollouts/six/rows", "/live?rollout=lru-cache")
        ] == [200, 200, 403]
        assert [status("/v1/work?needs=build", token) for token in ("verify", "see-all")] == [200, 403]
        assert status("/v1/snapshots/" + "0" * 64, "verify") == 404
        assert status("/static/view.css", None) == status("/healthz", None) == 200
        bound = httpx.get(f"{url}/v1/rollouts", headers={"Authorization": "Bearer see-one"}).json()
        assert [row["rollout_id"] for row in bound["rollouts"]] == ["six"]
        browser = b64encode(b"anybody:see-all").decode()
        assert httpx.get(url, headers={"Authorization": f"Basic {browser}"}).status_code == 200
        assert httpx.get(url).headers["www-authenticate"].startswith("Basic")


def test_another_address_needs_tokens(ran: Path, tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path, view=ViewConfig(host="0.0.0.0"))
    with pytest.raises(ConfigError, match=r"view: 0\.0\.0\.0 can be reached by others"):
        view_app(settings, LogFlags(from_dir=ran))


def test_a_page_that_has_not_changed_is_not_sent_again(address: str) -> None:
    first = httpx.get(f"{address}/rollouts/lru-cache")
    again = httpx.get(f"{address}/rollouts/lru-cache", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_the_list_is_small_for_whoever_takes_compressed_answers(address: str) -> None:
    answer = httpx.get(address, headers={"Accept-Encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"
    assert int(answer.headers["content-length"]) < len(answer.content) / 3


def test_a_run_that_replaces_the_files_is_shown_without_a_restart(tmp_path: Path) -> None:
    """The same directory, filled anew while the server runs: the pages show what is there now."""
    out = tmp_path / "out"
    for name in ("first", "second"):
        lines = [
            {"type": "rollout", "rollout_id": name, "task": name, "branches": 1, "required": []},
            {
                "type": "event",
                "rollout_id": name,
                "branch_index": 0,
                "event": {"event": "final_answer", "data": {"answer": "42"}},
            },
        ]
        run_files([write_lines(tmp_path / f"{name}.ndjson", iter(lines))], tmp_path / name, Settings(), None)
    (tmp_path / "first").rename(out)
    with viewing(Settings(state_dir=tmp_path / "state"), out) as url:
        await_that(lambda: _rollouts(url) == ["first"])
        out.rename(tmp_path / "gone")
        (tmp_path / "second").rename(out)
        await_that(lambda: _rollouts(url) == ["second"])
        assert httpx.get(f"{url}/rollouts/second").status_code == 200
        assert httpx.get(f"{url}/rollouts/first").status_code == 404


def _rollouts(url: str) -> list[str]:
    answer = httpx.get(f"{url}/v1/rollouts")
    return [row["rollout_id"] for row in answer.json()["rollouts"]] if answer.status_code == 200 else []


def test_the_servers_of_one_machine_have_ports_of_their_own() -> None:
    settings = Settings()
    assert len({settings.gateway.port, settings.proxy.port, settings.view.port}) == 3
