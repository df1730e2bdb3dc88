"""An agent with the OpenAI Agents SDK, which speaks the Responses API."""

import sys
from pathlib import Path

from agents import Agent, Runner, function_tool, set_tracing_disabled


@function_tool
def write_file(path: str, content: str) -> str:
    """Write a file."""
    Path(path).write_text(content)
    return f"wrote {path}"


set_tracing_disabled(True)
agent = Agent(name="writer", instructions="You write files.", model="m", tools=[write_file])
print(Runner.run_sync(agent, sys.argv[1]).final_output)
