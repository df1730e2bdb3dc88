"""Key files: complete or absent, for the owner only, never overwritten, and the same key for all who ask."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import platformdirs
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from agents.evidence.canonical import digest
from agents.evidence.keys import (
    KeyFileError,
    default_directory,
    development_key,
    generate_key,
    load_key,
    parse_public_key,
    public_keys,
    read_key,
    save_key,
)

ZERO_SEED = "00" * 32
ZERO_PUBLIC = "3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29"


def pem(private: Ed25519PrivateKey) -> bytes:
    return private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@pytest.mark.parametrize("text", [ZERO_SEED, f" {ZERO_SEED}\n", ZERO_SEED.encode()])
def test_a_seed_in_hex_is_a_key(text: str | bytes) -> None:
    """From a variable or a file, with or without a line end."""
    key = read_key(text)
    assert key.public.hex() == ZERO_PUBLIC
    assert key.key_id == f"key-{digest(key.public)[:12]}"


def test_a_plain_pem_is_a_key() -> None:
    """The output of `openssl genpkey -algorithm ed25519` is read."""
    private = Ed25519PrivateKey.generate()
    key = read_key(pem(private).decode(), "prod")
    assert key.public == private.public_key().public_bytes_raw()
    assert key.key_id == "prod"


def test_a_saved_key_comes_back_with_its_name(tmp_path: Path) -> None:
    """The file says what the key is called; a given name goes first."""
    key = generate_key("team@prod-1")
    path = tmp_path / "deep" / "key.pem"
    save_key(key, path)
    assert (load_key(path).key_id, load_key(path).public) == ("team@prod-1", key.public)
    assert load_key(path, "other").key_id == "other"


def test_a_saved_key_is_pem_for_everyone_else(tmp_path: Path) -> None:
    """The line above the PEM does not disturb other readers."""
    save_key(generate_key(), tmp_path / "key.pem")
    assert isinstance(load_pem_private_key((tmp_path / "key.pem").read_bytes(), None), Ed25519PrivateKey)


@pytest.mark.skipif(os.name == "nt", reason="POSIX modes")
def test_only_the_owner_can_read_a_key(tmp_path: Path) -> None:
    """For every umask."""
    before = os.umask(0)
    try:
        save_key(generate_key(), tmp_path / "keys" / "key.pem")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "keys" / "key.pem").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o700


def test_an_existing_key_is_not_overwritten(tmp_path: Path) -> None:
    """Losing a key means losing the proof of everything it signed; nothing is left lying around either."""
    path = tmp_path / "key.pem"
    save_key(generate_key("first"), path)
    with pytest.raises(KeyFileError, match="is not overwritten"):
        save_key(generate_key("second"), path)
    assert load_key(path).key_id == "first"
    assert list(tmp_path.iterdir()) == [path]


def test_the_development_key_is_made_once(tmp_path: Path) -> None:
    """The second call finds the first one's key, and its name says what it is."""
    key = development_key(tmp_path / "keys")
    assert key.key_id == f"dev-{digest(key.public)[:12]}"
    again = development_key(tmp_path / "keys")
    assert (again.key_id, again.public) == (key.key_id, key.public)


def test_all_who_ask_at_once_get_the_same_development_key(tmp_path: Path) -> None:
    """Workers that start together sign with one key."""
    with ThreadPoolExecutor(8) as pool:
        keys = list(pool.map(lambda _: development_key(tmp_path).public, range(32)))
    assert len(set(keys)) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["development.pem"]


def test_keys_live_outside_the_repository() -> None:
    """The default place is the user's data directory."""
    assert default_directory() == platformdirs.user_data_path("braidstream") / "keys"


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"secret-material",
        ZERO_SEED[:-2].encode(),
        b"-----BEGIN PRIVATE KEY-----\nsecret-material\n-----END PRIVATE KEY-----\n",
        generate_private_key(SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x")),
    ],
)
def test_what_is_no_key_is_refused_without_being_shown(text: bytes) -> None:
    """The message says what to give, and repeats nothing of what was given."""
    with pytest.raises(KeyFileError, match="BRAID_KEY is no Ed25519 private key") as caught:
        read_key(text, source="BRAID_KEY")
    assert "secret-material" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_missing_file_says_how_to_make_one(tmp_path: Path) -> None:
    """The message names the file and the command."""
    with pytest.raises(KeyFileError, match=r"nowhere\.pem: the key cannot be read .*braid keys new"):
        load_key(tmp_path / "nowhere.pem")


@pytest.mark.parametrize("key_id", ["", "a b", "ü", "../x", "-x", "x" * 129, "dev-mine"])
def test_names_that_would_confuse_are_refused(key_id: str) -> None:
    """A name is plain text, and only development keys are called dev-."""
    with pytest.raises(KeyFileError):
        generate_key(key_id)


def test_public_keys_are_listed_by_name(tmp_path: Path) -> None:
    """The keys of the directory and the named files, public halves only."""
    development_key(tmp_path / "keys")
    save_key(generate_key("b"), tmp_path / "keys" / "b.pem")
    save_key(generate_key("a"), tmp_path / "elsewhere.key")
    listed = public_keys(tmp_path / "keys", [tmp_path / "elsewhere.key"])
    assert [key.key_id[:4] for key in listed] == ["a", "b", "dev-"]
    assert all(len(key.public) == 32 for key in listed)
    assert public_keys(tmp_path / "absent") == []


def test_a_public_key_is_read_from_an_option() -> None:
    """The name may hold an equals sign; the key cannot."""
    assert parse_public_key(f"team=a={ZERO_PUBLIC}")[:2] == ("team=a", bytes.fromhex(ZERO_PUBLIC))


@pytest.mark.parametrize("text", ["", ZERO_SEED, f"={ZERO_SEED}", "k=", f"k={ZERO_SEED[:-1]}", f"k={'g' * 64}"])
def test_an_option_that_is_no_public_key_is_not_repeated(text: str) -> None:
    """It could be a private seed, given by mistake."""
    with pytest.raises(KeyFileError, match="KEYID=HEX") as caught:
        parse_public_key(text)
    assert ZERO_SEED not in str(caught.value)
