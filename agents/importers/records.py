"""Records from plain values that somebody else wrote: the usual spellings, ids from content, errors by field."""

import json
from hashlib import sha256
from typing import Any, TypeVar

import orjson
from pydantic import ValidationError

from agents.importers.line_error import LineError
from agents.summarize.loose_fields import first
from schemas.avro_body import first_problem
from schemas.base import Record
from schemas.jsontext import compact
from schemas.verdicts import BuildVerdict, VisualVerdict

AnyRecord = TypeVar("AnyRecord", bound=Record)

BUILD_STATUS = {
    "success": "success", "pass": "success", "passed": "success", "ok": "success",
    "failure": "failure", "failed": "failure", "fail": "failure", "error": "failure",
    "running": "running", "pending": "running", "building": "running",
    "unknown": "unknown", "skip": "unknown", "skipped": "unknown",
    "infra_error": "infra_error",
}  # fmt: skip
"""How builds report themselves, in the words of several systems."""


class VerdictIds:
    """Ids for verdicts of one file or request that have none: a function of content and of its number among equal ones.

    The first of equal verdicts has the id of its content alone. A file that is read again gives the same ids, and of
    pass, fail, pass the last one counts: it is not the first one again.
    """

    def __init__(self) -> None:
        self._given: dict[str, int] = {}

    def fill(self, kind: str, value: dict[str, Any]) -> dict[str, Any]:
        """The verdict with an id: its own, or the next one of its content."""
        if value.get("verdict_id") is not None:
            return value
        said = {name: content for name, content in value.items() if content is not None}
        verdict_id = content_id(kind, said)
        number = self._given.get(verdict_id, 0)
        self._given[verdict_id] = number + 1
        return value | {"verdict_id": content_id(kind, [said, number]) if number else verdict_id}


def read_build(value: dict[str, Any], ids: VerdictIds | None = None) -> BuildVerdict:
    """A build verdict in any of the usual spellings. Raises LineError."""
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
    return make(BuildVerdict, (ids or VerdictIds()).fill("build", plain))


def read_visual(value: dict[str, Any], ids: VerdictIds | None = None) -> VisualVerdict:
    """A visual verdict in any of the usual spellings. Raises LineError."""
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
    """An id that is a function of content."""
    try:
        text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # an integer beyond 64 bits
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    return sha256(kind.encode() + b"\0" + text).hexdigest()[:32]


def make(
    record: type[AnyRecord], value: dict[str, Any], prefix: str = "", renamed: dict[str, str] | None = None
) -> AnyRecord:
    """A record from plain values. Raises LineError with the field as its sender calls it."""
    try:
        return record.model_validate(value)
    except ValidationError as error:
        field, _, reason = first_problem(error).partition(": ")
        raise LineError(prefix + (renamed or {}).get(field, field), reason) from None
