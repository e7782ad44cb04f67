"""The data source `barnabas`: what Spark makes when it sees the format's name, and asks for readers and writers."""

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from barnabas.spark.options import Use, includes_headers, read_options
from barnabas.spark.plainly import plainly
from barnabas.spark.reader import BatchReader
from barnabas.spark.schema import full_schema
from barnabas.spark.stream_reader import StreamReader


class BarnabasDataSource(DataSource):
    """Topics of Barnabas, or of Apache Kafka, as tables and streams."""

    @classmethod
    def name(cls) -> str:
        return "barnabas"

    def schema(self) -> StructType:
        with plainly():
            return full_schema(headers=includes_headers(self.options))

    def reader(self, schema: StructType) -> BatchReader:
        with plainly():
            return BatchReader(read_options(self.options, Use.BATCH), schema)

    def streamReader(self, schema: StructType) -> StreamReader:
        with plainly():
            return StreamReader(read_options(self.options, Use.STREAM), schema)
