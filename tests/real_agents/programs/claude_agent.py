"""An agent with the Claude Agent SDK, which runs the `claude` that it brings along."""

import asyncio
import sys

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query


async def main(task: str) -> None:
    """Run one task to its end."""
    options = ClaudeAgentOptions(allowed_tools=["Bash"], permission_mode="acceptEdits")
    async for message in query(prompt=task, options=options):
        if isinstance(message, ResultMessage):
            print(message.result)


asyncio.run(main(sys.argv[1]))
