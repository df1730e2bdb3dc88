"""An imported run, exported and imported again, says the same: every sample, in every format that tells whole branches."""

import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.imports.facts import count
from tests.imports.importing import Read, read_traces
from tests.imports.test_counts import SAMPLES, paths_of
from tests.processes import run_braid

TARGETS = ("atif", "messages", "sts")
WHOLE = os.environ | {"BRAID_EMISSION__REDACT": "false"}
"""Texts as they came: what is redacted does not come back."""

OURS = Path(__file__).parent / "samples"
MORE = (
    "a2a-task", "adk", "bfcl", "claude-code/forked", "claude-code/others", "claude-code/subagent", "codex/forked", "codex/others",
    "codex/subagent", "harbor/job", "inspect/agents.eval", "inspect/compaction.eval", "inspect/trouble.eval", "langsmith",
    "ms-agent-framework", "oai-agents", "otel/openai-v2-logs.jsonl", "otel/openai-v2.jsonl", "otel/openinference-anthropic.jsonl.gz",
    "otel/openinference-langchain.jsonl.gz", "otel/traceloop-anthropic.jsonl.gz", "pi", "terminal-bench/real-run",
)  # fmt: skip
"""Samples of our own: forks, sub-agents, compactions, harness failures."""


def all_samples() -> list[Read]:
    """Every sample, read."""
    found = [read_traces(sample.partition("/")[0], *paths_of(sample)) for sample in SAMPLES]
    for name in MORE:
        place = OURS / name
        paths = sorted(each for each in place.iterdir() if each.suffix != ".md") if place.is_dir() else [place]
        whole = name.partition("/")[0] in ("bfcl", "harbor", "terminal-bench")
        found.append(read_traces(name.partition("/")[0], *([place] if whole else paths)))
    return found


@pytest.fixture(scope="module")
def first() -> list[dict[str, Any]]:
    """The lines of all samples; a rollout that two samples tell is read once."""
    lines: dict[str, list[dict[str, Any]]] = {}
    for read in all_samples():
        for name in {line["rollout_id"] for line in read.lines} - lines.keys():
            lines[name] = [line for line in read.lines if line["rollout_id"] == name]
    return [line for told in lines.values() for line in told]


@pytest.fixture(scope="module")
def run(first: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of all samples in one run, with the three datasets."""
    place = tmp_path_factory.mktemp("round")
    (place / "lines.ndjson").write_text("".join(json.dumps(line) + "\n" for line in first))
    formats = [word for name in TARGETS for word in ("--format", name)]
    done = run_braid("run", place / "lines.ndjson", "--out", place / "out", *formats, env=WHOLE)
    assert done.returncode == 0, done.stderr
    return place / "out"


Told = dict[str, Counter[Any]]


Branch = tuple[str, int]


def told(lines: list[dict[str, Any]]) -> dict[Branch, Told]:
    """By branch, what was said: calls, results with their error marks, texts, reasoning, and all words that the model was given.

    Whichever form its events have; other conversations of a branch that came back as rollouts of their own count with their parent.
    """
    homes: dict[str, Branch] = {}
    for line in lines:
        if line["type"] == "rollout" and "parent_branch" in line["labels"]:
            homes[line["rollout_id"]] = (line["labels"]["parent"], int(line["labels"]["parent_branch"]))
    found: dict[Branch, Told] = {}
    responses = {(*_place(line), _data(line).get("response")) for line in lines if _kind(line) == "model_call"}
    for line in lines:
        if line["type"] == "event":
            if (
                _kind(line) == "message"
                and _data(line)["role"] == "assistant"
                and (*_place(line), _data(line)["id"]) not in responses
            ):
                continue  # words that a call was given
            name = homes.get(line["rollout_id"], (line["rollout_id"], line["branch_index"]))
            kinds = found.setdefault(name, {each: Counter() for each in ("call", "result", "text", "given", "thought")})
            _count(_kind(line), _data(line), kinds)
    return found


def _kind(line: dict[str, Any]) -> str:
    return str(line["event"]["event"]).removeprefix("subagent_") if line["type"] == "event" else ""


def _data(line: dict[str, Any]) -> dict[str, Any]:
    data: dict[str, Any] = line["event"]["data"]
    return data


def _count(kind: str, data: dict[str, Any], kinds: Told) -> None:
    match kind:
        case "tool_call":
            kinds["call"][data["toolName"], data.get("argsText") or json.dumps(data["args"], sort_keys=True)] += 1
        case "tool_result":
            kinds["result"][_text(data["output"]), "error" in data] += 1
        case "assistant_message":
            kinds["given" if data.get("beforeTask") else "text"][_text(data["text"])] += 1
        case "final_answer":
            kinds["text"][_text(data["answer"])] += 1
            kinds["given"].update([data["reply"]] if "reply" in data else [])
        case "user_message" | "context_message":
            kinds["given"][_text(data["text"])] += 1
        case "run_start" if data.get("task") is not None:
            kinds["given"][_text(data["task"])] += 1
        case "reasoning":
            kinds["thought"].update(data["text"])  # blocks of one turn come back as one text
        case "message":
            _count_message(data, kinds)
    kinds["thought"] -= Counter({"\n": kinds["thought"]["\n"]})


def _count_message(data: dict[str, Any], kinds: Told) -> None:
    content = data.get("content")
    text = "".join(part.get("text", "") for part in content) if isinstance(content, list) else content
    for call in data.get("tool_calls", ()):
        try:
            arguments = json.loads(call["arguments"])
        except ValueError:
            arguments = None
        written = json.dumps(arguments, sort_keys=True) if isinstance(arguments, dict) else call["arguments"]
        kinds["call"][call["name"], written] += 1
    kinds["thought"].update(data.get("reasoning") or "")
    if data["role"] == "tool":
        kinds["result"][text or "", bool(data.get("is_error"))] += 1
    elif text and data["role"] == "assistant":
        kinds["text"][text] += 1
    elif text and data["role"] == "user":
        kinds["given"][text] += 1


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def outcomes(lines: list[dict[str, Any]]) -> dict[Any, Any]:
    """By branch: how it ended and why, and its verdicts."""
    found: dict[Any, Any] = {}
    names = ("type", "name", "status", "score", "hint", "tests", "exit_code", "error")
    parents = {line["rollout_id"] for line in lines if line["type"] == "rollout" and line["labels"].get("parent")}
    for line in lines:
        if line["type"] in ("end", "check", "build") and line["rollout_id"] not in parents:
            said = {name: line[name] for name in names if line.get(name) is not None}
            found.setdefault((line["rollout_id"], line["branch_index"]), []).append(said)
    return {place: sorted(told, key=json.dumps) for place, told in found.items()}


def _place(line: dict[str, Any]) -> Branch:
    return line["rollout_id"], line.get("branch_index", -1)


def quarantined(run: Path) -> set[Branch]:
    """Branches that admission keeps out of every dataset: they ended badly, and a verdict says that they passed."""
    rejected = [json.loads(line) for line in (run / "rejected.jsonl").read_text().splitlines()]
    found = {
        (row["rollout_id"], *row["branches"])
        for row in rejected
        if len(row["branches"]) == 1 and row["admission"] and row["admission"]["category"] == "quarantine"
    }
    assert len(found) == 1
    return found


def again(target: str, run: Path) -> Read:
    """The dataset of a format, imported as the folder that it is."""
    return read_traces(target, run / target)


@pytest.mark.parametrize("target", TARGETS)
def test_all_that_was_said_comes_back(target: str, first: list[dict[str, Any]], run: Path) -> None:
    """Calls, results with their errors, texts, user messages and reasoning of every branch: none lost, none doubled."""
    read = again(target, run)
    assert read.rejected.first == []
    back, before = told(read.lines), told(first)
    different = {name: found for name, each in before.items() if (found := _difference(each, back.get(name)))}
    assert different == dict.fromkeys(quarantined(run), "gone")


def _difference(before: Told, back: Told | None) -> Any:
    if back is None:
        return "gone"
    found = {kind: {"lost": before[kind] - back[kind], "new": back[kind] - before[kind]} for kind in before}
    # A conversation that was begun anew holds words of the one before, as its context.
    found["given"]["new"] -= Counter({text: count for text, count in back["given"].items() if before["given"][text]})
    return {kind: each for kind, each in found.items() if any(each.values())}


@pytest.mark.parametrize("target", TARGETS)
def test_outcomes_come_back(target: str, first: list[dict[str, Any]], run: Path) -> None:
    """Ends with their errors, verdicts with their scores and counts, tokens and final answers are those of the first import."""
    read = again(target, run)
    left = quarantined(run)
    before = {place: each for place, each in outcomes(first).items() if place not in left}
    assert outcomes(read.lines) == before
    assert count(read.lines)[2] == count([line for line in first if _place(line) not in left])[2]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("sample", ["tau-bench/*.json", "claude-code/*.jsonl", "pi/linear.jsonl", "bfcl/"])
def test_transcripts_come_back_in_their_order(sample: str, target: str, first: list[dict[str, Any]], run: Path) -> None:
    """Event by event, with replies after the answer."""
    names = {line["rollout_id"] for line in read_traces(sample.partition("/")[0], *paths_of(sample)).lines}
    assert _in_order(again(target, run).lines, names) == _in_order(first, names)


def _in_order(lines: list[dict[str, Any]], names: set[str]) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = {}
    for line in lines:
        if line["type"] != "event" or line["rollout_id"] not in names:
            continue
        kind, data = line["event"]["event"], line["event"]["data"]
        said = [
            data.get(name) for name in ("text", "answer", "reply", "task", "toolName", "args", "output", "beforeTask")
        ]
        if any(each is not None for each in said):
            found.setdefault((line["rollout_id"], line["branch_index"]), []).append((kind, *said, "error" in data))
    return found


def test_what_is_not_carried_is_counted(run: Path, tmp_path: Path) -> None:
    """The command names what has no place in a format, with its number."""
    done = run_braid("export", "--format", "sts", "--from-dir", run, "--out", tmp_path / "out")
    assert re.search(r"not carried: hidden_task +23", done.stdout), done.stdout
    assert re.search(r"not carried: source_fields +\d+", done.stdout), done.stdout


@pytest.mark.parametrize("target", TARGETS)
def test_an_exported_trace_is_traced_to_its_evidence(target: str, run: Path) -> None:
    """`braid verify` finds the signed evidence of every row."""
    done = run_braid("verify", run / target)
    assert done.returncode == 0, done.stdout + done.stderr


SECRET = "ghp_" + "aB3dE6gH9" * 4
SESSION = [
    {"type": "session", "harness": "h", "id": "s"},
    {"type": "message", "message": {"role": "user", "content": f"Use {SECRET}."}},
    {"type": "message", "message": {"role": "assistant", "content": "", "toolCalls": [
        {"id": "a", "function": {"name": "login", "arguments": json.dumps({"password": "hunter2-horse-battery"})}}]}},
    {"type": "message", "message": {"role": "tool", "toolCallId": "a", "content": json.dumps({"token": SECRET})}},
    {"type": "message", "message": {"role": "assistant", "content": "Done.", "reasoningContent": f"It is {SECRET}"}},
]  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
def test_secrets_of_events_stay_behind(target: str, tmp_path: Path) -> None:
    """A branch without a row leaves redacted, also where the export is told not to redact: its run was."""
    place = tmp_path / "s.jsonl"
    place.write_text("".join(json.dumps(line) + "\n" for line in SESSION))
    assert run_braid("import", "sts", place, "--to", "run", "--out", tmp_path / "run").returncode == 0
    done = run_braid("export", "--format", target, "--from-dir", tmp_path / "run", "--out", tmp_path / "out", env=WHOLE)
    assert done.returncode == 0, done.stderr
    written = b"".join(path.read_bytes() for path in (tmp_path / "out").rglob("*.jsonl"))
    assert b"[REDACTED:" in written
    assert b"hunter2" not in written
    assert SECRET.encode() not in written


def test_a_session_of_the_hub_has_its_shape(run: Path) -> None:
    """A header, then messages with the documented members only; ours stand in `braid`."""
    files = sorted((run / "sts").glob("*/session.jsonl"))
    assert len(files) > 100
    known = {"role", "content", "reasoningContent", "toolCalls", "toolCallId", "timestamp", "model", "name"}
    for path in files:
        header, *lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert header["type"] == "session"
        assert header["harness"]
        assert header["id"]
        assert header.keys() <= {"type", "harness", "id", "name", "braid"}
        for line in lines:
            assert line["type"] == "message"
            assert line["message"].keys() <= known
            assert line["message"]["role"] in ("system", "user", "assistant", "tool")
            assert isinstance(line["message"]["content"], str)
            assert all(isinstance(each["function"]["arguments"], str) for each in line["message"].get("toolCalls", ()))
