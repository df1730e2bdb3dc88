"""Pages of compliance runs, of token streams, and of a hack verifier's verdicts before a rollout closes."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import orjson
import pytest

from agents.facts.fact import rollout_of
from agents.importers.lines import LineReader
from agents.importers.slices import Slicer
from schemas.compliance import ComplianceAttempt, ComplianceEvalRecord
from streams.cluster.config import Settings
from streams.jobs.run.run import run_files
from streams.log.file_writer import LogWriter
from streams.log.manifest import described, seal
from streams.log.topics import BY_RECORD
from streams.log.wire import Codec
from streams.views.web.rounds_part import rounds_part
from streams.views.web.sight import Sight
from streams.views.web.strands import Strand
from tests.streams.views.conftest import Braid
from tests.streams.views.web.conftest import viewing, write_lines
from tests.streams.views.web.view_data_lines import AT, event

EXAMPLES = Path(__file__).parents[4] / "docs" / "examples" / "comply"
PLAN = "/rollouts/demo%2Ftrain-plan%2Fs42"

Line = dict[str, Any]


@pytest.fixture
def complied(braid: Braid, tmp_path: Path) -> Path:
    """Three tasks in three modes each, by a scripted model."""
    words = (
        "--script",
        str(EXAMPLES / "answers.toml"),
        "--seeds",
        "42",
        "--id",
        "demo",
        "--out",
        str(tmp_path / "out"),
    )
    assert braid(None, "comply", "run", str(EXAMPLES / "tasks.jsonl"), *words).code == 0
    return tmp_path / "out"


def test_rounds_of_a_compliance_run_are_shown_with_what_they_break(
    complied: Path, tmp_path: Path, braid: Braid
) -> None:
    with viewing(Settings(state_dir=tmp_path / "state"), complied) as url:
        branch = httpx.get(f"{url}{PLAN}/branches/2").text
        rollout, pair = httpx.get(f"{url}{PLAN}").text, httpx.get(f"{url}{PLAN}/pairs/1/1").text
        alone = httpx.get(f"{url}{PLAN}/pairs/0/0")
        rows = httpx.get(f"{url}{PLAN}/rows").text
    assert "Task train-plan, mode full_pcl (repairs of parts), seed 42" in branch
    assert branch.count('class="row round"') == 2
    assert "<code>c1-title</code> (hard): no &lt;&lt;title&gt;&gt;" in branch
    assert "<ins>&lt;&lt;A day at the coast&gt;&gt;\n" in branch
    assert ">branch 1: round 1 over round 0</a>" in rollout
    assert "No sign of a hack is on record. No verdict looked for one." in rollout
    assert "repair: two rounds of one branch" in pair
    assert "Branch 1: round 1 over round 0 · repair, margin 0.333" in rows
    assert (alone.status_code, "branch 0 cannot stand beside itself" in alone.text) == (404, True)
    said = braid(None, "show", "demo/train-plan/s42", "--from-dir", str(complied), "--pair", "1", "1").out
    assert "branch 1: round 1 over round 0 (repair, margin 0.333)" in said
    code, _, complaint = braid(None, "show", "demo/train-plan/s42", "--from-dir", str(complied), "--pair", "0", "0")
    assert (code, "branch 0 cannot stand beside itself" in complaint) == (1, True)
    mail = braid(None, "show", "demo/train-plan/s42", "--from-dir", str(complied), "--html", str(tmp_path / "one.html"))
    assert (mail.code, (tmp_path / "one.html").read_text("utf-8").count('id="pair-1-1"')) == (0, 1)


def _tokens(prompt: list[int], ids: list[int]) -> dict[str, Any]:
    return {"prompt_ids": prompt, "ids": ids, "logprobs": [-0.5] * len(ids), "tokenizer": "tiny"}


def _conversation(branch: int, tokens: tuple[dict[str, Any], ...]) -> Iterator[Line]:
    """Two calls of a policy; those without tokens have none."""
    name = "tokens"
    given = {name: each for name, each in zip(("m1", "m2"), tokens, strict=False) if each}
    said = (
        ("message", {"id": "u", "role": "user", "content": "Name the moons of Mars."}),
        ("message", {"id": "a1", "role": "assistant", "content": f"I search ({branch}).",
                     "tool_calls": [{"id": "t", "name": "search", "arguments": "{}"}]}),
        ("model_call", {"call_id": "m1", "context": {"after": None, "keep": 0, "add": ["u"]}, "response": "a1",
                        "policy_version": "step-12"}),
        ("message", {"id": "r", "role": "tool", "tool_call_id": "t", "name": "search", "content": "Phobos and Deimos"}),
        ("message", {"id": "a2", "role": "assistant", "content": "Phobos and Deimos."}),
        ("model_call", {"call_id": "m2", "context": {"after": "m1", "keep": 2, "add": ["r"]}, "response": "a2",
                        "policy_version": "step-13"}),
    )  # fmt: skip
    for seq, (kind, data) in enumerate(said):
        more = {"tokens": given[data["call_id"]]} if data.get("call_id") in given else {}
        yield event(name, branch, seq, "conversation", kind, **data, **more)
    yield {"type": "end", "rollout_id": name, "branch_index": branch, "status": "answered"}
    yield {"type": "build", "rollout_id": name, "branch_index": branch, "status": "success", "exit_code": 0}


def test_rows_say_what_they_hold_of_token_streams(tmp_path: Path) -> None:
    prompt, said = list(range(100, 120)), [1, 2, 3, 4, 5]
    whole = (_tokens(prompt, said), _tokens([*prompt, *said, 50], [7, 8]))
    lines = [
        {"type": "rollout", "rollout_id": "tokens", "task": "Name them.", "branches": 2, "required": ["build"]},
        *_conversation(0, whole),
        *_conversation(1, ({}, whole[1])),
    ]
    run_files([write_lines(tmp_path / "lines.ndjson", iter(lines))], tmp_path / "out", Settings(), None)
    with viewing(Settings(state_dir=tmp_path / "state"), tmp_path / "out") as url:
        rows, braid = (httpx.get(f"{url}/rollouts/tokens{rest}").text for rest in ("/rows", ""))
    assert 'data-turns="search|answer"' in braid  # the last words of a conversation that ended with an answer
    told = "Tokens: 28 in 1 stream, 7 sampled with log-probabilities; policy step-12, step-13; tokenizer tiny."
    assert rows.count(told) == 2  # SFT and PPO
    assert "1 call without tokens: the engine returned none (tokens_missing)" in rows


def write_open(folder: Path, lines: Sequence[Line]) -> None:
    """Lines as the log of a rollout that goes on."""
    reader, slicer, codec = LineReader(), Slicer(), Codec()
    facts = [ready for line in lines for fact in reader.read(orjson.dumps(line)) for ready in slicer.add(fact)]
    with LogWriter(folder / "log") as writer:
        for fact in (*facts, *slicer.flush()):
            writer.append(BY_RECORD[type(fact)].name, 0, rollout_of(fact).encode(), codec.encode(fact), AT)
    seal(folder, "run", described(folder, (folder / "log").glob("*/*")), None, {})


def _looked(branch: int, status: str, *signals: Line) -> Line:
    looks = [{"name": "intact", "made": True}, {"name": "canary", "made": False, "why": "no report"}]
    details = orjson.dumps({"signals": signals, "looks": looks}).decode()
    return {
        "type": "check",
        "rollout_id": "gamed",
        "branch_index": branch,
        "name": "hacks",
        "status": status,
        "details": details,
    }


def test_a_hack_verdict_is_shown_with_its_place_before_the_rollout_closes(tmp_path: Path) -> None:
    """File, line and turn of a signal, and what was tried on the branches without any; proofs before suspicions."""
    proof = {
        "rule": "L.canary",
        "class": "confirmed",
        "source": "experiment",
        "evidence": "1 test that must fail passed",
    }
    hook = {
        "rule": "T5.harness_hook",
        "class": "suspected",
        "source": "files",
        "path": "conftest.py",
        "line": 3,
        "evidence": "def x",
    }
    skip = hook | {"rule": "T3.skip", "path": "test_a.py", "line": 9}
    lines: list[Line] = [
        {
            "type": "rollout",
            "rollout_id": "gamed",
            "task": "Mend it.",
            "branches": 5,
            "required": ["build"],
            "awaited": ["hacks"],
        }
    ]
    for branch in range(4):
        call = {"toolName": "write_file", "args": {"path": "/w/conftest.py"}, "callId": "c", "stepIndex": 0}
        lines += [
            event("gamed", branch, 0, "tool", "tool_call", **call),
            event("gamed", branch, 1, "tool", "tool_result", callId="c", output="ok"),
            event("gamed", branch, 2, "text", "final_answer", answer="done"),
        ]
    lines += [_looked(0, "pass"), _looked(1, "unknown", skip), _looked(2, "fail", hook, proof)]
    write_open(tmp_path / "open", lines)
    run_files([write_lines(tmp_path / "lines.ndjson", iter(lines))], tmp_path / "closed", Settings(), None)
    for name, unasked in (("open", "branch 3"), ("closed", "branches 3, 4")):
        with viewing(Settings(state_dir=tmp_path / f"state-{name}"), tmp_path / name) as url:
            page, branch = (httpx.get(f"{url}/rollouts/gamed{rest}").text for rest in ("", "/branches/0"))
        places = [page.index(text) for text in ("a test that has to fail did not fail", "conftest.py:3", "test_a.py:9")]
        assert places == sorted(places)
        assert 'href="/rollouts/gamed/branches/2#turn-0">turn 0</a>' in page
        so_far = " so far" if name == "open" else ""
        assert f"No sign of a hack{so_far}: branch 0. A hack verifier made the experiments intact." in page
        assert f"No verdict looked for one: {unasked}." in page
        assert "pass; tried intact; not canary: no report" in branch


def test_pages_of_an_open_rollout_say_what_is_not_there_yet(tmp_path: Path) -> None:
    """No branch yet; branches that are the same to their ends; and one that runs beside one that has ended."""
    opening: Line = {
        "type": "rollout",
        "rollout_id": "none",
        "task": "Nothing came.",
        "branches": 9,
        "required": ["build"],
    }
    lines = [opening, opening | {"rollout_id": "some"}]
    for branch in range(3):
        lines.append(event("some", branch, 0, "tool", "tool_call", toolName="run", args={}, callId="c", stepIndex=0))
        lines.append(event("some", branch, 1, "tool", "tool_result", callId="c", output="x"))
        lines += [event("some", branch, 2, "text", "final_answer", answer="done")] if branch < 2 else []
    write_open(tmp_path / "out", lines)
    with viewing(Settings(state_dir=tmp_path / "state"), tmp_path / "out") as url:
        none, some = (httpx.get(f"{url}/rollouts/{name}").text for name in ("none", "some"))
        rows, pair = httpx.get(f"{url}/rollouts/some/rows").text, httpx.get(f"{url}/rollouts/some/pairs/0/2").text
        listed = httpx.get(url).text
    assert "No branch has been heard of yet." in none
    assert "<table" not in none
    assert some.count('class="alike"') == 3  # 0 and 1 are the same to the end, 2 as far as it came
    assert some.count("<title>branches part at") == some.count("<title>branches part at turn 1: 0, 1 | 2</title>") == 1
    assert "<li>still running: branch 2</li>" in some
    assert "rows are made when the rollout closes. It waits:" in rows
    assert "<li>not heard of: branches 3, 4, 5, 6, 7, 8</li>" in rows
    assert "has not come so far" in pair
    assert "9 expected" in listed
    assert listed.count("at the latest (deadline)</li>") == 2  # the last reason is never cut


def test_hostile_texts_of_rounds_stay_text() -> None:
    """Ids, hints, reasons and texts of a compliance run are shown as text; what is no list of violations is left out."""
    bad = "</pre><script>alert(1)</script>\x1b[31m\u202e"
    broken = orjson.dumps([{"constraint_id": bad, "level": bad, "hint": bad}, 7, {"hint": None}]).decode()
    rounds = [
        ComplianceAttempt(round=0, strategy="direct", output=bad, made_by="model", status="fail", violations=broken),
        ComplianceAttempt(
            round=1, strategy="patch", base_round=0, output=bad + "\nmore", made_by="edit", committed=False, rolled_back=True,
            reason=bad, status="unknown", violations="no JSON",
        ),
    ]  # fmt: skip
    run = ComplianceEvalRecord(
        record_id="r", rollout_id="h", branch_index=0, attempt=0, task_id=bad, task_spec_hash="", model=bad, mode="full_pcl",
        engine=bad, status="fail", repair_rounds=1, final_pass=False, artifact=bad, made_by="model", trace_uri="",
        attempts=tuple(rounds),
    )  # fmt: skip
    sight = SimpleNamespace(rounds_of=lambda _branch: [run])
    page = rounds_part(cast("Sight", sight), cast("Strand", SimpleNamespace(branch=0)), "")
    assert page.count("&lt;script&gt;alert(1)") > 5
    for hidden in ("<script>", "\x1b", "\u202e"):
        assert hidden not in page
    assert "rolled back: " in page
