"""The page "Connect an agent", run: each of its three ways ends in a ranking with rows of what the model saw and said."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from streams.cluster.config import Settings
from tests.model_server import Reply, model_server, reply, text

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "connect.md").read_text("utf-8")
ANSWERS = {"The capital of France, in one word?": ["Paris", "Lyon"], "What is 6 times 7?": ["42", "41"]}


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


async def play(body: dict[str, Any], number: int) -> Reply:
    """The first who asks gets the right answer."""
    del number
    return reply([text(ANSWERS[body["messages"][-1]["content"]].pop(0))])


@pytest.mark.kafka
@pytest.mark.timeout(300)
def test_the_three_ways_of_the_page_end_in_ranked_rows(settings: Settings, tmp_path: Path) -> None:
    """All blocks of the page as they stand, in one shell; only the ports and the upstreams are the test's own."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    end = "\nfor kind in sft dpo; do braid tail $kind --from-beginning --json --limit 3; done"
    script = "set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n" + "\n".join(blocks("sh")) + end
    with model_server(play) as model:
        (toml,) = blocks("toml")
        (tmp_path / "braid.toml").write_text(re.sub(r"https://[a-z.]+", model.url, toml))
        for code in blocks("python"):
            name = re.match(r"# (\w+\.py)\n", code)
            assert name is not None
            (tmp_path / name[1]).write_text(code.replace("127.0.0.1:8790", f"127.0.0.1:{port}"))
        env = os.environ | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OPENAI_API_KEY": "sk-played", "BRAID_KAFKA": settings.kafka,
            "BRAID_REGISTRY": settings.registry, "BRAID_PREFIX": settings.prefix, "BRAID_PARTITIONS": str(settings.partitions),
            "BRAID_STATE_DIR": str(tmp_path / "state"), "BRAID_GATEWAY__PORT": str(port),
        }  # fmt: skip
        done = subprocess.run(
            ["bash", "-c", script.replace("127.0.0.1:8790", f"127.0.0.1:{port}")], cwd=tmp_path, env=env, capture_output=True,
            text=True, check=False, timeout=280,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    ranked = re.findall(r"^ +(\d+) +\S+ +(\d+) +(pass|fail) ", done.stdout, re.MULTILINE)
    assert ranked == [("1", "0", "pass"), ("2", "1", "fail")] * 3
    records = [json.loads(line)["record"] for line in done.stdout.splitlines() if line.startswith('{"topic"')]
    rows = {each["rollout_id"]: each for each in records if "messages" in each}
    assert {name: (row["fidelity"], row["messages"][-1]["content"]) for name, row in rows.items()} == {
        "capitals": ("exact", "Paris"), "sums": ("exact", "42"), "colours": ("exact", "Blue"),
    }  # fmt: skip
    assert sum("chosen" in each for each in records) == 3
    assert "sk-played" not in done.stdout + done.stderr
