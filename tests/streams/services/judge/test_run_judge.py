"""`braid run --judge` and `braid judge again --from-dir`: files judged while they are folded, and judged again, without a broker."""

import asyncio
import json
import os
import re
import time
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from streams.cli import app
from streams.jobs.judge.asker import VOTES_FILE, VoteFileError
from streams.jobs.targets import TargetError
from tests.model_server import Said, answer, model_server, refusal
from tests.processes import Forked
from tests.streams.services.judge.test_live_requests import WEIGHTS, lines

RULES = 'judge = "rules-1"\n[[rule]]\nprefer = "contains"\ntext = "tests passed"\n[[rule]]\nwhen = "tests passed"\nscore = 9\n'


class Ran:
    """The output of a command, and how it ended."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *words: str) -> None:
        capsys.readouterr()
        self.code = 0
        try:
            app(list(words), result_action="return_value")
        except SystemExit as end:
            self.code = int(end.code or 0)
        self.out, self.err = capsys.readouterr()

    @property
    def counts(self) -> dict[str, Any]:
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rules.toml").write_text(RULES)
    Path("lines.ndjson").write_text("\n".join(map(json.dumps, lines())))


def rows(folder: str, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (Path(folder) / f"{name}.jsonl").read_text("utf-8").splitlines()]


def files(folder: str) -> dict[str, bytes]:
    """Everything but the votes, whose latency is a clock's."""
    return {path.name: path.read_bytes() for path in Path(folder).glob("*.jsonl") if path.name != VOTES_FILE}


SCRIPTED = ("--judge", "scripted", "--rules", "rules.toml", "--json")


def test_a_run_asks_the_judge_and_pays_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Votes become facts in the log of the run; a second run into the same place makes no call and gives the same
    bytes."""
    first = Ran(capsys, "run", "lines.ndjson", "--out", "out", *SCRIPTED)
    assert first.code == 0, first.err
    assert {name: first.counts["judge"][name] for name in ("judge", "asked", "known", "missing", "usd")} == {
        "judge": "rules-1", "asked": 8, "known": 0, "missing": {}, "usd": None,
    }  # fmt: skip
    (ranking,) = rows("out", "rankings")
    assert ranking["close_cause"] == "complete"
    assert ranking["branches"][0]["judge_score"] > 5
    before = files("out")
    again = Ran(capsys, "run", "lines.ndjson", "--out", "out", *SCRIPTED)
    assert (again.counts["judge"]["asked"], again.counts["judge"]["known"]) == (0, 8)
    assert files("out") == before
    shown = json.loads(Ran(capsys, "judge", "stats", "--from-dir", "out", "--json").out)
    assert shown["judges"]["rules-1"]["votes"] == 8
    assert "judge rules-1: 0 calls" in Ran(capsys, "run", "lines.ndjson", "--out", "out", *SCRIPTED[:-1]).out


def test_without_a_judge_nobody_is_asked_and_that_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A configured judge is not asked unawares: calls cost money."""
    monkeypatch.setenv("BRAID_EMISSION__JUDGE__KIND", "anthropic")
    ran = Ran(capsys, "run", "lines.ndjson", "--out", "out", "--json")
    assert (ran.code, "judge" in ran.counts) == (0, False)
    assert "--judge anthropic asks it" in ran.err
    assert rows("out", "rankings")[0]["close_cause"] == "no_judge"


def test_a_model_is_asked_within_its_budget_and_the_rest_later(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the budget votes are missing, with that cause, and it is said; a later run asks for those and for failed ones only."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test")
    monkeypatch.setenv("BRAID_EMISSION__JUDGE__MODEL", "judge-model")
    monkeypatch.setenv("BRAID_JUDGE__CALLS_PER_HOUR", "6")
    monkeypatch.setenv("BRAID_JUDGE__CONCURRENCY", "1")

    async def play(_body: dict[str, Any], number: int) -> Said:
        return refusal(418, "teapot") if number == 0 else answer({"preferred": "tie", "reasoning": "same"})

    with model_server(play) as api:
        monkeypatch.setenv("BRAID_JUDGE__BASE_URL", api.url)
        command = ("run", "lines.ndjson", "--out", "out", "--judge", "anthropic", "--json")
        first = Ran(capsys, *command)
        assert (first.counts["judge"]["calls"], first.counts["judge"]["asked"]) == (6, 8)
        assert first.counts["judge"]["missing"] == {"budget": 2, "refused": 1}
        assert first.counts["judge"]["input_tokens"] == 500
        assert "2 votes are missing" in first.err
        assert "braid: no answer to 1 call: refused: HTTP 418: teapot, as told\n" in first.err
        second = Ran(capsys, *command)
        assert (second.counts["judge"]["calls"], second.counts["judge"]["missing"]) == (3, {})
        assert api.calls == 9
    assert len(Path("out", VOTES_FILE).read_text().splitlines()) == 8


def test_stored_rollouts_are_judged_again_from_files(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another rubric, other votes, another ranking; facts and log stay; a second time costs nothing and gives the same bytes."""
    assert Ran(capsys, "run", "lines.ndjson", "--out", "out").code == 0
    log = {path: path.read_bytes() for path in Path("out", "log").rglob("*.avro")}
    monkeypatch.setenv("BRAID_EMISSION__JUDGE__KIND", "scripted")
    monkeypatch.setenv("BRAID_EMISSION__JUDGE__RUBRIC", "Proof.")
    monkeypatch.setenv("BRAID_JUDGE__RULES", "rules.toml")
    command = ("judge", "again", "--from-dir", "out", "--out", "again", "--json")
    first = Ran(capsys, *command)
    assert first.code == 0, first.err
    assert (first.counts["judged"], first.counts["judge"]["asked"], first.counts["open"]) == (1, 8, 0)
    assert {path: path.read_bytes() for path in Path("out", "log").rglob("*.avro")} == log
    (before,), (now,) = rows("out", "rankings"), rows("again", "rankings")
    assert before["settled_id"] != now["settled_id"]
    assert [branch["judge_score"] is None for branch in before["branches"]] == [True] * 4
    assert [branch["branch_index"] for branch in now["branches"]] == [0, 1, 2, 3]
    assert now["branches"][0]["judge_score"] > now["branches"][2]["judge_score"]
    assert Counter(vote["judge"] for vote in rows("again", "votes")) == {"rules-1": 8, "content": 1}
    same = files("again")
    assert Ran(capsys, *command).counts["judge"]["asked"] == 0
    assert files("again") == same
    assert Ran(capsys, "verify", "again/evidence.jsonl").code == 0
    # A run that asks the same judge by the same rubric has the votes already.
    assert Ran(capsys, "run", "lines.ndjson", "--out", "judged", *SCRIPTED).code == 0
    reused = Ran(capsys, "judge", "again", "--from-dir", "judged", "--out", "reused", "--json").counts["judge"]
    assert (reused["asked"], reused["known"]) == (0, 8)


def test_results_of_a_run_are_not_replaced_by_judging_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By whatever name the run's directory is given: no judge is asked, and no byte changes."""
    assert Ran(capsys, "run", "lines.ndjson", "--out", "out").code == 0
    Path("link").symlink_to("out")
    Path("file").touch()
    before = {path: path.read_bytes() for path in Path("out").rglob("*") if path.is_file()}
    monkeypatch.setenv("BRAID_EMISSION__JUDGE__KIND", "anthropic")
    monkeypatch.setenv("BRAID_EMISSION__JUDGE__MODEL", "judge-model")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test")

    async def play(_body: dict[str, Any], _number: int) -> Said:
        return answer({"preferred": "tie", "reasoning": "same"})

    with model_server(play) as api:
        monkeypatch.setenv("BRAID_JUDGE__BASE_URL", api.url)
        for source, out in (
            ("out", "out"), ("out", "out/../out/."), ("out", "link"), ("link", "out"), ("out/log", "out"), ("out", "out/log"),
        ):  # fmt: skip
            with pytest.raises(TargetError, match="choose another directory"):
                Ran(capsys, "judge", "again", "--from-dir", source, "--out", out)
        with pytest.raises(VoteFileError, match="give another directory"):
            Ran(capsys, "judge", "again", "--from-dir", "out", "--out", "file")
        assert api.calls == 0
    assert {path: path.read_bytes() for path in Path("out").rglob("*") if path.is_file()} == before


def test_the_votes_of_two_judgings_are_compared_as_the_page_says(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run's judge and the one that judged again, each with its row, and alpha between them; one directory alone, too."""
    page = (Path(__file__).parents[4] / "docs" / "judge.md").read_text("utf-8")
    (command,) = re.findall(r"^ +braid (judge stats --from-dir results --from-dir again) ", page, re.MULTILINE)
    assert Ran(capsys, "run", "lines.ndjson", "--out", "results", *SCRIPTED).code == 0
    monkeypatch.setenv("BRAID_EMISSION__JUDGE__KIND", "scripted")
    monkeypatch.setenv("BRAID_JUDGE__RULES", "other.toml")
    Path("other.toml").write_text('judge = "rules-2"\n[[rule]]\nprefer = "lacks"\ntext = "tests passed"\n')
    assert Ran(capsys, "judge", "again", "--from-dir", "results", "--out", "again").code == 0
    found = Ran(capsys, *command.split(), "--json").counts
    assert {name: (row["votes"], row["judge"]) for name, row in found["judges"].items()} == {
        "rules-1": (8, "rules-1"), "rules-2": (8, "rules-2"),
    }  # fmt: skip
    assert found["krippendorff_alpha"] == pytest.approx(-0.5)
    assert "Agreement between judges (Krippendorff's alpha, nominal): -0.5" in Ran(capsys, *command.split()).out
    alone = Ran(capsys, "judge", "stats", "--from-dir", "again", "--json").counts
    assert alone["judges"].keys() == {"rules-2"}
    (span,) = alone["judges"]["rules-2"]["over_time"]
    assert span["from_ms"] == rows("again", "rankings")[0]["closed_at_ms"]
    monkeypatch.setenv("BRAID_EMISSION__JUDGE__RUBRIC", "Proof.")
    assert Ran(capsys, "judge", "again", "--from-dir", "results", "--out", "proof").code == 0
    split = Ran(capsys, *command.split(), "--from-dir", "proof", "--json").counts["judges"]
    assert [(row["judge"], row["votes"]) for row in split.values()] == [("rules-1", 8), ("rules-2", 8), ("rules-2", 8)]
    assert len({row["rubric_hash"] for name, row in split.items() if name.startswith("rules-2, rubric ")}) == 2
    Path("proof", VOTES_FILE).write_text("{}\n")
    with pytest.raises(VoteFileError, match=r"votes\.jsonl:1: "):
        Ran(capsys, "judge", "stats", "--from-dir", "proof")


def test_judging_again_says_why_answers_are_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for each reason, with how many calls ended so."""
    assert Ran(capsys, "run", "lines.ndjson", "--out", "out").code == 0
    monkeypatch.setenv("BRAID_EMISSION__JUDGE__KIND", "scripted")
    monkeypatch.setenv("BRAID_JUDGE__RULES", "rules.toml")
    Path("rules.toml").write_text('[[rule]]\ncause = "timeout"\n')
    ran = Ran(capsys, "judge", "again", "--from-dir", "out", "--out", "again", "--json")
    assert ran.counts["judge"]["missing"] == {"timeout": 8}
    assert ran.err == "braid: no answer to 8 calls: timeout: rule 0 says so\n"


def test_a_run_has_its_branches_scored(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores of single branches instead of pairs: three calls each, their mean in the ranking, no score for the unscored."""
    monkeypatch.setenv("BRAID_EMISSION__JUDGE__MODE", "scalar")
    monkeypatch.setenv("BRAID_EMISSION__RANKING__WEIGHTS", WEIGHTS)
    ran = Ran(capsys, "run", "lines.ndjson", "--out", "out", *SCRIPTED)
    assert (ran.code, ran.counts["judge"]["asked"]) == (0, 12), ran.err
    (ranking,) = rows("out", "rankings")
    found = {branch["branch_index"]: branch["judge_scalar"] for branch in ranking["branches"]}
    assert found == {0: 9.0, 1: 9.0, 2: None, 3: None}
    assert {branch["judge_score"] for branch in ranking["branches"]} == {None}
    later = Ran(capsys, "run", "lines.ndjson", "--out", "out", *SCRIPTED).counts["judge"]
    assert (later["known"], later["asked"]) == (6, 6)  # a caller without an answer asks again


def test_judging_again_is_killed_and_pays_only_for_what_was_in_flight(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGKILL in the middle: every vote that had come is in its file, and the next run asks for the others only."""
    assert Ran(capsys, "run", "lines.ndjson", "--out", "out").code == 0
    for name, value in {
        "ANTHROPIC_API_KEY": "test", "BRAID_EMISSION__JUDGE__KIND": "anthropic", "BRAID_EMISSION__JUDGE__MODEL": "judge-model",
        "BRAID_JUDGE__CONCURRENCY": "2",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)

    async def play(_body: dict[str, Any], number: int) -> Said:
        await asyncio.sleep(0.0 if number < 4 else 0.3)
        return answer({"preferred": "tie", "reasoning": "same"})

    command = ("judge", "again", "--from-dir", "out", "--out", "again", "--json")
    with model_server(play) as api:
        monkeypatch.setenv("BRAID_JUDGE__BASE_URL", api.url)
        process = Forked(command, os.environ, Path("said"))
        while api.calls < 6:
            assert process.poll() is None, "it ended before it was killed"
            time.sleep(0.01)
        process.kill()
        process.wait()
        killed_after = api.calls
        done = Ran(capsys, *command)
        assert (done.code, done.counts["judged"]) == (0, 1), done.err
        assert done.counts["judge"]["known"] >= 4
        assert api.calls <= 8 + 2, f"{killed_after} calls before the kill, {api.calls} in all"
    assert len({vote["vote_id"] for vote in rows("again", "votes") if vote["judge"] == "judge-model"}) == 8


def test_results_need_a_place(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither or both is a mistake, and is said to be."""
    for words in ((), ("--out", "a", "--to-prefix", "b")):
        with pytest.raises(Exception, match="say where the results go"):
            Ran(capsys, "judge", "again", *words)


def test_both_protocols_give_the_same_ranking_for_the_same_answers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same questions, the same answers: votes and ranks are equal, whichever way the model was asked."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test")
    monkeypatch.setenv("BRAID_EMISSION__JUDGE__MODEL", "judge-model")

    async def play(body: dict[str, Any], _number: int) -> Said:
        choice = sha256(body["messages"][-1]["content"].encode()).digest()[0] % 3
        return answer({"preferred": ("a", "b", "tie")[choice], "reasoning": f"choice {choice}"})

    with model_server(play) as api:
        for kind, url in (("anthropic", api.url), ("openai", api.chat_url)):
            monkeypatch.setenv("BRAID_JUDGE__BASE_URL", url)
            ran = Ran(capsys, "run", "lines.ndjson", "--out", kind, "--judge", kind, "--json")
            assert (ran.code, ran.counts["judge"]["calls"], ran.counts["judge"]["missing"]) == (0, 8, {})
    assert Counter(each.protocol for each in api.received) == {"messages": 8, "chat": 8}
    (one,), (other,) = rows("anthropic", "rankings"), rows("openai", "rankings")
    assert one["branches"] == other["branches"]
    assert {branch["judge_score"] for branch in one["branches"]} != {None, 5.0}
    said = [
        sorted((vote["vote_id"], vote["preferred"], vote["reasoning"]) for vote in rows(kind, "votes"))
        for kind in ("anthropic", "openai")
    ]
    assert said[0] == said[1]
