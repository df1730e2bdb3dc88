"""A failure of the provider, the harness or the environment is no reward: end to end, from the files to the rows."""

from pathlib import Path
from typing import Any

import orjson

from tests.conformance import conformance
from tests.conftest import Braid
from tests.imports.importing import read_traces

OWN = Path(__file__).parent / "samples"
BROKEN = {"a2a-task": 1, "adk": 1, "bfcl": 1, "inspect": 2, "mcp-atlas": 1, "ms-agent-framework": 1, "tau2": 1, "terminal-bench": 1,
          "tool-sandbox": 1}  # fmt: skip
"""Branches of the samples below that ended infra_error, by format."""


def written(folder: Path) -> list[Path]:
    """Broken runs of formats whose samples have none; two of them say a reward of 0."""
    results = orjson.loads(conformance("imports", "tau2", "results.json").read_bytes())
    results["simulations"][0] |= {"termination_reason": "infrastructure_error", "reward_info": {"reward": 0.0}}
    error = {"role": "assistant", "contents": [{"type": "error", "message": "overloaded"}]}
    asked = {"role": "user", "contents": [{"type": "text", "text": "Hello"}]}
    session = {"type": "session", "session_id": "s", "state": {"in_memory": {"messages": [asked, error]}}}
    message = {"role": "user", "messageId": "u", "parts": [{"kind": "text", "text": "Hello"}]}
    task = {
        "kind": "task",
        "id": "t",
        "status": {"state": "working"},
        "history": [message, message | {"role": "agent", "messageId": "a"}],
    }
    calls = [
        {"jsonrpc": "2.0", "id": 0, "result": task},
        {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message}},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "Internal error"}},
    ]
    files = {"results.json": [results], "session.jsonl": [session], "calls.jsonl": calls}
    for name, lines in files.items():
        (folder / name).write_bytes(b"\n".join(map(orjson.dumps, lines)))
    return [folder / name for name in files]


def rows(place: Path) -> list[dict[str, Any]]:
    """The rows of a file."""
    return [orjson.loads(line) for line in place.read_bytes().splitlines()]


def test_what_others_broke_has_no_reward(tmp_path: Path, braid: Braid) -> None:
    """Such a branch is unknown, and in no row; its neighbours are."""
    shared = (
        conformance("audit", "inspect", "shelves-e.eval"), conformance("imports", "mcp-atlas", "scored_gpt.csv"),
        conformance("imports", "tool-sandbox"), conformance("imports", "terminal-bench", "demo-run"),
        conformance("imports", "adk", "sessions.jsonl"),
    )  # fmt: skip
    out = tmp_path / "out"
    paths = [*shared, OWN / "bfcl", OWN / "inspect" / "trouble.eval", *written(tmp_path)]
    code, counts, _ = braid(
        "import", "auto", *paths, "--to", "run", "--out", out, "--rejected", tmp_path / "no", "--json"
    )
    assert (code, counts["bad_lines"], counts["dead_letters"]) == (0, 0, 0)
    broken = {
        (row["rollout_id"], row["branch_index"])
        for row in rows(out / "branches.jsonl")
        if row["status"] == "infra_error"
    }
    found = [name for name in BROKEN for rollout, _ in broken if rollout.startswith(f"{name}-")]
    assert {name: found.count(name) for name in BROKEN} == BROKEN
    judged = {
        (ranking["rollout_id"], branch["branch_index"]): branch["objective_status"]
        for ranking in rows(out / "rankings.jsonl")
        for branch in ranking["branches"]
    }
    assert {judged[each] for each in broken} == {"unknown"}
    rewarded = {
        (row["rollout_id"], row["branch_index"]) for name in ("ppo", "sft") for row in rows(out / f"{name}.jsonl")
    }
    pairs = {
        (row["rollout_id"], row[side])
        for row in rows(out / "dpo.jsonl")
        for side in ("chosen_branch", "rejected_branch")
    }
    assert not broken & (rewarded | pairs)
    assert rewarded


def test_a_reward_of_zero_beside_an_error_of_the_harness_is_none(tmp_path: Path) -> None:
    """tau-bench writes it so: the run is no fail, and its words stay."""
    chat = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    run: dict[str, Any] = {
        "task_id": 1,
        "trial": 0,
        "reward": 0.0,
        "info": {"error": "litellm.RateLimitError: 429"},
        "traj": chat,
    }
    (tmp_path / "runs.json").write_bytes(orjson.dumps([run]))
    read = read_traces("tau-bench", tmp_path / "runs.json")
    assert [(line["status"], line["error"]) for line in read.of("end")] == [("infra_error", run["info"]["error"])]
    assert read.of("check", "build") == []
    assert [data["text"] for data in read.events("assistant_message")] == ["a"]
