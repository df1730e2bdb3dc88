"""Prose in code and pages: subject first, by the usual name. Only rules that a program can check; the rest is up to readers."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("agents", "benchmarks", "clients", "docs", "schemas", "streams", "tests")
FOREIGN = ("agents/fork/tasks", "tests/agents/fork/tasks", "tests/agents/hacks/corpus")
"""Start files and tests of tasks: they are written for the agents that get them."""

QUESTION = re.compile(r"\b(What|Who|Whoever|Whatever|Whose)\b")
OPENING = re.compile(rf"{QUESTION.pattern}(?!.*\?$)")
RIDDLE = re.compile(r"\b(somebody|nobody|anybody|everybody|someone|whoever|whosoever)\b", re.IGNORECASE)
SENTENCE_ENDS = re.compile(r"(?<=[.!?:]) ")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


def sentences(text: str) -> Iterator[str]:
    """The sentences of a paragraph, without names in backquotes; a part after a colon counts as one."""
    yield from SENTENCE_ENDS.split(" ".join(CODE.sub("``", text).split()))


def docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every string that stands as a statement: docstrings, and descriptions below constants and fields."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for each in body if isinstance(body, list) else ():
            if (
                isinstance(each, ast.Expr)
                and isinstance(each.value, ast.Constant)
                and isinstance(each.value.value, str)
            ):
                yield each.lineno, each.value.value


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Every comment; one of several lines as a whole."""
    first, last, words = 0, -1, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if token.start[0] != last + 1:
                yield first, " ".join(words)
                first, words = token.start[0], []
            last = token.start[0]
            words.append(token.string.lstrip("# "))
    yield first, " ".join(words)


def paragraphs(path: Path) -> Iterator[tuple[int, str]]:
    """The prose of a file, each piece with its line."""
    source = path.read_text("utf-8")
    if not (QUESTION.search(source) or RIDDLE.search(source)):
        return  # to take all files apart costs four seconds
    if path.suffix == ".py":
        yield from docstrings(ast.parse(source))
        yield from comments(source)
        return
    prose = CODE.sub(lambda found: "\n" * found[0].count("\n") + "``", source)
    for number, line in enumerate(re.sub(r"(?<=[^\n])\n(?=[^\n#|>*-])", "\0", prose).split("\n"), 1):
        if not line.startswith("#"):
            yield number, re.sub(r"^([-|#> ]+|\d+\. )", "", line.replace("\0", " "))


def files() -> Iterator[Path]:
    """Python and pages of ours, by folder and at the top."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            named = path.relative_to(ROOT).as_posix()
            if path.suffix in (".py", ".md") and not named.startswith(FOREIGN) and "__pycache__" not in named:
                yield path
    yield from sorted(ROOT.glob("*.md"))
    yield from sorted(ROOT.glob("*.py"))


def faults(text: str) -> Iterator[str]:
    """Sentences that begin with a riddle, or name no one."""
    for sentence in sentences(text):
        if OPENING.match(sentence) or RIDDLE.search(sentence):
            yield sentence


def test_sentences_begin_with_their_subject_and_name_it() -> None:
    """No sentence begins with What or Who unless it asks, and producers, callers and operators are called by name."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {sentence[:100]}"
        for path in files()
        for line, text in paragraphs(path)
        for sentence in faults(text)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("What is kept of an event. It is small.", ["What is kept of an event."]),
        ("Read it: whoever has it reads it.", ["whoever has it reads it."]),
        ("Which verdict counts? What counts?", []),
        ("The user `nobody` has no rights.", []),
    ],
)
def test_faults_of_prose_are_found(text: str, wrong: list[str]) -> None:
    """The rule finds openings and riddles, and lets questions and names in backquotes pass."""
    assert list(faults(text)) == wrong


def test_a_file_is_named_by_a_noun() -> None:
    """No module is named by what it does while it does it; a few words in -ing are nouns."""
    nouns = {
        "training",
        "ranking",
        "signing",
        "meaning",
        "opening",
        "coding",
        "interleaving",
        "pairing",
        "embedding",
        "judging",
    }
    found = [
        str(path.relative_to(ROOT))
        for folder in ("agents", "schemas", "streams", "benchmarks", "clients")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if (last := path.stem.rpartition("_")[2]).endswith("ing") and last not in nouns
        if not path.relative_to(ROOT).as_posix().startswith(FOREIGN)
    ]
    assert found == []
