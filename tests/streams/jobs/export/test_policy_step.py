"""A policy-gradient step from tokens-parquet alone: no tokenizer, and importance ratios of exactly 1 for the policy that sampled."""

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np

from agents.formats import FORMATS
from streams.cluster.config import Settings
from streams.jobs.export.export import export
from streams.jobs.export.parquet_file import read_parquet
from streams.jobs.export.recipe import Recipe
from streams.jobs.run.run import run_files
from streams.log.file_reader import FileReader

VOCABULARY, WIDTH, BRANCHES, TURNS, SAMPLED = 50, 8, 6, 3, 5


class Policy:
    """A tiny language model: the next token by the mean of the last four."""

    def __init__(self, seed: int) -> None:
        chosen = np.random.default_rng(seed)
        self.embedding = chosen.normal(size=(VOCABULARY, WIDTH)).astype(np.float32)
        self.head = chosen.normal(size=(WIDTH, VOCABULARY)).astype(np.float32)

    def logprobs(self, ids: list[int]) -> Any:
        """Log-probabilities of the token after these."""
        logits = self._state(ids) @ self.head
        shifted = logits - logits.max()
        return shifted - np.log(np.exp(shifted).sum())

    def learn(self, ids: list[int], token: int, weight: float) -> None:
        """One step along the gradient of a token's log-probability."""
        wanted = -np.exp(self.logprobs(ids))
        wanted[token] += 1
        self.head += np.float32(weight) * np.outer(self._state(ids), wanted)

    def _state(self, ids: list[int]) -> Any:
        return self.embedding[ids[-4:]].mean(axis=0)


def played(policy: Policy, chosen: Any) -> list[dict[str, Any]]:
    """A rollout of branches that the policy samples, turn by turn."""
    lines: list[dict[str, Any]] = [
        {"type": "rollout", "rollout_id": "r", "task": "t", "branches": BRANCHES, "required": ["build"]}
    ]
    for branch in range(BRANCHES):
        place = {"rollout_id": "r", "branch_index": branch}
        prompt = [1, 2, 3]
        for turn in range(TURNS):
            context, ids, values = [*prompt], list[int](), list[float]()
            for _ in range(SAMPLED):
                found = policy.logprobs(context)
                ids.append(
                    int(
                        chosen.choice(
                            len(found), p=np.exp(found.astype(np.float64)) / np.exp(found.astype(np.float64)).sum()
                        )
                    )
                )
                values.append(float(found[ids[-1]]))
                context.append(ids[-1])
            names = {f"u{turn}": "user", f"a{turn}": "assistant"}
            after = {"after": f"c{turn - 1}", "keep": 2 * turn} if turn else {}
            call = {
                "call_id": f"c{turn}", "context": {**after, "add": [f"u{turn}"]}, "response": f"a{turn}",
                "model": "m", "policy_version": "step-0",
                "tokens": {"prompt_ids": prompt, "ids": ids, "logprobs": values},
            }  # fmt: skip
            told = [
                ("message", {"id": name, "role": role, "content": f"{name} {branch}"}) for name, role in names.items()
            ]
            for kind, data in [*told, ("model_call", call)]:
                lines.append(
                    {"type": "event", **place, "event": {"channel": "conversation", "event": kind, "data": data}}
                )
            prompt = [*prompt, *ids, 4, 5]
        passes = branch % 2 == 0
        lines.append({"type": "end", **place})
        lines.append(
            {"type": "build", **place, "status": "success" if passes else "failure", "exit_code": 0 if passes else 1}
        )
    return lines


def test_a_step_from_streams_alone_begins_at_ratios_of_exactly_one(tmp_path: Path) -> None:
    policy, chosen = Policy(1), np.random.default_rng(2)
    (tmp_path / "lines.ndjson").write_text("".join(json.dumps(line) + "\n" for line in played(policy, chosen)))
    run_files([tmp_path / "lines.ndjson"], tmp_path / "log", Settings(), None)
    recipe = Recipe.of(FORMATS["tokens-parquet"], None)
    asyncio.run(export(FileReader(tmp_path / "log"), tmp_path / "out", recipe))
    rows = list(read_parquet(tmp_path / "out" / "train-00000.parquet"))
    assert len(rows) == BRANCHES
    assert len({row["group_id"] for row in rows}) == 1
    assert abs(sum(row["advantage"] for row in rows)) < 1e-9

    def sampled() -> list[tuple[list[int], int, float, float]]:
        """Of each sampled token what was before it, itself, its recorded log-probability and its advantage."""
        found = []
        for row in rows:
            ids = row["prompt_ids"] + row["response_ids"]
            for place, (bit, value) in enumerate(
                zip(row["loss_mask"], row["logprobs"], strict=True), len(row["prompt_ids"])
            ):
                assert (value is None) is (bit == 0)
                if bit:
                    found.append((ids[:place], ids[place], value, row["advantage"]))
        return found

    tokens = sampled()
    assert len(tokens) == BRANCHES * TURNS * SAMPLED
    ratios = [float(np.exp(np.float64(policy.logprobs(before)[token]) - value)) for before, token, value, _ in tokens]
    assert {*ratios} == {1.0}
    other = Policy(3)
    assert any(np.float64(other.logprobs(before)[token]) != value for before, token, value, _ in tokens)

    for before, token, _, advantage in tokens:
        policy.learn(before, token, 0.01 * advantage)
    gain = sum(
        advantage * (float(policy.logprobs(before)[token]) - value) for before, token, value, advantage in tokens
    )
    assert gain > 0
