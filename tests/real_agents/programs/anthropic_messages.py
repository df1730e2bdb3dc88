"""An agent with the Anthropic SDK: the Messages API, streamed, one tool, cached prompt."""

import sys
from pathlib import Path

from anthropic import Anthropic

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}, "content": {"type": "string"}}}
TOOL = {"name": "write_file", "description": "Write.", "input_schema": SCHEMA}
SYSTEM = [{"type": "text", "text": "You write files.", "cache_control": {"type": "ephemeral"}}]


def main(task: str) -> None:
    """Ask, write the files that the model names, and ask again until it answers."""
    client = Anthropic()
    messages = [{"role": "user", "content": task}]
    while True:
        with client.messages.stream(
            model="m", max_tokens=1000, system=SYSTEM, messages=messages, tools=[TOOL]
        ) as stream:
            said = stream.get_final_message()
        messages.append({"role": "assistant", "content": said.content})
        calls = [block for block in said.content if block.type == "tool_use"]
        if not calls:
            return print("".join(block.text for block in said.content if block.type == "text"))
        results = []
        for call in calls:
            Path(call.input["path"]).write_text(call.input["content"])
            results.append({"type": "tool_result", "tool_use_id": call.id, "content": f"wrote {call.input['path']}"})
        messages.append({"role": "user", "content": results})


main(sys.argv[1])
