"""Build records without validation, for values we computed ourselves."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar

from pydantic_core import PydanticUndefined

from schemas.base import Record
from schemas.codec.plan import Model, model_of

P = ParamSpec("P")
R = TypeVar("R")


def unchecked(record: Callable[P, R]) -> Callable[P, R]:
    """Return a maker of records, which validates and converts nothing.

    It takes the same arguments as the model, by name. For values that we compute by the thousand; bytes from outside
    are validated.
    """
    assert isinstance(record, type)
    assert issubclass(record, Record)
    fields = record.model_fields
    blank = {name: None if field.default_factory else field.default for name, field in fields.items()}
    fresh = tuple(name for name, field in fields.items() if field.default_factory)
    make: Callable[P, R] = _maker(model_of(record), blank, fresh, PydanticUndefined)
    return make


class Maker:
    """Makes instances of a model, as `_avro.c` does."""

    def __init__(self, model: Model, blank: dict[str, Any], fresh: tuple[str, ...], missing: object) -> None:
        self._model = model
        self._blank = blank
        """All fields, with their defaults or with placeholders."""
        self._fresh = fresh
        """The fields that get a new dict each time."""
        self._needed = frozenset(name for name, value in blank.items() if value is missing)
        self._slots = [
            (slot.__set__, value) for slot, value in zip(model.slots, (model.names, None, None), strict=True)
        ]

    def __call__(self, **given: Any) -> Any:
        """Return the record of these values. Raises TypeError when one is missing or unknown."""
        values = self._blank | given
        for name in self._fresh:
            if values[name] is None:
                values[name] = {}
        if len(values) != len(self._blank):
            raise TypeError(f"{self._model.record.__name__} has no such field")
        if not self._needed <= given.keys():
            first = next(name for name in self._blank if name in self._needed and name not in given)
            raise TypeError(f"{self._model.record.__name__} needs {first}")
        made = _new(self._model.record)
        _set(made, "__dict__", values)
        for put, value in self._slots:
            put(made, value)
        return made


_new, _set = object.__new__, object.__setattr__


_maker: Any = Maker
with suppress(ImportError):
    from schemas.codec import _avro

    _maker = _avro.Maker
