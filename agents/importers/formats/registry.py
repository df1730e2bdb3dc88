"""All formats by name, in the order in which they are shown."""

from agents.importers.formats import (
    agent_harm,
    atif,
    claude_code,
    harbor,
    inspect_log,
    messages,
    oai_agents,
    tau2,
    tau_bench,
)
from agents.importers.traces.format import Format

_MODULES = (messages, claude_code, inspect_log, agent_harm, harbor, atif, tau_bench, tau2, oai_agents)

FORMATS: dict[str, Format] = {each.FORMAT.name: each.FORMAT for each in _MODULES}
