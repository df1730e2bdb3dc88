"""Python source for the rules: the syntax tree, the imported names, and the new lines.

Fragments of files, as edits contain them, are parsed if possible. A file that does not parse gives no signal: the
work is broken, and its tests will fail.
"""

import ast
import sys
import textwrap
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from agents.hacks.change import MAX_SOURCE

FRAMEWORKS = frozenset({"pytest", "_pytest", "pluggy", "unittest", "nose", "hypothesis", "doctest"})

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


class Python(NamedTuple):
    """A parsed file."""

    text: str
    tree: ast.Module
    old_lines: frozenset[str]
    """Lines that were there before, without their indentation."""
    imports: dict[str, str]
    """The dotted name behind each local name."""
    is_fragment: bool = False
    """Whether the text is only a part of a file. The surrounding code is then unknown."""

    def is_new(self, node: ast.AST) -> bool:
        """Whether any line of a node is new."""
        if not self.old_lines:
            return True
        first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
        lines = self.text.splitlines()[first - 1 : last]
        return any(line.strip() not in self.old_lines for line in lines)

    def walk(self) -> Iterator[ast.AST]:
        """Yield all new nodes."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.expr | ast.stmt | ast.ExceptHandler) and self.is_new(node):
                yield node

    def dotted(self, node: ast.expr) -> str:
        """Return a name or attribute with its imports resolved, such as pathlib.Path for `p.Path`; "" for anything
        else.
        """
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if isinstance(node, ast.Call):
            called = self.dotted(node.func)
            if called == "getattr" and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
                held = self.dotted(node.args[0])
                return ".".join([held, str(node.args[1].value), *reversed(parts)]) if held else ""
            if called in ("__import__", "importlib.import_module") and node.args:
                first = node.args[0]
                if isinstance(first, ast.Constant) and isinstance(first.value, str):
                    return ".".join([first.value, *reversed(parts)])
            return ".".join([f"{called}()", *reversed(parts)]) if called and parts else ""
        if isinstance(node, ast.Subscript):
            inner = self.dotted(node.value)
            key = node.slice.value if isinstance(node.slice, ast.Constant) else "?"
            if inner == "sys.modules" and isinstance(key, str) and key != "?":
                return ".".join([key, *reversed(parts)])
            return ".".join([f"{inner}[{key!s}]", *reversed(parts)]) if inner else ""
        if not isinstance(node, ast.Name):
            return ""
        return ".".join([self.imports.get(node.id, node.id), *reversed(parts)])

    def functions(self) -> Iterator[FunctionNode]:
        """Yield all functions and methods."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node


@lru_cache(maxsize=256)
def parse_python(text: str, before: str | None = None) -> Python | None:
    """Parse a file or a part of one; None if the text is not Python."""
    if len(text) > MAX_SOURCE or "\0" in text:
        return None
    tree, fragment, kept = _tree(text)
    if tree is None:
        return None
    old = frozenset(line.strip() for line in (before or "").splitlines())
    return Python(kept, tree, old, _imports(tree), fragment)


def _tree(text: str) -> tuple[ast.Module | None, bool, str]:
    """Return the tree of a text, whether it is a fragment, and the text that the line numbers refer to."""
    for kept, fragment in ((text, False), (textwrap.dedent(text), True)):
        try:
            return _parsed(kept), fragment, kept
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    try:  # the text may be the inside of a function and contain a return
        body = "if True:\n" + textwrap.indent(textwrap.dedent(text.strip("\n")), "    ")
        return _parsed(body), True, body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None, True, text


def _parsed(text: str) -> ast.Module:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ignore warnings about escapes in an agent's text
        return ast.parse(text)


def _imports(tree: ast.Module) -> dict[str, str]:
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                found[each.asname or each.name.partition(".")[0]] = (
                    each.name if each.asname else each.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for each in node.names:
                found[each.asname or each.name] = f"{node.module}.{each.name}"
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and len(node.targets) == 1:
            target, call = node.targets[0], node.value
            name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
            loaded = name == "get" and ast.unparse(call.func) == "sys.modules.get"
            if isinstance(target, ast.Name) and (loaded or name in ("__import__", "import_module")) and call.args:
                first = call.args[0]
                if isinstance(first, ast.Constant) and isinstance(first.value, str):
                    found[target.id] = first.value
    for node in tree.body:  # an alias for a module's attribute: stop = os._exit
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            parts, value = list[str](), node.value
            while isinstance(value, ast.Attribute):
                parts.append(value.attr)
                value = value.value
            if parts and isinstance(value, ast.Name) and value.id in found:
                found[node.targets[0].id] = ".".join([found[value.id], *reversed(parts)])
    return found


def is_foreign(dotted: str) -> bool:
    """Whether a dotted name belongs to the standard library, the builtins or a test framework."""
    root = dotted.partition(".")[0]
    return root in sys.stdlib_module_names or root in FRAMEWORKS or root in ("builtins", "__builtins__")


def literal(node: ast.expr) -> object:
    """Return the value of a literal; NOT_LITERAL for anything else."""
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return NOT_LITERAL


NOT_LITERAL = object()


def is_constant_true(node: ast.expr | None) -> bool:
    """Whether an expression is a constant that counts as true."""
    return isinstance(node, ast.Constant) and bool(node.value) and node.value is not Ellipsis


def is_always_true(node: ast.expr | None) -> bool:
    """Whether an expression is true for all values of its names: `x == x`, `len(x) >= 0`, `not False`, `.. or True`."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        left, right = node.left, node.comparators[0]
        if isinstance(node.ops[0], ast.Eq | ast.Is | ast.LtE | ast.GtE) and ast.dump(left) == ast.dump(right):
            return True
        length = isinstance(left, ast.Call) and getattr(left.func, "id", "") == "len"
        return length and isinstance(node.ops[0], ast.GtE) and isinstance(right, ast.Constant) and right.value == 0
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return isinstance(node.operand, ast.Constant) and not node.operand.value
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "bool" and len(node.args) == 1:
        return is_constant_true(node.args[0])
    if isinstance(node, ast.BoolOp):
        parts = [is_always_true(each) for each in node.values]
        denied = {
            ast.dump(each.operand)
            for each in node.values
            if isinstance(each, ast.UnaryOp) and isinstance(each.op, ast.Not)
        }
        either = any(parts) or any(ast.dump(each) in denied for each in node.values)
        return either if isinstance(node.op, ast.Or) else all(parts)
    return is_constant_true(node)


def guards_main(node: ast.stmt) -> bool:
    """Whether a statement is `if __name__ == "__main__"`."""
    return isinstance(node, ast.If) and "__name__" in {
        each.id for each in ast.walk(node.test) if isinstance(each, ast.Name)
    }


MAX_SHOWN = 4000
"""Maximum characters of an expression that rules search. This bounds the cost of their regular expressions."""


def source_of(node: ast.AST) -> str:
    """Return the source of a node in normalised form, truncated."""
    try:
        return ast.unparse(node)[:MAX_SHOWN]
    except RecursionError:
        return ""
