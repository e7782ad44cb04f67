"""Topics as Spark tables and streams: `spark.read.format("barnabas")`, with the options of Spark's Kafka source.

    from barnabas.spark import register

    register(spark)
    orders = (
        spark.read.format("barnabas")
        .option("kafka.bootstrap.servers", "localhost:9092")
        .option("subscribe", "orders")
        .load()
    )

Needs the extra: `pip install barnabas[spark]`, and Java 17 or newer.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: "SparkSession") -> None:
    """Make `format("barnabas")` known to a session."""
    from barnabas.spark.source import BarnabasDataSource

    spark.dataSource.register(BarnabasDataSource)
