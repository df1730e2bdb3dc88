"""Compiled code, used where it was made of the very sources that lie beside it; otherwise Python does the same, and takes longer.

There are two kinds. Modules in C lie beside Python ones that do the same (`compiled`). The modules of the core have one source,
in Python, which is compiled when the package is installed (`core`); pyproject.toml lists them. With `BRAID_COMPILED=no` neither is
used, for those who debug.
"""

import json
import os
import sys
from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Literal, NamedTuple

VARIABLE = "BRAID_COMPILED"
LIBRARY = "braid_core__mypyc"
"""All that was compiled of the core; its modules' own files only refer to it, by this name."""

_ROOT = Path(__file__).parents[1]
_PLACE = _ROOT / "schemas" / "_core"
_SUFFIX = EXTENSION_SUFFIXES[0]


def wanted() -> bool:
    """Whether compiled code may be used."""
    return os.environ.get(VARIABLE, "").strip().lower() not in {"no", "off", "false", "0"}


def compiled(name: str) -> ModuleType | None:
    """The module in C of this full name; None where there is none, or one of another source: it may do something else."""
    if not wanted():
        return None
    try:
        module = import_module(name)
    except ImportError:
        return None
    source = Path(str(module.__file__)).with_name(f"{name.rpartition('.')[2]}.c")
    return module if _digest(source) == getattr(module, "SOURCE", None) else None


class Core(NamedTuple):
    """Whether this process runs the compiled core: all of it or none."""

    state: Literal["used", "off", "missing", "of other sources", "does not load"]
    modules: frozenset[str] = frozenset()
    """The names that are served from it."""
    why: str = ""


@cache
def core() -> Core:
    """What this process uses. It is decided once: an edited source never meets what was compiled of another."""
    if not wanted():
        return Core("off")
    try:
        made = json.loads((_PLACE / f"made{_SUFFIX}.json").read_bytes())
    except OSError:
        return Core("missing", why=_why_missing())
    # Also those that are not compiled themselves: what is compiled was made for the types that they have.
    for source, digest in made["sources"].items():
        if _digest(_ROOT / source) != digest:
            return Core("of other sources", why=source)
    try:
        spec = _spec(LIBRARY)
        sys.modules[LIBRARY] = library = module_from_spec(spec)
        spec.loader.exec_module(library)  # type: ignore[union-attr]
    except ImportError as error:
        sys.modules.pop(LIBRARY, None)
        return Core("does not load", why=str(error))
    return Core("used", frozenset(made["modules"]))


def compiled_spec(name: str) -> ModuleSpec | None:
    """Where a module of the core lies compiled; None for all others."""
    return _spec(name) if name in core().modules else None


def _why_missing() -> str:
    """What the build has left about it, on a machine that tried."""
    try:
        return (_PLACE / f"failed{_SUFFIX}.txt").read_text("utf-8").strip()
    except OSError:
        return ""


def _spec(name: str) -> ModuleSpec:
    file = str(_PLACE / f"{name}{_SUFFIX}")
    spec = spec_from_file_location(name, file, loader=ExtensionFileLoader(name, file))
    assert spec is not None
    return spec


def _digest(source: Path) -> str | None:
    try:
        return sha256(source.read_bytes()).hexdigest()
    except OSError:
        return None
