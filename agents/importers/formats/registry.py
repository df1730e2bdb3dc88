"""All formats by name, in the order in which they are shown."""

from agents.importers.formats import atif, claude_code, codex, harbor, messages, pi, sts, tau_bench
from agents.importers.traces.format import Format

FORMATS: dict[str, Format] = {
    each.FORMAT.name: each.FORMAT for each in (messages, claude_code, codex, pi, sts, harbor, atif, tau_bench)
}
