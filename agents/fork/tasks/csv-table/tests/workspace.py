import json
import os
import subprocess
from functools import cache

# Runs on the workspace. The answers have a pipe of their own: what the agent's code prints is no answer.
PROGRAM = """
import json, sys
sys.path.append(".")
from table import parse_csv
with open(int(sys.argv[1]), "w") as answers:
    for line in sys.stdin:
        try:
            said = {"rows": parse_csv(json.loads(line))}
        except ValueError as error:
            said = {"error": str(error)}
        except Exception as error:
            said = {"fault": repr(error)}
        print(json.dumps(said), file=answers, flush=True)
"""


@cache
def agent():
    """A process that runs the agent's code, and the end of the pipe that its answers come from."""
    answers, inside = os.pipe()
    command = ["work", "--fd", str(inside), "python3", "-P", "-c", PROGRAM, str(inside)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=(inside,), text=True)
    os.close(inside)
    return process, os.fdopen(answers)


def parse_csv(text: str) -> list[list[str]]:
    """What the agent's parse_csv returns, or the ValueError that it raises."""
    process, answers = agent()
    print(json.dumps(text), file=process.stdin, flush=True)
    line = answers.readline()
    assert line, "the process that ran parse_csv is gone"
    said = json.loads(line)
    assert "fault" not in said, said["fault"]
    if "error" in said:
        raise ValueError(said["error"])
    return said["rows"]
