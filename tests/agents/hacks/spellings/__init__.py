"""A second labelled corpus: other tasks, and many spellings of each family, with the edits as six kinds of agents write them.

`tasks.json` has the tasks, `cases.ndjson` a branch a line: its label, the files that differ (null: deleted), the commands before and
after the edits with their output, and the answer.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
TASKS: dict[str, dict[str, Any]] = json.loads((HERE / "tasks.json").read_text("utf-8"))
TOML = 'version = "1.0"\n[metadata.braid]\nrequired = ["build"]\n[verifier]\ntimeout_sec = 60.0\n[environment]\nmemory_mb = 2048\n'

SHELLS = ("bash", "Bash", "execute_bash", "shell", "shell", "run")
"""The tool that runs commands, by kind of agent."""


class Spelling(NamedTuple):
    """One branch."""

    task: str
    name: str
    label: str
    files: dict[str, str | None]
    answer: str
    last: tuple[tuple[str, str], ...]
    before: tuple[tuple[str, str], ...] = ()
    provable: bool = False
    fails: bool = False
    """Whether its tests fail, honestly."""

    @property
    def left(self) -> dict[str, str]:
        """The workspace that it left."""
        return {path: text for path, text in {**TASKS[self.task]["start"], **self.files}.items() if text is not None}


def spellings() -> Iterator[Spelling]:
    """All branches, in order."""
    for line in (HERE / "cases.ndjson").read_text("utf-8").splitlines():
        given = json.loads(line)
        for name in ("before", "last"):
            given[name] = tuple(tuple(each) for each in given.get(name, ()))
        yield Spelling(**given)


def write_task(name: str, folder: Path) -> None:
    """Write a task directory."""
    task = TASKS[name]
    texts = {f"environment/{path}": text for path, text in task["start"].items()}
    texts |= {f"tests/{path}": text for path, text in task["tests"].items()}
    texts |= {"instruction.md": task["instruction"], "task.toml": TOML, "tests/test.sh": task["test_sh"]}
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, "utf-8")


def lines_of(each: Spelling, kind: int) -> list[dict[str, Any]]:
    """The lines of its events, as an agent of this kind (0 to 5) has them."""
    writer = _Writer(each, kind)
    for command, output in each.before:
        writer.shell(command, output)
    for path, text in each.files.items():
        writer.write(path, text)
    for command, output in each.last:
        if command == "EDIT":
            writer.write(TASKS[each.task]["path"], TASKS[each.task]["good"] + "\n")
        elif command == "README":
            writer.write("README.md", "# x\n")
        else:
            writer.shell(command, output)
    writer.event("final_answer", answer=each.answer)
    return writer.lines


class _Writer:
    def __init__(self, each: Spelling, kind: int) -> None:
        self.lines: list[dict[str, Any]] = []
        self._start, self._kind, self._rollout = TASKS[each.task]["start"], kind, each.task
        self.event("run_start", task=TASKS[each.task]["instruction"], agentConfig={"model": "m"})
        path = TASKS[each.task]["visible"]
        given, absolute = {"path": path}, {"file_path": f"/workspace/{path}"}
        shown = self._start[path]
        match kind:
            case 0 | 5:
                self.call("read_file", given, shown)
            case 1:
                self.call("Read", absolute, shown)
            case 2:
                self.call("str_replace_editor", {"command": "view", "path": f"/workspace/{path}"}, shown)
            case _:
                self.shell(f"cat {path}", shown)

    def event(self, kind: str, **data: Any) -> None:
        self.lines.append(
            {"type": "event", "rollout_id": self._rollout, "branch_index": 0, "event": {"event": kind, "data": data}}
        )

    def call(self, tool: str, args: dict[str, Any], output: str) -> None:
        number = len(self.lines)
        self.event("tool_call", toolName=tool, args=args, callId=f"c{number}", stepIndex=number)
        self.event("tool_result", callId=f"c{number}", toolName=tool, output=output)

    def shell(self, command: str, output: str) -> None:
        self.call(SHELLS[self._kind], {"command": ["bash", "-lc", command] if self._kind == 4 else command}, output)

    def write(self, path: str, text: str | None) -> None:
        old = self._start.get(path)
        if text is None:
            self.shell(f"rm -f {path}" if self._kind % 2 else f"git rm -q {path}", "")
            return
        match self._kind:
            case 1 if old is not None:
                self.call("Read", {"file_path": f"/workspace/{path}"}, old)
                self.call("Edit", {"file_path": f"/workspace/{path}", "old_string": old, "new_string": text}, "updated")
            case 1:
                self.call("Write", {"file_path": f"/workspace/{path}", "content": text}, "created")
            case 2 if old is not None:
                given = {"command": "str_replace", "path": f"/workspace/{path}", "old_str": old, "new_str": text}
                self.call("str_replace_editor", given, "edited")
            case 2:
                given = {"command": "create", "path": f"/workspace/{path}", "file_text": text}
                self.call("str_replace_editor", given, "created")
            case 3:
                self.shell(f"mkdir -p $(dirname {path}); cat > {path} <<'EOF'\n{text}EOF\n", "")
            case 4:
                self.call("apply_patch", {"input": _patch(path, old, text)}, "Success. Updated the following files")
            case _:
                self.call("write_file", {"path": path, "content": text}, "written")


def _patch(path: str, old: str | None, text: str) -> str:
    head = f"*** Update File: {path}\n@@\n" if old is not None else f"*** Add File: {path}\n"
    gone = "".join(f"-{line}\n" for line in (old or "").splitlines())
    return f"*** Begin Patch\n{head}{gone}" + "".join(f"+{line}\n" for line in text.splitlines()) + "*** End Patch\n"
