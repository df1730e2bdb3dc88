"""An agent with the OpenAI SDK: the Responses API, not streamed, the history sent each time."""

import json
import sys
from pathlib import Path

from openai import OpenAI

PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}, "content": {"type": "string"}}}
TOOL = {"type": "function", "name": "write_file", "description": "Write.", "parameters": PARAMETERS, "strict": False}


def main(task: str) -> None:
    """Ask, write the files that the model names, and ask again until it answers."""
    client = OpenAI()
    items = [{"role": "user", "content": task}]
    while True:
        said = client.responses.create(
            model="m", instructions="You write files.", input=items, tools=[TOOL], store=False
        )
        items += [item.model_dump(exclude_none=True) for item in said.output]
        calls = [item for item in said.output if item.type == "function_call"]
        if not calls:
            return print(said.output_text)
        for call in calls:
            given = json.loads(call.arguments)
            Path(given["path"]).write_text(given["content"])
            items.append({"type": "function_call_output", "call_id": call.call_id, "output": f"wrote {given['path']}"})


main(sys.argv[1])
