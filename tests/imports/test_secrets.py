"""Secrets in arguments, outputs, headers and attributes of every sample: none is in any dataset."""

import csv
import io
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
    """Put secrets into every text of a file: JSON, lines, a table, or plain words; and into headers and attributes beside them."""
    text = place.read_text(errors="replace")
    if place.suffix == ".txt":
        place.write_text(f"{text}\nexport TOKEN={seeds.next()}\n")
    elif place.suffix == ".csv":
        rows = list(csv.reader(io.StringIO(text)))
        out = io.StringIO()
        csv.writer(out).writerows([rows[0], *([seeds.into(cell) for cell in row] for row in rows[1:])])
        place.write_text(out.getvalue())
    else:
        try:
            values = [json.loads(text)]
        except ValueError:
            values = [json.loads(line) for line in text.splitlines() if line.strip()]
        place.write_text("".join(json.dumps(beside(seeds.into(value), seeds)) + "\n" for value in values))


def beside(value: Any, seeds: Seeds) -> Any:
    """The value with a header beside its members, and one among the attributes of each of its spans."""
    for span in spans_of(value):
        told = {"key": "http.request.header.authorization", "value": {"stringValue": f"Bearer {seeds.next()}"}}
        span["attributes"] = [*span.get("attributes", ()), told]
    if isinstance(value, list):
        return [beside(each, seeds) for each in value]
    return value | {"headers": {"authorization": f"Bearer {seeds.next()}"}} if isinstance(value, dict) else value


def spans_of(value: Any) -> list[dict[str, Any]]:
    """The spans of an OTLP request."""
    groups = value.get("resourceSpans", ()) if isinstance(value, dict) else ()
    return [span for group in groups for scope in group["scopeSpans"] for span in scope["spans"]]


SEEDED = (".json", ".jsonl", ".csv", ".txt")


def test_no_secret_of_a_trace_is_in_a_dataset(tmp_path: Path) -> None:
    """All samples in one run: rows, evidence and exported datasets hold none of the secrets."""
    seeds, lines = Seeds(), b""
    for number, sample in enumerate(SAMPLES):
        folder, before = tmp_path / str(number), len(seeds.made)
        copy_sample(sample, folder)
        for place in sorted(folder.rglob("*")):
            if place.is_file() and place.suffix in SEEDED:
                seed(place, seeds)
        paths = [folder] if sample.endswith("/") else sorted(folder.iterdir())
        told = read_traces(sample.partition("/")[0], *paths).text
        assert any(secret.encode() in told for secret in seeds.made[before:]), sample  # lines are as they came
        lines += told
    assert len(seeds.made) > 1000
    (tmp_path / "lines.ndjson").write_bytes(lines)
    formats = [
        word
        for name in ("trl-sft", "trl-grpo", "messages", "atif", "sts", "rollout-wire")
        for word in ("--format", name)
    ]
    done = run_braid("run", tmp_path / "lines.ndjson", "--out", tmp_path / "out", *formats)
    assert done.returncode == 0, done.stderr
    texts = [place.read_bytes() for place in (tmp_path / "out").rglob("*.jsonl")]
    whole = b"\n".join(texts)
    assert b"[REDACTED:" in whole
    assert [secret for secret in seeds.made if secret.encode() in whole] == []
