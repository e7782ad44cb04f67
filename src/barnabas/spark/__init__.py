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

PUSH_FILTERS = "spark.sql.python.filterPushdown.enabled"


def register(spark: "SparkSession", *, push_filters: bool | None = None) -> None:
    """Make `format("barnabas")` known to a session.

    `push_filters` sets Spark's switch for them: filters on topic, partition, offset and timestamp then read only
    that part of the log. Spark 4.3 plans what a `load()` gives once, so that it must be filtered in one way only;
    see docs/SPARK.md. None leaves the switch as it is.
    """
    from barnabas.spark.source import BarnabasDataSource

    spark.dataSource.register(BarnabasDataSource)
    if push_filters is not None:
        spark.conf.set(PUSH_FILTERS, str(push_filters).lower())
