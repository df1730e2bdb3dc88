"""All formats by name, in the order in which they are shown."""

from agents.importers.formats import (
    a2a_task,
    adk,
    agent_harm,
    bfcl,
    inspect_log,
    mcp_atlas,
    messages,
    ms_agent_framework,
    tau2,
    tau_bench,
    terminal_bench,
    tool_sandbox,
)
from agents.importers.traces.format import Format

_SINGLE: dict[str, Format] = {
    each.FORMAT.name: each.FORMAT
    for each in (
        messages,
        tau_bench,
        tau2,
        inspect_log,
        agent_harm,
        bfcl,
        mcp_atlas,
        tool_sandbox,
        ms_agent_framework,
        adk,
        a2a_task,
    )
}

FORMATS: dict[str, Format] = _SINGLE | {terminal_bench.NAME: terminal_bench.made(_SINGLE)}
