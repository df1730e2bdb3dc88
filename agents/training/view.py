"""A training row as JSON: messages without the fields that do not apply to them, as trainers write them."""

from typing import Any

from schemas.training import DpoRecord, PpoRecord, SftRecord

_MESSAGES = {SftRecord: ("messages",), DpoRecord: ("prompt", "chosen", "rejected"), PpoRecord: ("prompt", "completion")}


def row_view(row: SftRecord | DpoRecord | PpoRecord) -> dict[str, Any]:
    """The row; reading it back gives the same record, because what is left out is its default."""
    plain = row.plain()
    for name in _MESSAGES[type(row)]:
        plain[name] = [_message(message) for message in plain[name]]
    return plain


def _message(message: dict[str, Any]) -> dict[str, Any]:
    # `content` stays even when it is null: loaders look for it.
    return {name: value for name, value in message.items() if name in ("role", "content") or value not in (None, ())}
