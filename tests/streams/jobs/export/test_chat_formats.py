"""A chat with several user turns, a sub-agent and a compaction goes out in every format, and every row can be verified."""

import json
import subprocess
import sys
from pathlib import Path

from agents.formats import FORMATS

CHAT = Path(__file__).parents[3] / "golden" / "chat" / "chat.ndjson"


def braid(*words: str | Path) -> str:
    command = [sys.executable, "-m", "streams.cli", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_exact_chat_goes_out_in_every_format(tmp_path: Path) -> None:
    """Every format has rows of it, but those of tokens, of labels for single steps, and of compliance runs."""
    wanted = [word for name in FORMATS for word in ("--format", name)]
    braid("run", CHAT, "--out", tmp_path / "out", "--json", *wanted)
    assert {path.parent.name for path in (tmp_path / "out").glob("*/manifest.json")} == {*FORMATS}
    rows = {}
    for name in FORMATS:
        manifest = json.loads((tmp_path / "out" / name / "manifest.json").read_text("utf-8"))
        rows[name] = sum(file.get("rows", 0) for file in manifest["files"])
    assert [name for name, count in rows.items() if not count] == [
        "tokens-parquet",
        "trl-stepwise",
        "compliance-eval",
    ], "the chat has no tokens, and its rows do not say whether a call failed"
    braid("verify", tmp_path / "out")
