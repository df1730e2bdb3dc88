"""The page about exports says what is there."""

import re
from pathlib import Path

from agents.formats import FORMATS
from tests.agents.formats.rollouts import encoded, mixed
from tests.processes import run_braid

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "export.md").read_text("utf-8")


def test_the_page_lists_every_format() -> None:
    """The table has a line for each format, in the same order."""
    assert re.findall(r"^\| `([a-z-]+)` \|", PAGE, re.MULTILINE) == list(FORMATS)


def test_the_page_says_of_every_format_what_it_carries() -> None:
    """Reasoning, media and arguments, as the formats themselves declare them."""
    (table,) = re.findall(r"^\| format \| reasoning .*?\n\n", PAGE, re.MULTILINE | re.DOTALL)
    told = {}
    for line in table.strip().splitlines()[2:]:
        names, reasoning, media, _, roles, arguments = (cell.strip() for cell in line.strip("|").split("|"))
        for name in names.split(", "):
            told[name] = (reasoning != "no", media != "no", roles == "all", arguments == "text, object")
    speeches = {name: form.speech for name, form in FORMATS.items() if not form.verbatim}
    assert told == {
        name: (speech.reasoning, speech.media, speech.developer, speech.objects) for name, speech in speeches.items()
    }


def test_the_commands_on_the_page_run(tmp_path: Path) -> None:
    """One after the other, in one directory."""
    (tmp_path / "lines.ndjson").write_bytes(encoded(mixed("r1", labels={"team": "search"})))
    (tmp_path / "items.jsonl").write_text(
        '{"id": "q", "question": "what is the airspeed velocity of an unladen swallow"}\n'
    )
    for line in "".join(re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)).splitlines():
        done = run_braid(*line.split()[1:], cwd=tmp_path)
        assert done.returncode == 0, line + done.stderr
    found = {path.parent.name for path in tmp_path.glob("*/manifest.json")}
    assert found == {"conversations", "turns", "trajectories", "traces", "tokens", "sure", "exact", "clean"}
    assert len(list((tmp_path / "trajectories").glob("*/trajectory.json"))) == 3
    assert len(list((tmp_path / "traces").glob("*/session.jsonl"))) == 3


def test_the_example_on_the_page_is_the_file_that_is_tested() -> None:
    """The commands that people copy are the ones that run."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert code == (ROOT / "docs" / "examples" / "dpo_stream.py").read_text("utf-8")
