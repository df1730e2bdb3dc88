"""All formats by name, in the order in which they are shown."""

from agents.importers.formats import langsmith, messages, oai_agents, otel, tau_bench
from agents.importers.traces.format import Format

FORMATS: dict[str, Format] = {
    each.FORMAT.name: each.FORMAT for each in (messages, otel, tau_bench, langsmith, oai_agents)
}
