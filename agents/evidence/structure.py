"""Rules for a well-formed AEP record: the shape of aep/v0.1 .. v0.5, and the rules between its fields.

Two layers, judged separately. Structural: required fields, types and vocabularies; members that no version names are
accepted, because producers extend records. Semantic: fields that contradict each other, such as an attribution floor
that is not the weakest grade observed. Only certain faults are reported. Every fault names its field; no exception is
raised.
"""

import reprlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

VERSIONS = ("aep/v0.1", "aep/v0.2", "aep/v0.3", "aep/v0.4", "aep/v0.5")
SIDE_EFFECTS = ("read", "mutate-local", "mutate-external", "network-egress", "unknown")
"""Possible side effects of an action, weakest first: an unknown one counts as the worst."""
ATTRIBUTION_GRADES = ("unknown", "operator_asserted", "principal_key_signed", "qualified_signature")
"""Evidence that a person stands behind a run, weakest first."""
CLOSING_SUFFIX = "/ranking"
"""How the run_id of a rollout's last record ends; that record carries `closing`."""

_QUOTES = reprlib.Repr()
_QUOTES.maxstring = _QUOTES.maxother = 120

Check = Callable[[object, str, list[str]], None]
"""Checks a value at its path, and appends its faults."""


def structural_faults(record: object) -> list[str]:
    """Return where the record breaks the schema of its version; empty if it does not."""
    faults: list[str] = []
    _RECORD(record, "", faults)
    if isinstance(record, dict) and record.get("schema_version") == "aep/v0.5":
        _ATTRIBUTION(record, "", faults)
    return faults


def semantic_faults(record: object) -> list[str]:
    """Return the fields that contradict each other; empty if none do."""
    if not isinstance(record, dict):
        return ["the record is not an object"]
    return [*_attribution_faults(record), *_side_effect_faults(record), *_closing_faults(record)]


def closing_of(record: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the summary of the rollout from its last record; None for any other record."""
    run_id, closing = record.get("run_id"), record.get("closing")
    if isinstance(run_id, str) and run_id.endswith(CLOSING_SUFFIX) and isinstance(closing, dict):
        return closing
    return None


def quoted(value: object) -> str:
    """Return a value as a message shows it: escaped, and cut when a producer made it long."""
    return _QUOTES.repr(value)


def printable(name: str) -> str:
    """Return a name that can be encoded and printed, whatever a producer put into it."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


# Semantic rules


def _attribution_faults(record: dict[str, Any]) -> list[str]:
    floor, observed = record.get("run_attribution_backing_floor"), record.get("run_attribution_backing_observed")
    faults = [
        f"{name}: {quoted(record[name])} is not an attribution grade"
        for name in ("attribution_backing", "run_attribution_backing_floor")
        if record.get(name) is not None and record[name] not in ATTRIBUTION_GRADES
    ]
    count = record.get("authorization_evidence_count")
    if count is not None and not _is_count(count):
        faults.append("authorization_evidence_count: must be a non-negative integer")
    if (floor is None) != (observed is None):
        faults.append("run_attribution_backing_floor and run_attribution_backing_observed must come together")
    if observed is not None:
        faults += _observed_faults(floor, observed)
    return faults


def _observed_faults(floor: object, observed: object) -> list[str]:
    name = "run_attribution_backing_observed"
    if not isinstance(observed, list) or not observed:
        return [f"{name}: must list at least one grade"]
    if any(grade not in ATTRIBUTION_GRADES for grade in observed):
        return [f"{name}: has a value that is not an attribution grade"]
    faults = []
    if len(set(observed)) != len(observed):
        faults.append(f"{name}: lists a grade twice")
    weakest = min(observed, key=ATTRIBUTION_GRADES.index)
    if floor is not None and floor != weakest:
        faults.append(f"run_attribution_backing_floor: is {quoted(floor)}, the weakest observed is {weakest!r}")
    return faults


def _side_effect_faults(record: dict[str, Any]) -> list[str]:
    stated = record.get("run_side_effect_class_max")
    if stated not in SIDE_EFFECTS:
        return []
    actions = record.get("actions")
    parts = [record, *(actions if isinstance(actions, list) else [])]
    classes = [part.get("side_effect_class") for part in parts if isinstance(part, dict)]
    worst = max((SIDE_EFFECTS.index(name) for name in classes if name in SIDE_EFFECTS), default=0)
    # A higher maximum than the listed actions show is possible (not every action need be listed); a lower one is not.
    if SIDE_EFFECTS.index(stated) < worst:
        return [f"run_side_effect_class_max: is {stated!r}, but there is {SIDE_EFFECTS[worst]!r} in the record"]
    return []


def _closing_faults(record: dict[str, Any]) -> list[str]:
    closing = closing_of(record)
    if closing is None:
        return []
    faults = []
    if not _is_count(closing.get("records")):
        faults.append("closing.records: must be a non-negative integer")
    if closing.get("head") != record.get("prev_record_hash"):
        faults.append("closing.head: is not prev_record_hash")
    return faults


def _is_count(value: object) -> bool:
    if isinstance(value, float):  # 2.0 is the same JSON number as 2
        return value.is_integer() and value >= 0
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


# Structural rules: small checks, put together into the shape of a record


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _fault(place: str, why: str) -> str:
    return f"{place}: {why}" if place else f"the record {why}"


def _typed(name: str, holds: Callable[[object], bool]) -> Check:
    def check(value: object, place: str, faults: list[str]) -> None:
        if not holds(value):
            faults.append(_fault(place, f"must be {name}"))

    return check


def _one_of(*names: str) -> Check:
    def check(value: object, place: str, faults: list[str]) -> None:
        if not isinstance(value, str) or value not in names:
            faults.append(_fault(place, f"must be one of {', '.join(names)}"))

    return check


def _list_of(item: Check, *, unique: bool = False, least: int = 0) -> Check:
    def check(value: object, place: str, faults: list[str]) -> None:
        if not isinstance(value, list):
            faults.append(_fault(place, "must be a list"))
            return
        if len(value) < least:
            faults.append(_fault(place, f"must have at least {least} item"))
        texts = [entry for entry in value if isinstance(entry, str)] if unique else []
        if len(set(texts)) != len(texts):
            faults.append(_fault(place, "must not repeat an item"))
        for index, entry in enumerate(value):
            item(entry, f"{place}[{index}]", faults)

    return check


def _object(fields: Mapping[str, Check], required: Collection[str] = ()) -> Check:
    def check(value: object, place: str, faults: list[str]) -> None:
        if not isinstance(value, dict):
            faults.append(_fault(place, "must be an object"))
            return
        prefix = f"{place}." if place else ""
        faults.extend(_fault(prefix + name, "is missing") for name in required if name not in value)
        for name, inner in value.items():
            if (field := fields.get(name)) is not None:
                field(inner, prefix + name, faults)

    return check


_TEXT = _typed("a string", lambda value: isinstance(value, str))
_TEXT_OR_NULL = _typed("a string or null", lambda value: value is None or isinstance(value, str))
_NUMBER = _typed("a number", _is_number)
_BOOLEAN = _typed("true or false", lambda value: isinstance(value, bool))
_COUNT = _typed("a non-negative integer", _is_count)
_TEXTS = _list_of(_TEXT)
_GRADE = _one_of(*ATTRIBUTION_GRADES)
_SPENT = _object({"limit": _NUMBER, "spent": _NUMBER}, ["spent"])


def _texts(*names: str) -> dict[str, Check]:
    return dict.fromkeys(names, _TEXT)


_ACTION = _object(
    {
        **_texts("action_id", "tool_name", "precondition_digest", "result_digest", "parent_action_id"),
        **_texts("tool_descriptor_digest", "server_card_digest", "scope_lease_id", "approval_context_hash"),
        **_texts("causal_chain_id", "pre_state_digest", "post_state_digest"),
        **dict.fromkeys(("evidence_refs", "input_taint_labels", "output_taint_labels"), _TEXTS),
        **dict.fromkeys(("memory_read_refs", "memory_write_refs"), _TEXTS),
        "state_changing": _BOOLEAN,
        "timestamp_ms": _NUMBER,
    },
    ["action_id", "tool_name", "state_changing", "timestamp_ms"],
)
_DECISION = _object(
    {
        **_texts("capability", "subject", "resource", "reason_code"),
        "decision": _one_of("allow", "deny", "ask_user", "dry_run"),
    },
    ["capability", "subject", "resource", "decision"],
)
_ENVELOPE = _object(
    {
        **_texts("payloadType", "payload"),
        "signatures": _list_of(_object(_texts("keyid", "sig"), ["keyid", "sig"]), least=1),
    },
    ["payloadType", "payload", "signatures"],
)
_RECORD = _object(
    {
        **_texts("run_id", "trace_id", "repo_commit", "runtime_version", "model_provider", "model_id", "user_id"),
        **_texts("policy_bundle_digest", "tool_manifest_digest", "subject_id"),
        **dict.fromkeys(("parent_trace_id", "mcp_server_card_digest", "prev_record_hash"), _TEXT_OR_NULL),
        "schema_version": _one_of(*VERSIONS),
        "created_at_ms": _NUMBER,
        "input_refs": _list_of(_object({**_texts("uri", "digest"), "taint_labels": _TEXTS}, ["uri"])),
        "output_refs": _list_of(_object(_texts("uri", "digest", "redaction_profile"), ["uri"])),
        "capability_decisions": _list_of(_DECISION),
        "actions": _list_of(_ACTION),
        "verifier_results": _list_of(
            _object(
                {"verifier_id": _TEXT, "passed": _BOOLEAN, "score": _NUMBER, "claim_ids": _TEXTS},
                ["verifier_id", "passed"],
            )
        ),
        "budget_ledger": _object(
            {
                **dict.fromkeys(("token_budget", "tool_budget", "risk_budget"), _SPENT),
                **dict.fromkeys(("retry_budget", "human_approval_budget"), _SPENT),
                "latency_budget": _object({"limit_ms": _NUMBER, "actual_ms": _NUMBER}, ["actual_ms"]),
            }
        ),
        "run_context": _object(
            {
                **_texts("agent_id", "agent_version", "subagent_id", "environment_digest", "dependency_lock_digest"),
                "delegation_chain": _TEXTS,
            }
        ),
        "side_effect_class": _one_of(*SIDE_EFFECTS),
        "run_side_effect_class_max": _one_of(*SIDE_EFFECTS),
        "recording_mode": _one_of("full", "delta", "validation"),
        "argument_drift": _object(
            {**_texts("tool_name", "declared_digest", "actual_digest", "diff_summary"), "drifted_args": _TEXTS}
        ),
        "dsse_envelope": _ENVELOPE,
        "signature": _object(
            {**_texts("alg", "key_id", "sig", "transparency_log_ref"), "bundle": _object({})}, ["alg", "key_id", "sig"]
        ),
    },
    ["schema_version", "run_id", "created_at_ms"],
)
# Members that aep/v0.5 added; in an older record they are extensions, and free.
_ATTRIBUTION = _object(
    {
        "authorized_by": _TEXT,
        # Two spellings are in use for the same two origins.
        "authority_origin": _one_of(
            "subject_consented", "administrator_assigned", "admin_assigned", "organization_wide", "org_wide", "unknown"
        ),
        "identity_source": _one_of(
            "self_asserted", "organization_attested", "notified_eid", "qualified_certificate", "unknown"
        ),
        "attribution_backing": _GRADE,
        "run_attribution_backing_floor": _GRADE,
        "run_attribution_backing_observed": _list_of(_GRADE, unique=True),
        "authorization_evidence_count": _COUNT,
    }
)
