"""BFCL, the Berkeley Function-Calling Leaderboard: result files, and score files that list failed entries."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from agents.importers.line_error import LineError
from agents.importers.traces.content import Content
from agents.importers.traces.episode_reader import guarded, members
from agents.importers.traces.fields import an_object, array_in, as_text, object_in, rest_of, text_in, whole_in
from agents.importers.traces.format import Bad, Episode, FileUse, Format, Head, Item, Options, Part, Reading
from agents.importers.traces.transcript_writer import Called, TranscriptWriter, Turn
from agents.importers.traces.usage import Usage
from agents.importers.traces.verdicts import check
from schemas.jsontext import kind_of, parse

NAME = "bfcl"
_RESULT = re.compile(r"(BFCL_v\d+_.+)_result\.json(?:\.gz|\.zst)?")
_GROUPS = ("live", "non_live", "multi_turn", "agentic", "memory", "web_search", "format_sensitivity")
"""Folders of categories. The folder above them has the model's name."""


def recognise(names: Sequence[str], head: Head) -> bool:
    """Files named BFCL_v*_<category>_result.json with lines {id, result}."""
    return any(_category(name) is not None and {"id", "result"} <= members(head(name)).keys() for name in names)


def _category(name: str) -> str | None:
    found = _RESULT.fullmatch(name.rsplit("/", 1)[-1])
    return found[1] if found is not None else None


def plan(names: Sequence[str], _head: Head) -> list[Part]:
    """Plan each result file after its score file.

    A score file lists only failures, so the result rows are counted first.
    """
    parts = []
    for name in names:
        category = _category(name)
        if category is None:
            continue
        score = name.replace("result/", "score/", 1).replace("_result.json", "_score.json")
        scores = (FileUse(score), FileUse(name, "count")) if score in names and score != name else ()
        parts.append(Part(category, (*scores, FileUse(name))))
    return parts


class _Score:
    """The entries of the score file."""

    def __init__(self) -> None:
        self.total: int | None = None
        self.rows: int | None = None
        self.failed: dict[str, dict[str, Any]] = {}
        """The reason and the question of each failed entry, by id."""

    def note(self, value: Any) -> None:
        """Read a line of the file: the header or a failed entry."""
        if not isinstance(value, dict):
            return
        name = value.get("id")
        if name is None:
            self.total = whole_in(value, "total_count")
        elif value.get("valid") is not True:
            self.failed[as_text(name)] = rest_of(
                value, "id", "model_result_raw", "model_result_decoded", "inference_log", "possible_answer"
            )

    def verdicts(self, name: str) -> list[dict[str, Any]]:
        """Return the check of an entry. An unlisted entry passed if all rows were scored."""
        if self.total is None and not self.failed:
            return []
        failure = self.failed.get(name)
        if failure is not None:
            why = failure.get("error_type") or object_in(failure, "error").get("error_type") or failure.get("error")
            return [check(NAME, NAME, "fail", 0, hint=as_text(why)[:1000] if why else None)]
        whole = self.total is not None and self.total == self.rows
        return [check(NAME, NAME, "pass", 1)] if whole else [check(NAME, NAME, "unknown")]


def read(items: Iterable[Item], options: Options) -> Reading:
    """Read the episodes of a result file."""
    score = _Score()
    for item in items:
        if item.file.endswith("_score.json"):
            score.note(item.value)
        elif item.position == "count":
            score.rows = item.value
        else:
            yield from guarded(item, _read(item, score, options))


def _read(item: Item, score: _Score, options: Options) -> Iterator[Episode | Bad]:
    row = an_object(item.value, "")
    if row.get("id") is None:
        raise LineError("id", "missing")
    if "result" not in row:
        raise LineError("result", "missing")
    name, result, writer = as_text(row["id"]), row["result"], TranscriptWriter()
    trouble = isinstance(result, str) and result.startswith("Error during inference")
    turns = [
        each for each in array_in(row, "inference_log") if isinstance(each, dict) and "begin_of_turn_query" in each
    ]
    system = None if trouble else _tell(writer, row, turns)
    stopped = not trouble and _was_stopped(turns)
    status = "infra_error" if trouble else "failed" if stopped else "answered"
    failure = score.failed.get(name)
    model = _model(item.file)
    yield Episode(
        file=item.file, position=item.position, run=item.run, task_key=row["id"], trial=model, record=row,
        source=rest_of(row, "id", "result", "inference_log", "input_token_count", "output_token_count", "reasoning_content")
        | ({"states": states} if (states := _states(row)) else {}) | ({"score": failure} if failure else {}),
        info={"agent": {"model": model}} if model else {}, system=system,
        events=writer.finish(answers=status == "answered", task=options.tasks.get(name) or _question(failure)),
        status=status, error=result if trouble else "the model was stopped after too many steps" if stopped else None,
        verdicts=() if trouble else score.verdicts(name),
    )  # fmt: skip


def _model(file: str) -> str | None:
    """Return the model's folder: the one below `result`, else the one above the category groups."""
    *folders, _ = file.split("/")
    if "result" in folders[:-1]:
        return folders[folders.index("result") + 1]
    own = [folder for folder in folders if folder not in (*_GROUPS, "result")]
    return own[-1] if own else None


# -- the conversation --------------------------------------------------------------------------------------------------


def _tell(writer: TranscriptWriter, row: Mapping[str, Any], turns: Sequence[Mapping[str, Any]]) -> str | None:
    """Write the turns of a row and return the system prompt.

    Models without function calling have it in their first turn.
    """
    result, system = row["result"], None
    if not _has_turns(result):
        writer.model(_turn(result, row, ()))
        return None
    for number, steps in enumerate(result):
        log = turns[number] if number < len(turns) else {}
        for message in _messages(log.get("begin_of_turn_query")):
            text = as_text(message.get("content") or "")
            if message.get("role") == "system" and system is None and not writer.turns:
                system = text
            else:
                read = ("content",) if message.get("role") != "user" else ("role", "content")
                writer.user(text, source=rest_of(message, *read))
        for step, response in enumerate(steps if isinstance(steps, list) else [steps]):
            told = _messages(log.get(f"step_{step}"))
            writer.model(_turn(response, row, (number, step), _decoded(response, told)))
            ran = [message for message in told if message.get("role") == "tool"]
            for place, message in enumerate(ran):  # results have the order of this step's calls only
                output = message.get("content")
                source = rest_of(message, "role", "content")
                writer.result(_call_id((number, step), place), None, output, _error(output), source=source)
    return system


def _has_turns(result: Any) -> bool:
    """Return whether a result is a list of turns with steps. Otherwise it is one response."""
    return isinstance(result, list) and bool(result) and all(isinstance(each, list) for each in result)


def _messages(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _turn(
    response: Any, row: Mapping[str, Any], place: tuple[int, ...], source: Mapping[str, Any] | None = None
) -> Turn:
    """Write one response: calls as {name: arguments}, or a text.

    If the model has no function calling, calls in its text stay text.
    """
    usage = Usage(
        whole_in({"": _at(row.get("input_token_count"), place)}, ""),
        whole_in({"": _at(row.get("output_token_count"), place)}, ""),
    )
    thought = _at(row.get("reasoning_content"), place)
    reasoning = ((thought, None),) if isinstance(thought, str) and thought else ()
    if isinstance(response, list):
        asked = [each for call in response if isinstance(call, dict) for each in call.items()]
        calls = [Called(name, value, _call_id(place, number)) for number, (name, value) in enumerate(asked)]
        texts = [each for each in response if isinstance(each, str)]
        if len(texts) + sum(isinstance(each, dict) for each in response) < len(response):
            raise LineError("result", "expected {name: arguments} or texts")
        return Turn(Content("\n".join(texts) or None, reasoning), calls, usage=usage, source=source)
    if response is not None and not isinstance(response, str):
        raise LineError("result", f"expected calls or a text, found {kind_of(response)}")
    return Turn(Content(response, reasoning), usage=usage, source=source)


def _call_id(place: tuple[int, ...], number: int) -> str:
    """Return an id for a call from its position, because the files have no ids."""
    return "_".join(["call", *map(str, place), str(number)])


def _at(value: Any, place: tuple[int, ...]) -> Any:
    """Return the value for a turn and step. A row with a single value has it for all."""
    for index in place:
        if not isinstance(value, list):
            break
        value = value[index] if index < len(value) else None
    return value


def _decoded(response: Any, told: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the calls that the handler parsed from a text."""
    found = [each["model_response_decoded"] for each in told if "model_response_decoded" in each]
    return {"model_response_decoded": found[0]} if found and isinstance(response, str) else {}


def _error(output: Any) -> dict[str, str] | None:
    """Return the error of an execution: the environment's text, or a JSON object with `error`."""
    if isinstance(output, str) and output.startswith("Error during execution"):
        return {"message": output}
    if isinstance(output, str) and output.startswith("{"):
        try:
            output = parse(output)
        except ValueError:
            return None
    error = output.get("error") if isinstance(output, dict) else None
    return {"message": as_text(error)} if error else None


def _was_stopped(turns: Sequence[Mapping[str, Any]]) -> bool:
    logs = (message for turn in turns for step in turn.values() for message in _messages(step))
    return any(
        each.get("role") == "handler_log" and "forced to quit" in as_text(each.get("content") or "") for each in logs
    )


def _states(row: Mapping[str, Any]) -> list[Any]:
    """Return the log entries that are not turns: environment states and inputs of single turns."""
    log = row.get("inference_log")
    entries = log if isinstance(log, list) else [log] if log else []
    return [each for each in entries if not (isinstance(each, dict) and "begin_of_turn_query" in each)]


def _question(failure: Mapping[str, Any] | None) -> str | None:
    """Return the question of a failed entry: the last user message of its first turn."""
    turns = array_in(object_in(failure or {}, "prompt"), "question")
    said = [each for each in _messages(turns[0] if turns else None) if each.get("role") == "user"]
    return text_in(said[-1], "content") if said else None


FORMAT = Format(
    name=NAME,
    about="results of the Berkeley Function-Calling Leaderboard: result/<model>/**/BFCL_v*_result.json, score/ beside",
    rollout="id / model",
    verdict="check bfcl, from the score file",
    unknown="questions of single-turn categories (--tasks); results of their calls, which were never run",
    recognise=recognise,
    plan=plan,
    read=read,
)
