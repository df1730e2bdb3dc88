"""A log that was written with the first schemas, replayed by a later version of the product."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.conftest import Braid
from tests.sample.sample_lines import write_sample

ROOT = Path(__file__).parents[4]

NEW_FIELD = '''    workspace: Workspace | None = None
    """With `ended`: the snapshot of its files."""
'''


def test_a_log_of_the_first_schemas_replays_after_a_compatible_change(tmp_path: Path, braid: Braid) -> None:
    """A copy of the product gets a real second version of a fact; the old log gives the same records there."""
    write_sample(tmp_path / "sample.ndjson")
    assert braid("run", tmp_path / "sample.ndjson", "--out", tmp_path / "old", "--json")[0] == 0
    arguments = ["replay", "--from-dir", str(tmp_path / "old"), "--dry-run", "--json", "--processes", "1"]
    _, before, _ = braid(*arguments)
    later = tmp_path / "later"
    for package in ("schemas", "agents", "streams"):
        shutil.copytree(ROOT / package, later / package)
    model = later / "schemas" / "events.py"
    text = model.read_text()
    assert text.count(NEW_FIELD) == 1
    model.write_text(text.replace(NEW_FIELD, NEW_FIELD + '    origin: str | None = None\n    """Who sent it."""\n'))

    def run(*words: str) -> str:
        command = [sys.executable, "-m", "streams.cli", *words]
        done = subprocess.run(
            command, cwd=later, env=os.environ | {"PYTHONPATH": str(later)}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("schemas", "write")
    assert (later / "schemas" / "avro" / "AgentEvents.v2.avsc").is_file()
    after = json.loads(run(*arguments))
    assert after["rollouts"] == before["rollouts"] > 0
    assert (after["holes"], after["undecodable"]) == ([], 0)
    assert after["digests"] == before["digests"]
