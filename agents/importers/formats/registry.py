"""All formats by name, in display order."""

from agents.importers.formats import (
    a2a_task,
    adk,
    agent_harm,
    atif,
    bfcl,
    claude_code,
    codex,
    harbor,
    inspect_log,
    langsmith,
    mcp_atlas,
    messages,
    ms_agent_framework,
    oai_agents,
    otel,
    pi,
    sts,
    tau2,
    tau_bench,
    terminal_bench,
    tool_sandbox,
)  # fmt: skip
from agents.importers.traces.format import Format

_SINGLE: dict[str, Format] = {
    each.FORMAT.name: each.FORMAT
    for each in (
        messages, claude_code, codex, otel, inspect_log, agent_harm, harbor, atif, tau_bench, tau2, langsmith, oai_agents, bfcl,
        mcp_atlas, tool_sandbox, ms_agent_framework, adk, a2a_task, pi, sts,
    )
}  # fmt: skip

FORMATS: dict[str, Format] = _SINGLE | {terminal_bench.NAME: terminal_bench.made(_SINGLE)}
