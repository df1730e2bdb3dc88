"""`braid comply verify`: verdicts of answers in a file."""

import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from streams.commands.console_output import complain, print_json
from streams.commands.options import Flag


def verify(
    file: Annotated[
        Path, Parameter(help="Answers, one JSON object a line; - is standard input.", allow_leading_hyphen=True)
    ],
    /,
    *,
    tasks: list[Path] | None = None,
    semantics: Literal["ifeval", "wasmagent"] = "ifeval",
    loose: Annotated[bool, Flag] = False,
    json: Annotated[bool, Flag] = False,
) -> None:
    """Verify answers against the constraints of their tasks. Calls no model and writes no files.

    A line is an IFEval row with `response`, `{prompt, spec, output}`, or a ComplianceEvalRecord, which needs --tasks. The exit
    code is 1 only where a line is bad; an answer that fails is a result.

    Example: `braid comply verify answers.jsonl --json`

    Parameters
    ----------
    tasks
        Task files of records.
    semantics
        `ifeval`: Google's checks. `wasmagent`: the rules that stored records of that system were made by.
    loose
        Also tell whether any of eight trimmed texts passes.
    json
        Print a JSON object per line, then the summary.
    """
    from streams.jobs.compliance_lines import AnswerVerifier, load_tasks
    from streams.jobs.partition_count import total_bytes
    from streams.log.input_lines import read_lines, require_inputs
    from streams.views.progress import progress

    verifier = AnswerVerifier(load_tasks(tasks) if tasks else {}, semantics, loose=loose)
    require_inputs([file])
    counts = {"lines": 0, "pass": 0, "fail": 0, "unknown": 0, "bad": 0, "constraints": 0, "seconds": 0.0}
    size, read = total_bytes([file]), 0
    with progress() as say:
        for line in read_lines([file]):
            read += len(line.text) + 1
            if not line.text.strip():
                continue
            found = verifier.verify(line)
            counts["lines"] += 1
            counts["seconds"] += found.seconds
            counts[found.view.get("status", "bad")] += 1
            counts["constraints"] += len(found.view.get("constraints", ()))
            if json:
                print_json(found.view)
            else:
                _show(found.view, str(file))
            if size and line.number % 100 == 0:
                say("verifying", read / size)
    counts["seconds"] = round(counts["seconds"], 6)
    if json:
        print_json({"summary": counts})
    else:
        said = ", ".join(f"{counts[name]:,} {name}" for name in ("pass", "fail", "unknown", "bad"))
        sys.stdout.write(f"{counts['lines']:,} lines: {said}; {counts['constraints']:,} constraints\n")
    if counts["bad"]:
        sys.exit(1)


def _show(view: dict[str, object], file: str) -> None:
    from streams.log.terminal_text import visible

    if "error" in view:
        complain(f"{file}:{view['line']}: {visible(str(view['error']))}")
        return
    sys.stdout.write(f"{view['line']}\t{visible(str(view['id']))}\t{view['status']}\n")
    constraints = view["constraints"]
    assert isinstance(constraints, list)
    for each in constraints:
        if each["hint"] is not None:
            sys.stdout.write(f"\t{visible(each['id'])}\t{each['status']}\t{visible(each['hint'])}\n")
