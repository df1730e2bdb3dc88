"""`braid judge probe`, `stats` and `calibrate`: without a broker, with a judge that goes by rules."""

import json
import time
from collections.abc import Iterator
from math import isnan
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agents.judge.agreement import TimedVote
from agents.judge.judge import JudgeSetupError
from schemas.emission import EmissionConfig, JudgeConfig
from schemas.judging import JudgeVote
from streams.cluster.config import Settings
from streams.cluster.judge_client import Budget, make_judge
from streams.commands.judge.app import app
from streams.commands.judge.probe import ProbeError
from streams.commands.judge.result_file import ResultFileError
from streams.views.judge_plot import plot_svg
from tests.conftest import Braid
from tests.model_server import Said, answer, model_server, prefers, refusal
from tests.processes import run_braid

RULES = 'judge = "rules-1"\n[[rule]]\nwhen = "hang"\ncause = "timeout"\n[[rule]]\nprefer = "contains"\ntext = "tests passed"\n'


@pytest.fixture(autouse=True)
def _scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rules.toml").write_text(RULES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BRAID_EMISSION__JUDGE__KIND", "scripted")
    monkeypatch.setenv("BRAID_JUDGE__RULES", str(tmp_path / "rules.toml"))


def run(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The output of a command."""
    app(list(words), result_action="return_value")
    return capsys.readouterr().out


def golden(path: Path, *pairs: dict[str, str]) -> Path:
    path.write_text("\n".join(json.dumps({"task": "t"} | pair) for pair in pairs))
    return path


def test_probe_asks_in_both_orders(capsys: pytest.CaptureFixture[str]) -> None:
    """The run with evidence wins whichever place it has."""
    votes = [json.loads(line) for line in run(capsys, "probe", "--json").splitlines()]
    assert [(vote["order"], vote["preferred"], vote["a"], vote["b"]) for vote in votes] == [
        ("ab", "a", 0, 1), ("ba", "a", 0, 1),
    ]  # fmt: skip
    assert "judge rules-1" in run(capsys, "probe")


def test_probe_takes_files_and_names_what_it_cannot_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """a stays a and b stays b; the same text twice is no question."""
    one, two = tmp_path / "one", tmp_path / "two"
    for left, right, expected in (("nothing", "5 tests passed", "b"), ("5 tests passed", "nothing", "a")):
        one.write_text(left)
        two.write_text(right)
        votes = run(capsys, "probe", "--a", str(one), "--b", str(two), "--json").splitlines()
        assert {json.loads(vote)["preferred"] for vote in votes} == {expected}
    with pytest.raises(ProbeError, match="the same"):
        run(capsys, "probe", "--a", str(one), "--b", str(one))
    with pytest.raises(ProbeError, match="none"):
        run(capsys, "probe", "--a", str(tmp_path / "none"))


KEY = "sk-ant-api03-" + "A1b2C3d4" * 11 + "AA"


def model(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """A model behind this address is the judge."""
    for name, value in {
        "ANTHROPIC_API_KEY": "test",
        "BRAID_EMISSION__JUDGE__KIND": "anthropic",
        "BRAID_EMISSION__JUDGE__MODEL": "judge-model",
        "BRAID_JUDGE__BASE_URL": url,
        "BRAID_JUDGE__LONGEST_WAIT_S": "0",
    }.items():
        monkeypatch.setenv(name, value)


async def too_long(_body: dict[str, Any], _number: int) -> Said:
    return refusal(400, "invalid_request_error", f"prompt is too long for {KEY}")


def test_probe_says_why_there_is_no_answer(
    braid: Braid, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the service's words without secrets, or that the service cannot be reached; the exit code is 1."""
    with model_server(too_long) as api:
        model(monkeypatch, api.url)
        code, shown, _ = braid("judge", "probe")
        assert code == 1
        assert shown.count("no answer: refused") == shown.count("HTTP 400: prompt is too long") == 2
        assert KEY not in shown
        with pytest.raises(SystemExit):
            run(capsys, "probe", "--json")
        whys = [json.loads(each)["why"] for each in capsys.readouterr().out.splitlines()]
        assert [(why[:29], KEY in why) for why in whys] == [("HTTP 400: prompt is too long ", False)] * 2
    code, shown, _ = braid("judge", "probe")
    assert (code, shown.count("no connection: All connection attempts failed")) == (1, 2)


def test_probe_asks_over_chat_completions(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A server of one's own, without a key; what it used is shown."""
    with model_server(prefers("a")) as api:
        model(monkeypatch, api.chat_url)
        monkeypatch.setenv("BRAID_EMISSION__JUDGE__KIND", "openai")
        monkeypatch.delenv("OPENAI_API_KEY", raising=False)
        votes = [json.loads(each) for each in run(capsys, "probe", "--json").splitlines()]
    assert [vote["preferred"] for vote in votes] == ["a", "b"]
    assert [(vote["judge"], vote["usage"]["input_tokens"]) for vote in votes] == [("judge-model", 100)] * 2
    assert {each.protocol for each in api.received} == {"chat"}


def test_probe_with_one_answer_is_no_failure(braid: Braid, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other order's reason is shown beside it."""

    async def play(body: dict[str, Any], number: int) -> Said:
        return await too_long(body, number) if number else answer({"preferred": "tie", "reasoning": "same"})

    with model_server(play) as api:
        model(monkeypatch, api.url)
        monkeypatch.setenv("BRAID_JUDGE__CONCURRENCY", "1")
        code, shown, _ = braid("judge", "probe")
    assert (code, shown.count("tie"), shown.count("prompt is too long")) == (0, 1, 1)


def test_calibrate_names_a_few_reasons_with_their_counts(
    tmp_path: Path, braid: Braid, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The most frequent ones first; a spent budget has a line of its own."""
    file = golden(tmp_path / "golden.jsonl", *({"better": f"x{n}", "worse": "y"} for n in range(5)))

    async def play(_body: dict[str, Any], number: int) -> Said:
        return refusal(418, "teapot", "prompt is too long" if number < 4 else f"reason {number}")

    with model_server(play) as api:
        model(monkeypatch, api.url)
        monkeypatch.setenv("BRAID_JUDGE__CALLS_PER_HOUR", "8")
        code, _, complaints = braid("judge", "calibrate", file)
    assert code == 0
    first, *others, rest, budget = complaints.splitlines()
    assert first == "braid: no answer to 4 calls: refused: HTTP 418: prompt is too long"
    assert [each.startswith("braid: no answer to 1 call: refused: HTTP 418: reason ") for each in others] == [
        True,
        True,
    ]
    assert rest == "braid: no answer to 2 calls for other reasons"
    assert "2 answers are missing" in budget


def test_calibrate_counts_what_was_right_and_shows_drift(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Right, wrong, undecided and missing are four things; a pair that turns is named, one without an answer is left out."""
    file = golden(
        tmp_path / "golden.jsonl",
        {"id": "right", "better": "3 tests passed", "worse": "x"},
        {"id": "wrong", "better": "x", "worse": "3 tests passed"},
        {"id": "open", "better": "x", "worse": "y"},
        {"id": "gone", "better": "hang", "worse": "y"},
    )
    first: dict[str, Any] = json.loads(run(capsys, "calibrate", str(file), "--save", "before.json", "--json"))
    assert first["outcomes"] == {"right": "right", "wrong": "wrong", "open": "undecided", "gone": "missing"}
    assert first["accuracy"] == pytest.approx(1 / 3)
    assert (first["stats"]["position_consistency"], first["stats"]["missing"]) == (1.0, {"timeout": 2})
    (tmp_path / "rules.toml").write_text('judge = "rules-1"\n[[rule]]\nprefer = "lacks"\ntext = "tests passed"\n')
    second: dict[str, Any] = json.loads(run(capsys, "calibrate", str(file), "--against", "before.json", "--json"))
    assert second["drift"]["changed"] == {"right": "right -> wrong", "wrong": "wrong -> right"}
    assert (second["drift"]["pairs"], second["drift"]["mcnemar_p"], second["drift"]["same_question"]) == (3, 1.0, True)
    assert "2 changed" in run(capsys, "calibrate", str(file), "--against", "before.json")


def samples_of(path: Path) -> dict[str, float]:
    """The samples of a file for Prometheus, by name and labels."""
    families = text_string_to_metric_families(path.read_text("utf-8"))
    return {
        f"{sample.name}{json.dumps(sample.labels, sort_keys=True)}": sample.value
        for family in families
        for sample in family.samples
    }


def test_calibrate_writes_what_it_found_for_prometheus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Accuracy, how the judge behaved, when that was, and with an earlier result what changed."""
    file = golden(
        tmp_path / "golden.jsonl",
        {"id": "right", "better": "3 tests passed", "worse": "x"},
        {"id": "wrong", "better": "x", "worse": "3 tests passed"},
        {"id": "gone", "better": "hang", "worse": "y"},
    )
    words = ("calibrate", str(file), "--metrics-file", "judge.prom")
    found = json.loads(run(capsys, *words, "--save", "before.json", "--json"))
    labels = {"judge": "rules-1", "rubric": found["rubric_hash"][:12]}

    def sample(name: str, **more: str) -> float:
        return samples_of(Path("judge.prom"))[
            f"braid_judge_calibration_{name}{json.dumps(labels | more, sort_keys=True)}"
        ]

    assert (sample("accuracy"), sample("position_consistency")) == (0.5, 1.0)
    assert [sample("pairs", outcome=outcome) for outcome in ("right", "wrong", "undecided", "missing")] == [1, 1, 0, 1]
    assert (sample("votes"), sample("missing_votes")) == (6, 2)
    assert time.time() - 60 < sample("time_seconds") <= time.time()
    assert "drift" not in Path("judge.prom").read_text()
    (tmp_path / "rules.toml").write_text('judge = "rules-1"\n[[rule]]\nprefer = "lacks"\ntext = "passed"\n')
    run(capsys, *words, "--against", "before.json")
    assert (sample("drift_pairs"), sample("drift_changed_pairs"), sample("drift_same_question")) == (2, 2, 1)
    assert (sample("drift_accuracy_before"), sample("drift_accuracy_now"), sample("drift_mcnemar_p")) == (0.5, 0.5, 1.0)
    assert sorted(path.name for path in tmp_path.glob("judge.prom*")) == ["judge.prom"]


def test_what_is_not_defined_is_no_number_for_prometheus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A judge that gave no answer has no accuracy; 0 would be an alarm about the wrong thing."""
    file = golden(tmp_path / "golden.jsonl", {"better": "hang", "worse": "y"})
    run(capsys, "calibrate", str(file), "--metrics-file", "judge.prom")
    found = {name: value for name, value in samples_of(Path("judge.prom")).items() if "_accuracy" in name}
    assert len(found) == 3
    assert all(isnan(value) for value in found.values())


@pytest.fixture
def unasked(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The judge is a model, and it may not be asked."""
    with model_server(prefers("a")) as api:
        model(monkeypatch, api.url)
        yield
        assert api.calls == 0


@pytest.mark.usefixtures("unasked")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("probe --samples 0", "--samples 0: give at least 1"),
        ("probe --samples=-1", "--samples -1: give at least 1"),
        ("probe --a empty", "empty is empty"),
        ("probe --b empty", "empty is empty"),
        ("calibrate golden.jsonl --samples 0", "--samples 0: give at least 1"),
        ("calibrate golden.jsonl --save nodir/x.json", "nodir is no directory"),
        ("calibrate golden.jsonl --save .", "is a directory"),
        ("calibrate golden.jsonl --against none.json", "none.json: No such file"),
        (
            "calibrate golden.jsonl --against golden.jsonl",
            "golden.jsonl: not a result of `braid judge calibrate --save`",
        ),
        ("calibrate golden.jsonl --against no-pairs.json", "no-pairs.json: not a result"),
        ("calibrate golden.jsonl --against odd.json", "odd.json: not a result"),
        ("stats --from-dir out --plot nodir/x.svg", "nodir is no directory"),
        ("stats --from-dir out --plot folder.svg", "is a directory"),
        (
            "stats --from-dir out --metrics-file judge.txt",
            "--metrics-file judge.txt: the collector reads .prom files only",
        ),
        ("calibrate golden.jsonl --metrics-file nodir/x.prom", "nodir is no directory"),
    ],
)
def test_a_simple_mistake_is_named_before_anybody_is_asked(tmp_path: Path, braid: Braid, words: str, said: str) -> None:
    """One line that says what is wrong, exit code 1, no call."""
    golden(tmp_path / "golden.jsonl", {"better": "x", "worse": "y"})
    (tmp_path / "empty").write_text(" \n")
    (tmp_path / "folder.svg").mkdir()
    kept = {"judge": "m", "rubric_hash": "h"}
    (tmp_path / "no-pairs.json").write_text(json.dumps(kept | {"outcomes": {}}))
    (tmp_path / "odd.json").write_text(json.dumps(kept | {"outcomes": {"line-1": 5}}))
    code, shown, complaints = braid("judge", *words.split())
    assert (code, shown) == (1, "")
    assert complaints.startswith("braid: ")
    assert said in complaints
    assert complaints.count("\n") == 1


@pytest.mark.usefixtures("unasked")
def test_a_pair_of_equal_texts_is_refused_with_its_line(tmp_path: Path, braid: Braid) -> None:
    """No answer about it can be right; two texts that a judge would see as one are no better."""
    file = golden(tmp_path / "golden.jsonl", {"better": "x", "worse": "y"}, {"better": "same", "worse": "same"})
    code, _, complaints = braid("judge", "calibrate", file)
    assert (code, "golden.jsonl:2: record: " in complaints, "the same text" in complaints) == (1, True, True)
    other = KEY[:20] + "Z" + KEY[21:]
    golden(file, {"better": f"log in with {KEY}", "worse": f"log in with {other}"})
    code, _, complaints = braid("judge", "calibrate", file)
    assert (code, "pair 'line-1': " in complaints, KEY in complaints) == (1, True, False)


@pytest.mark.parametrize("text", ["", "{", '{"task": "t"}', '{"task":"t","better":"x","worse":"y","more":1}'])
def test_a_bad_golden_file_is_named_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    """Nothing is asked."""
    (tmp_path / "golden.jsonl").write_text(text)
    with pytest.raises(Exception, match=r"golden\.jsonl") as error:
        run(capsys, "calibrate", str(tmp_path / "golden.jsonl"))
    assert type(error.value).__name__ == "GoldenError"


def test_stats_of_a_run_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The votes of files: by judge, with alpha between two judges."""
    lines: list[dict[str, Any]] = [{"type": "rollout", "rollout_id": "r", "task": "t", "branches": 2, "required": []}]
    lines += [
        {"type": "event", "rollout_id": "r", "branch_index": index, "event": {"event": "final_answer", "data": {"answer": str(index)}}}
        for index in (0, 1)
    ]  # fmt: skip
    lines += [
        {"type": "vote", "rollout_id": "r", "a": 0, "b": 1, "order": order, "sample": 0, "preferred": said, "judge": judge}
        for judge, said in (("m", "a"), ("n", "b"))
        for order in ("ab", "ba")
    ]  # fmt: skip
    (tmp_path / "lines.ndjson").write_text("\n".join(map(json.dumps, lines)))
    assert run_braid("run", tmp_path / "lines.ndjson", "--out", tmp_path / "out").returncode == 0
    found = json.loads(run(capsys, "stats", "--from-dir", str(tmp_path / "out"), "--json"))
    assert found["judges"]["m"]["position_consistency"] == 1.0
    assert found["judges"]["n"]["first_position_rate"] == 0.5
    assert found["krippendorff_alpha"] == 0.0
    shown = run(capsys, "stats", "--from-dir", str(tmp_path / "out"))
    assert "Krippendorff" in shown
    assert "█" in shown
    run(capsys, "stats", "--from-dir", str(tmp_path / "out"), "--plot", "judges.svg")
    assert "Krippendorff" in Path("judges.svg").read_text("utf-8")
    run(capsys, "stats", "--from-dir", str(tmp_path / "out"), "--metrics-file", "judges.prom")
    samples = samples_of(Path("judges.prom"))
    assert samples["braid_judge_stored_agreement_alpha{}"] == 0.0
    assert samples['braid_judge_stored_position_consistency{"judge": "m"}'] == 1.0
    assert samples['braid_judge_stored_votes{"judge": "n"}'] == 2
    with pytest.raises(ResultFileError, match=r"ends in \.svg"):
        run(capsys, "stats", "--from-dir", str(tmp_path / "out"), "--plot", "judges.png")


def test_a_plot_shows_each_judge_over_time_and_draws_nothing_that_is_not_defined() -> None:
    """Points where there are answers, a line for each judge, alpha where two judges meet; names cannot break the picture."""

    def vote(judge: str, at: int, order: str, preferred: str | None) -> TimedVote:
        named = f"{judge}{at}{order}"
        record = JudgeVote.model_validate(
            {
                "vote_id": named,
                "rollout_id": f"r{at}",
                "a": 0,
                "b": 1,
                "order": order,
                "preferred": preferred,
                "judge": judge,
            }
        )
        return TimedVote(record, at)

    bad = "<script>&"
    votes = [vote("m", at, order, "a") for at in (0, 50, 99) for order in ("ab", "ba")]
    votes += [vote(bad, 50, order, order[0]) for order in ("ab", "ba")] + [vote(bad, 99, "ab", None)]
    picture = plot_svg(votes, 4)
    assert picture == plot_svg(list(votes), 4)
    root = ET.fromstring(picture)
    space = "{http://www.w3.org/2000/svg}"
    assert [text.text for text in root.iter(f"{space}text") if text.text in ("m", bad)] == [bad, "m"]
    drawn = [len((each.get("points") or "").split()) for each in root.iter(f"{space}polyline")]
    # Consistency, first position, ties: three spans of m, one of the other; no answer: also where it only failed; alpha once.
    assert drawn == [1, 3, 1, 3, 1, 3, 2, 3, 1]
    assert ET.fromstring(plot_svg([], 4)).tag == f"{space}svg"


def test_a_budget_forgets_after_an_hour() -> None:
    """At most so many calls in any hour."""
    now = [0.0]
    budget = Budget(2, lambda: now[0])
    assert [budget.allow() for _ in range(3)] == [True, True, False]
    now[0] = 3600.0
    assert [budget.allow() for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize("kind", ["none", "external"])
def test_without_a_judge_of_ours_it_says_what_to_set(kind: str) -> None:
    """The message names the variable."""
    settings = Settings(emission=EmissionConfig(judge=JudgeConfig.model_validate({"kind": kind})))
    with pytest.raises(JudgeSetupError, match="BRAID_EMISSION__JUDGE__KIND"):
        make_judge(settings)
