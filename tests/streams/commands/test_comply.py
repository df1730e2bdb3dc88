"""`braid comply`: stored runs give their known figures, and nothing that a text does not show becomes a pass or a row."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from referencing import Registry, Resource

from schemas.compliance import ComplianceEvalRecord, eval_view
from tests import model_server
from tests.conformance import conformance
from tests.conftest import Braid

DATA = ("compliance", "ifeval")
NO_COMMA = {"id": "t", "instruction": "Say it.", "constraints": [{"type": "format", "rule": "no_comma"}]}


def stored() -> list[Path]:
    return [conformance(*DATA, f"results-seed{seed}", "runs.jsonl") for seed in (42, 43, 44)]


def rows(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name).read_text("utf-8").splitlines()]


def written(path: Path, *lines: object) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return path


@pytest.mark.parametrize(
    ("semantics", "means", "pairs"),
    [
        ("recorded", ["41.33 3.06", "46.00 2.00", "54.67 1.15"], (17, 4, 0.0071973801, 7, 3, 0.1015625)),
        ("wasmagent", ["41.33 3.06", "46.00 2.00", "54.67 1.15"], (17, 4, 0.0071973801, 7, 3, 0.1015625)),
        ("ifeval", ["41.33 3.06", "46.00 2.00", "54.00 2.00"], (16, 4, 0.0118179321, 7, 3, 0.115234375)),
    ],
)
def test_the_report_of_the_stored_runs_has_the_known_figures(
    braid: Braid, semantics: str, means: list[str], pairs: tuple[float, ...]
) -> None:
    tasks = conformance(*DATA, "samples.jsonl")
    code, found, said = braid("comply", "report", *stored(), "--tasks", tasks, "--semantics", semantics, "--json")
    assert code == 0, said
    assert [f"{each['mean']:.2f} {each['sd']:.2f}" for each in found["modes"]] == means
    first = found["pairs"][0]
    names = ("only_first", "only_second", "mcnemar_p", "tasks_up", "tasks_down", "by_task_p")
    assert (first["first"], first["second"]) == ("full_pcl", "prompt_retry")
    assert [first[name] for name in names] == pytest.approx(pairs, rel=1e-7)
    assert "do not show a difference" in found["conclusion"][0]


def test_importing_the_stored_runs_gives_the_known_rows(braid: Braid, tmp_path: Path) -> None:
    tasks = conformance(*DATA, "samples.jsonl")
    code, counts, said = braid("comply", "import", *stored(), "--tasks", tasks, "--out", tmp_path, "--json")
    assert code == 0, said
    assert (counts["rollouts"], counts["branches"], counts["passes"]) == (150, 450, 212)
    assert (counts["sft"], counts["dpo"], counts["ppo"]) == (73, 40, 150)
    pairs = rows(tmp_path, "dpo.jsonl")
    assert Counter(pair["basis"] for pair in pairs) == {"repair": 24, "objective": 16}
    assert Counter(pair["made_by"] for pair in pairs) == {"edit": 29, "model": 11}
    left = Counter((each["kind"], each["reasons"][0]) for each in rows(tmp_path, "rejected.jsonl"))
    assert left == {
        ("sft", "not_passing"): 238, ("sft", "edited_answer"): 15, ("sft", "repeated_answer"): 124, ("ppo", "repaired"): 146,
        ("ppo", "repeated_answer"): 154, ("dpo", "rejected_contains_chosen"): 2, ("dpo", "repeated_pair"): 30,
    }  # fmt: skip
    valid = _protocol("compliance-eval-record")
    for line in (tmp_path / "compliance.jsonl").read_text("utf-8").splitlines():
        valid.validate(eval_view(ComplianceEvalRecord.model_validate_json(line)))


def _protocol(name: str) -> jsonschema.Draft202012Validator:
    folder = conformance("protocol", "schemas", "compliance")
    known = [json.loads(path.read_text("utf-8")) for path in folder.glob("*.json")]
    registry = Registry[Any]().with_resources([(each["$id"], Resource.from_contents(each)) for each in known])
    schema = json.loads((folder / f"{name}.schema.json").read_text("utf-8"))
    return jsonschema.Draft202012Validator(schema, registry=registry)


def test_verify_prints_a_line_for_each_answer_and_a_summary(braid: Braid, tmp_path: Path) -> None:
    spec = {
        "id": "s", "intent": "i", "language": "en", "priority_hierarchy": ["system_policy"],
        "constraints": [{"id": "c", "description": "d", "verify_method": "tool:tools", "arg": {"allowed": []}, "level": "hard",
                         "priority": 1, "category": "tool"}],
    }  # fmt: skip
    row = {"id": "a", "prompt": "p", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}
    path = written(
        tmp_path / "answers.jsonl", {**row, "response": "a, b"}, {**row, "response": "fine"}, {"prompt": "p", "spec": spec, "output": "x"},
        {**row, "kwargs": [{"num_words": 3}], "response": "x"},
    )  # fmt: skip
    code, _, _ = braid("comply", "verify", path)
    assert code == 1, "a bad line"
    from contextlib import redirect_stdout
    from io import StringIO

    from streams.cli import main

    out = StringIO()
    with redirect_stdout(out), pytest.raises(SystemExit):
        main(["comply", "verify", str(path), "--json", "--loose"])
    first, second, third, fourth, last = map(json.loads, out.getvalue().splitlines())
    assert (first["line"], first["id"], first["status"], first["official"], first["loose"]) == (
        1,
        "a",
        "fail",
        False,
        False,
    )
    assert first["constraints"][0]["hint"] == "comma at char 1"
    assert first["constraints"][0]["span"] == {"char_range": [1, 2]}
    assert second["constraints"][0] | {"hint": None, "span": None} == second["constraints"][0]
    assert third["status"] == "unknown", "a text alone does not say which tools were called"
    assert fourth["line"] == 4
    assert "no such parameter" in fourth["error"]
    assert {name: count for name, count in last["summary"].items() if name != "seconds"} == {
        "lines": 4, "pass": 1, "fail": 1, "unknown": 1, "bad": 1, "constraints": 3,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("constraint", "said"),
    [
        ({"type": "format", "rule": "nonsense"}, "is no rule"),
        ({"type": "format", "rule": "bullet_count"}, "constraints.0.value: expected a whole number"),
        ({"type": "format", "rule": "word_count", "value": {"min": 5, "max": 2}}, "min is over max"),
        ({"type": "format", "rule": "json_schema", "value": {"pattern": "(a+)+"}}, "not supported"),
        ({"type": "format", "rule": "no_comma", "wish": 1}, "wish"),
    ],
)
def test_a_wrong_task_is_an_error_where_it_is_loaded(
    braid: Braid, tmp_path: Path, constraint: dict[str, Any], said: str
) -> None:
    path = written(tmp_path / "tasks.jsonl", NO_COMMA, {**NO_COMMA, "id": "u", "constraints": [constraint]})
    code, _, complaint = braid("comply", "run", path, "--script", tmp_path / "none.toml", "--out", tmp_path / "out")
    assert code == 1
    assert f"{path}:2: " in complaint
    assert said in complaint


def test_a_model_that_ignores_every_hint_ends_exhausted_without_a_row(
    braid: Braid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")

    async def deaf(_body: dict[str, Any], _number: int) -> model_server.Reply:
        return model_server.reply([model_server.text("No, never, not once.")])

    task = {**NO_COMMA, "constraints": [{"type": "format", "rule": "bullet_count", "value": 3}]}
    path, out = written(tmp_path / "tasks.jsonl", task), tmp_path / "out"
    with model_server.model_server(deaf) as api:
        code, _, said = braid(
            "comply", "run", path, "--model", "openai", "--model-name", "deaf", "--base-url", f"{api.url}/v1", "--seeds", "7", "--out", out
        )  # fmt: skip
    assert code == 0, said
    evals = rows(out, "compliance.jsonl")
    assert [(each["mode"], each["status"], "exhausted" in each["flags"]) for each in evals] == [
        ("direct", "fail", False), ("prompt_retry", "fail", True), ("full_pcl", "fail", True),
    ]  # fmt: skip
    assert rows(out, "sft.jsonl") == rows(out, "dpo.jsonl") == []
    _, found, _ = braid("comply", "report", out / "compliance.jsonl", "--json")
    assert all("these data do not show a difference" in each for each in found["conclusion"])


def test_a_provider_that_fails_leaves_unknown(braid: Braid, tmp_path: Path) -> None:
    script = tmp_path / "answers.toml"
    script.write_text(
        '[[answer]]\ntask = "t"\nround = 0\ntext = "a, b"\n[[answer]]\ntask = "t"\nerror = "no"\n', "utf-8"
    )
    path, out = written(tmp_path / "tasks.jsonl", NO_COMMA), tmp_path / "out"
    code, _, said = braid("comply", "run", path, "--script", script, "--mode", "prompt_retry", "--out", out)
    assert code == 1
    assert "infra_error" in said
    [record] = rows(out, "compliance.jsonl")
    assert (record["status"], record["final_pass"]) == ("unknown", False)
    assert json.loads(record["error"])["kind"] == "model_error"
    _protocol("compliance-eval-record").validate(eval_view(ComplianceEvalRecord.model_validate(record)))
    assert rows(out, "ppo.jsonl") == []


def test_a_provider_that_gives_no_draft_is_counted_as_unknown_in_every_mode(braid: Braid, tmp_path: Path) -> None:
    script, out = tmp_path / "answers.toml", tmp_path / "out"
    script.write_text('[[answer]]\ntask = "t"\nerror = "no"\n', "utf-8")
    code, _, _ = braid("comply", "run", written(tmp_path / "tasks.jsonl", NO_COMMA), "--script", script, "--out", out)
    assert code == 1
    records = [ComplianceEvalRecord.model_validate(each) for each in rows(out, "compliance.jsonl")]
    assert [(each.mode, each.status, each.final_pass, each.artifact) for each in records] == [
        ("direct", "unknown", False, ""), ("prompt_retry", "unknown", False, ""), ("full_pcl", "unknown", False, ""),
    ]  # fmt: skip
    for each in records:
        _protocol("compliance-eval-record").validate(eval_view(each))
    _, found, _ = braid("comply", "report", out / "compliance.jsonl", "--json")
    assert [(each["mode"], each["n"], each["unknown"]) for each in found["modes"]] == [
        ("direct", 0, 1), ("prompt_retry", 0, 1), ("full_pcl", 0, 1),
    ]  # fmt: skip


def test_a_false_claim_gets_no_row(braid: Braid, tmp_path: Path) -> None:
    script = tmp_path / "answers.toml"
    script.write_text('[[answer]]\ntask = "t"\ntext = "ab"\n', "utf-8")
    tasks, log = written(tmp_path / "tasks.jsonl", NO_COMMA), tmp_path / "run.ndjson"
    code, _, said = braid(
        "comply", "run", tasks, "--script", script, "--mode", "direct", "--samples", "2", "--log", log
    )
    assert code == 0, said
    lines = [json.loads(line) for line in log.read_text("utf-8").splitlines() if '"check"' not in line]
    for line in lines:
        if line.get("branch_index") == 1 and line["type"] == "event":
            data = line["event"]["data"]
            line["event"]["data"] = json.loads(json.dumps(data).replace('"ab"', '"a, b"'))
    from agents.compliance.compliance_verdict import Place, compliance_verdict
    from agents.importers.line_writer import lines_of
    from agents.importers.lines import LineReader
    from schemas.events import AgentEvents

    reader, events = LineReader(), dict[int, list[Any]]({0: [], 1: []})
    for line in lines:
        for fact in reader.read_object(dict(line)):
            if isinstance(fact, AgentEvents):
                events[fact.branch_index] += fact.events
    spec = lines[0]["spec"]
    for index, told in events.items():
        lines += lines_of(compliance_verdict(Place(lines[0]["rollout_id"], index, 0), spec, told))
    out = tmp_path / "out"
    code, counts, said = braid("run", written(tmp_path / "forged.ndjson", *lines), "--out", out, "--json")
    assert code == 0, said
    assert counts["passes"] == 1
    assert [row["branch_index"] for row in rows(out, "sft.jsonl")] == [0]
    assert [row["branch_index"] for row in rows(out, "ppo.jsonl")] == [0]
    assert rows(out, "dpo.jsonl") == []
    assert [each["flags"] for each in rows(out, "compliance.jsonl")] == [[], ["inconsistent_compliance"]]


def test_samples_of_one_mode_are_branches_of_one_rollout_with_the_verdict_as_reward(
    braid: Braid, tmp_path: Path
) -> None:
    script = tmp_path / "answers.toml"
    script.write_text(
        '[[answer]]\ntask = "t"\nseed = 0\ntext = "a, b"\n[[answer]]\ntask = "t"\ntext = "fine"\n',
        "utf-8",
    )
    tasks, out = written(tmp_path / "tasks.jsonl", NO_COMMA), tmp_path / "out"
    code, _, said = braid(
        "comply", "run", tasks, "--script", script, "--mode", "direct", "--samples", "3", "--id", "r", "--out", out
    )
    assert code == 0, said
    rewards = {
        row["branch_index"]: (row["rollout_id"], row["reward"], row["group_size"]) for row in rows(out, "ppo.jsonl")
    }
    assert rewards == {0: ("r/t", 0.0, 3), 1: ("r/t", 1.0, 3), 2: ("r/t", 1.0, 3)}
