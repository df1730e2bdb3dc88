"""`braid keys`: what it writes and what it prints."""

import json
from pathlib import Path

import pytest

from agents.evidence import keys as key_files
from agents.evidence.keys import development_key, load_key
from streams.commands import keys as command


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's data directory of its own."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(key_files.platformdirs, "user_data_path", lambda name: tmp_path / name)
    return tmp_path / "braidstream" / "keys"


def braid_keys(*arguments: str) -> None:
    command.app(arguments, result_action="return_value")


def test_new_writes_a_key_and_prints_its_public_half(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file holds the key that was named; the output holds nothing private."""
    path = tmp_path / "prod.pem"
    braid_keys("new", "--out", str(path), "--key-id", "prod", "--json")
    printed = json.loads(capsys.readouterr().out)
    key = load_key(path)
    assert printed == {"key_id": "prod", "alg": "ed25519", "public_key_hex": key.public.hex(), "file": str(path)}
    assert key.private.private_bytes_raw().hex() not in json.dumps(printed)


def test_new_without_a_file_writes_to_the_users_keys(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The key is named after its public half, and so is its file."""
    braid_keys("new", "--json")
    printed = json.loads(capsys.readouterr().out)
    assert load_key(home / f"{printed['key_id']}.pem").public.hex() == printed["public_key_hex"]


def test_show_prints_a_table_with_whole_keys(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is cut off, however narrow the terminal."""
    key = development_key(home)
    braid_keys("show")
    printed = capsys.readouterr().out
    assert key.key_id in printed
    assert key.public.hex() in printed
    assert str(home / "development.pem") in printed


def test_show_prints_one_json_object_per_key(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Keys of the directory and of named files."""
    development_key(home)
    braid_keys("new", "--out", str(tmp_path / "x.pem"), "--key-id", "x")
    capsys.readouterr()
    braid_keys("show", str(tmp_path / "x.pem"), "--json")
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["key_id"][:4] for row in rows] == ["dev-", "x"]


def test_show_without_keys_says_how_to_make_one(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty answer is explained, beside the output."""
    braid_keys("show")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "braid keys new" in printed.err
