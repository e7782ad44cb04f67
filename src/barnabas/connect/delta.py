"""Delta tables, where Spark has Delta Lake. A batch carries its id into the table's log, so that it counts once."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.connect.connector import Batch, Sink, StreamSource, connector
from barnabas.connect.database import told_plainly
from barnabas.connect.option import ConnectError, option

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from barnabas.streams import Stream

_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"


@connector("delta")
@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaSource(StreamSource):
    """Rows that are added to a Delta table."""

    path: str = option("The table's folder.", example="tables/orders")
    max_files: int = option("How many files a batch takes at most.", 1000, least=1)

    def guarantee(self) -> str:
        return "each row once"

    def stream(self, spark: "SparkSession", bad: str) -> "Stream":
        from barnabas.streams import Stream
        from barnabas.streams.refusals import analysed

        require_delta(spark)
        with analysed(step=f"Reading {self.path}"):
            reader = spark.readStream.format("delta").option("maxFilesPerTrigger", self.max_files)
            return Stream.of(reader.load(self.path))


@connector("delta")
@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaSink(Sink):
    """Rows of a Delta table, which is made if it is not there."""

    path: str = option("The table's folder.", example="tables/orders")
    partition_by: tuple[str, ...] = option("Columns whose values become subfolders.", ())

    def guarantee(self) -> str:
        return "exactly once"

    def write(self, frame: "DataFrame", batch: Batch, *, keep_refused: bool = False) -> None:
        require_delta(frame.sparkSession)
        writer = frame.write.format("delta").mode("append")
        # Delta passes over a version that it has from the same application.
        writer = writer.option("txnAppId", batch.origin).option("txnVersion", batch.number)
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        with told_plainly(f"Writing to {self.path} with Delta Lake, which has to be the one for this Spark"):
            writer.save(self.path)


def require_delta(spark: "SparkSession") -> None:
    """Without its jars Spark would only say that there is no data source of that name."""
    if _EXTENSION in spark.conf.get("spark.sql.extensions", ""):
        return
    raise ConnectError(
        f"Delta tables need Delta Lake in Spark: its jars, and spark.sql.extensions={_EXTENSION}; Delta Lake 4.4 is "
        f"built for Spark 4.0 to 4.2 (this is {spark.version})."
    )
