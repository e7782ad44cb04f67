"""The data source `barnabas`: what Spark makes when it sees the format's name, and asks for readers and writers.

Each question comes in a process of its own, which imports what it needs and no more: a query waits for it.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from barnabas.errors import BarnabasError
from barnabas.spark.declared import Use
from barnabas.spark.installed import has_read_limits
from barnabas.spark.options import includes_headers, read_options, write_options
from barnabas.spark.schema import full_schema
from barnabas.spark.worker import plainly

if TYPE_CHECKING:
    from barnabas.spark.reader import BatchReader
    from barnabas.spark.stream_reader import RefusingReader, StreamReader
    from barnabas.spark.writer import BatchWriter, StreamWriter


class BarnabasDataSource(DataSource):
    """Topics of Barnabas, or of Apache Kafka, as tables and streams."""

    @classmethod
    def name(cls) -> str:
        return "barnabas"

    def schema(self) -> StructType:
        with plainly():
            return full_schema(headers=includes_headers(self.options))

    def reader(self, schema: StructType) -> "BatchReader":
        from barnabas.spark.reader import BatchReader

        with plainly():
            return BatchReader(read_options(self.options, Use.BATCH), schema)

    def streamReader(self, schema: StructType) -> "StreamReader | RefusingReader":
        with plainly():
            try:
                return stream_reader()(read_options(self.options, Use.STREAM), schema)
            except BarnabasError as error:
                if has_read_limits():
                    raise
                from barnabas.spark.stream_reader import RefusingReader

                return RefusingReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> "BatchWriter":
        from barnabas.spark.writer import BatchWriter

        with plainly():
            if overwrite:
                raise BarnabasError("A topic cannot be overwritten: say mode('append').")
            return BatchWriter(write_options(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "StreamWriter":
        from barnabas.spark.writer import StreamWriter

        # In output mode complete Spark asks to overwrite; every result is another record then, as in its Kafka sink.
        with plainly():
            return StreamWriter(write_options(self.options), schema)


def stream_reader() -> "type[StreamReader]":
    """The one for this version of Spark."""
    if has_read_limits():
        from barnabas.spark.limited_stream_reader import LimitedReader

        return LimitedReader
    from barnabas.spark.stream_reader import UnlimitedReader

    return UnlimitedReader
