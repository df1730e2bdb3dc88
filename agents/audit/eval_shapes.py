"""Readers of evaluation logs: lm-eval samples, Inspect logs, the results of a script, plain lines.

Shapes are recognised by content. An invalid row is kept with its position, and reading goes on. Rows of two
filters of one log are never mixed.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from agents.audit.eval_row import BadRow, EvalLog, EvalRow
from agents.importers.line_error import LineError
from agents.importers.traces.fields import an_object, array_in, as_text, number_in, object_in, text_in, whole_in

GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
"""Inspect's grades by letter."""

META = ("max_new_tokens", "temperature", "top_p", "top_k", "do_sample", "num_beams", "repetition_penalty", "seed", "prompt", "system",
        "num_fewshot", "stop", "quantization", "dtype")  # fmt: skip
"""Members of a script's `meta` that record how it asked."""

NOT_GENERATION = frozenset({
    "max_connections", "max_retries", "timeout", "attempt_timeout", "adaptive_connections", "cache", "batch", "max_samples"
})  # fmt: skip
"""Members of an Inspect configuration that concern how requests are sent, not how answers are generated."""

LIMITS = ("message_limit", "token_limit", "time_limit", "working_limit", "cost_limit", "turn_limit")
"""Members of an Inspect log's own configuration that end a sample early."""

LARGEST = 1e100
"""Larger scores are refused: their squares and sums would overflow."""

PLAIN_ROW = ("correct", "score")


class Choice(NamedTuple):
    """The rows of a log that count, and the metric that is their score."""

    filter: str | None = None
    metric: str | None = None


class Element(NamedTuple):
    """A JSON value of a log at its position, or the reason why it cannot be read."""

    place: str
    value: Any
    problem: str | None = None


class NotALogError(LineError):
    """A file that is not an evaluation log, or that has nothing of the requested filter or task."""


def shape_of(value: Any) -> str | None:
    """Return the shape of a file's object; None if it does not come from an evaluation log."""
    if not isinstance(value, dict):
        return None
    if isinstance(value.get("results"), list):
        return "results"
    if isinstance(value.get("eval"), dict) and "version" in value:
        return "inspect"
    if "doc_id" in value and ("resps" in value or "filtered_resps" in value):
        return "lm-eval"
    if "id" in value and ({*PLAIN_ROW, "error"} & value.keys()):
        return "lines"
    return None


def read_results(name: str, value: Mapping[str, Any]) -> EvalLog:
    """The results of a script: {results: [..], meta: {..}}."""
    meta = object_in(value, "meta")
    cap = whole_in(meta, "max_new_tokens", "max_tokens")
    elements = [Element(f"results[{at}]", each) for at, each in enumerate(value["results"])]
    rows, bad = _read(elements, lambda row: _line_row(row, cap))
    said = {key: as_text(meta[key]) for key in META if meta.get(key) is not None}
    return EvalLog(name, "results", rows, bad, said)


def read_plain(name: str, elements: Iterable[Element]) -> EvalLog:
    """Lines of {id, correct | score, expected?, answer?, text?}."""
    rows, bad = _read(elements, lambda row: _line_row(row, None))
    return EvalLog(name, "lines", rows, bad)


def read_lm_eval(name: str, elements: Iterable[Element], choice: Choice) -> EvalLog:
    """The samples of lm-eval: for each document, the row of one filter (by default the first)."""
    seen: Counter[str] = Counter()
    chosen, metric = choice.filter, choice.metric

    def of_filter(value: Mapping[str, Any]) -> EvalRow | None:
        nonlocal chosen, metric
        own = text_in(value, "filter") or "none"
        seen[own] += 1
        if chosen is None:
            chosen = own
        if own != chosen:
            return None
        metric = metric or _first_metric(value)
        return _lm_eval_row(value, metric)

    rows, bad = _read(elements, of_filter)
    if seen and chosen not in seen:
        raise NotALogError("--filter", f"{name} has no filter {chosen!r}; it has {', '.join(sorted(seen))}")
    _require_metric(name, rows, choice.metric)
    others = tuple(sorted(seen.keys() - {chosen}))
    return EvalLog(name, "lm-eval", rows, bad, {}, chosen, others, metric)


def read_inspect(name: str, header: Mapping[str, Any], elements: Iterable[Element], choice: Choice) -> EvalLog:
    """A log of Inspect. Epochs are samples of one item."""
    spec = object_in(header, "eval")
    config = {**object_in(spec, "model_generate_config"), **object_in(header, "plan", "config")}
    cap, metric = whole_in(config, "max_tokens"), choice.metric

    def read(value: Mapping[str, Any]) -> EvalRow:
        nonlocal metric
        scores = object_in(value, "scores")
        metric = metric or next(iter(scores), None)
        return _inspect_row(value, metric, cap)

    rows, bad = _read(elements, read)
    _require_metric(name, rows, choice.metric)
    said = {key: as_text(each) for key, each in config.items() if each is not None and key not in NOT_GENERATION}
    said |= _task_said(spec)
    steps = [as_text(step["solver"]) for step in array_in(object_in(header, "plan"), "steps") if "solver" in step]
    if steps:
        said["solver"] = ", ".join(steps)
    status = text_in(header, "status")
    remarks = (f"the log of {name} says that its run ended as {status}",) if status not in (None, "success") else ()
    return EvalLog(name, "inspect", rows, bad, said, None, (), metric, remarks)


def _task_said(spec: Mapping[str, Any]) -> dict[str, str]:
    """Return an Inspect log's task version, data, and the limits that end a sample early."""
    limits, task = object_in(spec, "config"), object_in(spec, "task_args")
    found = {
        "task_version": spec.get("task_version"), "dataset": object_in(spec, "dataset").get("name"),
        **{name: limits.get(name) for name in LIMITS}, **{f"task argument {name}": each for name, each in task.items()},
    }  # fmt: skip
    return {name: as_text(each) for name, each in found.items() if each is not None}


# -- rows ----------------------------------------------------------------------------------------------------------------


def _read(elements: Iterable[Element], read: Any) -> tuple[tuple[EvalRow, ...], tuple[BadRow, ...]]:
    rows, bad = list[EvalRow](), list[BadRow]()
    for element in elements:
        try:
            if element.problem is not None:
                raise LineError("", element.problem)  # noqa: TRY301 - one place where bad rows are kept
            row = read(an_object(element.value, ""))
        except LineError as error:
            bad.append(BadRow(element.place, str(error)))
            continue
        if row is not None:
            rows.append(row)
    return tuple(rows), tuple(bad)


def _line_row(value: Mapping[str, Any], cap: int | None) -> EvalRow:
    correct = value.get("correct")
    if correct is not None and correct not in (0, 1):
        raise LineError("correct", f"expected true or false, found {as_text(correct)[:40]}")
    score = _number(value, "score") if correct is None else float(correct)
    return EvalRow(
        id=_id(value, "id"), score=score, error=bool(value.get("error")), expected=_text(value, "expected"),
        predicted=_text(value, "predicted", "answer"), text=_text(value, "gen_text", "text"),
        finish_reason=text_in(value, "finish_reason"), n_tokens=whole_in(value, "n_tokens"),
        max_tokens=whole_in(value, "max_new_tokens", "max_tokens") or cap, question=_question(value),
    )  # fmt: skip


def _lm_eval_row(value: Mapping[str, Any], metric: str | None) -> EvalRow:
    asked = [
        each for call in object_in(value, "arguments").values() if isinstance(call, dict) for each in call.values()
    ]
    generation = next((each for each in asked if isinstance(each, dict)), {})
    protocol = {key: as_text(each) for key, each in generation.items()}
    if text_in(value, "prompt_hash"):
        protocol["prompt_hash"] = value["prompt_hash"]
    return EvalRow(
        id=_id(value, "doc_id"), score=None if metric is None else _number(value, metric), error=bool(value.get("error")),
        expected=_text(value, "target"), predicted=_said(value.get("filtered_resps")), text=_said(value.get("resps")),
        max_tokens=whole_in(generation, "max_gen_toks", "max_tokens", "max_new_tokens"),
        question=text_in(value, "doc_hash"), protocol=protocol,
    )  # fmt: skip


def _first_metric(value: Mapping[str, Any]) -> str | None:
    """Return the first metric that a row names. Older versions name none; then return the first number that is a
    metric.
    """
    named = [each for each in array_in(value, "metrics") if isinstance(each, str)]
    known = [key for key in ("exact_match", "acc", "acc_norm", "f1", "em", "pass@1") if key in value]
    return next(iter(named or known), None)


def _inspect_row(value: Mapping[str, Any], metric: str | None, cap: int | None) -> EvalRow:
    output = object_in(value, "output")
    choice = next((each for each in array_in(output, "choices") if isinstance(each, dict)), {})
    score = object_in(value, "scores").get(metric or "")
    known = score if isinstance(score, dict) else {"value": score}
    target = value.get("target")
    return EvalRow(
        id=_id(value, "id"), score=_grade(known.get("value")), error=bool(value.get("error")),
        expected=as_text(target[0]) if isinstance(target, list) and len(target) == 1 else _text(value, "target"),
        predicted=_text(known, "answer"), text=_completion(output, choice), finish_reason=text_in(choice, "stop_reason"),
        n_tokens=whole_in(object_in(output, "usage"), "output_tokens"), max_tokens=cap,
        question=None if value.get("input") is None else _digest(as_text(value["input"])),
    )  # fmt: skip


def _completion(output: Mapping[str, Any], choice: Mapping[str, Any]) -> str | None:
    """The whole output of the model, without its reasoning."""
    said = output.get("completion")
    if isinstance(said, str) and said:
        return said
    content = object_in(choice, "message").get("content")
    if isinstance(content, list):
        return "".join(
            text_in(part, "text") or "" for part in content if isinstance(part, dict) and part.get("type") == "text"
        )
    return content if isinstance(content, str) else said if isinstance(said, str) else None


def _grade(value: Any) -> float | None:
    if isinstance(value, str):
        return GRADES.get(value)
    return _number({"value": value}, "value")


def _number(value: Mapping[str, Any], name: str) -> float | None:
    found = value.get(name)
    if isinstance(found, bool):
        return float(found)
    number = number_in(value, name)
    if number is None:
        return None
    if not -LARGEST <= number <= LARGEST:
        raise LineError(name, "a number beyond all measure")
    return float(number)


def _said(value: Any) -> str | None:
    """Return the first text in nested lists, or None. A log-likelihood is written as ["-12.5", "False"]."""
    while isinstance(value, list):
        if len(value) == 2 and value[1] in ("True", "False") and isinstance(value[0], str) and _is_real(value[0]):
            return None
        value = value[0] if value else None
    return value if isinstance(value, str) else None


def _is_real(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _text(value: Mapping[str, Any], *names: str) -> str | None:
    """Return the first of these members that exists, as text. 0 is a valid target."""
    return next((as_text(value[name]) for name in names if value.get(name) is not None), None)


def _id(value: Mapping[str, Any], name: str) -> str:
    found = value.get(name)
    if found is None or found == "" or isinstance(found, bool | list | dict):
        raise LineError(name, "missing, or no text and no number")
    return as_text(found)


def _question(value: Mapping[str, Any]) -> str | None:
    asked = text_in(value, "question", "prompt")
    return None if asked is None else _digest(asked)


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _require_metric(name: str, rows: tuple[EvalRow, ...], asked: str | None) -> None:
    if asked is not None and rows and all(row.score is None for row in rows):
        raise NotALogError("--metric", f"no row of {name} has a number called {asked!r}")


def elements_of(values: Iterable[Any], place: str) -> Iterator[Element]:
    """The values of an array with their positions."""
    for at, value in enumerate(values):
        yield Element(f"{place}[{at}]", value)
