"""MCP-Atlas: tasks from a column, a file beside or `--tasks`; rows that are the harness's failure; tables with bad rows."""

import csv
from pathlib import Path

import orjson
import pytest

from agents.importers.traces.format import Options
from tests.conformance import conformance
from tests.imports.importing import Read, read_traces

SAMPLES = ("imports", "mcp-atlas")


def table(folder: Path, *rows: dict[str, str], name: str = "outputs.csv") -> Path:
    """A table of these rows."""
    with (folder / name).open("w", newline="") as file:
        writer = csv.DictWriter(file, ("task_id", "raw_conversation_history", "response", "coverage_score"), restval="")
        writer.writeheader()
        writer.writerows(rows)
    return folder / name


def said(*messages: dict[str, object]) -> str:
    """A history."""
    return orjson.dumps(messages).decode()


ANSWER = {"role": "assistant", "content": "4 degrees"}


def tasks(found: Read) -> list[str | None]:
    """The tasks as the model saw them."""
    return [each.get("task") for each in found.events("run_start")]


def test_the_task_is_unknown_without_a_column() -> None:
    """The history has no user message; `--tasks` says it."""
    outputs = conformance(*SAMPLES, "outputs.csv")
    assert tasks(read_traces("auto", outputs)) == [None, None, None]
    given = read_traces("auto", outputs, options=Options(tasks={"weather-2": "Weather, please."}))
    assert tasks(given) == [None, "Weather, please.", None]


def test_a_folder_is_read_once() -> None:
    """The table with scores repeats the one without; the settings beside it say the model."""
    found = read_traces("auto", conformance(*SAMPLES))
    assert (found.found.branches, found.found.plain(0)["pass"]) == (3, 1)
    assert {line["agent"]["model"] for line in found.of("event") if "agent" in line} == {"openai/gpt-4.1"}


@pytest.mark.parametrize(
    ("score", "status"), [("1.0", "pass"), ("0.75", "pass"), ("0.5", "fail"), ("nan", None), ("", None)]
)
def test_claims_pass_from_three_quarters_on(tmp_path: Path, score: str, status: str | None) -> None:
    """A row without a score has no verdict."""
    row = {"task_id": "t", "raw_conversation_history": said(ANSWER), "response": "4 degrees", "coverage_score": score}
    assert [line["status"] for line in read_traces("auto", table(tmp_path, row)).of("check")] == (
        [status] if status else []
    )


def test_a_run_that_the_harness_broke_off_has_no_verdict(tmp_path: Path) -> None:
    """Its calls are kept; its zero is not."""
    history = said(
        {"role": "assistant", "content": "I look.", "tool_calls": [{"id": "c", "function": {"name": "look"}}]}
    )
    row = {"task_id": "t", "raw_conversation_history": history, "response": "ERROR: timeout", "coverage_score": "0"}
    found = read_traces("auto", table(tmp_path, row))
    assert [line["status"] for line in found.of("end")] == ["infra_error"]
    assert (len(found.events("tool_call")), found.of("check")) == (1, [])


def test_a_model_may_answer_with_the_word_error(tmp_path: Path) -> None:
    """It is the last message of the history then."""
    own = {"role": "assistant", "content": "ERROR: this is what the log says."}
    row = {"task_id": "t", "raw_conversation_history": said(own), "response": str(own["content"])}
    assert [line["status"] for line in read_traces("auto", table(tmp_path, row)).of("end")] == ["answered"]


def test_bad_rows_leave_their_neighbours(tmp_path: Path) -> None:
    """A history that is no JSON, bytes that are no UTF-8, a quote in the middle: each is rejected with its line."""
    good = {"task_id": "t", "raw_conversation_history": said(ANSWER), "response": "4 degrees"}
    place = table(tmp_path, good | {"raw_conversation_history": "[{"}, good)
    with place.open("ab") as file:
        file.write(b'u,"[]",\xff\xfe,\r\nv,"a"b,c,\r\nw,"[{""role"":""assistant"",""content"":""ok""}]",ok,\r\n')
    found = read_traces("auto", place)
    assert found.found.branches == 2
    assert [text.partition(": ")[2].split(":")[0] for text in found.rejected.first] == ["line 2", "line 4", "line 5"]
