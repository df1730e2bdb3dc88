"""Constraint verifications per second, beside Google's checks in one run; and stored records folded to rows.

    python -m benchmarks.compliance --lm-eval-python ENV/bin/python --lm-eval DIR --nltk-data DIR

The official side needs an environment of its own with nltk, langdetect and immutabledict, lm_eval's sources, and punkt_tab (it lies in
the wheel of llama-index-core). Both sides verify the same answers, in turns; each keeps what its code keeps between calls.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from agents.compliance import language_adapter
from agents.compliance.checked_text import forget_texts
from agents.compliance.task_file import task_of
from agents.compliance.verification import Verifier

DATA = Path(__file__).parents[2] / "shared" / "conformance" / "compliance" / "ifeval"
LANGUAGE = ("language:response_language", "change_case:english_capital", "change_case:english_lowercase")
ROUNDS = 5

OFFICIAL = """
import json, sys, time
import nltk
sys.path.insert(0, sys.argv[1]); nltk.data.path.insert(0, sys.argv[2])
nltk.download = lambda *a, **k: True
import types
for name in ("lm_eval", "lm_eval.tasks", "lm_eval.tasks.ifeval"):
    module = types.ModuleType(name); module.__path__ = [sys.argv[1] + "/" + name.replace(".", "/")]; sys.modules[name] = module
import langdetect
langdetect.DetectorFactory.seed = 0
from lm_eval.tasks.ifeval import instructions_registry as registry
lines = [json.loads(line) for line in open(sys.argv[3])]
def once():
    n = 0
    for line in lines:
        for name, arg in zip(line["instruction_id_list"], line["kwargs"]):
            check = registry.INSTRUCTION_DICT[name](name)
            check.build_description(**arg)
            args = check.get_instruction_args()
            if args and "prompt" in args:
                check.build_description(prompt=line["prompt"])
            bool(line["response"].strip()) and check.check_following(line["response"])
            n += 1
    return n
once()
for _ in sys.stdin:
    began = time.perf_counter(); n = once(); print(n / (time.perf_counter() - began), flush=True)
"""


def answers(*, languages: bool) -> list[dict[str, Any]]:
    """Return the lines that are verified: the answers of GPT-4 and of the three stored runs."""
    tasks = {line["key"]: line for line in map(json.loads, (DATA / "samples.jsonl").read_text("utf-8").splitlines())}
    found = [json.loads(line) for line in (DATA / "gpt4-quarter.jsonl").read_text("utf-8").splitlines()]
    for path in sorted(DATA.glob("results-seed*/runs.jsonl")):
        for line in map(json.loads, path.read_text("utf-8").splitlines()):
            row = tasks[int(line["task_id"].removeprefix("ifeval."))]
            found.append({**row, "response": line["artifact"]})
    for row in found:
        kept = [
            (name, {key: value for key, value in arg.items() if value is not None})
            for name, arg in zip(row["instruction_id_list"], row["kwargs"], strict=True)
            if languages or name not in LANGUAGE
        ]
        row["instruction_id_list"], row["kwargs"] = [name for name, _ in kept], [arg for _, arg in kept]
    return [row for row in found if row["instruction_id_list"]]


def ours(lines: list[dict[str, Any]]) -> float:
    """Return constraints per second. The rules of each line are looked up anew, as the official side builds its checks anew."""
    language_adapter.detected_language.cache_clear()
    forget_texts()
    read = [(task_of(line, "-").spec, line["response"]) for line in lines]
    began, count = time.perf_counter(), 0
    for spec, text in read:
        count += len(Verifier(spec).verify(text).constraints)
    return count / (time.perf_counter() - began)


def compare(python: Path, sources: Path, data: Path, *, languages: bool) -> None:
    """Print both sides, measured in turns."""
    lines = answers(languages=languages)
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write("".join(json.dumps(line) + "\n" for line in lines))
        file.flush()
        other = subprocess.Popen(
            [python, "-c", OFFICIAL, sources, data, file.name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert other.stdin is not None
        assert other.stdout is not None
        pairs = []
        ours(lines)
        for _ in range(ROUNDS):
            other.stdin.write("\n")
            other.stdin.flush()
            theirs = float(other.stdout.readline())
            pairs.append((ours(lines), theirs))
        other.stdin.close()
        other.wait()
    best, theirs = max(one for one, _ in pairs), max(each for _, each in pairs)
    name = "all classes" if languages else "without the three language classes"
    print(
        f"{name}: ours {best:,.0f}/s, lm_eval {theirs:,.0f}/s, {best / theirs:.1f} x ({len(lines)} answers, best of {ROUNDS})"
    )


def rows() -> None:
    """Print how fast the stored runs become rows."""
    files = sorted(DATA.glob("results-seed*/runs.jsonl"))
    with tempfile.TemporaryDirectory() as out:
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "streams.cli", "comply", "import", *files, "--tasks", DATA / "samples.jsonl", "--out", out, "--json"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        seconds = time.perf_counter() - began
    counts = json.loads(done.stdout)
    print(
        f"import to rows: {counts['branches'] / seconds:,.0f} records/s ({counts['branches']} in {seconds:.2f} s, process included)"
    )


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lm-eval-python", type=Path)
    parser.add_argument("--lm-eval", type=Path)
    parser.add_argument("--nltk-data", type=Path)
    given = parser.parse_args()
    if given.lm_eval_python:
        for languages in (False, True):
            compare(given.lm_eval_python, given.lm_eval, given.nltk_data, languages=languages)
    else:
        for languages in (False, True):
            print(f"{'all classes' if languages else 'without languages'}: {ours(answers(languages=languages)):,.0f}/s")
    rows()


if __name__ == "__main__":
    main()
