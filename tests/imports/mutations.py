"""Damage to files of traces, by a seed: bytes that are cut or wrong, values of wrong types, ids that repeat or lead in circles."""

import json
import random
from pathlib import Path
from typing import Any

WRONG: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 10**30, "", "x", "\ud800", [], {}, [None], {"a": {}}, [[[]]], "Error: x", "9" * 30, float("nan"),
    float("inf"), "1970-13-45T99:99:99Z", 1e300,
)  # fmt: skip
"""Values in place of others."""

DEEP = "[" * 400 + "]" * 400
IDS = (
    "id",
    "uuid",
    "parentUuid",
    "parent_id",
    "parentId",
    "parent_run_id",
    "span_id",
    "parentSpanId",
    "tool_call_id",
    "callId",
)


def mutate(folder: Path, seed: int) -> str:
    """Damage one file below a folder; returns what was done."""
    rng = random.Random(seed)
    files = sorted(place for place in folder.rglob("*") if place.is_file())
    victim = rng.choice(files)
    ways = [_cut, _flip, _value, _value, _value, _value, _repeat, _ids, _deep, _empty, _swap]
    way = rng.choice(ways)
    way(victim, rng, files)
    return f"seed {seed}: {way.__name__} {victim.name}"


def _cut(victim: Path, rng: random.Random, _files: list[Path]) -> None:
    raw = victim.read_bytes()
    place = rng.randrange(len(raw) + 1)
    victim.write_bytes(rng.choice((raw[:place], raw[place:], raw[:place] + raw[place + rng.randrange(40) :])))


def _flip(victim: Path, rng: random.Random, _files: list[Path]) -> None:
    raw = bytearray(victim.read_bytes())
    for _ in range(rng.choice((1, 3, 50))):
        if raw:
            raw[rng.randrange(len(raw))] = rng.choice((0, 10, 34, 44, 91, 92, 125, 0xC3, 0xFF, rng.randrange(256)))
    victim.write_bytes(bytes(raw))


def _empty(victim: Path, rng: random.Random, _files: list[Path]) -> None:
    victim.write_bytes(rng.choice((b"", b"\n\n", b"[]", b"{}", b"null", b"\xef\xbb\xbf", b"\x1f\x8b", b"PK\x03\x04")))


def _swap(victim: Path, rng: random.Random, files: list[Path]) -> None:
    other = rng.choice(files)
    one, two = victim.read_bytes(), other.read_bytes()
    victim.write_bytes(two)
    other.write_bytes(one)


def _value(victim: Path, rng: random.Random, _files: list[Path]) -> None:
    _edit(victim, rng, lambda holder, key: _put(holder, key, rng))


def _put(holder: Any, key: Any, rng: random.Random) -> None:
    if isinstance(holder, dict) and rng.random() < 0.3:
        del holder[key]
    else:
        holder[key] = rng.choice(WRONG)


def _repeat(victim: Path, rng: random.Random, _files: list[Path]) -> None:
    lines = victim.read_bytes().splitlines(keepends=True)
    if lines:
        place = rng.randrange(len(lines))
        lines.insert(rng.randrange(len(lines) + 1), lines[place])
        victim.write_bytes(b"".join(lines))


def _ids(victim: Path, rng: random.Random, _files: list[Path]) -> None:
    """Every id of a kind the same, or those of parents and children exchanged."""
    text = victim.read_bytes()
    one, two = rng.choice(IDS), rng.choice(IDS)
    swapped = text.replace(f'"{one}"'.encode(), b'"\0"').replace(f'"{two}"'.encode(), f'"{one}"'.encode())
    victim.write_bytes(swapped.replace(b'"\0"', f'"{two}"'.encode()))


def _deep(victim: Path, rng: random.Random, _files: list[Path]) -> None:
    raw = victim.read_bytes()
    places = [place for place in range(len(raw) - 1) if raw[place : place + 1] == b":"]
    if places:
        place = rng.choice(places) + 1
        victim.write_bytes(raw[:place] + DEEP.encode() + raw[place:])


def _edit(victim: Path, rng: random.Random, change: Any) -> None:
    """Change one value of a JSON file or of one of its lines."""
    text = victim.read_text(errors="replace")
    try:
        whole = json.loads(text)
        holders = _holders(whole)
        if holders:
            change(*rng.choice(holders))
        victim.write_bytes(json.dumps(whole).encode(errors="surrogatepass"))
    except ValueError:
        lines = text.splitlines()
        place = rng.randrange(len(lines)) if lines else -1
        try:
            value = json.loads(lines[place]) if lines else None
        except ValueError:
            return
        holders = _holders(value)
        if holders:
            change(*rng.choice(holders))
            lines[place] = json.dumps(value)
            victim.write_bytes("\n".join(lines).encode(errors="surrogatepass"))


def _holders(value: Any) -> list[tuple[Any, Any]]:
    """Every place in a value that can be changed."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        holder = waiting.pop()
        inner = holder.items() if isinstance(holder, dict) else enumerate(holder) if isinstance(holder, list) else ()
        for key, each in inner:
            found.append((holder, key))
            waiting.append(each)
    return found
