"""The reference is that of the code, every page can be reached, and every command, file, setting and link in the docs exists."""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import jsonschema
import pytest
from cyclopts import App

from streams.cli import app
from streams.cluster.broker import places
from streams.log.topics import TOPICS
from streams.views.configuration import unknown_variables
from streams.views.reference.asyncapi import asyncapi
from tests.processes import run_braid
from tests.write_docs import pages

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "clients/python/README.md", *sorted(DOCS.rglob("*.md"))]
READ_BY_OTHERS = {"BRAID_URL", "BRAID_TOKEN", "BRAID_PROXY_URL", "BRAID_PREFX"}
"""Variables of the client, and one that shows what `braid doctor` says about a typo."""

SPECIFICATION = "@asyncapi/specs@6.11.1"


def prose_and_code(page: Path) -> str:
    return page.read_text("utf-8")


def links(page: Path) -> Iterator[tuple[Path, str]]:
    """The files that a page links to, and the places in them."""
    text = re.sub(r"```.*?```", "", prose_and_code(page), flags=re.DOTALL)
    for target in re.findall(r"(?<!\\)\]\(([^)\s]+)\)", text):
        if "://" not in target and not target.startswith("mailto:"):
            path, _, place = target.partition("#")
            yield (page.parent / path).resolve() if path else page, place


def headings(page: Path) -> set[str]:
    """The places of a page, as GitHub names them, and anchors."""
    found = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", prose_and_code(page), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.replace("`", "").lower()).replace(" ", "-") for title in found} | {
        *re.findall(r'<a id="([^"]+)">', prose_and_code(page))
    }


def test_pages_that_are_made_from_the_code_are_as_it_makes_them() -> None:
    for path, text in pages().items():
        assert path.read_text("utf-8") == text, f"{path.name} is older than the code: run `make docs`"


@pytest.mark.parametrize("name", ["configuration", "events", "records"])
def test_the_command_prints_the_page(name: str) -> None:
    assert run_braid("schemas", "page", name).stdout == (DOCS / f"{name}.md").read_text("utf-8")


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, waiting = set[Path](), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached and page.suffix == ".md" and page.exists():
            reached.add(page)
            waiting += [path for path, _ in links(page)]
    assert {*PAGES} <= reached


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for path, place in links(page):
        assert path.exists(), path
        assert not place or path.suffix != ".md" or place in headings(path), f"{path.name}#{place}"


NAMED = re.compile(r"`((?:agents|benchmarks|clients|docs|schemas|streams|tests)/[\w./-]+)`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_is_named_exists(page: Path) -> None:
    missing = {name for name in NAMED.findall(prose_and_code(page)) if not (ROOT / name).exists()}
    assert missing <= ELSEWHERE


ELSEWHERE = {"tests/test.sh", "tests/test_greet.py", "streams/commands/NAME.py", "schemas/compiled.json"}
"""Files of the tasks that the pages show, of a reader's own, and of a build with a compiler."""


def shown_commands(page: Path) -> Iterator[list[str]]:
    """The words of every `braid ...` of a page: in code spans, in blocks, behind `$`."""
    text = prose_and_code(page)
    spans = re.findall(r"`(braid [^`\n]+)`", text)
    lines = re.findall(
        r"(?:^|[|&;(] ?|\$ )\s*((?:\.venv/bin/)?braid [^\n|;&)]+)", "\n".join(code_of(text)), re.MULTILINE
    )
    for found in [*spans, *lines]:
        try:
            yield shlex.split(found.split(" #")[0].split(" > ")[0].removeprefix(".venv/bin/"), comments=False)[1:]
        except ValueError:
            continue  # a quotation that goes on


def code_of(text: str) -> list[str]:
    blocks = re.findall(r"```(?:sh|console)\n(.*?)```", text, re.DOTALL)
    return [*(block.replace("\\\n", " ") for block in blocks), *re.findall(r"^    (\S.*)$", text, re.MULTILINE)]


def options(command: App) -> set[str]:
    """All options of a command."""
    return {name for argument in command.assemble_argument_collection() for name in argument.names} | {
        "--help",
        "--version",
    }


def subcommands(command: App) -> set[str]:
    return {name for name in command if not name.startswith("-")}


def problem(words: list[str]) -> str | None:
    """Why these words are no command; None if they are one."""
    command: App = app
    for at, word in enumerate(words):
        if not re.fullmatch(r"[a-z][a-z-]*", word) or word not in command:
            named = words[:at]
            break
        command = command[word]
    else:
        named = words
    if not named and words and re.fullmatch(r"[a-z][a-z-]*", words[0]):
        return f"there is no command {words[0]}"
    if subcommands(command) and command.default_command is None and len(words) > len(named):
        following = words[len(named)]
        if re.fullmatch(r"[a-z][a-z-]*", following):
            return f"{' '.join(named)} has no command {following}"
    if command.default_command is None:
        return None
    known = options(command)
    unknown = [word for word in words if re.match(r"--[a-z]", word) and word.split("=")[0] not in known]
    return f"{' '.join(named)} has no {unknown[0]}" if unknown else None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_that_is_shown_exists(page: Path) -> None:
    """With its options, in prose as well as in blocks."""
    found = [(words, why) for words in shown_commands(page) if (why := problem(words)) is not None]
    assert found == []


def test_a_command_that_does_not_exist_is_found() -> None:
    assert problem(["exprot", "--format", "x"]) == "there is no command exprot"
    assert problem(["judge", "wroker"]) == "judge has no command wroker"
    assert problem(["export", "--fromat", "x"]) == "export has no --fromat"
    assert problem(["dead-letters", "list", "--json"]) is None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_target_and_variable_that_is_named_exists(page: Path) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    text = prose_and_code(page)
    assert {*re.findall(r"`make ([a-z][a-z-]*)", text)} - {*targets} == set()
    named = dict.fromkeys(re.findall(r"\bBRAID_[A-Z][A-Z_]*[A-Z]\b", text), "")
    assert {each.name for each in unknown_variables(named)} <= READ_BY_OTHERS


def test_the_document_of_the_topics_has_them_all() -> None:
    """Every reference in it leads to something, and every payload is Avro."""
    document = asyncapi()
    assert {*document["channels"]} == {topic.name for topic in TOPICS}
    assert len(document["operations"]) == len(TOPICS)
    references = re.findall(r'"\$ref": "#/([^"]+)"', json.dumps(document))
    for reference in references:
        found: Any = document
        for part in reference.split("/"):
            found = found[part]
    payloads = [
        message["payload"]["schema"] for message in document["components"]["messages"].values() if "payload" in message
    ]
    assert len(payloads) == len(TOPICS) - 1
    for schema in payloads:
        fastavro.parse_schema(json.loads(json.dumps(schema)))
    assert json.loads(run_braid("schemas", "asyncapi").stdout) == document


@pytest.mark.long
def test_the_document_of_the_topics_is_asyncapi() -> None:
    """By the JSON schema of the specification, as npm has it; a wrong document is found."""
    folder = places.cache_dir() / "asyncapi"
    npm = shutil.which("npm")
    assert npm, "needs npm"
    subprocess.run([npm, "install", "--prefix", folder, "--no-audit", "--no-fund", SPECIFICATION], check=True)
    specification = json.loads((folder / "node_modules/@asyncapi/specs/schemas/3.0.0.json").read_bytes())
    validator = jsonschema.validators.validator_for(specification)(specification)
    document = asyncapi()
    assert [*validator.iter_errors(document)] == []
    del document["info"]["title"]
    assert [error.json_path for error in validator.iter_errors(document)] == ["$.info"]
