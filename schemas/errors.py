"""The root of every expected failure, and the ones that records themselves can raise.

A message says what is wrong, where (topic/partition/offset, or file:line), and what to do about it. The command line
prints the message of a `BraidError` and nothing else; anything that is not one is a bug and shows its traceback.
"""


class BraidError(Exception):
    """An expected failure: shown to a person as it is, without a traceback."""


class DecodeError(BraidError):
    """Bytes that are not the record their topic promises: truncated, foreign, or of an unknown schema."""


class SchemaError(BraidError):
    """Models, committed Avro files and the registry do not agree."""
