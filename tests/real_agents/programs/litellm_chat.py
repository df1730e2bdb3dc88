"""An agent with LiteLLM; the second argument is the model, whose prefix chooses the API."""

import json
import sys
from pathlib import Path

import litellm

PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}, "content": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "write_file", "description": "Write.", "parameters": PARAMETERS}}


def main(task: str, model: str) -> None:
    """Ask, write the files that the model names, and ask again until it answers."""
    messages = [{"role": "system", "content": "You write files."}, {"role": "user", "content": task}]
    while True:
        said = litellm.completion(model=model, messages=messages, tools=[TOOL]).choices[0].message
        messages.append(said)
        if not said.tool_calls:
            return print(said.content)
        for call in said.tool_calls:
            given = json.loads(call.function.arguments)
            Path(given["path"]).write_text(given["content"])
            messages.append({"role": "tool", "tool_call_id": call.id, "content": f"wrote {given['path']}"})


main(sys.argv[1], sys.argv[2])
