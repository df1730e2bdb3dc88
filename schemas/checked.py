"""Records without pydantic, of values that are right because of where they come from."""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from pydantic_core import PydanticUndefined

from schemas.avro_plan import Model, model_of
from schemas.avro_python import instance
from schemas.base import Record
from schemas.compiled import compiled

P = ParamSpec("P")
R = TypeVar("R")

_C = compiled("schemas._records")


def unchecked(record: Callable[P, R]) -> Callable[P, R]:
    """A maker of records: nothing is tested and nothing converted.

    It takes what the model takes, by name. For what we compute ourselves by the thousand; bytes from outside are tested.
    """
    assert isinstance(record, type)
    assert issubclass(record, Record)
    fields = record.model_fields
    blank = {name: None if field.default_factory else field.default for name, field in fields.items()}
    fresh = tuple(name for name, field in fields.items() if field.default_factory)
    make: Callable[P, R] = _maker(model_of(record), blank, fresh, PydanticUndefined)
    return make


class Maker:
    """Makes instances of a model: what `_records.c` does, in Python."""

    def __init__(self, model: Model, blank: dict[str, Any], fresh: tuple[str, ...], missing: object) -> None:
        self._model = model
        self._blank = blank
        """All fields: with their defaults, or with what stands for none."""
        self._fresh = fresh
        """The fields that get a new dict each time."""
        self._missing = missing

    def __call__(self, **given: Any) -> Any:
        """The record of these values. Raises TypeError when one is missing or unknown."""
        values = self._blank | given
        for name in self._fresh:
            values[name] = {} if values[name] is None else values[name]
        if len(values) != len(self._blank):
            raise TypeError(f"{self._model.record.__name__} has no such field")
        for name, value in values.items():
            if value is self._missing:
                raise TypeError(f"{self._model.record.__name__} needs {name}")
        return instance(self._model, values)


_maker: Any = Maker if _C is None else _C.Maker
