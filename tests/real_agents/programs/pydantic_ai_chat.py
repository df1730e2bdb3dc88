"""An agent with Pydantic AI: chat completions, or the Messages API when the second argument says so."""

import sys
from pathlib import Path

from pydantic_ai import Agent

agent = Agent(sys.argv[2], instructions="You write files.")


@agent.tool_plain
def write_file(path: str, content: str) -> str:
    """Write a file."""
    Path(path).write_text(content)
    return f"wrote {path}"


print(agent.run_sync(sys.argv[1]).output)
