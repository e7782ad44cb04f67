"""Writes tables and streams to topics: executors send Arrow columns through the producer, with its partitioner.

Always holds: a task that ends well has had every row of its acknowledged. A task or a batch that Spark repeats is
written again: at least once, until there are transactions.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

from barnabas.client.producer.producer import Producer
from barnabas.errors import BarnabasError
from barnabas.spark.options import WriteOptions
from barnabas.spark.worker import plainly, settle_in

log = logging.getLogger(__name__)

_BYTES = (BinaryType, StringType)
_TYPES: dict[str, tuple[tuple[type[DataType], ...], str]] = {
    "key": (_BYTES, "binary or string"),
    "value": (_BYTES, "binary or string"),
    "topic": ((StringType,), "string"),
    "partition": ((IntegerType, LongType, ShortType), "int"),
    "headers": ((ArrayType,), "array<struct<key:string,value:binary>>"),
}
_HEADERS = "array<struct<key:string,value:binary>>"


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What a task tells the driver: how many rows it has written, all acknowledged."""

    rows: int


class TableWriter:
    """What batch and streaming writes have in common: sends the rows of one task."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        self._columns = _checked(schema, options.topic)

    def write(self, batches: Iterator[Any]) -> Written:
        settle_in()
        first = next(batches, None)
        if first is None:
            return Written(0)  # many tasks behind a shuffle have nothing: no reason to ask a broker
        rows = 0
        options = self._options
        settings = {"client_id": "barnabas-spark", **options.client}
        with plainly(), Producer(bootstrap_servers=options.bootstrap, **settings) as producer:
            for batch in chain([first], batches):
                rows += batch.num_rows
                for topic, part in self._by_topic(batch):
                    producer.send_table(topic, part, **self._columns)
            producer.flush()  # raises what was refused
        return Written(rows)

    def _by_topic(self, batch: Any) -> Iterator[tuple[str, Any]]:
        """The rows of each topic, in their order."""
        if self._options.topic is not None:
            yield self._options.topic, batch
            return
        topics = batch.column("topic")
        for topic in topics.unique().to_pylist():
            if topic is None:
                raise BarnabasError(
                    "A row has no topic: give the option topic, or fill the column topic in every row."
                )
            here = pc.equal(topics, topic)
            yield topic, batch if pc.all(here).as_py() else batch.filter(here)


class BatchWriter(DataSourceArrowWriter):
    """Appends a table to topics."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._writer = TableWriter(options, schema)

    def write(self, iterator: Iterator[Any]) -> Written:
        return self._writer.write(iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    """Appends each batch of a stream to topics."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._writer = TableWriter(options, schema)

    def write(self, iterator: Iterator[Any]) -> Written:
        return self._writer.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        # Each batch is committed in a process of its own: the first batch is the only moment that comes once.
        if batchId == 0:
            log.warning(
                "Rows are written at least once: a batch that is repeated after a failure is written again."
            )


def _checked(schema: StructType, topic: str | None) -> dict[str, str]:
    """The columns that are sent, if they can be; others are passed over, as Spark's Kafka sink does."""
    there = {field.name: field.dataType for field in schema}
    if "value" not in there:
        raise BarnabasError(
            "There is no column value to write: name one, as in select(to_json(struct('*')).alias('value'))."
        )
    if topic is None and "topic" not in there:
        raise BarnabasError("Nothing says which topic to write to: give the option topic, or a column topic.")
    for name, (kinds, wanted) in _TYPES.items():
        found = there.get(name)
        if found is None:
            continue
        fits = isinstance(found, kinds) and (name != "headers" or found.simpleString() == _HEADERS)
        if not fits:
            raise BarnabasError(f"The column {name} must be {wanted}, not {found.simpleString()}: cast it.")
    return {name: name for name in _TYPES if name in there and name != "topic"}
