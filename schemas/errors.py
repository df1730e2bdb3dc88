"""The root of every expected failure, and the errors that records themselves can raise.

A message has the fault, its position (topic/partition/offset, or file:line), and the remedy. The command line
prints the message of a `BraidError` and nothing else; anything that is not one is a bug and shows its traceback.
"""


class BraidError(Exception):
    """An expected failure: shown to a person unchanged, without a traceback."""


class DecodeError(BraidError):
    """Bytes that are not the record their topic promises: truncated, foreign, or of an unknown schema."""


class SchemaError(BraidError):
    """Models, committed Avro files and the registry do not agree."""
