"""An agent with the OpenAI SDK: chat completions, streamed, one tool."""

import json
import sys
from pathlib import Path

from openai import OpenAI

PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}, "content": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "write_file", "description": "Write.", "parameters": PARAMETERS}}


def main(task: str) -> None:
    """Ask, write the files that the model names, and ask again until it answers."""
    client = OpenAI()
    messages = [{"role": "developer", "content": "You write files."}, {"role": "user", "content": task}]
    while True:
        options = {"include_usage": True}
        with client.chat.completions.stream(
            model="m", messages=messages, tools=[TOOL], stream_options=options
        ) as stream:
            said = stream.get_final_completion().choices[0].message
        messages.append(said.model_dump(exclude_none=True, include={"role", "content", "tool_calls"}))
        if not said.tool_calls:
            return print(said.content)
        for call in said.tool_calls:
            given = json.loads(call.function.arguments)
            Path(given["path"]).write_text(given["content"])
            messages.append({"role": "tool", "tool_call_id": call.id, "content": f"wrote {given['path']}"})


main(sys.argv[1])
