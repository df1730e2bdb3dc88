"""`braid keys`: make a signing key, and show the public keys that others need to check evidence and verdicts.

Prints public halves only; a private key is written only to its own file.
"""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App

from agents.evidence.keys import PublicKey, default_directory, generate_key, public_keys, save_key
from streams.commands.console_output import print_json
from streams.commands.options import Flag, Json

app = App(name="keys", help="Make and show the keys that sign evidence and verdicts.")


@app.command
def new(
    *,
    out: Path | None = None,
    key_id: str | None = None,
    json: Json = False,
) -> None:
    """Make a signing key and print its public half.

    Example: `braid keys new --key-id team-2026`

    Parameters
    ----------
    out
        The file to write; by default one in the user's data directory, named after the key.
    key_id
        The name under which verifiers find the public key; by default derived from it.
    """
    key = generate_key(key_id)
    path = out if out is not None else default_directory() / f"{key.key_id}.pem"
    save_key(key, path)
    _print([PublicKey(key.key_id, key.public, path)], json=json)


@app.command
def show(
    *files: Path,
    directory: Path | None = None,
    json: Annotated[bool, Flag] = False,
) -> None:
    """Show the public keys that this machine has.

    Example: `braid keys show`

    Parameters
    ----------
    files
        More key files to show.
    directory
        The folder of the keys; by default the user's data directory.
    json
        Print one JSON object per key.
    """
    keys = public_keys(directory, files)
    _print(keys, json=json)
    if not keys and not json:
        sys.stderr.write("No key yet: `braid keys new` makes one; a development key is made on first use.\n")


def _print(keys: list[PublicKey], *, json: bool) -> None:
    if json:
        for key in keys:
            row = {"key_id": key.key_id, "alg": "ed25519", "public_key_hex": key.public.hex(), "file": str(key.path)}
            print_json(row)
        return
    from streams.views.tables import show as print_all
    from streams.views.tables import table

    made = table("", "key id", "public key", "file")
    for key in keys:
        made.add_row(key.key_id, key.public.hex(), str(key.path))
    if keys:
        print_all(made)
