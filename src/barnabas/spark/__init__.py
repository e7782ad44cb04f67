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
    """Make `format("barnabas")` known to a session, to be run by a Python that has it."""
    from barnabas.spark.source import BarnabasDataSource
    from barnabas.spark.workers_python import right_python

    with right_python(spark):
        spark.dataSource.register(BarnabasDataSource)
