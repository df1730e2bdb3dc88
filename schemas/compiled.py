"""Modules in C that lie beside Python ones which do the same: used where they were compiled of the very source beside them."""

from hashlib import sha256
from importlib import import_module
from pathlib import Path
from types import ModuleType


def compiled(name: str) -> ModuleType | None:
    """The module of this full name; None where there is none, or one of another source: it may do something else."""
    try:
        module = import_module(name)
    except ImportError:
        return None
    source = Path(str(module.__file__)).with_name(f"{name.rpartition('.')[2]}.c")
    try:
        now = sha256(source.read_bytes()).hexdigest()
    except OSError:
        return None
    return module if now == getattr(module, "SOURCE", None) else None
