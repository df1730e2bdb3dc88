"""The agent's tools: read, write, edit, list, search, run. Each works on one sandbox and answers with an output or an error.

Reads return pages that fit the summary limit of their tool, so that summaries cut nothing that the agent asked for.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from agents.fork.sandbox import CommandResult, Ended, Limits, Sandbox
from agents.models.conversation import ToolCall
from agents.summarize.output import byte_length
from agents.workspace.files import LEFT_OUT, MAX_FILES, FileProblemError, checked
from schemas.lifecycle import SummaryOptions

PAGE_BYTES = 15 * 1024
PAGE_LINES = 500
MAX_CONTENT = 512 * 1024
"""Bytes of a file that an agent writes: arguments travel in one slice of events."""

MAX_LISTED = 1000
"""Files in one listing."""

SUMMARIES = (
    SummaryOptions(tool="read_file", max_bytes=16_384, keep_first_lines=1000, keep_last_lines=0),
    SummaryOptions(tool="list_files", max_bytes=4096, keep_first_lines=80, keep_last_lines=10),
    SummaryOptions(tool="search", max_bytes=4096, keep_first_lines=60, keep_last_lines=0),
    SummaryOptions(tool="run", max_bytes=4096, keep_first_lines=12, keep_last_lines=40),
    SummaryOptions(tool="*", max_bytes=800),
)
"""How much of each tool's output is kept; pinned in RolloutOpened, so that the agent and the worker agree."""


class Outcome(NamedTuple):
    """The result of a call."""

    output: Any = None
    error_code: str | None = None
    error: str | None = None


def _tool(
    name: str, description: str, required: dict[str, str], optional: dict[str, str] | None = None
) -> dict[str, Any]:
    properties = {key: {"type": "string", "description": meaning} for key, meaning in required.items()}
    properties |= {key: {"type": "integer", "description": meaning} for key, meaning in (optional or {}).items()}
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


DEFINITIONS: tuple[dict[str, Any], ...] = (
    _tool(
        "read_file", "Read a text file, a page at a time.", {"path": "Path relative to the workspace"},
        {"first_line": "Line to begin with, counted from 1", "lines": f"How many lines, at most {PAGE_LINES}"},
    ),
    _tool(
        "write_file", "Create a file, or replace it as a whole.",
        {"path": "Path relative to the workspace", "content": "The whole new content"},
    ),
    _tool(
        "edit_file", "Replace one passage of a file; it must occur exactly once.",
        {"path": "Path relative to the workspace", "old": "The passage as it is now", "new": "As it should be"},
    ),
    _tool("list_files", "List the files below a folder, with their sizes.", {"path": "Folder, . for the workspace"}),
    _tool(
        "search", "Find lines that match an extended regular expression.",
        {"pattern": "The expression", "path": "Folder or file to search in, . for the workspace"},
    ),
    _tool(
        "run", "Run a shell command in the workspace. Nothing that it starts outlives it; there is no network.",
        {"command": "The command line"}, {"timeout_s": "Seconds it may take; 60 unless told"},
    ),
)  # fmt: skip
"""As offered to a model and recorded in RolloutOpened."""


class Tools:
    """The tools on one sandbox."""

    def __init__(self, sandbox: Sandbox, limits: Limits) -> None:
        self._sandbox = sandbox
        self._limits = limits

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Outcome:
        """Run a call of the model. A bad argument is an error for the model to read; SandboxError is raised."""
        tool = _TOOLS.get(name)
        if tool is None:
            return Outcome(error_code="unknown_tool", error=f"no tool {name}; there are {', '.join(_TOOLS)}")
        try:
            return Outcome(await tool(self, arguments))
        except FileProblemError as error:
            return Outcome(error_code=error.code, error=str(error))

    async def _read_file(self, arguments: Mapping[str, Any]) -> Any:
        path, first = _text(arguments, "path"), max(1, _whole(arguments, "first_line", 1))
        text = _decoded(path, await self._sandbox.read(path))
        lines = text.splitlines(keepends=True)
        shown: list[str] = []
        size = 0
        for line in lines[first - 1 : first - 1 + min(max(1, _whole(arguments, "lines", PAGE_LINES)), PAGE_LINES)]:
            size += byte_length(line)
            if size > PAGE_BYTES:
                break
            shown.append(line)
        if first > len(lines) > 0:
            raise FileProblemError("no_such_line", f"{path} has {len(lines)} lines")
        if lines and not shown:
            return f"{lines[first - 1][: PAGE_BYTES // 4]}[...line {first} is longer than a page...]"
        last = first - 1 + len(shown)
        if last == len(lines):
            return "".join(shown)
        page = "".join(shown)
        return f"{page}[lines {first} to {last} of {len(lines)}; go on with first_line={last + 1}]"

    async def _write_file(self, arguments: Mapping[str, Any]) -> Any:
        path, content = _text(arguments, "path"), _text(arguments, "content").encode()
        if len(content) > MAX_CONTENT:
            raise FileProblemError(
                "too_large", f"{len(content)} bytes; a file that is written at once may have {MAX_CONTENT}"
            )
        await self._sandbox.write(path, content)
        return {"ok": True, "bytes": len(content)}

    async def _edit_file(self, arguments: Mapping[str, Any]) -> Any:
        path, old, new = (_text(arguments, name) for name in ("path", "old", "new"))
        text = _decoded(path, await self._sandbox.read(path))
        found = text.count(old) if old else 0
        if found != 1:
            raise FileProblemError(
                "no_match", f"the passage occurs {found} times in {path}; it must occur exactly once"
            )
        changed = text.replace(old, new).encode()
        await self._sandbox.write(path, changed)
        return {"ok": True, "bytes": len(changed)}

    async def _list_files(self, arguments: Mapping[str, Any]) -> Any:
        files = await self._sandbox.files(_text(arguments, "path", "."))
        shown = [f"{path} ({len(file.content)} bytes)" for path, file in list(files.items())[:MAX_LISTED]]
        more = [f"[{len(files) - MAX_LISTED} more: list a folder]"] if len(files) > MAX_LISTED else []
        return "\n".join([*shown, *more]) or "no files"

    async def _search(self, arguments: Mapping[str, Any]) -> Any:
        left_out = [f"--exclude-dir={name}" for name in sorted(LEFT_OUT)]
        command = [
            "grep",
            "-HrnIE",
            *left_out,
            "-e",
            _text(arguments, "pattern"),
            "--",
            checked(_text(arguments, "path", ".")),
        ]
        done = await self._sandbox.run(command, self._limits._replace(timeout_s=20.0))
        if done.exit_code == 0:
            return "\n".join(sorted(done.stdout.text.splitlines()[:MAX_FILES]))
        if done.exit_code == 1:
            return "no matches"
        raise FileProblemError("bad_search", done.stderr.text.strip()[:300] or "the search took too long")

    async def _run(self, arguments: Mapping[str, Any]) -> Any:
        timeout = min(max(1, _whole(arguments, "timeout_s", 60)), self._limits.timeout_s)
        limits = self._limits._replace(timeout_s=float(timeout))
        return command_output(await self._sandbox.run(["sh", "-c", _text(arguments, "command")], limits), timeout)


_TOOLS: dict[str, Callable[[Tools, Mapping[str, Any]], Awaitable[Any]]] = {
    "read_file": Tools._read_file,
    "write_file": Tools._write_file,
    "edit_file": Tools._edit_file,
    "list_files": Tools._list_files,
    "search": Tools._search,
    "run": Tools._run,
}


async def call_tool(tools: Tools, call: ToolCall) -> Outcome:
    """Make a call of a model. Arguments that are no JSON object are an error for it to read."""
    try:
        arguments = call.parsed()
    except ValueError as error:
        return Outcome(error_code="bad_arguments", error=f"the arguments are no JSON object: {error}")
    return await tools.call(call.name, arguments)


def command_output(done: CommandResult, timeout: float) -> str:
    """The output of a command, with its exit code last, so that a cut in the middle keeps it."""
    parts = [done.stdout.text, done.stderr.text]
    parts = [part if part.endswith("\n") or not part else f"{part}\n" for part in parts]
    end = f"[stopped after {timeout:g} s]" if done.ended is Ended.TIMEOUT else f"[exit code {done.exit_code}]"
    return f"{parts[0]}{parts[1]}{end}"


def _text(arguments: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = arguments.get(name, default)
    if not isinstance(value, str):
        raise FileProblemError("bad_arguments", f"{name}: expected a string")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise FileProblemError("bad_arguments", f"{name}: not valid Unicode") from None
    return value


def _whole(arguments: Mapping[str, Any], name: str, default: int) -> int:
    value = arguments.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise FileProblemError("bad_arguments", f"{name}: expected a whole number")
    return value


def _decoded(path: str, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise FileProblemError("not_text", f"{path} is not a text file ({len(content)} bytes)") from None
