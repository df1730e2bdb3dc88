"""JavaScript and TypeScript source for the rules: the syntax tree (by tree-sitter) and the new lines."""

from collections.abc import Iterator
from functools import cache, lru_cache
from typing import NamedTuple

import tree_sitter_javascript
import tree_sitter_typescript
from tree_sitter import Language, Node, Parser

from agents.hacks.change import MAX_SOURCE

TESTS = frozenset({"test", "it", "specify"})
GROUPS = frozenset({"describe", "suite", "context"})


class Script(NamedTuple):
    """A parsed file."""

    text: str
    source: bytes
    root: Node
    old_lines: frozenset[str]

    def is_new(self, node: Node) -> bool:
        """Whether any line of a node is new."""
        if not self.old_lines:
            return True
        lines = self.text.splitlines()[node.start_point[0] : node.end_point[0] + 1]
        return any(line.strip() not in self.old_lines for line in lines)

    def walk(self, root: Node | None = None) -> Iterator[Node]:
        """Yield all named nodes, in the order of the text."""
        stack = [self.root if root is None else root]
        while stack:
            node = stack.pop()
            yield node
            stack += reversed(node.named_children)

    def new(self) -> Iterator[Node]:
        """Yield all new named nodes."""
        return (node for node in self.walk() if self.is_new(node))

    def of(self, node: Node | None) -> str:
        """Return a node's text, without spaces around dots."""
        return "" if node is None else self.source[node.start_byte : node.end_byte].decode(errors="replace")

    def line(self, node: Node) -> int:
        """Return the line where a node begins, counted from 1."""
        return int(node.start_point[0]) + 1

    def called(self, node: Node) -> str:
        """Return the name that a call calls, such as `assert.equal`; "" if the node is not a call."""
        return self.of(node.child_by_field_name("function")) if node.type == "call_expression" else ""

    def arguments(self, node: Node) -> list[Node]:
        """Return the arguments of a call."""
        held = node.child_by_field_name("arguments")
        return [] if held is None else [each for each in held.named_children if each.type != "comment"]

    def cases(self) -> dict[str, Node]:
        """Return the test cases by title, each with the call that declares it. Skipped cases are left out."""
        found: dict[str, Node] = {}
        for node in self.walk():
            name, given = self.called(node), None
            if name.partition(".")[0] in TESTS and ".skip" not in name and ".todo" not in name:
                given = self.arguments(node)
            if given and given[0].type in ("string", "template_string"):
                found[self.of(given[0])[1:-1]] = node
        return found

    def asserts(self, node: Node) -> list[str]:
        """Return the text of every assertion below a node, without spaces."""
        found = []
        for each in self.walk(node):
            name = self.called(each)
            if name.startswith(("assert", "expect", "t.assert", "should")) and not _is_called_on(each):
                found.append("".join(self.of(each).split()))
        return found


def _is_called_on(node: Node) -> bool:
    """Whether a call is the beginning of a longer one, as `expect(x)` in `expect(x).toBe(y)`."""
    parent = node.parent
    return parent is not None and parent.type == "member_expression"


@cache
def _language(kind: str) -> Language:
    if kind == "ts":
        return Language(tree_sitter_typescript.language_typescript())
    return Language(tree_sitter_typescript.language_tsx() if kind == "tsx" else tree_sitter_javascript.language())


@lru_cache(maxsize=128)
def parse_script(path: str, text: str, before: str | None = None) -> Script | None:
    """Parse a file or a part of one; None if the text is too long."""
    if len(text) > MAX_SOURCE:
        return None
    ending = path.rpartition(".")[2]
    kind = "tsx" if ending == "tsx" else "ts" if ending in ("ts", "mts", "cts") else "js"
    source = text.encode()
    old = frozenset(line.strip() for line in (before or "").splitlines())
    return Script(text, source, Parser(_language(kind)).parse(source).root_node, old)
