"""What flows: every record on the log, as a frozen pydantic model with its Avro committed beside it."""

import sys


class CompiledFinder:
    """Finds the compiled modules of the core, and leaves all others to Python.

    It imports nothing before one of our modules is wanted: by then the command line has guarded itself against Ctrl-C.
    """

    @staticmethod
    def find_spec(fullname, path=None, target=None):  # type: ignore[no-untyped-def]  # noqa: ARG004
        """Find a module, as importlib asks for it."""
        if not fullname.startswith(("schemas.", "agents.", "streams.")) or fullname in UNCOMPILED:
            return None
        from schemas.compiled import compiled_spec

        return compiled_spec(fullname)


UNCOMPILED = ("schemas.compiled", "streams.entry")
"""Modules that are imported before anything can be said about compiled ones."""

sys.meta_path.insert(0, CompiledFinder)
