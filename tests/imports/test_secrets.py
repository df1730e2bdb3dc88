"""Secrets in arguments, outputs, headers and attributes of every sample: none is in any dataset."""

import json
import random
import string
from pathlib import Path
from typing import Any

from tests.imports.importing import read_traces
from tests.imports.test_counts import SAMPLES
from tests.imports.test_mutations import copy_sample
from tests.processes import run_braid

LETTERS = string.ascii_letters + string.digits


class Seeds:
    """Secrets of some kinds, each another one."""

    def __init__(self) -> None:
        self._rng = random.Random(11)
        self.made: list[str] = []

    def next(self) -> str:
        """A secret."""
        kinds = (("ghp_", 36), ("sk-proj-", 48), ("AKIA", 16))
        begin, length = kinds[len(self.made) % len(kinds)]
        letters = string.ascii_uppercase + string.digits if begin == "AKIA" else LETTERS
        self.made.append(begin + "".join(self._rng.choices(letters, k=length)))
        return self.made[-1]

    def into(self, value: Any) -> Any:
        """The value with a secret in every text of some length, also in JSON inside of texts."""
        if isinstance(value, dict):
            return {key: self.into(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self.into(each) for each in value]
        if not isinstance(value, str) or len(value) < 12:
            return value
        try:
            inner = json.loads(value)
        except ValueError:
            return f"{value} {self.next()}" if " " in value else value
        return json.dumps(self.into(inner)) if isinstance(inner, dict | list) else value


def seed(place: Path, seeds: Seeds) -> None:
    """Put secrets into a JSON file or lines."""
    text = place.read_text(errors="replace")
    try:
        values = [json.loads(text)]
    except ValueError:
        values = [json.loads(line) for line in text.splitlines() if line.strip()]
    place.write_text("".join(json.dumps(seeds.into(value)) + "\n" for value in values))


def test_no_secret_of_a_trace_is_in_a_dataset(tmp_path: Path) -> None:
    """All samples in one run: rows, evidence and exported datasets hold none of the secrets."""
    seeds, lines = Seeds(), b""
    for number, sample in enumerate(SAMPLES):
        folder = tmp_path / str(number)
        copy_sample(sample, folder)
        for place in sorted(folder.rglob("*")):
            if place.is_file() and place.suffix in (".json", ".jsonl"):
                seed(place, seeds)
        paths = [folder] if sample.endswith("/") else sorted(folder.iterdir())
        lines += read_traces(sample.partition("/")[0], *paths).text
    assert len(seeds.made) > 100
    (tmp_path / "lines.ndjson").write_bytes(lines)
    formats = [word for name in ("trl-sft", "trl-grpo", "messages", "atif") for word in ("--format", name)]
    done = run_braid("run", tmp_path / "lines.ndjson", "--out", tmp_path / "out", *formats)
    assert done.returncode == 0, done.stderr
    texts = [place.read_bytes() for place in (tmp_path / "out").rglob("*.jsonl")]
    whole = b"\n".join(texts)
    assert b"[REDACTED:" in whole
    assert [secret for secret in seeds.made if secret.encode() in whole] == []
