"""Bad lines: kept in the sidecar without their secrets, and otherwise as they came."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from agents.importers.line_error import LineError
from streams.log.input_lines import LINE_LIMIT, Line, Rejected, read_lines
from tests.agents.redaction.secrets_corpus import FORMATS, IN_CONTEXT

TOKEN = FORMATS[10].text
ODD = b"\xff"


def kept(folder: Path, text: bytes, error: LineError | None = None) -> dict[str, Any]:
    """The sidecar's entry for a line."""
    rejected = Rejected(folder / "rejected.jsonl")
    rejected.add(Line("in.ndjson", 7, text), error or LineError("", "not a JSON object"))
    rejected.close()
    found: dict[str, Any] = json.loads((folder / "rejected.jsonl").read_bytes())
    return found


def test_a_line_is_kept_as_text_without_its_secrets(tmp_path: Path) -> None:
    assert kept(tmp_path, f'{{"a": "ü {TOKEN}"'.encode()) == {
        "file": "in.ndjson", "line": 7, "field": "", "reason": "not a JSON object",
        "text": '{"a": "ü [REDACTED:github_token]"',
    }  # fmt: skip


def test_one_odd_byte_saves_no_secret(tmp_path: Path) -> None:
    """The bytes around the secret are those of the line, in UTF-8 and not."""
    found = kept(tmp_path, b'{"\xff\xfe": "' + f"ü {TOKEN}".encode() + b'", "x": "\xc3"')
    expected = b'{"\xff\xfe": "' + "ü [REDACTED:github_token]".encode() + b'", "x": "\xc3"'
    assert base64.b64decode(found["base64"]) == expected
    assert "text" not in found


@pytest.mark.parametrize("found", IN_CONTEXT, ids=lambda found: f"{found.kind}-{found.text[:24]}")
def test_no_secret_of_the_corpus_stays_beside_an_odd_byte(tmp_path: Path, found: Any) -> None:
    line = json.dumps({"output": f"line\n{found.text}\nline"}, ensure_ascii=False).encode()
    left = base64.b64decode(kept(tmp_path, ODD + line)["base64"])
    assert json.dumps(found.secret, ensure_ascii=False)[1:-1].encode() not in left
    assert left.startswith(ODD + b'{"output": "line')


def test_a_password_may_itself_be_no_utf8(tmp_path: Path) -> None:
    """A file in Latin-1: what is read as such is found as such."""
    left = base64.b64decode(
        kept(tmp_path, '{"user": "jürgen", "password": "schönes42Wetter"'.encode("latin-1"))["base64"]
    )
    assert left == '{"user": "jürgen", "password": "[REDACTED:assigned_secret]"'.encode("latin-1")


def test_bytes_without_a_secret_are_kept_exactly(tmp_path: Path) -> None:
    every = bytes(byte for byte in range(256) if byte != 10)
    assert base64.b64decode(kept(tmp_path, every)["base64"]) == every


def test_a_line_that_was_cut_in_a_letter_is_kept_without_its_secrets(tmp_path: Path) -> None:
    """Its last byte is half of one."""
    begin = f'{{"token": "{TOKEN}", "x": "'.encode()
    (tmp_path / "in.ndjson").write_bytes(begin + "ü".encode() * LINE_LIMIT + b'"}\n')
    (line,) = read_lines([tmp_path / "in.ndjson"])
    left = base64.b64decode(kept(tmp_path, line.text)["base64"])
    assert left.startswith(b'{"token": "[REDACTED:github_token]", "x": "\xc3\xbc')


def test_what_is_wrong_with_a_line_quotes_no_secret(tmp_path: Path) -> None:
    """The name of a field is foreign content; people are shown the same."""
    found = kept(tmp_path, b"{}", LineError(f"labels.{TOKEN}", f"{TOKEN} is no text"))
    assert (found["field"], found["reason"]) == ("labels.[REDACTED:github_token]", "[REDACTED:github_token] is no text")
    rejected = Rejected(None)
    rejected.add(Line("in.ndjson", 7, b"{}"), LineError("", f"not {TOKEN}"))
    assert rejected.first == ["in.ndjson:7: not [REDACTED:github_token]"]
