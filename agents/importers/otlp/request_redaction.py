"""Remove secrets from all attribute texts, names and messages of an export request before it reaches the log."""

from typing import Any

from google.protobuf.message import DecodeError, Message

from agents.importers.line_error import LineError
from agents.importers.otlp.request_split import Signal
from agents.redaction.redaction import redact_json


def redacted(body: bytes, signal: Signal) -> bytes:
    """Return the request without secrets. Raises LineError for bytes that are not a request."""
    try:
        request = signal.request.FromString(body)
    except DecodeError as error:
        raise LineError("", f"no export request in protobuf: {error}") from None
    _redact(request)
    return bytes(request.SerializeToString())


def _redact(message: Message) -> None:
    waiting: list[Any] = [message]
    while waiting:
        each = waiting.pop()
        fields = each.ListFields()
        if each.DESCRIPTOR.name == "KeyValue" and each.value.WhichOneof("value") == "string_value":
            told = redact_json({each.key: each.value.string_value}).value[each.key]
            if told != each.value.string_value:
                each.value.string_value = told
            continue
        for field, value in fields:
            if field.type == field.TYPE_MESSAGE:
                waiting += value if field.is_repeated else [value]
            elif field.type == field.TYPE_STRING and not field.is_repeated:
                told = redact_json(value).value
                if told != value:
                    setattr(each, field.name, told)
