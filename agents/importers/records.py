"""Build records from plain values of other programs: accept the usual spellings, derive ids from content, report
errors by field.
"""

import json
from hashlib import sha256
from typing import Any, Final, TypeVar, get_args

import orjson
from pydantic import ValidationError

from agents.importers.line_error import LineError
from agents.summarize.loose_fields import first
from schemas.base import MAX_ID, MAX_INDEX, Record
from schemas.codec.body import first_problem
from schemas.codec.maker import unchecked
from schemas.jsontext import compact
from schemas.verdicts import BuildVerdict, OutputTail, Stage, VisualVerdict

AnyRecord = TypeVar("AnyRecord", bound=Record)

_build_verdict: Final = unchecked(BuildVerdict)
_output_tail: Final = unchecked(OutputTail)

STAGES: Final = frozenset(get_args(Stage))

_PLAIN: Final = frozenset(
    ("rollout_id", "branch_index", "attempt", "verdict_id", "status", "exit_code", "stage", "stdout", "stderr", "produced_by")
)  # fmt: skip
"""The fields of most build verdicts in files."""

BUILD_STATUS = {
    "success": "success", "pass": "success", "passed": "success", "ok": "success",
    "failure": "failure", "failed": "failure", "fail": "failure", "error": "failure",
    "running": "running", "pending": "running", "building": "running",
    "unknown": "unknown", "skip": "unknown", "skipped": "unknown",
    "infra_error": "infra_error",
}  # fmt: skip
"""Build status by the spelling of several systems."""


class VerdictIds:
    """Ids for verdicts that have none in a file or request: a hash of the content and of its number among equal ones.

    The first of equal verdicts has the id of its content alone. Reading a file again gives the same ids. In the
    sequence pass, fail, pass the last one counts: its id differs from that of the first.
    """

    def __init__(self) -> None:
        self._given: dict[str, int] = {}

    def fill(self, kind: str, value: dict[str, Any]) -> dict[str, Any]:
        """Return the verdict with an id: its own, or the next one for its content."""
        if value.get("verdict_id") is not None:
            return value
        said = {name: content for name, content in value.items() if content is not None}
        verdict_id = content_id(kind, said)
        number = self._given.get(verdict_id, 0)
        self._given[verdict_id] = number + 1
        return value | {"verdict_id": content_id(kind, [said, number]) if number else verdict_id}


def read_build(value: dict[str, Any], ids: VerdictIds | None = None) -> BuildVerdict:
    """Read a build verdict in any of the usual spellings. Raises LineError."""
    said = value.get("status")
    status = BUILD_STATUS.get(said.lower()) if isinstance(said, str) else None
    if status is None:
        raise LineError("status", f"expected one of {', '.join(sorted(set(BUILD_STATUS.values())))}")
    plain = {name: content for name, content in value.items() if name not in ("exitCode", "ranAtMs", "ran_at_ms")}
    plain |= {"status": status, "exit_code": first(value, "exit_code", "exitCode")}
    for stream in ("stdout", "stderr"):
        text = plain.get(stream)
        if isinstance(text, str):
            plain[stream] = {"text": text[-2000:], "digest": sha256(text.encode()).hexdigest()}
    return _build((ids or VerdictIds()).fill("build", plain))


def _build(value: dict[str, Any]) -> BuildVerdict:
    """Return the verdict of these fields. All but the simplest are validated by the model. Raises LineError."""
    rollout_id, verdict_id = value.get("rollout_id"), value.get("verdict_id")
    exit_code, stage, made_by = value.get("exit_code"), value.get("stage"), value.get("produced_by")
    out, err = value.get("stdout"), value.get("stderr")
    if (
        _PLAIN.issuperset(value)
        and is_id(rollout_id)
        and is_id(verdict_id)
        and is_index(value.get("branch_index"))
        and is_index(value.get("attempt"))
        and (exit_code is None or (type(exit_code) is int and -(2**31) <= exit_code < 2**31))
        and (stage is None or (type(stage) is str and stage in STAGES))
        and type(made_by) is str
        and _is_tail(out)
        and _is_tail(err)
    ):
        return _build_verdict(
            rollout_id=rollout_id,
            branch_index=value["branch_index"],
            attempt=value["attempt"],
            verdict_id=verdict_id,
            status=value["status"],
            exit_code=exit_code,
            stage=stage,
            stdout=None if out is None else _output_tail(text=out["text"], digest=out["digest"]),
            stderr=None if err is None else _output_tail(text=err["text"], digest=err["digest"]),
            produced_by=made_by,
        )
    return make(BuildVerdict, value)


def is_id(value: Any) -> bool:
    """Return whether the model accepts a value as an id."""
    return type(value) is str and 0 < len(value) <= MAX_ID


def is_index(value: Any) -> bool:
    """Return whether the model accepts a value as a branch index or an attempt."""
    return type(value) is int and 0 <= value <= MAX_INDEX


def _is_tail(value: Any) -> bool:
    if value is None:
        return True
    return (
        isinstance(value, dict)
        and len(value) == 2
        and type(value.get("text")) is str
        and type(value.get("digest")) is str
    )


def read_visual(value: dict[str, Any], ids: VerdictIds | None = None) -> VisualVerdict:
    """Read a visual verdict in any of the usual spellings. Raises LineError."""
    plain = {
        _VISUAL_NAMES.get(name, name): content
        for name, content in value.items()
        if name not in ("ranAtMs", "ran_at_ms")
    }
    said = plain.get("verdict")
    if isinstance(said, dict):  # {matchesIntent, reason}
        matches = first(said, "matchesIntent", "matches_intent")
        plain["verdict"] = {True: "pass", False: "fail"}.get(matches) if isinstance(matches, bool) else None
        plain.setdefault("reason", said.get("reason"))
    for name in ("console_errors", "uncaught_errors"):
        entries = plain.get(name)
        if isinstance(entries, list):
            plain[name] = [
                entry.get("message", compact(entry)) if isinstance(entry, dict) else entry for entry in entries
            ]
    said = {name: content for name, content in plain.items() if content is not None}
    return make(VisualVerdict, (ids or VerdictIds()).fill("visual", said))


_VISUAL_NAMES = {
    "consoleErrors": "console_errors", "uncaughtErrors": "uncaught_errors", "domProbes": "dom_probes",
    "rendersNonEmpty": "renders_non_empty", "screenshotDigest": "screenshot_digest",
}  # fmt: skip


def content_id(kind: str, value: object) -> str:
    """Return an id computed from the content."""
    try:
        text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # an integer beyond 64 bits
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    return sha256(kind.encode() + b"\0" + text).hexdigest()[:32]


def make(
    record: type[AnyRecord], value: dict[str, Any], prefix: str = "", renamed: dict[str, str] | None = None
) -> AnyRecord:
    """Build a record from plain values. Raises LineError with the field name that the sender used."""
    try:
        return record.model_validate(value)
    except ValidationError as error:
        field, _, reason = first_problem(error).partition(": ")
        raise LineError(prefix + (renamed or {}).get(field, field), reason) from None
