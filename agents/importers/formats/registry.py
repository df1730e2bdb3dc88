"""All formats by name, in the order in which they are shown."""

from agents.importers.formats import (
    agent_harm,
    atif,
    claude_code,
    harbor,
    inspect_log,
    langsmith,
    messages,
    oai_agents,
    otel,
    tau2,
    tau_bench,
)  # fmt: skip
from agents.importers.traces.format import Format

_MODULES = (
    messages, claude_code, otel, inspect_log, agent_harm, harbor, atif, tau_bench, tau2, langsmith, oai_agents,
)  # fmt: skip

FORMATS: dict[str, Format] = {each.FORMAT.name: each.FORMAT for each in _MODULES}
