"""Rows of captured spans: those of an import of the same spans, and none of the secrets that attributes held."""

import json
import random
import string
from pathlib import Path
from typing import Any

import pytest

from agents.importers.line_writer import lines_of
from tests.agents.capture.span_captures import captures_of, folded
from tests.agents.capture.test_span_fold import bodies, chat, spoken
from tests.conformance import conformance
from tests.conftest import Braid
from tests.imports.exact_rows import Rows, rows_of
from tests.imports.importing import Read, read_traces
from tests.imports.otlp import event, request, span


def same(rows: Rows) -> list[Any]:
    """Rows without ids, digests and times of decisions."""
    return [[_without(row) for row in each] for each in rows]


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: _without(each)
            for name, each in value.items()
            if not name.endswith(("_id", "_ids", "digest", "digests", "_at_ms", "_ms")) and name != "id"
        }
    return [_without(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("dialect", ["gen_ai", "openinference"])
def test_rows_are_those_of_an_import(dialect: str, tmp_path: Path, braid: Braid) -> None:
    read = read_traces("otel", conformance("imports", "otel", dialect, "spans.otlp.jsonl"))
    told = bodies(dialect)
    random.Random(5).shuffle(told)
    slices, _ = folded(captures_of(told))
    live = [line for place in sorted(slices) for piece in slices[place] for line in lines_of(piece)]
    around = read.of("rollout"), read.of("close")
    lines = [*around[0], *live, *around[1]]
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    imported = rows_of(read, tmp_path / "one", braid)
    captured = rows_of(Read(lines, b"", read.found, read.rejected), tmp_path / "other", braid)
    assert len(imported.sft) > 0
    assert same(captured) == same(imported)


def test_no_secret_of_60_in_attributes_reaches_a_dataset(tmp_path: Path, braid: Braid) -> None:
    chance = random.Random(29)
    secrets = ["sk-proj-" + "".join(chance.choices(string.ascii_letters + string.digits, k=48)) for _ in range(60)]
    told = []
    for number, secret in enumerate(secrets):
        words = (f"my key is {secret}", f"export OPENAI_API_KEY={secret}", f"Authorization: Bearer {secret}")[
            number % 3
        ]
        attributes = (
            chat(words, "thanks"),
            chat("hi", f"you said {words}"),
            chat(more={"gen_ai.request.header": words, "gen_ai.system_instructions": words}),
            {"gen_ai.operation.name": "chat", "gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": words,
             "gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": words},
            chat(more={"gen_ai.output.messages": json.dumps(
                [{"role": "assistant", "parts": [{"type": "tool_call", "id": "c", "name": "bash", "arguments": {"command": words}}]}]
            )}),
            chat(more={"gen_ai.input.messages": spoken("user", json.dumps({"api_key": secret}))}),
        )[number % 6]  # fmt: skip
        body = request(
            span(number, trace=number + 1, attributes=attributes, events=[event("note", header=words)]),
            resource={"process.command_args": words},
        )
        told.append(body)
    slices, _ = folded(captures_of(told))
    assert len(slices) == 60
    lines: list[dict[str, Any]] = []
    for place, pieces in sorted(slices.items()):
        lines.append({"type": "rollout", "rollout_id": place[0], "task": "t", "required": ["ok"], "branches": 1})
        lines += [line for piece in pieces for line in lines_of(piece)]
        lines.append({"type": "check", "rollout_id": place[0], "branch_index": 0, "name": "ok", "status": "pass"})
    file = tmp_path / "lines.ndjson"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    code, said, complaints = braid("run", file, "--out", tmp_path / "out", "--json")
    assert code == 0, complaints
    written = b"".join(each.read_bytes() for each in (tmp_path / "out").rglob("*") if each.is_file())
    assert said["bad_lines"] == 0
    assert b"REDACTED" in written.upper()
    for number, secret in enumerate(secrets):
        assert secret.encode() not in written, number
