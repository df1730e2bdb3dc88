"""Write the pages of the reference, and the tables in other pages, anew from the code: python -m tests.write_docs"""

import re
from pathlib import Path

from streams.cli import app
from streams.views.reference.command_page import command_page
from streams.views.reference.configuration_page import configuration_page
from streams.views.reference.event_page import event_page
from streams.views.reference.record_page import record_page
from streams.views.reference.topic_table import topic_table

DOCS = Path(__file__).parents[1] / "docs"


def pages() -> dict[Path, str]:
    """The text of every page that is made from the code, or holds a table that is."""
    architecture = DOCS / "architecture.md"
    marked = re.compile(r"(<!-- topics: .*? -->\n).*?(<!-- end of topics -->)", re.DOTALL)
    return {
        DOCS / "commands.md": command_page(app),
        DOCS / "configuration.md": configuration_page(),
        DOCS / "events.md": event_page(),
        DOCS / "records.md": record_page(),
        architecture: marked.sub(lambda found: found[1] + topic_table() + found[2], architecture.read_text("utf-8")),
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, "utf-8")
