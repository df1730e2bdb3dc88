"""The details of the verdict `hacks` as JSON, and their parser. A verifier writes them, and the fold reads them."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from schemas.errors import BraidError
from schemas.jsontext import compact, parse
from schemas.rankings import HackSignal

HACKS: Final = "hacks"
"""The name of the check."""

MAX_DETAILS = 64 * 1024
"""Maximum bytes of the details. A longer text is not read."""


class DetailsError(BraidError):
    """The details of a verdict do not have the shape that its name requires."""


def as_json(signal: HackSignal) -> dict[str, Any]:
    """Return a signal as JSON, without unknown fields. Its kind is named `class`."""
    values = {"rule": signal.rule, "class": signal.kind, "source": signal.source}
    more = {name: getattr(signal, name) for name in ("path", "line", "seq", "turn")}
    return {**values, **{name: value for name, value in more.items() if value is not None}, "evidence": signal.evidence}


def details_of(signals: Iterable[HackSignal], looks: Iterable[Mapping[str, Any]]) -> str:
    """Return the details of a verdict."""
    return compact({"signals": [as_json(each) for each in signals], "looks": [dict(each) for each in looks]})


def signals_of(details: str | None) -> tuple[HackSignal, ...]:
    """Return the signals in a verdict's details. Raises DetailsError."""
    if details is None:
        return ()
    if len(details.encode()) > MAX_DETAILS:
        raise DetailsError(f"details: over {MAX_DETAILS} bytes")
    try:
        found = parse(details)
        signals = found.get("signals", []) if isinstance(found, dict) else None
        if not isinstance(signals, list):
            raise DetailsError("details: expected an object with a list `signals`")
        return tuple(_signal(each) for each in signals)
    except (ValueError, TypeError) as error:
        raise DetailsError(f"details: {error}") from None


def looks_of(details: str | None) -> list[dict[str, Any]]:
    """Return the looks in a verdict's details; none if the details cannot be read."""
    try:
        found = parse(details or "{}")
    except ValueError:
        return []
    looks = found.get("looks") if isinstance(found, dict) else None
    return [each for each in looks if isinstance(each, dict)] if isinstance(looks, list) else []


def _signal(value: Any) -> HackSignal:
    if not isinstance(value, dict):
        raise DetailsError("details: a signal is an object")
    known = {("kind" if name == "class" else name): given for name, given in value.items()}
    return HackSignal.model_validate(known)


def status_of(signals: Iterable[HackSignal]) -> str:
    """Return the strongest class of the signals: confirmed, suspected (judged ranks the same), or clean if there are
    none.
    """
    kinds = {each.kind for each in signals}
    return "confirmed" if "confirmed" in kinds else "suspected" if kinds else "clean"
