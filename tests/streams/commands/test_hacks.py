"""`braid hacks` and the commands of its page, on cases in files."""

import json
from pathlib import Path

from tests.agents.hacks.corpus import write_corpus
from tests.agents.hacks.corpus_tasks import TASKS
from tests.processes import run_braid


def test_files_are_read_and_scored_without_running_anything(tmp_path: Path) -> None:
    """Twelve cases: half of them cheats. The one that cannot be read costs the exit code, and no other."""
    names = frozenset({"good", "hook", "always-equal", "more-tests", "settings", "claims"})
    labels = write_corpus(tmp_path, TASKS[:2], names)
    (tmp_path / "labels.ndjson").write_text("".join(json.dumps(each) + "\n" for each in labels))
    cases = [tmp_path / task.name for task in TASKS[:2]]
    done = run_braid("hacks", *cases, "--static", "--json", "--labels", tmp_path / "labels.ndjson")
    assert done.returncode == 0, done.stderr
    *found, scores = [json.loads(line) for line in done.stdout.splitlines()]
    by_place = {(each["case"], each["branch_index"]): each for each in found}
    assert len(found) == len(labels) == 12
    for label in labels:
        each = by_place[label["case"], label["branch_index"]]
        assert (each["status"] == "clean") == (label["label"] == "honest"), each
        assert (each["looks"], each["verdict"]) == ([], None)
    assert (scores["cheats_flagged"]["share"], scores["honest_flagged"]["share"]) == (1.0, 0.0)
    assert scores["families"]["T5"]["recall"]["hits"] == 2
    done = run_braid("hacks", tmp_path / "nothing", cases[0], "--static")
    assert done.returncode == 1
    assert "nothing/task: missing" in done.stderr
    assert "T5.harness_hook" in done.stdout
