import json
import os
import subprocess
import sys

PROGRAM = """
import json, sys
sys.path.append(sys.argv[1])
from table import parse_csv
try:
    said = {"rows": parse_csv(sys.stdin.buffer.read().decode())}
except ValueError as error:
    said = {"error": str(error)}
print()
print(json.dumps(said))
"""


def parse_csv(text: str) -> list[list[str]]:
    """What the agent's parse_csv returns, or the ValueError that it raises."""
    command = [sys.executable, "-c", PROGRAM, os.environ["WORKSPACE"]]
    done = subprocess.run(command, input=text.encode(), capture_output=True, timeout=20, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-600:]
    said = json.loads(done.stdout.splitlines()[-1])
    if "error" in said:
        raise ValueError(said["error"])
    return said["rows"]
