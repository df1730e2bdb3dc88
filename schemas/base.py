"""The base of every record: frozen, closed to unknown fields, and an Avro record of the namespace `braidstream`.

The pydantic model is the source. Its Avro is generated from it and committed under `schemas/avro/`, one file per version
(`schemas/versions.py`), so that a reader of the log never needs this code.
"""

from typing import TYPE_CHECKING, Annotated, Any

from dataclasses_avroschema.pydantic import AvroBaseModel
from pydantic import ConfigDict, Field

MAX_ID = 256
"""Characters of an id: it is a Kafka key, a file name part and a URL part."""

MAX_EXACT = 2**53 - 1
"""The largest integer that JSON readers in every language hold exactly."""

Id = Annotated[str, Field(min_length=1, max_length=MAX_ID)]
"""An id that comes from outside: kept as it is, never parsed."""

MAX_INDEX = 99_999
"""The highest branch index or attempt."""

Index = Annotated[int, Field(strict=True, ge=0, le=MAX_INDEX)]
"""A branch index or an attempt, counted from 0. Like all whole numbers here strict: true is not 1, and neither is "1"."""

Count = Annotated[int, Field(strict=True, ge=0, le=MAX_EXACT)]
"""A number of things, a sequence number, or a duration in milliseconds."""

Whole = Annotated[int, Field(strict=True, ge=-(2**63), le=2**63 - 1)]
"""Any whole number that Avro's long holds."""

Millis = Annotated[int, Field(strict=True, ge=-MAX_EXACT, le=MAX_EXACT)]
"""A time: milliseconds since 1970-01-01 UTC."""

Share = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
"""A share or probability."""

Real = Annotated[float, Field(allow_inf_nan=False)]
"""A number that has a JSON form: never NaN, never infinite."""

Json = str
"""JSON as text. Free-form values travel as text: lossless, and never a union of records."""


if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(AvroBaseModel)


class _Kind(ModelMetaclass):
    """Lets `isinstance` look at the class alone: pydantic's own asks for virtual subclasses, and a fold asks by the million."""

    __instancecheck__ = type.__instancecheck__


class Record(AvroBaseModel, metaclass=_Kind):
    """The base of all records: immutable, strict about field names."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    class Meta:
        """Where the generated Avro lives."""

        namespace = "braidstream"

    def __eq__(self, other: object) -> bool:
        """Equal is what has the same type and values: a record has nothing else."""
        return self is other or (type(self) is type(other) and self.__dict__ == other.__dict__)

    __hash__ = None  # type: ignore[assignment]  # pydantic gives every frozen model its own

    def plain(self) -> dict[str, Any]:
        """The record as plain Python values: what Avro encodes and what JSON views start from."""
        return self.model_dump(mode="python")
