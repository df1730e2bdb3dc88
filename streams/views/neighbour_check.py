"""Other distributions in this environment with packages of the same names as ours: openai-agents has `agents`, too."""

from collections.abc import Iterable
from importlib.metadata import Distribution, distributions

from streams.log.terminal_text import listed
from streams.views.machine_checks import Check

OURS = frozenset({"agents", "schemas", "streams"})
NAME = "braidstream"


def check_neighbours(installed: Iterable[Distribution] | None = None) -> Check:
    """Whether another distribution writes into our packages, or would be hidden by them."""
    found = {}
    for each in distributions() if installed is None else installed:
        name = each.metadata["Name"]
        shared = OURS & _packages(each)
        if shared and name != NAME:
            found[name] = shared
    if not found:
        return Check("neighbours", "ok", "no other distribution here has a package agents, schemas or streams")
    told = [f"{name} ({', '.join(sorted(shared))})" for name, shared in sorted(found.items())]
    return Check(
        "neighbours",
        "problem",
        f"packages of the same names as ours: {listed(told, 4)}; imports find the one or the other",
        "install Braidstream in an environment of its own (`uv tool install`); beside an agent goes braidstream-client",
    )


def _packages(distribution: Distribution) -> set[str]:
    """The top-level packages of a distribution, by its list of files."""
    return {path.parts[0] for path in distribution.files or () if len(path.parts) > 1 and path.suffix == ".py"}
