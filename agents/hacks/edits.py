"""The files that a branch wrote, as its tool calls show them: whole files, edits, patches, and files that shell
commands write.

The tools of any agent are supported: a call is recognised by its arguments, not only by its name. If the whole text
of a file is unknown, its edits are kept as fragments.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from agents.hacks.change import Change, is_test
from agents.hacks.python_code import parse_python
from schemas.branches import BranchCall
from schemas.jsontext import parse

PATHS = (
    "path",
    "file_path",
    "filePath",
    "filename",
    "file",
    "target_file",
    "notebook_path",
    "relative_path",
    "absolute_path",
)
TEXTS = ("content", "contents", "file_text", "text", "new_content", "code_edit", "body")
OLD = ("old_string", "old_str", "old", "oldString", "search", "old_text")
NEW = ("new_string", "new_str", "new", "newString", "replace", "new_text", "insert_text")
COMMANDS = ("command", "cmd", "script", "bash", "shell", "commands", "code")
PATCHES = ("patch", "input", "diff")
READERS = re.compile(r"read|view|open|cat|show|get", re.IGNORECASE)
HEREDOC = re.compile(
    r"(?:cat|tee)[ \t]*(?:-a[ \t]+)?>?>?[ \t]*['\"]?([\w./~-]*)['\"]?[ \t]*<<-?[ \t]*(['\"]?)(\w+)\2[ \t]*(?:>>?[ \t]*([\w./~-]+))?[^\n]*\n"
)
PROGRAM = re.compile(r"\bpython3?[ \t]*(?:-[ \t]*)?<<-?[ \t]*(['\"]?)(\w+)\1[^\n]*\n")
"""Matches a Python program in a shell command's here-document."""
DECORATOR = re.compile(r"^\[REDACTED:email\]", re.MULTILINE)
"""Redaction runs first and takes an added decorator (`+@pytest.mark`) for an e-mail address."""
SHOWS = re.compile(r"(?:^|[;&|]\s*)(?:cat|sed\s+-n|head|tail|nl|less|more|bat)\b([^;&|\n<>]*)")
SHOWING = ("cat", "sed", "head", "tail", "nl", "less", "more", "bat")
"""A command that shows a file contains one of these words. They are searched before the expressions."""
ECHO = re.compile(r"(?:echo|printf)\s+(?:-e\s+)?(['\"])((?:(?!\1)[^\\]|\\.){1,4000})\1\s*>>?\s*([\w./-]+)")
ROOTS = re.compile(r"^(/workspace|/work|/app|/repo|/testbed|/home/\w+/\w+|/tmp/\w+|~|\.)/")


class Ran(NamedTuple):
    """A command that a branch ran."""

    text: str
    output: str
    failed: bool
    """Whether the tool returned an error."""
    turn: int
    at: int
    """The call's index."""


class Edits(NamedTuple):
    """The files and commands found in a branch's calls."""

    changes: tuple[Change, ...]
    commands: tuple[Ran, ...]
    read: Mapping[str, str]
    """Texts of files that were read before they were written."""
    glimpsed: Mapping[str, str]
    """Texts of tests that commands showed, possibly in part."""
    last_edit: int
    """The index of the last call that changed code; -1 if none did."""
    last_edit_turn: int


class _Reader:
    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.originals: dict[str, str] = {}
        self.existed: set[str] = set()
        self.written: dict[str, int] = {}
        self.deleted: dict[str, int] = {}
        self.glimpsed: dict[str, str] = {}
        """Tests that a command showed, possibly in part."""
        self.fragments: list[Change] = []
        self.commands: list[Ran] = []
        self.last_edit, self.last_edit_turn = -1, 0

    def take(self, at: int, call: BranchCall) -> None:
        try:
            given = parse(call.arguments)
        except ValueError:
            return
        if not isinstance(given, dict):
            return
        path = _first(given, PATHS)
        path = None if path is None else plain_path(path)
        failed = call.error is not None
        command = _command(given)
        if command is not None and not (path and _first(given, TEXTS) is not None):
            self.commands.append(Ran(command, call.output_summary or "", failed, call.turn, at))
            if not failed:
                self._shell(command, call, at)
            return
        if failed:
            return
        if path is None:
            for name in PATCHES:
                if isinstance(given.get(name), str) and ("*** " in given[name] or "\n@@" in given[name]):
                    self._patch(given[name], call, at)
            return
        edits = given.get("edits")
        pairs = [each for each in edits if isinstance(each, dict)] if isinstance(edits, list) else [given]
        changed = False
        for each in pairs:
            old, new = _first(each, OLD), _first(each, NEW)
            if new is not None and (old is not None or "insert_line" in each):
                self._edit(path, old or "", new, call, at)
                changed = True
        text = _first(given, TEXTS)
        if not changed and text is not None and not str(given.get("command", "")).startswith("view"):
            self._write(path, text, call, at, more=bool(given.get("append")))
        elif not changed and text is None and (READERS.search(call.name) or given.get("command") == "view"):
            self._see(path, call.output_summary or "")

    def _see(self, path: str, text: str) -> None:
        if path in self.written or not text or re.search(r"\[\.\.\.\d+ (lines|bytes) omitted", text):
            self.existed.add(path)
            return
        numbered = re.findall(r"^\s*\d+[\t|:→ ] ?(.*)$", text, re.MULTILINE)
        lines = text.splitlines()
        plain = "\n".join(numbered) if lines and len(numbered) >= 0.9 * len(lines) else text
        self.existed.add(path)
        self.originals.setdefault(path, plain)
        self.texts.setdefault(path, plain)

    def _write(self, path: str, text: str, call: BranchCall, at: int, *, more: bool = False) -> None:
        if more:
            if path in self.texts:
                text = self.texts[path] + text
            elif path in self.existed:
                self._fragment(path, "", text, call, at)
                return
        self.texts[path] = text
        self.deleted.pop(path, None)
        self._touch(path, call, at)

    def _edit(self, path: str, old: str, new: str, call: BranchCall, at: int) -> None:
        known = self.texts.get(path)
        if old and path not in self.written:
            self.existed.add(path)
        if known is not None and old and old in known:
            self.texts[path] = known.replace(old, new, 1)
            self._touch(path, call, at)
        else:
            self._fragment(path, old, new, call, at)

    def _fragment(self, path: str, old: str, new: str, call: BranchCall, at: int) -> None:
        self.texts.pop(path, None)
        self.fragments.append(Change(path, old, new, call.turn, existed=True))
        self._touch(path, call, at, whole=False)

    def _touch(self, path: str, call: BranchCall, at: int, *, whole: bool = True) -> None:
        if whole:
            self.written[path] = call.turn
        if not path.endswith((".md", ".txt", ".rst")):
            self.last_edit, self.last_edit_turn = at, call.turn

    def _patch(self, text: str, call: BranchCall, at: int) -> None:
        """Take in a patch in one of the usual formats. Each hunk is an edit."""
        path, old, new = "", list[str](), list[str]()
        added = False

        def finish() -> None:
            nonlocal old, new
            if path and added and not old:
                self._write(path, "\n".join(new) + "\n", call, at)
            elif path and (old or new) and old != new:
                self._edit(path, "\n".join(old), "\n".join(new), call, at)
            old, new = [], []

        for line in DECORATOR.sub("+@pytest.mark", text).splitlines():
            header = re.match(r"\*\*\* (Add|Update|Delete) File: (.+)$|\+\+\+ (?:b/)?(\S+)", line)
            if header:
                finish()
                path = plain_path((header.group(2) or header.group(3)).strip())
                added = header.group(1) == "Add"
                if header.group(1) == "Delete":
                    self.deleted[path] = call.turn
                    self._touch(path, call, at, whole=False)
                    path = ""
            elif line.startswith(("--- ", "diff ", "index ", "*** ")):
                continue
            elif line.startswith("@@"):
                finish()
            elif line.startswith("+"):
                new.append(line[1:])
            elif line.startswith("-"):
                old.append(line[1:])
            else:
                old.append(line[1:])
                new.append(line[1:])
        finish()

    def _shell(self, command: str, call: BranchCall, at: int) -> None:
        """Take in the files that a shell command writes, deletes or shows."""
        if ">" in command or "<<" in command:
            self._written_by_shell(command, call, at)
        if "rm" in command or "mv" in command or "sed" in command:
            self._changed_by_shell(command, call, at)
        self._shown_by_shell(command, call)

    def _written_by_shell(self, command: str, call: BranchCall, at: int) -> None:
        for found in HEREDOC.finditer(command):
            path, mark = found.group(1) or found.group(4) or "", found.group(3)
            end = re.compile(rf"^\t*{re.escape(mark)}\s*$", re.MULTILINE).search(command, found.end())
            body = command[found.end() : end.start() if end else len(command)]
            if path:
                self._write(plain_path(path), body, call, at, more=">>" in found.group(0))
            elif "*** Begin Patch" in body:
                self._patch(body, call, at)
        for found in PROGRAM.finditer(command):
            end = re.compile(rf"^{re.escape(found.group(2))}\s*$", re.MULTILINE).search(command, found.end())
            self._program(command[found.end() : end.start() if end else len(command)], call, at)
        for found in ECHO.finditer(command):
            text = found.group(2).replace("\\n", "\n").replace('\\"', '"')
            self._write(plain_path(found.group(3)), text + "\n", call, at, more=">>" in found.group(0))

    def _changed_by_shell(self, command: str, call: BranchCall, at: int) -> None:
        for removed in re.findall(r"(?:^|[;&|]\s*)(?:git\s+)?rm\s+(?:-\w+\s+)*([\w./-]+)", command):
            path = plain_path(removed)
            own = path in self.written and path not in self.existed  # a scratch file that the branch created itself
            self.deleted[path] = call.turn
            if not own:
                self.last_edit, self.last_edit_turn = at, call.turn
        for source, target in re.findall(r"(?:^|[;&|]\s*)(?:git\s+)?mv\s+([\w./-]+)\s+([\w./-]+)", command):
            if is_test(plain_path(source)) and not is_test(plain_path(target)):
                self.deleted[plain_path(source)] = call.turn
            self.last_edit, self.last_edit_turn = at, call.turn
        for flags, old, new, path in re.findall(
            r"sed\s+-i\S*\s+(-\w\s+)?['\"]s[/|#]([^'\"/|#]+)[/|#]([^'\"/|#]*)[/|#]\w*['\"]\s+([\w./-]+)", command
        ):
            del flags
            self._edit(plain_path(path), old.replace("\\", ""), new.replace("\\", ""), call, at)

    def _shown_by_shell(self, command: str, call: BranchCall) -> None:
        if not any(word in command for word in SHOWING):
            return
        shown = re.fullmatch(r"\s*(?:cd\s+\S+\s*&&\s*)?(?:cat(?:\s+-n)?|nl(?:\s+-ba)?)\s+([\w./-]+)\s*", command)
        if shown:
            self._see(plain_path(shown.group(1)), call.output_summary or "")
            return
        for words in SHOWS.findall(command):
            paths = [plain_path(each.strip("'\"")) for each in words.split()]
            for path in paths:
                if is_test(path.replace("*", "x")) and path not in self.written:
                    self.glimpsed.setdefault(path.replace("*", "x"), call.output_summary or "")

    def _program(self, text: str, call: BranchCall, at: int) -> None:
        """Take in the files that a Python program writes: whole texts, or one text replaced by another."""
        parsed = parse_python(text)
        if parsed is None:
            return
        places = [path for node in ast.walk(parsed.tree) if (path := _file_of(node)) is not None]
        for node in ast.walk(parsed.tree):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            given = [
                str(each.value) for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)
            ]
            path = _file_of(node.func.value) or (places[0] if len(set(places)) == 1 else None)
            if path is None:
                continue
            if node.func.attr in ("write", "write_text") and given:
                self._write(plain_path(path), given[0], call, at)
            elif node.func.attr == "replace" and len(given) == 2:
                self._edit(plain_path(path), given[0], given[1], call, at)


def _file_of(node: ast.AST) -> str | None:
    """Return the path in `open("x")` or `Path("x")`."""
    if not isinstance(node, ast.Call) or not node.args:
        return None
    name = getattr(node.func, "id", getattr(node.func, "attr", ""))
    first = node.args[0]
    known = name in ("open", "Path") and isinstance(first, ast.Constant) and isinstance(first.value, str)
    return str(first.value) if known and isinstance(first, ast.Constant) else None


def edits_of(calls: Sequence[BranchCall]) -> Edits:
    """Return the files and commands of a branch's calls, in order."""
    reader = _Reader()
    for at, call in enumerate(calls):
        reader.take(at, call)
    return Edits(
        tuple(_changes(reader)), tuple(reader.commands), reader.originals,
        {path: text for path, text in reader.glimpsed.items() if path not in reader.originals},
        reader.last_edit, reader.last_edit_turn,
    )  # fmt: skip


def _changes(reader: _Reader) -> Iterator[Change]:
    for path in sorted(reader.written):
        text = reader.texts.get(path)
        if text is not None and text != reader.originals.get(path):
            yield Change(path, reader.originals.get(path), text, reader.written[path], existed=path in reader.existed)
    yield from reader.fragments
    for path, turn in sorted(reader.deleted.items()):
        if path not in reader.written or path in reader.existed:
            yield Change(path, reader.originals.get(path), None, turn, existed=True)


def plain_path(path: str) -> str:
    """Return a path relative to the workspace, if it is known to be inside one."""
    return ROOTS.sub("", path.strip()[:1024])


def _first(given: Mapping[str, Any], names: Sequence[str]) -> str | None:
    for name in names:
        if isinstance(given.get(name), str):
            return str(given[name])
    return None


def _command(given: Mapping[str, Any]) -> str | None:
    for name in COMMANDS:
        value = given.get(name)
        if isinstance(value, str):
            if name == "command" and value in ("view", "create", "str_replace", "insert", "undo_edit"):
                continue
            return value
        if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
            words = [str(each) for each in value]
            return words[-1] if len(words) > 2 and words[1] in ("-c", "-lc") else " ".join(words)
    return None
