"""The task that agents get, and the model that plays it: two branches write what was asked for, two do not.

The model calls whichever tool the agent offers. It counts conversations: the first call of each is the next branch.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from starlette.responses import Response

from tests.model_server import Block, Play, Said, refusal, reply, text, thinking, turns_of

TASK = "Make the file hello.txt with the word hello."
PASSES = (True, False, True, False)
"""Which of the four branches do the task."""


def does(folder: Path) -> bool:
    """Whether the task is done in this folder."""
    file = folder / "hello.txt"
    return file.is_file() and file.read_text().strip() == "hello"


def tool_names(body: dict[str, Any]) -> set[str]:
    """The tools that a request offers."""
    return {tool.get("name") or tool.get("function", {}).get("name", "") for tool in body.get("tools", ())}


def writes(body: dict[str, Any], number: int, word: str, path: str = "hello.txt") -> Block:
    """A call that writes a word to a file, by the tool that there is."""
    names = tool_names(body)
    shell = f"echo {word} > {path} && cat {path}"
    if "Bash" in names:
        name, given = "Bash", {"command": shell, "description": "Write the file"}
    elif "exec_command" in names:
        name, given = "exec_command", {"cmd": shell}
    else:
        name, given = "write_file", {"path": path, "content": word}
    return {"type": "tool_use", "id": f"toolu_{number:02}", "name": name, "input": given}


def plain_branch(word: str) -> list[Any]:
    """One call, then an answer."""
    return [lambda body, n: [text("I write it."), writes(body, n, word)], lambda _body, _n: [text(f"Wrote {word}.")]]


def four_branches() -> list[list[Any]]:
    """Thinking and parallel calls; a wrong word after a failing call; a refused first call; no call at all."""
    return [
        [
            lambda body, n: [
                thinking("Two files, then look.", "c2lnbmF0dXJl"),
                text("I write two files."),
                writes(body, n, "hello"),
                writes(body, n + 1, "Grüße", "other.txt"),
            ],
            lambda _body, _n: [thinking("Both are there.", "c2lnbmF0dXJlMg=="), text("hello.txt is there ✓")],
        ],
        [
            lambda body, n: [text("I try."), writes(body, n, "goodbye", "missing/hello.txt")],
            lambda body, n: [writes(body, n, "goodbye")],
            lambda _body, _n: [text("Wrote a word.")],
        ],
        [
            refusal(529, "overloaded_error", retry_after="0"),
            lambda body, n: [text("At once."), writes(body, n, "hello")],
            lambda _body, _n: [text("Done.")],
        ],
        [lambda _body, _n: [text("I think that the file is there already.")]],
    ]


def branches_of(word_by_branch: Sequence[str]) -> list[list[Any]]:
    """A plain branch for each word."""
    return [plain_branch(word) for word in word_by_branch]


def played(branches: Sequence[Sequence[Any]]) -> Play:
    """Play these branches one after another. Calls without tools, such as those for a title, get a short answer."""
    now = {"branch": -1, "step": 0}

    async def play(body: dict[str, Any], number: int) -> Said:
        if not body.get("tools"):
            return reply([text('{"title": "Make a file"}')], usage={"input_tokens": 11, "output_tokens": 3})
        turn = turns_of(body)
        if turn == 0 and not (now["branch"] >= 0 and now["step"] == 1 and _refused(branches[now["branch"]][0])):
            now["branch"] += 1
            now["step"] = 0
        said = branches[now["branch"]][now["step"]]
        now["step"] += 1
        if isinstance(said, Response):
            return said
        blocks = said(body, 10 * number)
        calls = any(block["type"] == "tool_use" for block in blocks)
        used = {"input_tokens": 100 + number, "output_tokens": 20 + number, "cache_read_input_tokens": 5 * turn}
        return reply(blocks, "tool_use" if calls else "end_turn", usage=used)

    return play


def _refused(said: Any) -> bool:
    return isinstance(said, Response)
