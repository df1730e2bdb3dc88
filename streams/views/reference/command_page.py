"""docs/commands.md: every command with its arguments and options, from the command line itself."""

import re

from cyclopts import App

_HEAD = """\
<!-- Generated from the command line: make docs -->

# Commands

`braid COMMAND --help` says the same in a terminal. Commands exit with 0 when all went well, with 1 when something did not, and with
130 on Ctrl-C. Those with `--json` print one JSON object on standard output; progress and complaints go to standard error. Settings
that have no option are in [configuration](configuration.md).
"""


def command_page(app: App) -> str:
    """The page, in Markdown."""
    for name in _names(app):
        if app[name].default_command is not None:
            app[name].help = None  # the list has short texts, the page the docstrings
    made = app.generate_docs(output_format="markdown", recursive=True)
    body = made[made.index("## Table of Contents") :].replace("## Table of Contents\n", "", 1)
    body = re.sub(r"\n {8}(?=\S)", " ", body)  # lines of one description
    body = re.sub(r"^(braid [a-z -]*?) -m \S+", r"\1", body, flags=re.MULTILINE)  # the program that makes this page
    body = re.sub(r"[ \t]+$", "", body, flags=re.MULTILINE)
    return f"{_HEAD}\n{body.strip()}\n"


def _names(app: App) -> list[str]:
    return [name for name in app if not name.startswith("-")]
