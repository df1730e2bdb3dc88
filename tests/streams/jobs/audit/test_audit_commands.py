"""`braid audit` from the command line: the stated figures of every log, planted faults of files, and the report."""

import json
import re
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from streams.cli import main
from tests.conformance import conformance

CLOSE = 1e-8


def told(name: str) -> dict[str, Any]:
    """A line of the page of facts."""
    page = conformance("audit", "AUDIT-FACTS.md").read_text()
    found = re.search(rf"^    {re.escape(name)}: (.*)$", page, re.MULTILINE)
    assert found is not None, name
    value: dict[str, Any] = json.loads(found[1])
    return value


def braid(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> Any:
    """The JSON that a command prints; it must end with this code."""
    ended = run(*words, "--json")
    out = capsys.readouterr()
    assert ended == code, out
    return json.loads(out.out)


def run(*words: object) -> int:
    """The exit code of a command."""
    with pytest.raises(SystemExit) as ended:
        main([*map(str, words)])
    return int(ended.value.code or 0)


def agrees(found: Any, stated: Any) -> None:
    """Every stated member is there, numbers to 1e-8."""
    if isinstance(stated, dict):
        for name, value in stated.items():
            agrees(found[name], value)
    elif isinstance(stated, list):
        assert len(found) == len(stated)
        for one, other in zip(found, stated, strict=True):
            agrees(one, other)
    else:
        assert found == (pytest.approx(stated, abs=CLOSE) if isinstance(stated, float) else stated)


LM = [("audit", "lm-eval", f"samples_trams_{side}.jsonl") for side in "ab"]
SHELVES = [("audit", "inspect", f"shelves-{side}.eval") for side in "ab"]


@pytest.mark.parametrize(
    ("logs", "more", "name"),
    [
        (LM, [], "lm_eval strict-match"),
        (LM, ["--filter", "flexible-extract"], "lm_eval flexible-extract"),
        (SHELVES, [], "inspect"),
        ([("audit", "inspect", "shelves-a.json"), SHELVES[1]], [], "inspect"),
    ],
)
def test_comparisons_are_as_stated(capsys: pytest.CaptureFixture[str], logs: Any, more: list[str], name: str) -> None:
    """To 1e-8, from zip members of zstd as from JSON."""
    found = braid(capsys, "audit", "compare", *(conformance(*each) for each in logs), *more)
    agrees(found, told(name))
    assert found["protocol"] == (["max_tokens: 256 in A, 64 in B"] if name == "inspect" else [])


def test_the_case_study_is_not_shown_and_the_reason_comes_first(capsys: pytest.CaptureFixture[str]) -> None:
    """The figures, the flags, and a page on which the difference of protocol stands above the numbers."""
    logs = [conformance("eval-trust", f"{name}_max_new768.json") for name in ("instruct", "winner")]
    found = braid(capsys, "audit", "compare", *logs)
    agrees(found["n"], 199)
    agrees(found["delta_ci"], [-0.0839400935, 0.0639907522])
    agrees(found["min_detectable"], 0.104729571)
    agrees(found["flags"]["goes_on"], {"a": 0, "b": 80, "p": 1.65436123e-24})
    assert (found["verdict"], found["powered"], found["errors"]) == ("not_shown", False, {"a": 0, "b": 1})
    run("audit", "compare", *logs)
    page = capsys.readouterr().out
    assert (
        page.index("goes_on: 0 of 199 rows of A, 80 of 199 rows of B") < page.index("NOT SHOWN") < page.index("McNemar")
    )


def test_epochs_are_samples_of_one_item(capsys: pytest.CaptureFixture[str]) -> None:
    """Clustered by item; McNemar is null."""
    log = conformance("audit", "inspect", "shelves-e.eval")
    found, stated = braid(capsys, "audit", "compare", log, log), told("shelves-e, epochs")
    agrees(found["a"], {"items": 6, "samples": 17, "rate": stated["rate"], "se": stated["se_clustered"]})
    assert (found["mcnemar"], found["a"]["correct"], found["bootstrap"]["method"]) == (None, None, "seeded")


def test_another_question_under_one_id_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    """The ids of two Inspect logs are the same, the questions are not."""
    logs = [conformance("audit", "inspect", f"shelves-{side}.eval") for side in "ae"]
    found = braid(capsys, "audit", "compare", *logs)
    assert (found["n"], found["delta"], found["verdict"]) == (0, None, "not_shown")
    assert found["mismatched"] == 5


@pytest.mark.parametrize(
    ("log", "name"),
    [(LM[0], "lm_eval triage a strict-match"), (LM[1], "lm_eval triage b strict-match"),
     (SHELVES[0], "inspect triage a"), (SHELVES[1], "inspect triage b")],
)  # fmt: skip
def test_triage_is_as_stated(capsys: pytest.CaptureFixture[str], log: Any, name: str) -> None:
    """All labels."""
    found, stated = braid(capsys, "audit", "triage", conformance(*log)), told(name)
    others = stated.pop("not_reasoning")
    agrees(found, stated)
    assert {each: label for each, label in found["labels"].items() if label != "reasoning"} == others


def test_samples_drawn_again_decide_the_route(capsys: pytest.CaptureFixture[str]) -> None:
    """18 of 39 wrong items would be right by a majority."""
    log, drawn = (
        conformance("eval-trust", "winner_max_new768.json"),
        conformance("audit", "sc", "winner-sc5-first-half.jsonl"),
    )
    found = braid(capsys, "audit", "triage", log, "--samples", drawn)
    assert (found["lottery"]["lottery"], found["lottery"]["n"], found["route"]) == (18, 39, "resample")


def test_several_candidates_are_corrected_together(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The verdict is that of the Holm p."""
    logs = []
    for name, right in (("base", range(0)), ("good", range(9)), ("same", range(1))):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps({"id": at, "correct": at in right}) + "\n" for at in range(9)))
        logs.append(path)
    found = braid(capsys, "audit", "compare", *logs)["comparisons"]
    assert [(each["mcnemar"]["exact"], each["holm"], each["bh"], each["verdict"]) for each in found] == [
        (0.00390625, 0.0078125, 0.0078125, "b_better"), (1.0, 1.0, 1.0, "not_shown"),
    ]  # fmt: skip


def test_a_bad_line_is_named_and_the_rest_counts(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """In the warnings, too; the command ends with 1."""
    one, other = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    one.write_text(
        '{"id": 1, "correct": true}\n{"id": 2, "correct"\n{"id": 3, "correct": "yes"}\n{"id": 4, "error": "x"}\n'
    )
    other.write_text('{"id": 1, "score": 0.5}\n{"id": 4, "correct": true}\n')
    found = braid(capsys, "audit", "compare", one, other, code=1)
    assert (found["n"], found["delta"], found["errors"]["a"], found["mcnemar"]) == (1, -0.5, 1, None)
    assert any("2 rows of A cannot be read" in each and "a.jsonl:2" in each for each in found["protocol"])


def test_flags_are_compared_although_another_item_has_several_samples(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """An item that only one log has is in no number, however often it was asked."""
    one, other = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    long = "The answer is 7. " + "and on " * 40
    one.write_text(
        "".join(json.dumps({"id": name, "correct": True, "text": long}) + "\n" for name in ("q", "extra", "extra"))
    )
    other.write_text('{"id": "q", "correct": false, "text": "7"}\n')
    found = braid(capsys, "audit", "compare", one, other)
    assert (found["n"], found["b"], found["only_in"]) == (1, 1, {"a": 1, "b": 0})
    agrees(found["flags"]["goes_on"], {"a": 1, "b": 0, "p": 1.0})


def inspect_log(path: Path, value: float, **spec: Any) -> Path:
    """A log of Inspect as JSON, of one sample; NaN is written as Python does."""
    sample = {
        "id": "q",
        "epoch": 1,
        "input": "q",
        "target": "7",
        "scores": {"s": {"value": value}},
        "output": {"completion": "7"},
    }
    path.write_text(json.dumps({"version": 2, "status": "success", "eval": spec, "plan": {}, "samples": [sample, sample | {
        "id": "r", "metadata": {"loss": float("nan")}}]}))  # fmt: skip
    return path


def test_a_nan_is_no_score_and_does_not_cost_the_log(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Python writes them into JSON; a row without a score is counted apart. A mark of the byte order is passed over."""
    found = braid(capsys, "audit", "triage", inspect_log(tmp_path / "log.json", float("nan")))
    assert (found["n"], found["errors"]) == (0, 2)
    found = braid(capsys, "audit", "triage", inspect_log(tmp_path / "log.json", 1.0))
    assert (found["n"], found["wrong"]) == (2, 0)
    lines = tmp_path / "lines.jsonl"
    lines.write_bytes(b'\xef\xbb\xbf{"id": 1, "score": NaN}\n{"id": 2, "correct": true, "why": "NaN \\" -Infinity"}\n')
    found = braid(capsys, "audit", "triage", lines)
    assert (found["n"], found["errors"]) == (1, 1)


def test_another_version_or_limit_of_a_task_is_a_difference_of_protocol(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The name of the task is not: it tells the two runs apart."""
    logs = [
        inspect_log(tmp_path / f"{at}.json", 1.0, task=str(at), task_version=at, config={"message_limit": 9 + at})
        for at in (1, 2)
    ]
    assert braid(capsys, "audit", "compare", *logs)["protocol"] == [
        "message_limit: 10 in A, 11 in B", "task_version: 1 in A, 2 in B",
    ]  # fmt: skip


def test_log_likelihoods_are_no_text(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Of a multiple choice nothing was written that could be labelled."""
    row = {
        "doc_id": 0, "target": "1", "filter": "none", "metrics": ["acc"], "acc": 0.0, "arguments": {},
        "resps": [[["-1.0", "False"]], [["-2.5", "False"]]], "filtered_resps": [["-1.0", "False"], ["-2.5", "False"]],
    }  # fmt: skip
    path = tmp_path / "samples.jsonl"
    path.write_text(json.dumps(row) + "\n")
    found = braid(capsys, "audit", "triage", path)
    assert (found["wrong"], found["unlabelled"], found["labels"]) == (1, 1, {})


@pytest.mark.parametrize("content", ["", "[]", "{}", "PK\x03\x04nothing", '{"results": []}', "no json"])
def test_a_file_that_is_no_log_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str) -> None:
    """With its name, and without a traceback."""
    path = tmp_path / "log.json"
    path.write_text(content)
    assert run("audit", "triage", path) == 1
    assert "log.json" in capsys.readouterr().err


def test_power_adjust_and_conformal_answer_alone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The shapes of their JSON."""
    agrees(braid(capsys, "audit", "power", "--n", 199, "--psi", "56/199"), {"min_detectable": 0.104729571})
    assert braid(capsys, "audit", "power", "--delta", 0.05, "--psi", "56/199") == {"n": 882}
    assert braid(capsys, "audit", "adjust", 0.01, 0.04) == {"holm": [0.02, 0.04], "bh": [0.02, 0.04]}
    path = tmp_path / "r.jsonl"
    path.write_text("".join(json.dumps({"prediction": 0, "actual": at}) + "\n" for at in range(1, 10)))
    assert braid(capsys, "audit", "conformal", path) == {"n": 9, "k": 9, "q": 9.0}


def test_numbers_that_leave_the_range_are_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """At their position, without a traceback; the rest counts."""
    path = tmp_path / "r.jsonl"
    path.write_text('{"prediction": -1e308, "actual": 1e308}\n{"prediction": 1, "actual": 2}\n')
    assert braid(capsys, "audit", "conformal", path, "--alpha", "0.5", code=1) == {"n": 1, "k": 1, "q": 1.0}
    path.write_text('{"id": 1, "score": 1e308}\n{"id": 2, "score": 0.5}\n')
    assert braid(capsys, "audit", "compare", path, path, code=1)["n"] == 1
    assert run("audit", "power", "--n", 20, "--psi", 2) == 1


BAD_ROWS: list[tuple[Any, str]] = [
    ({"messages": []}, "messages: empty"),
    ({"messages": [{"role": "user", "content": "x"}]}, "messages: nothing that the model said"),
    ({"messages": [{"role": "user", "content": "x"}, {"role": "bot", "content": "y"}]}, "messages[1]: no role that is known"),
    ({"prompt": "x", "chosen": "y", "rejected": "y"}, "chosen and rejected are the same"),
    ({"prompt": "x", "completion": " "}, "completion: empty"),
    ({"prompt": "x", "completion": "y", "label": 1}, "label: neither true nor false"),
    ({"x": 1}, "no shape of a trainer"),
    ({"input": {"messages": []}, "preferred_output": [], "non_preferred_output": []}, "are the same"),
    ({"context": [{"role": "user", "content": "x"}], "completions": [{"rank": 0, "completion": []}]}, "fewer than two"),
    ({"schema_version": "ATIF-v1.8", "steps": [{"source": "user", "message": "x"}]}, "nothing that the agent did"),
    ({"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{"}}]}]}, "no JSON"),
]  # fmt: skip


def test_bad_rows_are_told_by_their_lines(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Of any trainer; a good row among them is good."""
    path = tmp_path / "rows.jsonl"
    said = [{"role": "assistant", "content": "y"}]
    good = [
        {"prompt": "x", "completion": "y"},
        {
            "input": {"messages": [{"role": "user", "content": "x"}]}, "preferred_output": said,
            "non_preferred_output": [{**said[0], "content": "z"}],
        },
    ]  # fmt: skip
    lines = [json.dumps(row) for row, _ in BAD_ROWS] + ["{", *map(json.dumps, good)]
    path.write_text("\n".join(lines) + "\n")
    found = braid(capsys, "audit", "rows", path, code=1)
    assert (found["rows"], found["invalid"], found["format"]) == (14, 12, "mixed")
    for line, (_, reason) in enumerate(BAD_ROWS, start=1):
        assert any(reason in each["reason"] for each in found["errors"] if each["line"] == line)


def test_contaminated_rows_are_found(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """By the rules of the export."""
    question = "A tram has nineteen seats below and twenty-five above, how many seats do two such trams have in all?"
    rows, items = tmp_path / "rows.jsonl", tmp_path / "items.jsonl"
    rows.write_text(json.dumps({"prompt": "Say hello", "completion": "hello"}) + "\n" + json.dumps({"messages": [
        {"role": "user", "content": question}, {"role": "assistant", "content": "88"}]}) + "\n")  # fmt: skip
    items.write_text(json.dumps({"id": "q1", "question": question}) + "\n")
    found = braid(capsys, "audit", "contamination", rows, "--eval-items", items, code=1)
    assert (found["rows"], found["items"], found["flagged"]) == (2, 1, 1)
    assert (found["matches"][0]["row"], found["matches"][0]["item"]) == (2, "q1")


LINES = [
    {"type": "rollout", "rollout_id": "{r}", "task": "task {n}", "branches": 1, "required": ["build"], "labels": {"arm": "{arm}"}},
    {"type": "event", "rollout_id": "{r}", "branch_index": 0,
     "event": {"event": "tool_call", "data": {"toolName": "run", "callId": "c", "args": {"command": "{command}"}}}},
    {"type": "event", "rollout_id": "{r}", "branch_index": 0,
     "event": {"event": "tool_result", "data": {"toolName": "run", "callId": "c", "output": "done"}}},
    {"type": "event", "rollout_id": "{r}", "branch_index": 0, "event": {"event": "final_answer", "data": {"answer": "x"}}},
]  # fmt: skip


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of two arms: the second one passes more, and one branch of each looks into the solution."""
    folder = tmp_path_factory.mktemp("audit")
    lines = []
    for arm, passes in (("old", 4), ("new", 20)):
        for n in range(24):
            filled = {
                "{r}": f"{arm}-{n}",
                "{n}": str(n),
                "{arm}": arm,
                "{command}": "cat /solution/solve.sh" if n == 3 else "ls",
            }
            text = "\n".join(map(json.dumps, LINES))
            for name, value in filled.items():
                text = text.replace(name, value)
            ok = n < passes
            build = {
                "type": "build",
                "rollout_id": f"{arm}-{n}",
                "branch_index": 0,
                "status": "success" if ok else "failure",
            }
            lines += [text, json.dumps(build | {"exit_code": int(not ok), "produced_by": "build-verifier"})]
    (folder / "lines.ndjson").write_text("\n".join(lines) + "\n")
    assert run("run", folder / "lines.ndjson", "--out", folder / "out", "--processes", 1, "--json") == 0
    return folder / "out"


def test_arms_of_the_log_are_an_experiment(capsys: pytest.CaptureFixture[str], log: Path) -> None:
    """Items are tasks; the base is the arm that was asked for."""
    found = braid(capsys, "audit", "compare", "--by", "label.arm", "--base", "old", "--from-dir", log)
    assert (found["n"], found["b"], found["c"], found["verdict"]) == (24, 0, 16, "b_better")
    assert (found["a"]["name"], found["arms"]["b"]["passes"], found["arms"]["a"]["tokens_per_pass"]) == (
        "old",
        20,
        None,
    )


def test_verifiers_of_the_log_are_audited(capsys: pytest.CaptureFixture[str], log: Path) -> None:
    """The two leaks, and nothing else."""
    (found,) = braid(capsys, "audit", "verifiers", "--from-dir", log, code=1)["verifiers"]
    assert (found["id"], found["n"], found["pass"], found["strength"]) == ("build", 48, 24, 0.6)
    assert [(each["id"], sorted(each["branches"])) for each in found["findings"]] == [
        ("leaks", ["new-3/b0", "old-3/b0"])
    ]


def test_the_report_is_the_same_bytes_twice_and_loads_nothing(
    capsys: pytest.CaptureFixture[str], log: Path, tmp_path: Path
) -> None:
    """One file of HTML with plots; the matrix counts what is there."""
    found = braid(capsys, "audit", "report", log, "--out", tmp_path / "one")
    braid(capsys, "audit", "report", log, "--out", tmp_path / "two")
    for name in ("report.md", "report.html", "report.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    page = (tmp_path / "one" / "report.html").read_text()
    assert "<svg" in page
    assert not re.search(r"(?:src|href)=\"(?!data:)|@import|url\(", page)
    states = {(each["control"], each["name"]): each["state"] for each in found["matrix"]}
    assert states["MCP08:2025", "lack of audit and telemetry"] == "covered"
    assert states["MCP02:2025", "privilege escalation via scope creep"] == "gap"
    assert found["evidence"] == found["evidence"] | {"records": 96, "not_ok": 0}


def test_tasks_are_audited_with_their_own_tests(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A test that passes anything is found by running it; a directory that is none is an error."""
    task = tmp_path / "task"
    for name, content in {
        "task.toml": "[environment]\nallow_internet = false\n", "instruction.md": "Do it.\n", "environment/a.txt": "a\n",
        "solution/solve.sh": "touch done\n", "broken/one/a.txt": "b\n",
        "tests/test.sh": "echo '<testsuite tests=\"1\"><testcase name=\"t\"/></testsuite>' > \"$LOGS_DIR/junit.xml\"\n",
    }.items():  # fmt: skip
        (task / name).parent.mkdir(parents=True, exist_ok=True)
        (task / name).write_text(content)
    found = braid(capsys, "audit", "tasks", task, tmp_path / "none", "--run", code=1)
    assert [each["id"] for each in found["tasks"][0]["findings"]] == ["broken-passes", "untouched-passes"]
    assert len(found["tasks"]) == len(found["errors"]) == 1


ROOT = Path(__file__).parents[4]


def test_the_lines_of_the_readme_are_what_is_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From two log files to the reason why nothing is shown."""
    monkeypatch.chdir(ROOT)
    (block,) = re.findall(r"```console\n(\$ braid audit.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    shown = ""
    for line in block.splitlines():
        if line.startswith("$ "):
            assert run(*line.split("#")[0].split()[2:]) == 0
            shown += capsys.readouterr().out
        elif line:
            assert line in shown.splitlines()


def test_the_commands_of_the_page_run(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other; those that find something end with 1."""
    copytree(ROOT / "docs" / "examples" / "audit", tmp_path / "docs" / "examples" / "audit")
    copytree(log, tmp_path / "results")
    (tmp_path / "items.jsonl").write_text(
        '{"id": "q", "question": "what is the airspeed velocity of an unladen swallow"}\n'
    )
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "audit.md").read_text()
    commands = [
        line.split()[1:] for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) for line in block.splitlines()
    ]
    found = {" ".join(words[:2]): run(*words) for words in commands if "--run" not in words}
    assert {name for name, code in found.items() if code} == {"audit verifiers"}
    assert len(found) == 9


def valid_adp(row: dict[str, Any], metadata: dict[str, Any]) -> int:
    """Check a trajectory by the rules of the protocol's validator; returns how many calls it has."""
    keys = {
        "text_observation": {"class_", "content", "name", "source", "tool_call_id"},
        "api_action": {"class_", "function", "kwargs", "description", "tool_call_id"},
        "code_action": {"class_", "language", "content", "description", "tool_call_id"},
        "message_action": {"class_", "content", "description", "reward"},
    }
    assert set(row) == {"schema_version", "id", "content", "details"}
    functions = {tool["function"]["name"] for tool in metadata["custom_tools"]}
    waiting: set[str] = set()
    seen: set[str] = set()
    for step, after in zip(row["content"], [*row["content"][1:], {"class_": ""}], strict=True):
        assert set(step) <= keys[step["class_"]]
        if step["class_"] in ("api_action", "code_action"):
            assert step["tool_call_id"] not in seen
            seen.add(step["tool_call_id"])
            waiting.add(step["tool_call_id"])
            assert step.get("function") in functions or step.get("language") in metadata["code_enabled"]
        elif "tool_call_id" in step:
            waiting.remove(step["tool_call_id"])
        elif step["class_"] == "message_action":
            assert after["class_"] != "text_observation"
    assert not waiting
    return len(seen)


def test_adp_loses_no_call_and_passes_the_rules_of_its_validator(log: Path, tmp_path: Path) -> None:
    """Every call of every branch is an action with one later observation; branches that may have gamed their tests are left out."""
    assert run("export", "--format", "adp", "--from-dir", log, "--out", tmp_path / "adp", "--json") == 0
    metadata = json.loads((tmp_path / "adp" / "metadata.json").read_bytes())
    lines = [
        json.loads(line) for path in (tmp_path / "adp").glob("rows-*.jsonl") for line in path.read_text().splitlines()
    ]
    branches = [json.loads(line) for line in (log / "branches.jsonl").read_text().splitlines()]
    assert lines, "the branches of the log are there"
    rankings = [json.loads(line) for line in (log / "rankings.jsonl").read_text().splitlines()]
    suspected = {
        (ranking["rollout_id"], row["branch_index"])
        for ranking in rankings for row in ranking["branches"]
        if any(flag.startswith("hack_suspected") for flag in row["flags"])
    }  # fmt: skip
    taken = [each for each in branches if (each["rollout_id"], each["branch_index"]) not in suspected]
    assert sum(valid_adp(line, metadata) for line in lines) == sum(len(each["tool_calls"]) for each in taken)
    assert 0 < len(taken) < len(branches)
    assert metadata["code_enabled"] == ["bash"]
    assert run("verify", tmp_path / "adp") == 0


def test_croissant_names_every_file_with_its_digest(log: Path, tmp_path: Path) -> None:
    """A FileObject and a RecordSet each, with ids that are unique."""
    assert run("export", "--format", "trl-kto", "--from-dir", log, "--out", tmp_path / "kto", "--json") == 0
    card = json.loads((tmp_path / "kto" / "croissant.json").read_bytes())
    assert "| build | 24 | 24 | 1 |" in (tmp_path / "kto" / "README.md").read_text()
    files = {each["@id"]: each["sha256"] for each in card["distribution"]}
    manifest = json.loads((tmp_path / "kto" / "manifest.json").read_bytes())
    assert files == {each["name"]: each["sha256"] for each in manifest["files"]} != {}
    fields = [each["@id"] for records in card["recordSet"] for each in records["field"]]
    assert len(set(fields)) == len(fields)
    assert {each["source"]["fileObject"]["@id"] for records in card["recordSet"] for each in records["field"]} == set(
        files
    )
    (tmp_path / "kto" / "croissant.json").write_text("{}")
    assert run("verify", tmp_path / "kto") == 1
