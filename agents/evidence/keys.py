"""Signing keys on disk: the one part of evidence that touches files.

A key comes from a file or a variable that the configuration names, else from a development key that is made on first
use, outside the repository. A key file is PEM (PKCS8) or the 32-byte seed in hex; a line `Braid-Key-Id: NAME` above the
PEM names the key. Guarantees that a key file is complete or absent, readable by its owner only, never overwritten, and
that two processes that start together get the same development key. No message contains private material.
"""

import os
import re
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import platformdirs
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from agents.evidence.canonical import digest
from agents.evidence.signing import SigningKey
from schemas.errors import BraidError

DEVELOPMENT_FILE = "development.pem"
"""The file of the evidence key. Verifiers and the gateway have development keys of their own, in files next to it."""
DEVELOPMENT_PREFIX = "dev-"
_KEY_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}")
_KEY_ID_LINE = re.compile(rb"(?m)^Braid-Key-Id: (\S+)\r?$")
_SEED = re.compile(r"[0-9a-fA-F]{64}")


class KeyFileError(BraidError):
    """A key that cannot be read, written or understood."""


class PublicKey(NamedTuple):
    """The public data that is needed to check a signature."""

    key_id: str
    public: bytes
    path: Path | None = None


def default_directory() -> Path:
    """Return the default folder of keys: the user's data directory."""
    return platformdirs.user_data_path("braidstream") / "keys"


def generate_key(key_id: str | None = None) -> SigningKey:
    """Make a new key in memory."""
    return _named(Ed25519PrivateKey.generate(), key_id)


def read_key(text: str | bytes, key_id: str | None = None, *, source: str = "the key") -> SigningKey:
    """Read a private key from the text of a file or variable; `source` names it in messages."""
    raw = text.encode("utf-8") if isinstance(text, str) else text
    seed = raw.strip().decode("ascii", "replace")
    if _SEED.fullmatch(seed):
        return _named(Ed25519PrivateKey.from_private_bytes(bytes.fromhex(seed)), key_id)
    try:
        private = load_pem_private_key(raw, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        private = None  # the parser's message could quote the key
    if not isinstance(private, Ed25519PrivateKey):
        raise KeyFileError(
            f"{source} is no Ed25519 private key: give an unencrypted PEM (PKCS8) or the 32-byte seed as 64 hex digits"
        )
    named = _KEY_ID_LINE.search(raw.partition(b"-----BEGIN")[0])
    stored = named[1].decode("utf-8", "replace") if named else None
    if key_id is None and stored is not None and stored.startswith(DEVELOPMENT_PREFIX):
        return SigningKey(DEVELOPMENT_PREFIX + _short(private), private)
    return _named(private, key_id or stored)


def load_key(path: Path, key_id: str | None = None) -> SigningKey:
    """Read a private key from a file."""
    try:
        return read_key(path.read_bytes(), key_id, source=str(path))
    except OSError as error:
        raise KeyFileError(f"{path}: the key cannot be read ({error.strerror}); `braid keys new` makes one") from error


def save_key(key: SigningKey, path: Path) -> None:
    """Write a key to a new file atomically, readable by its owner only; an existing file is not replaced."""
    pem = key.private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(b"Braid-Key-Id: %b\n%b" % (key.key_id.encode("ascii"), pem))
                file.flush()
                os.fsync(file.fileno())
            path.hardlink_to(draft)  # unlike a rename, a link never replaces an existing file
        finally:
            draft.unlink()
    except FileExistsError as error:
        raise KeyFileError(f"{path} exists and is not overwritten: choose another file") from error
    except OSError as error:
        raise KeyFileError(f"{path}: the key cannot be written ({error.strerror}); choose another place") from error


def development_key(directory: Path | None = None, file: str = DEVELOPMENT_FILE) -> SigningKey:
    """Return a development key of this machine; made on first use."""
    path = (directory or default_directory()) / file
    if not path.exists():
        private = Ed25519PrivateKey.generate()
        try:
            save_key(SigningKey(DEVELOPMENT_PREFIX + _short(private), private), path)
        except KeyFileError:
            if not path.exists():  # another process has just made it: use that one
                raise
    return load_key(path)


def public_keys(directory: Path | None = None, files: Iterable[Path] = ()) -> list[PublicKey]:
    """List the public halves of the keys in the directory and of the given files, by key_id."""
    stored = sorted((directory or default_directory()).glob("*.pem"))
    keys = ((path, load_key(path)) for path in [*stored, *files])
    return sorted(PublicKey(key.key_id, key.public, path) for path, key in keys)


def parse_public_key(text: str) -> PublicKey:
    """Read `KEYID=HEX`, as `braid verify --public-key` takes it."""
    key_id, _, public = text.rpartition("=")
    if not key_id or not _SEED.fullmatch(public):
        # The value is not repeated: it could be a private seed, given by mistake.
        raise KeyFileError("no public key: write KEYID=HEX, both as `braid keys show` prints them")
    return PublicKey(key_id, bytes.fromhex(public))


def _named(private: Ed25519PrivateKey, key_id: str | None) -> SigningKey:
    if key_id is None:
        return SigningKey(f"key-{_short(private)}", private)
    if not _KEY_ID.fullmatch(key_id):
        raise KeyFileError(f"{key_id!r} is no key id: use letters, digits and . _ : @ - (at most 128)")
    if key_id.startswith(DEVELOPMENT_PREFIX):
        raise KeyFileError(f"{key_id!r}: names that begin with {DEVELOPMENT_PREFIX} are for development keys")
    return SigningKey(key_id, private)


def _short(private: Ed25519PrivateKey) -> str:
    return digest(private.public_key().public_bytes_raw())[:12]
