"""The columns of `format("barnabas")`: Spark's Kafka source has the same. Which of them a query wants.

Used by the readers. Always holds: a batch of records leaves with exactly the names, order and types that Spark expects.
"""

from difflib import get_close_matches
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from barnabas.errors import BarnabasError
from barnabas.spark.installed import arrow_schema

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])

TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(_HEADER),
}


def full_schema(*, headers: bool) -> StructType:
    """What is read where no schema is given."""
    return StructType(
        [StructField(name, kind) for name, kind in TYPES.items() if headers or name != "headers"]
    )


def checked(schema: StructType) -> StructType:
    """The schema, if every column of it is one of ours; a sentence otherwise."""
    for column in schema:
        wanted = TYPES.get(column.name)
        if wanted is None:
            near = get_close_matches(column.name, TYPES, n=1)
            hint = f"; did you mean {near[0]}?" if near else f", only {', '.join(TYPES)}."
            raise BarnabasError(f"There is no column {column.name!r}{hint}")
        if column.dataType != wanted:
            raise BarnabasError(
                f"The column {column.name} is {wanted.simpleString()}, not {column.dataType.simpleString()}: "
                "cast it after reading."
            )
    return schema


class Shape:
    """Brings batches of records into the form of a schema."""

    def __init__(self, schema: StructType) -> None:
        self._schema = arrow_schema(schema)
        self.columns: list[str] = schema.fieldNames()

    def __call__(self, batch: Any) -> Any:
        """Nothing is copied; only names of inner fields may differ."""
        arrays = []
        for field in self._schema:
            array = batch.column(field.name)
            arrays.append(array if array.type.equals(field.type) else array.cast(field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
